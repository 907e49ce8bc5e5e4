"""NodeResourcesBalancedAllocation: prefers nodes whose resources are used in equal proportion after the pod came."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from muster.engine.arrays import Columns, Ints
from muster.engine.plugins.scoring_strategy import NATIVE, Capacity, capacity_of
from muster.engine.profile import MAX_NODE_SCORE, Normalisation, RowScorer
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


class NodeResourcesBalancedAllocation(Struct, frozen=True):
    """Upstream `noderesources/balanced_allocation.go` of 1.36, which values the change of balance, not the balance."""

    resources: tuple[str, ...] = ("cpu", "memory")
    name: str = "NodeResourcesBalancedAllocation"
    static: bool = False
    normalisation: Normalisation = Normalisation.NONE

    def skips(self, shape: Shape) -> bool:
        """A pod that requests none of the resources changes no balance."""
        return not any(shape.request(name) for name in self.resources)

    def scorer(self, shape: Shape, snapshot: Snapshot) -> RowScorer:
        """50..100; 75 where the balance stays as it is; 0 everywhere for a pod that requests none of the resources."""
        if self.skips(shape):
            return lambda rows, k: np.zeros(len(rows), dtype=np.int64)
        columns = snapshot.axis.columns
        counted = [name for name in self.resources if name in columns and (name in NATIVE or shape.request(name))]
        amounts = np.array([shape.request(name) for name in counted], dtype=np.int64).reshape(-1, 1)
        used = Columns([(snapshot.requested, columns[name]) for name in counted])
        capacity = capacity_of(snapshot.table, tuple(columns[name] for name in counted))

        def score(rows: Ints, k: Ints) -> Ints:
            requested = used.take(rows) + amounts * np.array([k, k - 1])[:, None]
            after, before = _balance(requested, capacity, rows)
            gain: Ints = (after - before + MAX_NODE_SCORE // 2) // 2
            gain += MAX_NODE_SCORE // 2
            return gain

        return score

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """As `scorer` says."""
        return self.scorer(shape, snapshot)(rows, k)


def _balance(used: Ints, capacity: Capacity, rows: Ints) -> Ints:
    """int64[2, M]: 100 · (1 − standard deviation of the used fractions), truncated, for `used` [2, K, M]."""
    allocatable = capacity.allocatable.take(rows, axis=1)
    if len(allocatable) < 2:
        return np.full((2, len(rows)), MAX_NODE_SCORE, dtype=np.int64)
    divisor = allocatable if capacity.everywhere else np.maximum(allocatable, 1)
    fractions = used / divisor
    np.minimum(fractions, 1.0, out=fractions)
    if len(allocatable) > 2:
        deviation = np.array([_deviation(each, allocatable > 0) for each in fractions])
    else:  # as there, in fewer steps
        deviation = fractions[:, 0] - fractions[:, 1]
        np.abs(deviation, out=deviation)
        deviation /= 2
        if not capacity.everywhere:
            deviation[:, ~(allocatable > 0).all(axis=0)] = 0.0
    np.subtract(1.0, deviation, out=deviation)
    deviation *= MAX_NODE_SCORE
    balance: Ints = deviation.astype(np.int64)
    return balance


def _deviation(fractions: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The population standard deviation of each column over the resources that count there.

    Two resources go by half the difference and summation is in order, as upstream's, so that floats are equal.
    """
    number = counted.sum(axis=0)
    total = np.zeros(fractions.shape[1])
    for fraction, counts in zip(fractions, counted, strict=True):
        total += np.where(counts, fraction, 0.0)
    mean = total / np.maximum(number, 1)
    squares = np.zeros(fractions.shape[1])
    for fraction, counts in zip(fractions, counted, strict=True):
        squares += np.where(counts, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(number, 1))
    two = _half_difference(fractions, counted)
    return np.where(number > 2, deviation, np.where(number == 2, two, 0.0))


def _half_difference(fractions: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    highest = np.where(counted, fractions, -np.inf).max(axis=0)
    lowest = np.where(counted, fractions, np.inf).min(axis=0)
    return np.where(counted.any(axis=0), (highest - lowest) / 2, 0.0)
