"""An exact search for small groups of several shapes: places all members or proves that they do not fit.

Nodes are filled one after the other, each with a maximal set of the members that are left (if a placement exists, one
of this kind does: a member of a later node that would fit on this one can be moved here). What failed is remembered,
totals over the nodes that are left cut early, and of equal nodes the first takes the largest set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.axis import PODS
from muster.engine.mixed import Attempt, Demand
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot

MOST_NODES = 128
MOST_MEMBERS = 256
STEPS_PER_PASS = 250
"""Steps of this search that cost about as much as one greedy pass over a small cluster: the unit of budgets."""

Counts: TypeAlias = tuple[int, ...]
"""A number for each shape."""


class Searched(Struct, frozen=True):
    """`attempt`: where all members go. `proved`: there is no such placement. Neither: the steps were used up."""

    attempt: Attempt | None
    proved: bool
    steps: int


def search(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], steps: int) -> Searched:
    """Looks for a placement of all members within so many steps; a group that is too large is not tried."""
    nodes = _nodes(profile, snapshot, demands)
    members = sum(len(demand.places) for demand in demands)
    requests = _requests(snapshot, demands)
    if len(nodes) > MOST_NODES or members > MOST_MEMBERS or not _sums_are_all(demands, nodes, requests):
        return Searched(None, False, 0)
    searcher = _Searcher(nodes, requests, steps)
    chosen = searcher.run(tuple(len(demand.places) for demand in demands))
    if chosen is None:
        return Searched(None, searcher.steps < steps, searcher.steps)
    return Searched(_attempt(demands, nodes, chosen), False, searcher.steps)


class _Node(Struct, frozen=True):
    """A node on which something fits: what is free of each requested resource, and how many of each shape fit alone."""

    row: int
    free: tuple[int, ...]
    caps: Counts


def _nodes(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> list[_Node]:
    """The nodes that matter, the fullest first, equal ones together."""
    counts = np.array([profile.count(demand.shape, snapshot) for demand in demands]).T
    rows = np.flatnonzero(counts.any(axis=1))
    columns = _columns(snapshot, demands)
    free = snapshot.free()[rows][:, columns]
    caps = np.minimum(counts[rows], [len(demand.places) for demand in demands])
    found = [
        _Node(row, tuple(left), tuple(cap))
        for row, left, cap in zip(rows.tolist(), free.tolist(), caps.tolist(), strict=True)
    ]
    return sorted(found, key=lambda node: (node.caps, node.free, node.row))


def _sums_are_all(demands: Sequence[Demand], nodes: Sequence[_Node], requests: Sequence[tuple[int, ...]]) -> bool:
    """Whether sums of requests express all that holds between members on a node.

    Host ports are a rule between shapes, devices are no sums, and a profile may ignore a resource, so that more fits
    than sums allow.
    """
    if any(demand.shape.usage.ports or demand.shape.usage.devices for demand in demands):
        return False
    return all(
        cap <= _times(node.free, request) for node in nodes for cap, request in zip(node.caps, requests, strict=True)
    )


def _columns(snapshot: Snapshot, demands: Sequence[Demand]) -> list[int]:
    names = dict.fromkeys(name for demand in demands for name, _ in demand.shape.usage.requests)
    return [PODS, *(snapshot.axis.columns[name] for name in names if name in snapshot.axis.columns)]


def _requests(snapshot: Snapshot, demands: Sequence[Demand]) -> list[tuple[int, ...]]:
    columns = _columns(snapshot, demands)
    vectors = [snapshot.axis.vector(demand.shape.usage.requests, pods=1) for demand in demands]
    return [tuple(vector[columns].tolist()) for vector in vectors]


def _attempt(demands: Sequence[Demand], nodes: Sequence[_Node], chosen: Sequence[Counts]) -> Attempt:
    by_row = sorted(zip([node.row for node in nodes], chosen, strict=False))
    placed = []
    for shape, demand in enumerate(demands):
        rows = [row for row, counts in by_row for _ in range(counts[shape])]
        placed += list(zip(demand.places, rows, strict=True))
    return Attempt(tuple(sorted(placed)))


class _Searcher:
    """The depth-first search; `steps` counts the sets that were looked at."""

    def __init__(self, nodes: Sequence[_Node], requests: Sequence[tuple[int, ...]], limit: int) -> None:
        self.steps = 0
        self._limit = limit
        self._nodes = nodes
        self._requests = requests
        self._failed: set[tuple[int, Counts, Counts | None]] = set()
        self._room = _suffix_sums([node.caps for node in nodes], len(requests))
        self._free = _suffix_sums([tuple(max(0, each) for each in node.free) for node in nodes], len(requests[0]))

    def run(self, left: Counts) -> list[Counts] | None:
        """A set for each node, up to the last one that is needed."""
        chosen: list[Counts] = []
        return chosen if self._fill(0, left, None, chosen) else None

    def _fill(self, at: int, left: Counts, ceiling: Counts | None, chosen: list[Counts]) -> bool:
        """Fills the nodes from `at` on; `ceiling`: the set of the node before, if that is equal to this one."""
        if not any(left):
            return True
        if at == len(self._nodes) or (at, left, ceiling) in self._failed or not self._totals_suffice(at, left):
            return False
        node = self._nodes[at]
        for counts in self._maximal_sets(node, left):
            if self.steps >= self._limit:
                return False
            if ceiling is not None and counts > ceiling:
                continue
            chosen.append(counts)
            rest = tuple(have - take for have, take in zip(left, counts, strict=True))
            if self._fill(at + 1, rest, counts if self._equal_to_next(at) else None, chosen):
                return True
            chosen.pop()
        self._failed.add((at, left, ceiling))
        return False

    def _equal_to_next(self, at: int) -> bool:
        if at + 1 == len(self._nodes):
            return False
        node, following = self._nodes[at], self._nodes[at + 1]
        return node.free == following.free and node.caps == following.caps

    def _totals_suffice(self, at: int, left: Counts) -> bool:
        if any(need > room for need, room in zip(left, self._room[at], strict=True)):
            return False
        for resource, free in enumerate(self._free[at]):
            if sum(need * request[resource] for need, request in zip(left, self._requests, strict=True)) > free:
                return False
        return True

    def _maximal_sets(self, node: _Node, left: Counts) -> Iterator[Counts]:
        """The sets that fit on the node and to which none of the members left can be added, largest first."""
        limits = tuple(map(min, node.caps, left))

        def extend(shape: int, free: tuple[int, ...], counts: Counts) -> Iterator[Counts]:
            if self.steps >= self._limit:
                return
            if shape == len(limits):
                self.steps += 1
                if not self._can_grow(counts, limits, free):
                    yield counts
                return
            most = min(limits[shape], _times(free, self._requests[shape]))
            for number in range(most, -1, -1):
                rest = tuple(have - number * take for have, take in zip(free, self._requests[shape], strict=True))
                yield from extend(shape + 1, rest, (*counts, number))

        yield from extend(0, node.free, ())

    def _can_grow(self, counts: Counts, limits: Counts, free: tuple[int, ...]) -> bool:
        return any(
            count < limit and _times(free, request) > 0
            for count, limit, request in zip(counts, limits, self._requests, strict=True)
        )


def _times(free: tuple[int, ...], request: tuple[int, ...]) -> int:
    """How often the request fits; what is not requested does not limit, however overcommitted it is."""
    return max(0, min(have // take for have, take in zip(free, request, strict=True) if take))


def _suffix_sums(rows: Sequence[tuple[int, ...]], width: int) -> list[tuple[int, ...]]:
    """sums[i] = rows[i] + rows[i + 1] + …, and a last one of zeros."""
    sums = [(0,) * width]
    for row in reversed(rows):
        sums.append(tuple(map(sum, zip(sums[-1], row, strict=True))))
    return sums[::-1]
