"""NodeResourcesBalancedAllocation: prefers nodes whose resources are used in equal proportion after the pod came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.engine.arrays import Ints
from muster.engine.plugins.scoring_strategy import NATIVE
from muster.engine.profile import MAX_NODE_SCORE, Normalisation
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """Upstream `noderesources/balanced_allocation.go` of 1.36, which values the change of balance, not the balance."""

    resources: tuple[str, ...] = ("cpu", "memory")
    name: str = "NodeResourcesBalancedAllocation"
    static: bool = False
    normalisation: Normalisation = Normalisation.NONE

    def skips(self, shape: Shape) -> bool:
        """A pod that requests none of the resources changes no balance."""
        return not any(shape.request(name) for name in self.resources)

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """50..100; 75 where the balance stays as it is; 0 everywhere for a pod that requests none of the resources."""
        wanted = [(name, shape.request(name)) for name in self.resources]
        if self.skips(shape):
            return np.zeros(len(rows), dtype=np.int64)
        after = self._balance(wanted, snapshot, rows, k)
        before = self._balance(wanted, snapshot, rows, k - 1)
        return MAX_NODE_SCORE // 2 + (MAX_NODE_SCORE // 2 + after - before) // 2

    def _balance(self, wanted: list[tuple[str, int]], snapshot: Snapshot, rows: Ints, pods: Ints) -> Ints:
        """100 · (1 − standard deviation of the used fractions), truncated, with so many pods of the shape."""
        fractions, counted = [], []
        for resource, amount in wanted:
            column = snapshot.axis.columns.get(resource)
            if column is None or (amount == 0 and resource not in NATIVE):
                continue
            allocatable = snapshot.table.allocatable[rows, column]
            used = snapshot.requested[rows, column] + amount * pods
            fractions.append(np.minimum(used / np.maximum(allocatable, 1), 1.0))
            counted.append(allocatable > 0)
        if len(fractions) < 2:
            return np.full(len(rows), MAX_NODE_SCORE, dtype=np.int64)
        deviation = _deviation(np.array(fractions), np.array(counted))
        return ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)


def _deviation(fractions: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The population standard deviation of each column over the resources that count there.

    Two resources go by half the difference and summation is in order, as upstream's, so that floats are equal.
    """
    if len(fractions) == 2:
        return np.where(counted.all(axis=0), np.abs(fractions[0] - fractions[1]) / 2, 0.0)
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
