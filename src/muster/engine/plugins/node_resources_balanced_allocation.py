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
        if self.skips(shape):
            return np.zeros(len(rows), dtype=np.int64)
        amounts, columns = self._columns(shape, snapshot)
        allocatable = snapshot.table.allocatable[rows, columns]
        requested = snapshot.requested[rows, columns]
        after, before = _balance(np.array([requested + amounts * k, requested + amounts * (k - 1)]), allocatable)
        score: Ints = MAX_NODE_SCORE // 2 + (MAX_NODE_SCORE // 2 + after - before) // 2
        return score

    def _columns(self, shape: Shape, snapshot: Snapshot) -> tuple[Ints, Ints]:
        """int64[K, 1] twice: amounts and columns of the resources that count; others than native ones if requested."""
        columns = snapshot.axis.columns
        wanted = [(shape.request(name), columns[name], name) for name in self.resources if name in columns]
        counted = [(amount, column) for amount, column, name in wanted if amount or name in NATIVE]
        pairs = np.array(counted, dtype=np.int64).reshape(-1, 2)
        return pairs[:, :1], pairs[:, 1:]


def _balance(used: Ints, allocatable: Ints) -> Ints:
    """int64[2, M]: 100 · (1 − standard deviation of the used fractions), truncated, for `used` [2, K, M]."""
    counted = allocatable > 0
    if len(allocatable) < 2:
        return np.full((2, allocatable.shape[1]), MAX_NODE_SCORE, dtype=np.int64)
    fractions = np.minimum(used / np.maximum(allocatable, 1), 1.0)
    if len(allocatable) == 2:  # as below, in fewer steps
        deviation = np.abs(fractions[:, 0] - fractions[:, 1]) / 2
        deviation[:, ~counted.all(axis=0)] = 0.0
    else:
        deviation = np.array([_deviation(each, counted) for each in fractions])
    balance: Ints = ((1 - deviation) * MAX_NODE_SCORE).astype(np.int64)
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
