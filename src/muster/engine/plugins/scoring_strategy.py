"""How NodeResourcesFit values the fill of a node: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Rules: upstream `noderesources/{least_allocated,most_allocated,requested_to_capacity_ratio,resource_allocation}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Columns, Ints
from muster.engine.nodes import NodeTable
from muster.engine.profile import MAX_NODE_SCORE, RowScorer, remembered
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

NATIVE = ("cpu", "memory", "ephemeral-storage")
DEFAULT_WEIGHTS = (("cpu", 1), ("memory", 1))


class ScoringStrategy(Protocol):
    """Values nodes by how full they become."""

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """int64[M], 0..100, for node rows[j] with k[j] pods of the shape."""


class Filling:
    """How full nodes become with k pods of one shape, in the K resources that count; prepared once a shape.

    cpu and memory count with defaults for containers that request none; resources that are not native count only if
    the shape requests them. Arrays of the snapshot are looked at when asked, so that a trial may change meanwhile.
    """

    def __init__(self, weights: tuple[tuple[str, int], ...], shape: Shape, snapshot: Snapshot) -> None:
        columns = snapshot.axis.columns
        counted = [(name, weight) for name, weight in weights if name in columns]
        counted = [(name, weight) for name, weight in counted if name in NATIVE or shape.request(name)]
        self._weights = np.array([weight for _, weight in counted], dtype=np.int64).reshape(-1, 1)
        self._weight_sum = int(self._weights.sum())
        own, further = _amounts(shape, [name for name, _ in counted])
        self._further, self._beside = further, own - further
        places = tuple(columns[name] for name, _ in counted)
        self._used = Columns([_used(snapshot, name) for name, _ in counted])
        self._capacity = capacity_of(snapshot.table, places)

    def at(self, rows: Ints, k: Ints) -> tuple[Ints, Ints]:
        """int64[K, M] twice: allocatable, and used with k[j] pods of the shape on node rows[j]; k may be int64[1]."""
        used = self._used.take(rows)
        used += self._further * k + self._beside
        return self._capacity.allocatable.take(rows, axis=1), used

    def share(self, amounts: Ints, allocatable: Ints) -> Ints:
        """int64[M]: the weighted mean of the percentages of amounts in allocatable, of resources that a node has."""
        if not self._capacity.everywhere:
            percent = amounts * MAX_NODE_SCORE // np.maximum(allocatable, 1)
            total, weight_sum = self.mean(percent, allocatable > 0)
            return total // np.maximum(weight_sum, 1)
        if self._capacity.small:
            shares = amounts * float(MAX_NODE_SCORE)
            shares /= allocatable
            percent = shares.astype(np.int64)
        else:
            percent = amounts * MAX_NODE_SCORE // allocatable
        if self._weight_sum != len(percent):  # weights are positive: else they are all 1
            percent *= self._weights
        mean: Ints = np.add.reduce(percent, axis=0)
        mean //= max(self._weight_sum, 1)
        return mean

    def mean(self, values: Ints, counted: Bools) -> tuple[Ints, Ints]:
        """int64[M] twice: the weighted sum of values[K, M] where they count, and the sum of their weights."""
        weights = np.where(counted, self._weights, 0)
        total: Ints = (weights * values).sum(axis=0)
        weight_sum: Ints = weights.sum(axis=0)
        return total, weight_sum


def _amounts(shape: Shape, names: Sequence[str]) -> tuple[Ints, Ints]:
    """int64[K, 1] twice: what the first pod of the shape adds, and what each further one adds."""
    own = [shape.scored[_SCORED[name]] if name in _SCORED else shape.request(name) for name in names]
    further = [shape.usage.scored[_SCORED[name]] if name in _SCORED else shape.request(name) for name in names]
    return np.array(own, dtype=np.int64).reshape(-1, 1), np.array(further, dtype=np.int64).reshape(-1, 1)


def _used(snapshot: Snapshot, name: str) -> tuple[Ints, int]:
    """What counts as used of a resource: an array and the column in it."""
    place = _SCORED.get(name)
    return (snapshot.requested, snapshot.axis.columns[name]) if place is None else (snapshot.scored, place)


_SCORED = {"cpu": 0, "memory": 1}
"""The column of `Snapshot.scored` of each resource that has one."""


class Capacity(Struct, frozen=True):
    """What nodes have of K resources: `allocatable` int64[K, N].

    `everywhere`: all nodes have all of them. `small`: less than 2**46, so that percentages are exact in float64: the
    quotient of integers below 2**53 and 2**46 is at least 2**-46 away from the next integer, if it is none itself.
    """

    allocatable: Ints
    everywhere: bool
    small: bool


def capacity_of(table: NodeTable, columns: tuple[int, ...]) -> Capacity:
    """The capacity in these columns of the axis, made once a table."""

    def compute() -> Capacity:
        allocatable = np.ascontiguousarray(table.allocatable[:, columns].T)
        everywhere, small = bool((allocatable > 0).all()), bool((allocatable < _SMALL).all())
        return Capacity(allocatable, everywhere, small)

    return remembered(table, (capacity_of, columns), compute)


_SMALL = 2**46


class LeastAllocated(Struct, frozen=True):
    """The emptier the better: the default."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """The weighted mean of the free percentages."""
        filling = Filling(self.weights, shape, snapshot)

        def score(rows: Ints, k: Ints) -> Ints:
            allocatable, used = filling.at(rows, k)
            np.subtract(allocatable, used, out=used)
            return filling.share(np.maximum(used, 0, out=used), allocatable)

        return score


class MostAllocated(Struct, frozen=True):
    """The fuller the better: packs."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """The weighted mean of the used percentages."""
        filling = Filling(self.weights, shape, snapshot)

        def score(rows: Ints, k: Ints) -> Ints:
            allocatable, used = filling.at(rows, k)
            return filling.share(np.minimum(used, allocatable, out=used), allocatable)

        return score


class RequestedToCapacityRatio(Struct, frozen=True):
    """A piecewise linear function of the used percentage; `shape_points`: (utilization 0-100, score 0-10), rising."""

    shape_points: tuple[tuple[int, int], ...]
    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """The weighted mean over the resources with a positive score, rounded half up."""
        filling = Filling(self.weights, shape, snapshot)

        def score(rows: Ints, k: Ints) -> Ints:
            allocatable, used = filling.at(rows, k)
            percent = used * 100 // np.maximum(allocatable, 1)
            value = self._value(np.where(used > allocatable, 100, percent))
            total, weight_sum = filling.mean(value, (allocatable > 0) & (value > 0))
            return (2 * total + weight_sum) // np.maximum(2 * weight_sum, 1)

        return score

    def _value(self, percent: Ints) -> Ints:
        points = [(utilization, 10 * score) for utilization, score in self.shape_points]
        value = np.full_like(percent, points[-1][1])
        for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
            steps = (y1 - y0) * (percent - x0)
            between = y0 + np.sign(steps) * (np.abs(steps) // (x1 - x0))  # integer division truncates in upstream
            value = np.where(percent < x1, between, value)
        return np.where(percent < points[0][0], points[0][1], value)
