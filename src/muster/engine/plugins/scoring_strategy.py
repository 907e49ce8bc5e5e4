"""How NodeResourcesFit values the fill of a node: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Rules: upstream `noderesources/{least_allocated,most_allocated,requested_to_capacity_ratio,resource_allocation}.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from muster.engine.arrays import Bools, Ints
from muster.engine.profile import MAX_NODE_SCORE
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

NATIVE = ("cpu", "memory", "ephemeral-storage")
DEFAULT_WEIGHTS = (("cpu", 1), ("memory", 1))


class ScoringStrategy(Protocol):
    """Values nodes by how full they become."""

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """int64[M], 0..100, for node rows[j] with k[j] pods of the shape."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The K resources that count: `weights` int64[K, 1], `allocatable` and `used` int64[K, M]."""

    weights: Ints
    allocatable: Ints
    used: Ints

    def mean(self, values: Ints, counted: Bools) -> tuple[Ints, Ints]:
        """int64[M] twice: the weighted sum of values[K, M] where they count, and the sum of their weights."""
        weights = np.where(counted, self.weights, 0)
        total: Ints = (weights * values).sum(axis=0)
        weight_sum: Ints = weights.sum(axis=0)
        return total, weight_sum


def filled(weights: tuple[tuple[str, int], ...], shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Filled:
    """How full nodes become with k pods of the shape.

    cpu and memory count with defaults for containers that request none; resources that are not native count only if
    the shape requests them.
    """
    columns = snapshot.axis.columns
    counted = [
        (weight, columns[name], shape.request(name), _SCORED.get(name, -1))
        for name, weight in weights
        if name in columns and (name in NATIVE or shape.request(name))
    ]
    table = np.array(counted, dtype=np.int64).reshape(-1, 4)
    used = snapshot.requested[rows, table[:, 1:2]] + table[:, 2:3] * k
    for at, (_, _, _, place) in enumerate(counted):
        if place >= 0:
            used[at] = snapshot.scored[rows, place] + (shape.usage.scored[place] * (k - 1) + shape.scored[place])
    return Filled(table[:, :1], snapshot.table.allocatable[rows, table[:, 1:2]], used)


_SCORED = {"cpu": 0, "memory": 1}
"""The column of `Snapshot.scored` of each resource that has one."""


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    """The emptier the better: the default."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean of the free percentages."""
        node = filled(self.weights, shape, snapshot, rows, k)
        free = np.maximum(node.allocatable - node.used, 0)
        share = free * MAX_NODE_SCORE // np.maximum(node.allocatable, 1)
        total, weight_sum = node.mean(share, node.allocatable > 0)
        return total // np.maximum(weight_sum, 1)


@dataclass(frozen=True, slots=True)
class MostAllocated:
    """The fuller the better: packs."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean of the used percentages."""
        node = filled(self.weights, shape, snapshot, rows, k)
        held = np.minimum(node.used, node.allocatable)
        share = held * MAX_NODE_SCORE // np.maximum(node.allocatable, 1)
        total, weight_sum = node.mean(share, node.allocatable > 0)
        return total // np.maximum(weight_sum, 1)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """A piecewise linear function of the used percentage; `shape_points`: (utilization 0-100, score 0-10), rising."""

    shape_points: tuple[tuple[int, int], ...]
    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean over the resources with a positive score, rounded half up."""
        node = filled(self.weights, shape, snapshot, rows, k)
        percent = node.used * 100 // np.maximum(node.allocatable, 1)
        value = self._value(np.where(node.used > node.allocatable, 100, percent))
        total, weight_sum = node.mean(value, (node.allocatable > 0) & (value > 0))
        return (2 * total + weight_sum) // np.maximum(2 * weight_sum, 1)

    def _value(self, percent: Ints) -> Ints:
        points = [(utilization, 10 * score) for utilization, score in self.shape_points]
        value = np.full_like(percent, points[-1][1])
        for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
            steps = (y1 - y0) * (percent - x0)
            between = y0 + np.sign(steps) * (np.abs(steps) // (x1 - x0))  # integer division truncates in upstream
            value = np.where(percent < x1, between, value)
        return np.where(percent < points[0][0], points[0][1], value)
