"""NodeResourcesFit: a node must have room for what a pod requests; its score says how full the node becomes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Columns, Ints, Ints32
from muster.engine.axis import PODS
from muster.engine.model import Status
from muster.engine.plugins.scoring_strategy import NATIVE, LeastAllocated, ScoringStrategy, capacity_of
from muster.engine.profile import UNLIMITED, Normalisation, RowScorer
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

DEFAULT_STRATEGY = LeastAllocated()
_TOO_MANY_PODS = "Too many pods"


class NodeResourcesFit(Struct, frozen=True):
    """Upstream `noderesources/fit.go`. Resources (or groups of them, the part before "/") may be left to others."""

    strategy: ScoringStrategy = DEFAULT_STRATEGY
    ignored: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    name: str = "NodeResourcesFit"
    static: bool = False
    normalisation: Normalisation = Normalisation.NONE

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """How often the request fits into what is free, and into the free pod slots."""
        table, requested = snapshot.table, snapshot.requested
        total = table.allocatable[:, PODS] - requested[:, PODS]
        for resource, amount in self._requests(shape):
            column = snapshot.axis.columns.get(resource)
            if column is None:
                if resource in delegated(shape):
                    continue
                return np.zeros(len(snapshot), dtype=np.int32)
            room = (table.allocatable[:, column] - requested[:, column]) // amount
            if resource in delegated(shape):
                room = np.where(table.allocatable[:, column] == 0, UNLIMITED, room)
            np.minimum(total, room, out=total)
        fits: Ints32 = np.clip(total, 0, UNLIMITED).astype(np.int32)
        return fits

    def checker(self, shape: Shape, snapshot: Snapshot, allowed: Bools) -> Callable[[Ints], Bools]:
        """bool[M]: whether one more pod fits on nodes, with what the snapshot (a trial) holds when asked.

        `allowed` bool[N]: nodes on which it may fit; all others are said to be too small.
        """
        requests = [("pods", 1), *self._requests(shape)]
        columns = snapshot.axis.columns
        if any(resource not in columns for resource, _ in requests):
            return lambda rows: np.zeros(len(rows), dtype=np.bool_)
        places = tuple(columns[resource] for resource, _ in requests)
        amounts = np.array([amount for _, amount in requests], dtype=np.int64)
        most = capacity_of(snapshot.table, places).allocatable - amounts[:, None]
        most[:, ~allowed] = -1
        requested = Columns([(snapshot.requested, place) for place in places])

        def fits(rows: Ints) -> Bools:
            within: Bools = np.logical_and.reduce(requested.take(rows) <= most.take(rows, axis=1), axis=0)
            return within

        return fits

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """All resources that do not suffice; preemption cannot help where the whole node would be too small."""
        requests = self._requests(shape)
        full = snapshot.table.allocatable[rows, PODS] <= snapshot.requested[rows, PODS]
        short, hopeless = np.zeros((2, len(rows), len(requests)), dtype=np.bool_)
        for place, (resource, amount) in enumerate(requests):
            column = snapshot.axis.columns.get(resource)
            if column is None:
                short[:, place] = hopeless[:, place] = resource not in delegated(shape)
                continue
            allocatable = snapshot.table.allocatable[rows, column]
            asked = allocatable > 0 if resource in delegated(shape) else np.ones(len(rows), dtype=np.bool_)
            short[:, place] = asked & (amount > allocatable - snapshot.requested[rows, column])
            hopeless[:, place] = amount > allocatable
        texts = [_TOO_MANY_PODS, *(f"Insufficient {resource}" for resource, _ in requests)]
        too_small: Bools = np.any(hopeless & short, axis=1)
        return _statuses(self.name, texts, np.column_stack([full, short]), too_small)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """How the strategy values nodes with k pods of the shape."""
        return self.strategy.scorer(shape, snapshot)

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """How the strategy values the node with k pods of the shape."""
        return self.scorer(shape, snapshot)(rows, k)

    def tests(self, resource: str) -> bool:
        """Whether a node must have room for what is requested of the resource."""
        return resource in NATIVE or not self._is_ignored(resource)

    def _requests(self, shape: Shape) -> list[tuple[str, int]]:
        """What is tested, in the order in which it is reported: native resources, then the others by name."""
        wanted = dict(shape.usage.requests)
        native = [(name, wanted[name]) for name in NATIVE if name in wanted]
        return native + [item for item in wanted.items() if item[0] not in NATIVE and not self._is_ignored(item[0])]

    def _is_ignored(self, resource: str) -> bool:
        group, slash, _ = resource.partition("/")
        return resource in self.ignored or (bool(slash) and group in self.ignored_groups)


def delegated(shape: Shape) -> frozenset[str]:
    """Extended resources that stand for devices: a node that does not offer them itself may have the devices."""
    return frozenset() if shape.usage.devices is None else shape.usage.devices.resources


def _statuses(plugin: str, texts: list[str], failed: Bools, hopeless: Bools) -> list[Status]:
    """The status of each row; equal rows share one."""
    patterns = np.column_stack([failed, hopeless])
    _, first, places = np.unique(_row_ids(patterns), return_index=True, return_inverse=True)
    known = [
        Status(plugin, tuple(text for text, bad in zip(texts, row, strict=False) if bad), resolvable=not row[-1])
        for row in patterns[first].tolist()
    ]
    return [known[place] for place in places.reshape(-1).tolist()]


def _row_ids(patterns: Bools) -> Ints:
    """int64[M] that are equal for equal rows: sorting numbers is much cheaper than sorting rows."""
    ids = np.zeros(len(patterns), dtype=np.int64)
    for column in patterns.T:
        ids = np.unique(ids, return_inverse=True)[1] if ids.max(initial=0) >= 2**61 else ids
        ids = 2 * ids + column
    return ids
