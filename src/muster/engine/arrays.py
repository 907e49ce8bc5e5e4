"""The array types of the engine. Arrays are node-major: a row is a node in NodeTable order, a column a resource."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Ints32: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]

AMOUNT_LIMIT = 2**53
"""Amounts are clipped here where they enter: float64 is exact up to it, and `amount * 100` fits into int64."""


def zeros(rows: int, columns: int) -> Ints:
    """int64[rows, columns] of zeros whose columns lie together in memory: rules read columns, seldom rows."""
    return np.zeros((rows, columns), dtype=np.int64, order="F")


def frozen(array: NDArray[np.generic]) -> None:
    """Makes the array read-only."""
    array.flags.writeable = False
