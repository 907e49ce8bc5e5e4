"""ResourceAxis: which column of an [N, R] array belongs to which resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from muster.engine.arrays import AMOUNT_LIMIT, Ints, zeros

PODS = 0
CPU = 1
MEMORY = 2
EPHEMERAL = 3
BASE = ("pods", "cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class ResourceAxis:
    """The resource names in column order; the four base resources always come first, others as they were first seen."""

    names: tuple[str, ...] = BASE
    columns: dict[str, int] = field(default_factory=lambda: {name: column for column, name in enumerate(BASE)})

    def __len__(self) -> int:
        return len(self.names)

    def extended(self, names: Iterable[str]) -> ResourceAxis:
        """An axis that has these names too; itself if nothing is new."""
        new = [name for name in names if name not in self.columns]
        if not new:
            return self
        joined = (*self.names, *dict.fromkeys(new))
        return ResourceAxis(joined, {name: column for column, name in enumerate(joined)})

    def vector(self, amounts: Iterable[tuple[str, int]], *, pods: int = 0) -> Ints:
        """The amounts as int64[R], clipped to AMOUNT_LIMIT; resources that the axis does not have are left out."""
        row = np.zeros(len(self.names), dtype=np.int64)
        row[PODS] = pods
        for name, amount in amounts:
            column = self.columns.get(name)
            if column is not None:
                row[column] = min(amount, AMOUNT_LIMIT)
        return row

    def missing(self, amounts: Iterable[tuple[str, int]]) -> list[str]:
        """The names with a positive amount that the axis does not have: no node offers them."""
        return [name for name, amount in amounts if amount > 0 and name not in self.columns]


def widened(array: Ints, columns: int) -> Ints:
    """The [N, R] array with zero columns appended up to `columns`; the same array if it is that wide."""
    if array.shape[1] >= columns:
        return array
    wide = zeros(len(array), columns)
    wide[:, : array.shape[1]] = array
    return wide
