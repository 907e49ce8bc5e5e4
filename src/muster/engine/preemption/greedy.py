"""A good victim set for pods of one shape, quickly: by gain and cost, then giving back what need not go.

Source of the idea and its figures: engine-algorithms.md 5. It is optimal in more than half of the cases and the start
of the exact search in all others.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.problem import Problem

_MOST_NEIGHBOURS = 256


class Greedy:
    """Finds sets in one problem; what does not depend on the costs is worked out once."""

    def __init__(self, problem: Problem) -> None:
        self._places = _Places(problem)

    def find(self, allowed: Bools, costs: Ints) -> Bools | None:
        """bool[U]: a set within `allowed` that makes enough room and of which none can stay; None if none does.

        `costs` [U] ≥ 1 of each unit. The units with the least cost for each place gained go first; a part of a place
        counts as such, so that units that only help together are found.
        """
        places, need = self._places, self._places.problem.need
        state = _State(places)
        rates = np.where(allowed, places.gains / costs, 0.0)
        units = np.flatnonzero(rates > 0)
        heap = list(zip((-rates[units]).tolist(), costs[units].tolist(), units.tolist(), strict=True))
        heapq.heapify(heap)
        order: list[int] = []
        idle: dict[int, None] = {}
        while state.total < need:
            if not heap:
                if not idle:
                    return None
                # Nothing helps alone any more: what is left may help together.
                order.append(idle.popitem()[0])
                state.evict(order[-1])
                continue
            _, cost, unit = heapq.heappop(heap)
            if state.is_out(unit):
                continue
            now = -state.rate(unit, costs)
            if now >= 0:
                idle[unit] = None
            elif heap and now > heap[0][0]:
                heapq.heappush(heap, (now, cost, unit))
            else:
                state.evict(unit)
                order.append(unit)
                idle.pop(unit, None)
                for other in places.neighbours(unit):  # a node that is begun is worth finishing
                    if allowed[other] and not state.is_out(other):
                        heapq.heappush(heap, (-state.rate(other, costs), int(costs[other]), other))
        return _without_needless(state, order, costs)


def _without_needless(state: _State, order: list[int], costs: Ints) -> Bools:
    """Gives units back, the costliest first, as long as enough room is left."""
    problem = state.places.problem
    chosen = np.zeros(len(problem.units), dtype=np.bool_)
    chosen[order] = True
    for unit in sorted(order, key=lambda unit: (-int(costs[unit]), unit)):
        state.spare(unit)
        if state.total >= problem.need:
            chosen[unit] = False
        else:
            state.evict(unit)
    return chosen


class _Places:
    """Which units are where, and what each gains alone. `gains` float[U]: parts of places included.

    Lists of numbers, since a step looks at few nodes: `releases` by entry, `free` and `caps` by node, `request`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        asked = np.flatnonzero(problem.requests[0])
        self.request: list[int] = problem.requests[0][asked].tolist()
        self.free: list[list[int]] = problem.free[:, asked].tolist()
        self.releases: list[list[int]] = problem.releases[:, asked].tolist()
        self.rows: list[int] = problem.rows.tolist()
        self.caps: list[int] = problem.caps[:, 0].tolist()
        self.room: list[int] = problem.room(np.zeros(len(problem.units), dtype=np.bool_)).tolist()
        self.blocked: dict[int, dict[int, int]] = {}
        for blocker in problem.blockers:
            self.blocked.setdefault(blocker.row, {})[blocker.unit] = blocker.most
        bounds = np.searchsorted(problem.at, np.arange(len(problem.units) + 1))
        self.entries = [range(start, end) for start, end in pairwise(bounds.tolist())]
        self._by_row = np.argsort(problem.rows, kind="stable")
        self._starts = np.searchsorted(problem.rows[self._by_row], np.arange(len(problem.free) + 1))
        gained = _worth(problem, problem.free[problem.rows] + problem.releases)
        gained -= _worth(problem, problem.free[problem.rows])
        self.gains = np.bincount(problem.at, gained, minlength=len(problem.units))
        for blocker in problem.blockers:
            self.gains[blocker.unit] += 0.5

    def neighbours(self, unit: int) -> list[int]:
        """The units that share a node with it where more fits by now, or might; at most a few hundred."""
        found: dict[int, None] = {}
        for entry in self.entries[unit]:
            row = self.rows[entry]
            on_row = self._by_row[self._starts[row] : self._starts[row + 1]]
            found.update(dict.fromkeys(self.problem.at[on_row].tolist()))
            if len(found) >= _MOST_NEIGHBOURS:
                break
        return list(found)[:_MOST_NEIGHBOURS]

    def worth(self, row: int, free: list[int]) -> float:
        """How often the request fits; a part of a place counts by its square, up to the cap."""
        times = max(0.0, min(left / each for left, each in zip(free, self.request, strict=True)))
        whole = int(times)
        return min(whole + (times - whole) ** 2, self.caps[row])


def _worth(problem: Problem, free: Ints) -> NDArray[np.float64]:
    """`worth` for what is free at each entry."""
    asked = np.flatnonzero(problem.requests[0])
    times = (np.maximum(free[:, asked], 0) / problem.requests[0][asked]).min(axis=1)
    whole = np.floor(times)
    worth: NDArray[np.float64] = np.minimum(whole + (times - whole) ** 2, problem.caps[problem.rows, 0])
    return worth


class _State:
    """What is free now, and how many pods fit where."""

    def __init__(self, places: _Places) -> None:
        self.places = places
        self._free = list(places.free)  # rows are replaced, not written
        self._room = list(places.room)
        self.total = sum(self._room)
        self._out = [False] * len(places.problem.units)

    def rate(self, unit: int, costs: Ints) -> float:
        """Places gained by evicting the unit, parts of places included, for its cost."""
        places, gain = self.places, 0.0
        for entry in places.entries[unit]:
            row = places.rows[entry]
            free = self._free[row]
            after = [left + more for left, more in zip(free, places.releases[entry], strict=True)]
            gain += places.worth(row, after) - places.worth(row, free)
            if unit in places.blocked.get(row, ()):
                gain += 0.5
        return gain / int(costs[unit])

    def is_out(self, unit: int) -> bool:
        """Whether the unit is evicted."""
        return self._out[unit]

    def evict(self, unit: int) -> None:
        self._change(unit, 1)

    def spare(self, unit: int) -> None:
        self._change(unit, -1)

    def _change(self, unit: int, sign: int) -> None:
        places = self.places
        self._out[unit] = sign > 0
        for entry in places.entries[unit]:
            row = places.rows[entry]
            free = [left + sign * more for left, more in zip(self._free[row], places.releases[entry], strict=True)]
            self._free[row] = free
            room = min(max(left, 0) // each for left, each in zip(free, places.request, strict=True))
            room = min(room, places.caps[row])
            for other, most in places.blocked.get(row, {}).items():
                if not self._out[other]:
                    room = min(room, most)
            self.total += room - self._room[row]
            self._room[row] = room
