"""The array types of the engine. Arrays are node-major: a row is a node in NodeTable order, a column a resource."""

from __future__ import annotations

from collections.abc import Sequence
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


class Columns:
    """Some columns of [N, R] arrays, each given by its array and place; read by rows, while others write the arrays."""

    def __init__(self, columns: Sequence[tuple[Ints, int]]) -> None:
        places = [place for _, place in columns]
        together = bool(columns) and all(array is columns[0][0] for array, _ in columns)
        together = together and places == list(range(places[0], places[0] + len(places)))
        self._block = columns[0][0][:, places[0] : places[0] + len(places)].T if together else None
        self._views = [array[:, place] for array, place in columns]

    def take(self, rows: Ints) -> Ints:
        """int64[K, M], a copy: the columns at these rows."""
        if self._block is not None:  # neighbours, as those of cpu and memory, are taken in one go
            return self._block.take(rows, axis=1)
        return np.array([view.take(rows) for view in self._views], dtype=np.int64).reshape(len(self._views), len(rows))


def frozen(array: NDArray[np.generic]) -> None:
    """Makes the array read-only."""
    array.flags.writeable = False
