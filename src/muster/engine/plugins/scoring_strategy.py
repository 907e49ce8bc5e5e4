"""How NodeResourcesFit values the fill of a node: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Rules: upstream `noderesources/{least_allocated,most_allocated,requested_to_capacity_ratio,resource_allocation}.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.profile import MAX_NODE_SCORE
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

NATIVE = ("cpu", "memory", "ephemeral-storage")
DEFAULT_WEIGHTS = (("cpu", 1), ("memory", 1))


class ScoringStrategy(Protocol):
    """Values nodes by how full they become."""

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """int64[M], 0..100, for node rows[j] with k[j] pods of the shape."""


def filled(
    weights: tuple[tuple[str, int], ...], shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints
) -> Iterator[tuple[int, Ints, Ints]]:
    """(weight, allocatable, used with k pods of the shape) of each resource that counts.

    cpu and memory count with defaults for containers that request none; resources that are not native count only if
    the shape requests them.
    """
    scored = {"cpu": 0, "memory": 1}
    for resource, weight in weights:
        column = snapshot.axis.columns.get(resource)
        if column is None:
            continue
        allocatable = snapshot.table.allocatable[rows, column]
        if resource in scored:
            place = scored[resource]
            used = snapshot.scored[rows, place] + shape.usage.scored[place] * (k - 1) + shape.scored[place]
            yield weight, allocatable, used
        elif (amount := shape.request(resource)) or resource in NATIVE:
            yield weight, allocatable, snapshot.requested[rows, column] + amount * k


@dataclass(frozen=True, slots=True)
class LeastAllocated:
    """The emptier the better: the default."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean of the free percentages."""
        total, weight_sum = np.zeros((2, len(rows)), dtype=np.int64)
        for weight, allocatable, used in filled(self.weights, shape, snapshot, rows, k):
            free = np.maximum(allocatable - used, 0)
            total += weight * (free * MAX_NODE_SCORE // np.maximum(allocatable, 1))
            weight_sum += np.where(allocatable > 0, weight, 0)
        return total // np.maximum(weight_sum, 1)


@dataclass(frozen=True, slots=True)
class MostAllocated:
    """The fuller the better: packs."""

    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean of the used percentages."""
        total, weight_sum = np.zeros((2, len(rows)), dtype=np.int64)
        for weight, allocatable, used in filled(self.weights, shape, snapshot, rows, k):
            held = np.minimum(used, allocatable)
            total += weight * (held * MAX_NODE_SCORE // np.maximum(allocatable, 1))
            weight_sum += np.where(allocatable > 0, weight, 0)
        return total // np.maximum(weight_sum, 1)


@dataclass(frozen=True, slots=True)
class RequestedToCapacityRatio:
    """A piecewise linear function of the used percentage; `shape_points`: (utilization 0-100, score 0-10), rising."""

    shape_points: tuple[tuple[int, int], ...]
    weights: tuple[tuple[str, int], ...] = DEFAULT_WEIGHTS

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The weighted mean over the resources with a positive score, rounded half up."""
        total, weight_sum = np.zeros((2, len(rows)), dtype=np.int64)
        for weight, allocatable, used in filled(self.weights, shape, snapshot, rows, k):
            percent = np.where(used > allocatable, 100, used * 100 // np.maximum(allocatable, 1))
            value = np.where(allocatable > 0, self._value(percent), 0)
            total += weight * value
            weight_sum += np.where(value > 0, weight, 0)
        return (2 * total + weight_sum) // np.maximum(2 * weight_sum, 1)

    def _value(self, percent: Ints) -> Ints:
        points = [(utilization, 10 * score) for utilization, score in self.shape_points]
        value = np.full_like(percent, points[-1][1])
        for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
            steps = (y1 - y0) * (percent - x0)
            between = y0 + np.sign(steps) * (np.abs(steps) // (x1 - x0))  # integer division truncates in upstream
            value = np.where(percent < x1, between, value)
        return np.where(percent < points[0][0], points[0][1], value)
