"""Population: how many pods of each identity are on each node, and of them how many a rule counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from muster.engine.arrays import Ints, frozen

_MOST_COLUMNS = 256


class Placeable(Protocol):
    """What is counted; keys are looked up by hash."""

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""


K = TypeVar("K", bound=Placeable)


class Population(Generic[K]):
    """Counts by key and node name. `copy()` is cheap: what both sides have is shared until one of them writes it.

    `index` gives the row of each node; counts of nodes that it does not have are kept but are in no column. A column is
    remembered together with the counts that it was made from, so that copies of one moment can share what is known.
    """

    __slots__ = ("_columns", "_counts", "_index", "_own", "_spaces")

    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index
        self._counts: dict[K, dict[str, int]] = {}
        self._own: set[K] = set()  # keys whose counts no copy shares
        self._columns: dict[K, _Column] = {}
        self._spaces: dict[str, tuple[K, ...]] | None = None

    def copy(self, index: Mapping[str, int] | None = None, *, scratch: bool = False) -> Population[K]:
        """An independent population, for other nodes if an index is given; `scratch`: what it learns it keeps."""
        other = Population[K](self._index if index is None else index)
        other._counts = dict(self._counts)
        other._spaces = self._spaces
        self._own.clear()
        if index is None:
            other._columns = dict(self._columns) if scratch else self._columns
        return other

    def add(self, key: K, node: str, count: int = 1) -> None:
        """Counts `count` more pods (fewer, if negative) on the node."""
        counts = self._counts.get(key, _NOTHING)
        if key not in self._own:
            if not counts:
                self._spaces = None
            column = self._columns.get(key)
            fresh = dict(counts)
            if column is not None and column.counts is counts:
                self._columns[key] = _Column(fresh, column.array, list(column.changes))
            self._own.add(key)
            self._counts[key] = counts = fresh
        assert isinstance(counts, dict)
        counts[node] = counts.get(node, 0) + count
        if counts[node] == 0:
            del counts[node]
        self._update_column(key, counts, node, count)
        if not counts:
            del self._counts[key]
            self._own.discard(key)
            self._spaces = None

    def nodes(self, key: K) -> Mapping[str, int]:
        """The nodes that have such pods, and how many."""
        return self._counts.get(key, _NOTHING)

    def __iter__(self) -> Iterator[K]:
        """What is on some node."""
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def in_namespace(self, namespace: str) -> tuple[K, ...]:
        """The keys of a namespace."""
        if self._spaces is None:
            spaces: dict[str, list[K]] = {}
            for key in self._counts:
                spaces.setdefault(key.namespace, []).append(key)
            self._spaces = {name: tuple(found) for name, found in spaces.items()}
        return self._spaces.get(namespace, ())

    def column(self, key: K) -> Ints:
        """int64[N], read-only: the pods of this key on each node."""
        counts = self._counts.get(key, _NOTHING)
        known = self._columns.get(key)
        if known is None or known.counts is not counts:
            known = self._new_column(counts)
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            self._columns[key] = known
        return known.up_to_date()

    def _new_column(self, counts: Mapping[str, int]) -> _Column:
        array = np.zeros(len(self._index), dtype=np.int64)
        index = self._index
        for node, count in counts.items():
            row = index.get(node)
            if row is not None:
                array[row] = count
        frozen(array)
        return _Column(counts, array, [])

    def _update_column(self, key: K, counts: Mapping[str, int], node: str, count: int) -> None:
        known = self._columns.get(key)
        row = self._index.get(node)
        if known is not None and known.counts is counts and row is not None:
            known.changes.append((row, count))


@dataclass(slots=True)
class _Column:
    """A column, the counts that it belongs to, and what is still to be added. Arrays are shared: never written."""

    counts: Mapping[str, int]
    array: Ints
    changes: list[tuple[int, int]]

    def up_to_date(self) -> Ints:
        if self.changes:
            self.array = self.array.copy()
            for row, count in self.changes:
                self.array[row] += count
            frozen(self.array)
            self.changes.clear()
        return self.array


_NOTHING: Mapping[str, int] = {}
