"""A good victim set for pods of one shape, quickly: by gain and cost, then giving back what need not go.

Source of the idea and its figures: engine-algorithms.md 5. It is optimal in more than half of the cases and the start
of the exact search in all others.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.problem import Problem

_MOST_NEIGHBOURS = 256


def greedy(problem: Problem, allowed: Bools, costs: Ints) -> Bools | None:
    """bool[U]: a set within `allowed` that makes enough room and from which none can be left out; None if none does.

    `costs` [U] ≥ 1 of each unit. The units with the least cost for each place gained go first; a part of a place
    counts as such, so that units that only help together are found.
    """
    state = _State(problem)
    heap = [(-state.rate(unit, costs), int(costs[unit]), unit) for unit in np.flatnonzero(allowed).tolist()]
    heap = [item for item in heap if item[0] < 0]
    heapq.heapify(heap)
    order: list[int] = []
    idle: dict[int, None] = {}
    while state.total < problem.need:
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
            for other in state.neighbours(unit):  # a node that is begun is worth finishing
                if allowed[other] and not state.is_out(other):
                    heapq.heappush(heap, (-state.rate(other, costs), int(costs[other]), other))
    return _reprieved(problem, state, order, costs)


def _reprieved(problem: Problem, state: _State, order: list[int], costs: Ints) -> Bools:
    """Gives units back, the costliest first, as long as enough room is left."""
    chosen = np.zeros(len(problem.units), dtype=np.bool_)
    chosen[order] = True
    for unit in sorted(order, key=lambda unit: (-int(costs[unit]), unit)):
        state.spare(unit)
        if state.total >= problem.need:
            chosen[unit] = False
        else:
            state.evict(unit)
    return chosen


def reprieved(problem: Problem, order: Sequence[int]) -> Bools:
    """bool[U]: who is left of all units when they come back in this order, each if the pods still fit."""
    state = _State(problem)
    for unit in range(len(problem.units)):
        state.evict(unit)
    chosen = np.ones(len(problem.units), dtype=np.bool_)
    for unit in order:
        state.spare(unit)
        if state.total >= problem.need:
            chosen[unit] = False
        else:
            state.evict(unit)
    return chosen


class _State:
    """What is free now, and how many pods fit where."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.free = problem.free.copy()
        self._request = problem.requests[0]
        self._blocked: dict[int, dict[int, int]] = {}
        for blocker in problem.blockers:
            self._blocked.setdefault(blocker.row, {})[blocker.unit] = blocker.most
        bounds = np.searchsorted(problem.at, np.arange(len(problem.units) + 1))
        self._entries = [slice(start, end) for start, end in pairwise(bounds.tolist())]
        self._on_row: dict[int, list[int]] = {}
        for unit, row in zip(problem.at.tolist(), problem.rows.tolist(), strict=True):
            self._on_row.setdefault(row, []).append(unit)
        self._out = np.zeros(len(problem.units), dtype=np.bool_)
        self._asked = np.flatnonzero(problem.requests[0])
        self.room = problem.room(self._out)
        self.total = int(self.room.sum())

    def rate(self, unit: int, costs: Ints) -> float:
        """Places gained by evicting the unit, parts of places included, for its cost."""
        entries = self._entries[unit]
        rows = self._problem.rows[entries]
        after = self.free[rows] + self._problem.releases[entries]
        gain = float((self._worth(after, rows) - self._worth(self.free[rows], rows)).sum())
        blocked = sum(1 for row in rows.tolist() if unit in self._blocked.get(row, {}))
        return (gain + 0.5 * blocked) / float(costs[unit])

    def is_out(self, unit: int) -> bool:
        """Whether the unit is evicted."""
        return bool(self._out[unit])

    def neighbours(self, unit: int) -> list[int]:
        """The units that share a node with it where more fits by now, or might; at most a few hundred."""
        rows = self._problem.rows[self._entries[unit]].tolist()
        found = dict.fromkeys(other for row in rows for other in self._on_row[row])
        return list(found)[:_MOST_NEIGHBOURS]

    def evict(self, unit: int) -> None:
        self._change(unit, 1)

    def spare(self, unit: int) -> None:
        self._change(unit, -1)

    def _change(self, unit: int, sign: int) -> None:
        entries = self._entries[unit]
        rows = self._problem.rows[entries]
        self._out[unit] = sign > 0
        self.free[rows] += sign * self._problem.releases[entries]
        room = (np.maximum(self.free[rows], 0)[:, self._asked] // self._request[self._asked]).min(axis=1)
        room = np.minimum(room, self._problem.caps[rows, 0])
        for place, row in enumerate(rows.tolist()):
            for other, most in self._blocked.get(row, {}).items():
                if not self._out[other]:
                    room[place] = min(int(room[place]), most)
        self.total += int(room.sum() - self.room[rows].sum())
        self.room[rows] = room

    def _worth(self, free: Ints, rows: Ints) -> NDArray[np.float64]:
        """How often the request fits; a part of a place counts by its square, up to the cap."""
        asked = self._asked
        times = (np.maximum(free[:, asked], 0) / self._request[asked]).min(axis=1)
        whole = np.floor(times)
        worth: NDArray[np.float64] = np.minimum(whole + (times - whole) ** 2, self._problem.caps[rows, 0])
        return worth
