"""Nodes by the values that they have for several labels at once: the domains of one level inside those of another."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.profile import Profile, limited_to, remembered
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import PLUGIN, Within, limited


class Partition(Struct, frozen=True):
    """The domains of some labels. `values[d]`: the value of each label in domain d; domains in NodeTable order.

    `ids` int64[N]: the domain of each node, -1 where it lacks a label. `firsts` int64[D]: the first row of each domain.
    `rows` are the nodes domain by domain, which begin at `starts`; `in_order`: these are all nodes in their order.
    Without labels all nodes are one domain.
    """

    keys: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    ids: Ints
    firsts: Ints
    rows: Ints
    starts: Ints
    in_order: bool

    def __len__(self) -> int:
        return len(self.values)

    def sums(self, values: Ints) -> Ints:
        """int64[D] (int64[S, D]): values int64[N] (int64[S, N]) summed over the nodes of each domain."""
        if not self.values:
            return np.zeros((*values.shape[:-1], 0), dtype=np.int64)
        ordered = values if self.in_order else values[..., self.rows]
        sums: Ints = np.add.reduceat(ordered, self.starts, axis=-1)
        return sums

    def limited(self, profile: Profile, domain: int, required: Collection[str]) -> Profile:
        """The profile with all nodes outside of the domain closed. `required`: labels of which it must be one domain.

        By the others a domain is only preferred: rules about pods elsewhere go on to see all nodes.
        """
        for key, value in zip(self.keys, self.values[domain], strict=True):
            if key in required:
                profile = limited(profile, key, value)
            else:
                profile = replace(profile, filters=(Within(key, value), *profile.filters))
        return profile

    def counted(self, rows: Sequence[int]) -> Ints:
        """int64[D]: how many of the rows (with repetition) are in each domain."""
        found = self.ids[np.array(rows, dtype=np.int64)] if len(rows) else np.zeros(0, dtype=np.int64)
        return np.bincount(found[found >= 0], minlength=len(self)).astype(np.int64)


class AsDealt(Struct, frozen=True):
    """The rule that a pod goes to the domain of these labels to which its shape is dealt."""

    keys: tuple[str, ...]
    name: str = PLUGIN

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number on nodes of the domain, none elsewhere."""
        return limited_to(partition_of(snapshot.table, self.keys).ids == shape.domain)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all other nodes."""
        return [Status(PLUGIN, ("node(s) were outside of the topology domain",), resolvable=False)] * len(rows)


def partition_of(table: NodeTable, keys: Sequence[str]) -> Partition:
    """The domains of these labels together. Worked out once a table."""
    distinct = tuple(dict.fromkeys(keys))
    return remembered(table, (Partition, distinct), lambda: _partition(table, distinct))


def _partition(table: NodeTable, keys: tuple[str, ...]) -> Partition:
    codes = np.zeros(len(table), dtype=np.int64)
    for key in keys:
        column = table.column(key)
        codes = np.where((codes < 0) | (column.ids < 0), -1, codes * (len(column.values) + 1) + column.ids)
        distinct, dense = np.unique(codes, return_inverse=True)  # dense again: products stay small
        codes = dense.reshape(-1).astype(np.int64) - int(len(distinct) > 0 and distinct[0] < 0)
    has_all = np.flatnonzero(codes >= 0)
    _, firsts, ids = np.unique(codes[has_all], return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ids = place[ids.reshape(-1)]
    domain = np.full(len(table), -1, dtype=np.int64)
    domain[has_all] = ids
    rows = has_all[np.argsort(ids, kind="stable")]
    starts = np.flatnonzero(np.diff(domain[rows], prepend=-1))
    first_rows = rows[starts]
    labels = [table.records[row].labels for row in first_rows.tolist()]
    values = tuple(tuple(found[key] for key in keys) for found in labels)
    for array in (domain, rows, starts, first_rows):
        array.setflags(write=False)
    in_order = bool(np.array_equal(rows, np.arange(len(table))))
    return Partition(keys, values, domain, first_rows, rows, starts, in_order)
