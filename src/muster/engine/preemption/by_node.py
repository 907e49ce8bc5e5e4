"""The least victim set where every unit frees something on one node only: nodes are then chosen from one by one.

So it is for pods that may be evicted alone, however many there are: each node says what every number of places costs
there at least, and the cheapest places are taken. All criteria are compared at once, as digits of one whole number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.choices import Option, cheapest, relaxed
from muster.engine.preemption.problem import Problem

FEW_UNITS = 60
"""Between so many units, ties are decided by names."""
_MOST_STATES = 1_000_000
"""So many sums of releases are looked at in all."""
_AT_ONCE = 16
"""So many nodes are looked at before the relaxation is asked again."""

Releases: TypeAlias = tuple[int, ...]


class TooManyStates(Exception):
    """The nodes have too many different units to look at all sums of them. Not retryable."""


class _Unit(Struct, frozen=True):
    """What an eviction frees on the node, what it costs, and the most pods while it stays (-1: no limit)."""

    releases: Releases
    cost: int
    most: int
    place: int


class _Node(Struct, frozen=True):
    """A node that more fits on without some units: from `room` pods to `top`. `rate`: no place costs less there."""

    free: Releases
    room: int
    top: int
    units: tuple[_Unit, ...]
    rate: int


_Sets: TypeAlias = list[tuple[Option, tuple[int, ...]]]
"""Gains, costs, and places in `units` of who goes, in order of the gain and the cost."""


def least_by_node(problem: Problem, allowed: Bools, elsewhere: Callable[[Bools], Ints]) -> tuple[bool, Bools | None]:
    """Whether the units allowed (bool[U]) are of the kind, and of their sets that are enough the one that is least by
    pods, run time lost, pods that could run elsewhere (int64[U] of units bool[U]) and, between few units, names."""
    now, then = problem.room(np.zeros_like(allowed)), problem.room(allowed)
    lacking = problem.need - int(now.sum())
    if int(then.sum()) < problem.need:
        return True, None
    if lacking <= 0:
        return True, np.zeros_like(allowed)
    entries = np.flatnonzero(allowed[problem.at] & (then > now)[problem.rows])
    units = problem.at[entries]
    if len(np.unique(units)) < len(units):
        return False, None
    useful = np.zeros_like(allowed)
    useful[units] = True
    costs = _costs(problem, units, elsewhere(useful))
    try:
        chosen = _Search(problem, _nodes(problem, entries, now, then, costs)).find(lacking)
    except TooManyStates:
        return False, None
    found = np.zeros_like(allowed)
    found[chosen] = True
    return True, found


def _costs(problem: Problem, units: Ints, elsewhere: Ints) -> list[int]:
    """The cost of each unit: a number that is compared as all criteria one after the other."""
    pods, ages, others = problem.pods[units].tolist(), problem.ages[units].tolist(), elsewhere[units].tolist()
    beyond_ages, beyond_others = sum(ages) + 1, sum(others) + 1
    costs = [
        (pod * beyond_ages + age) * beyond_others - other for pod, age, other in zip(pods, ages, others, strict=True)
    ]
    if len(units) > FEW_UNITS:
        return costs
    order = np.argsort(np.argsort(units)).tolist()  # units are sorted by name
    return [(cost << len(units)) - (1 << (len(units) - 1 - place)) for cost, place in zip(costs, order, strict=True)]


def _nodes(problem: Problem, entries: Ints, now: Ints, then: Ints, costs: Sequence[int]) -> list[_Node]:
    """The nodes of the entries, with the units that are there; in order of their rates."""
    blockers = {(each.unit, each.row): each.most for each in problem.blockers}
    blocked = {each.row for each in problem.blockers}
    order = np.argsort(problem.rows[entries], kind="stable")
    rows, starts = np.unique(problem.rows[entries][order], return_index=True)
    free = np.maximum(problem.free[rows], 0)
    scarcest = (free // problem.requests[0]).argmin(axis=1).tolist()
    at, releases, request = (
        problem.at[entries].tolist(),
        problem.releases[entries].tolist(),
        problem.requests[0].tolist(),
    )
    found = []
    for row, places, resource in zip(rows.tolist(), np.split(order, starts[1:]), scarcest, strict=True):
        room, top = int(now[row]), int(then[row])
        units = tuple(
            _Unit(tuple(releases[place]), costs[place], blockers.get((at[place], row), -1), at[place])
            for place in places.tolist()
        )
        left = problem.free[row].tolist()
        rate = 0 if row in blocked else _rate(units, resource, request[resource], max(0, left[resource]), top - room)
        found.append(_Node(tuple(left), room, top, units, rate))
    return sorted(found, key=lambda node: node.rate)


def _rate(units: Sequence[_Unit], resource: int, request: int, free: int, most: int) -> int:
    """What a place on the node costs at least, by the resource that is scarcest there; see `bounds._gains`."""
    part = free % request
    gains = [min(unit.releases[resource] + part, most * request) for unit in units]
    return min(unit.cost * request // gain for unit, gain in zip(units, gains, strict=True) if gain)


class _Search:
    """Looks at nodes in order of their rates, at no more of them than may matter."""

    def __init__(self, problem: Problem, nodes: Sequence[_Node]) -> None:
        self._request = tuple(problem.requests[0].tolist())
        self._nodes = nodes
        self._sets: list[_Sets] = []
        self._alike: dict[tuple[object, ...], _Sets] = {}
        self._states = 0

    def find(self, wanted: int) -> list[int]:
        """The units that go, for so many more places; all nodes together have them."""
        lists: list[list[Option]] = []
        picks: Sequence[int] = ()
        while True:
            found = relaxed(lists, wanted)
            later = self._nodes[len(lists) :]
            if found is not None and (not later or later[0].rate >= found.rate):
                picks = cheapest(lists, wanted, found)
                cost = sum(options[pick][1] for options, pick in zip(lists, picks, strict=True) if pick >= 0)
                # A choice that costs less has no place that costs more than this.
                if not later or later[0].rate >= found.rate + cost - found.bound:
                    break
            more = later[: max(_AT_ONCE, len(lists))]
            self._sets += [self._sets_of(node) for node in more]
            lists += [[option for option, _ in sets] for sets in self._sets[len(lists) :]]
        taken = [
            (node, sets[pick][1]) for node, sets, pick in zip(self._nodes, self._sets, picks, strict=False) if pick >= 0
        ]
        return [node.units[place].place for node, places in taken for place in places]

    def _sets_of(self, node: _Node) -> _Sets:
        """The least set for each gain, once for all nodes that are alike."""
        key = node.free, node.room, node.top, tuple((unit.releases, unit.cost, unit.most) for unit in node.units)
        if key not in self._alike:
            self._alike[key] = self._least_sets(node)
        return self._alike[key]

    def _least_sets(self, node: _Node) -> _Sets:
        """For each gain the least set of units, in order; a gain that costs no less than a larger one is left out."""
        wanted = [
            tuple(max(0, pods * each - free) for each, free in zip(self._request, node.free, strict=True))
            for pods in range(node.room + 1, node.top + 1)
        ]
        states: _States = {(tuple(0 for _ in self._request), node.top): (0, ())}
        for kind in _kinds(node.units):
            states = _undominated(_with_some_of(states, node.units, kind, wanted[-1]))
            self._states += len(states)
            if self._states > _MOST_STATES:
                raise TooManyStates
        found: _Sets = []
        for pods, asked in zip(range(node.top, node.room, -1), reversed(wanted), strict=True):
            cost, places = min(
                value
                for (sums, most), value in states.items()
                if most >= pods and all(has >= want for has, want in zip(sums, asked, strict=True))
            )
            if not found or cost < found[-1][0][1]:
                found.append(((pods - node.room, cost), places))
        return found[::-1]


_State: TypeAlias = tuple[Releases, int]
"""Sums of releases, as far as they matter, and the most pods that fit beside who stays."""
_States: TypeAlias = dict[_State, tuple[int, tuple[int, ...]]]
"""The least cost of each state, and who goes for it."""


def _undominated(states: _States) -> _States:
    """Without those that are no better than a cheaper one, as far as they differ in at most two numbers."""
    numbers = [column for column in zip(*((*sums, most) for sums, most in states), strict=True) if len(set(column)) > 1]
    if len(numbers) > 2:
        return states
    first, second = (*numbers, *[[0] * len(states)] * 2)[:2]
    points = sorted(zip(states.items(), first, second, strict=True), key=lambda point: point[0][1])
    kept: _States = {}
    stairs: list[tuple[int, int]] = []  # the first number rises, the second (negative here) as well
    for (state, value), x, y in points:
        at = bisect_left(stairs, (x, -y))
        if at < len(stairs) and stairs[at][1] <= -y:
            continue
        below = at
        while below > 0 and -stairs[below - 1][1] <= y:
            below -= 1
        stairs[below:at] = [(x, -y)]
        kept[state] = value
    return kept


def _kinds(units: Sequence[_Unit]) -> list[list[int]]:
    """Places of units that free the same, the cheapest first: of them, those go first. Who is in the way is alone."""
    kinds: dict[object, list[int]] = {}
    for place, unit in enumerate(units):
        kinds.setdefault(unit.releases if unit.most < 0 else place, []).append(place)
    return [sorted(places, key=lambda place: units[place].cost) for places in kinds.values()]


def _with_some_of(states: _States, units: Sequence[_Unit], kind: Sequence[int], wanted: Releases) -> _States:
    """The states with none, one, two, … of a kind gone."""
    most = units[kind[0]].most
    found: _States = {}
    for (sums, beside), value in states.items():
        cost, places = value
        stays = beside if most < 0 else min(beside, most)
        _keep(found, (sums, stays), value)
        for place in kind:
            more = tuple(
                min(max(want, 0), has + new) for has, new, want in zip(sums, units[place].releases, wanted, strict=True)
            )
            if more == sums and most < 0:
                break
            sums, cost, places = more, cost + units[place].cost, (*places, place)
            _keep(found, (sums, beside), (cost, places))
    return found


def _keep(found: _States, state: _State, value: tuple[int, tuple[int, ...]]) -> None:
    known = found.get(state)
    if known is None or value < known:
        found[state] = value
