"""NodeTable: the nodes as arrays in topology order (zone, block, rack, name); labels, taints and images interned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.quantity import resource_units
from muster.api.selectors import Operator, Requirement
from muster.engine.arrays import AMOUNT_LIMIT, Bools, Ints, Ints32, frozen, zeros
from muster.engine.axis import ResourceAxis
from muster.engine.shape import normalised_image
from muster.engine.tolerations import Taint, parse_taints

ZONE_LABEL = "topology.kubernetes.io/zone"
BLOCK_LABEL = "topology.kubernetes.io/block"
RACK_LABEL = "topology.kubernetes.io/rack"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What the engine knows of one node. `images`: normalised name → size in bytes."""

    name: str
    labels: Mapping[str, str]
    allocatable: tuple[tuple[str, int], ...]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: tuple[tuple[str, int], ...] = ()

    @property
    def order(self) -> tuple[str, str, str, str]:
        """The sort key of NodeTable order; at a tie of scores the first in this order wins."""
        labels = self.labels
        return labels.get(ZONE_LABEL, ""), labels.get(BLOCK_LABEL, ""), labels.get(RACK_LABEL, ""), self.name


def parse_node(node: Object) -> NodeRecord:
    """The record of a Node object. Raises QuantityError for an allocatable that is no quantity."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    amounts = {name: resource_units(name, value) for name, value in (status.get("allocatable") or {}).items()}
    images = {
        normalised_image(name): int(image.get("sizeBytes") or 0)
        for image in status.get("images") or ()
        for name in image.get("names") or ()
    }
    return NodeRecord(
        name=name_of(node),
        labels=dict(node["metadata"].get("labels") or {}),
        allocatable=tuple(sorted((name, max(0, min(amount, AMOUNT_LIMIT - 1))) for name, amount in amounts.items())),
        taints=parse_taints(spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        images=tuple(sorted(images.items())),
    )


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label over all nodes: `ids[i]` indexes `values`, -1 where the node lacks it."""

    ids: Ints32
    values: dict[str, int]

    def accepted(self, requirement: Requirement) -> Bools:
        """bool[N]: whether each node's value satisfies the requirement; the rule is applied once a distinct value."""
        known = np.zeros(len(self.values) + 1, dtype=np.bool_)  # the last place, which -1 reaches, is "no label"
        if requirement.operator is Operator.IN:
            known[[self.values[value] for value in requirement.values if value in self.values]] = True
        else:
            known[:-1] = [requirement.accepts(value) for value in self.values]
            known[-1] = requirement.accepts(None)
        return known[self.ids]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """All nodes in order; immutable. `sets[set_ids[i]]` is what node i shares with others like it.

    `memo` keeps what depends on this table and a shape alone (masks, static scores); it lives and dies with the table.
    """

    records: tuple[NodeRecord, ...]
    index: dict[str, int]
    axis: ResourceAxis
    allocatable: Ints
    unschedulable: Bools
    taint_ids: Ints32
    taint_sets: tuple[tuple[Taint, ...], ...]
    image_ids: Ints32
    image_sets: tuple[dict[str, int], ...]
    columns: dict[str, LabelColumn] = field(default_factory=dict)
    memo: dict[object, object] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def names(self) -> list[str]:
        """The node names in order."""
        return [record.name for record in self.records]

    def column(self, key: str) -> LabelColumn:
        """The column of a label, built when first asked for."""
        column = self.columns.get(key)
        if column is None:
            values: dict[str, int] = {}
            ids = [
                -1 if (value := record.labels.get(key)) is None else values.setdefault(value, len(values))
                for record in self.records  # once a label and table: this is where nodes become arrays
            ]
            column = LabelColumn(np.array(ids, dtype=np.int32), values)
            self.columns[key] = column
        return column


def build_table(records: Iterable[NodeRecord], axis: ResourceAxis, old: NodeTable | None = None) -> NodeTable:
    """The table of these nodes, sorted. Rows of records that `old` has already are copied from it.

    `axis` must have every resource that a record names.
    """
    ordered = tuple(sorted(records, key=lambda record: record.order))
    index = {record.name: row for row, record in enumerate(ordered)}
    allocatable = _allocatable(ordered, axis, old)
    unschedulable = np.array([record.unschedulable for record in ordered], dtype=np.bool_)
    taint_ids, taint_sets = _interned([record.taints for record in ordered])
    image_ids, image_sets = _interned([record.images for record in ordered])
    for array in (allocatable, unschedulable, taint_ids, image_ids):
        frozen(array)
    images = tuple(dict(entries) for entries in image_sets)
    return NodeTable(ordered, index, axis, allocatable, unschedulable, taint_ids, taint_sets, image_ids, images)


def carried(table: NodeTable, old: NodeTable) -> tuple[Ints, Ints]:
    """(rows of `table`, rows of `old`) of the nodes that both have, matched by name."""
    pairs = [(row, old.index.get(record.name, -1)) for row, record in enumerate(table.records)]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    both = both[both[:, 1] >= 0]
    return both[:, 0], both[:, 1]


def _allocatable(records: Sequence[NodeRecord], axis: ResourceAxis, old: NodeTable | None) -> Ints:
    rows = zeros(len(records), len(axis))
    known: dict[int, int] = {} if old is None else {id(record): row for row, record in enumerate(old.records)}
    sources = [known.get(id(record), -1) for record in records]
    if old is not None and known:
        copied = np.array(sources, dtype=np.int64)
        kept = np.flatnonzero(copied >= 0)
        rows[kept, : old.allocatable.shape[1]] = old.allocatable[copied[kept]]
    columns = axis.columns
    for row, source in enumerate(sources):
        if source < 0:
            for name, amount in records[row].allocatable:
                rows[row, columns[name]] = amount
    return rows


def _interned(values: Sequence[tuple[T, ...]]) -> tuple[Ints32, tuple[tuple[T, ...], ...]]:
    """Ids of equal values, and the distinct values in the order of their ids."""
    known: dict[tuple[T, ...], int] = {}
    ids = [known.setdefault(value, len(known)) for value in values]
    return np.array(ids, dtype=np.int32), tuple(known)
