"""NodeTable: the nodes as arrays in topology order (zone, block, rack, name); labels, taints and images interned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
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
    """What the engine knows of one node. `images`: normalised name → size in bytes; `features`: what it declares."""

    name: str
    labels: Mapping[str, str]
    allocatable: tuple[tuple[str, int], ...]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    order: tuple[str, str, str, str] = field(init=False, repr=False, compare=False)
    """The sort key of NodeTable order; at a tie of scores the first in this order wins."""

    def __post_init__(self) -> None:
        domains = [self.labels.get(key, "") for key in (ZONE_LABEL, BLOCK_LABEL, RACK_LABEL)]
        object.__setattr__(self, "order", (*domains, self.name))


def parse_node(node: Object) -> NodeRecord:
    """The record of a Node object. Raises QuantityError for an allocatable that is no quantity."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    images = {
        normalised_image(name): int(image.get("sizeBytes") or 0)
        for image in status.get("images") or ()
        for name in image.get("names") or ()
    }
    return NodeRecord(
        name=name_of(node),
        labels=node["metadata"].get("labels") or {},
        allocatable=_amounts(tuple((status.get("allocatable") or {}).items())),
        taints=parse_taints(spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        images=tuple(sorted(images.items())),
        features=frozenset(status.get("declaredFeatures") or ()),
    )


@lru_cache(maxsize=1_000)
def _amounts(allocatable: tuple[tuple[str, str], ...]) -> tuple[tuple[str, int], ...]:
    """The amounts in canonical units, sorted by name. Kept, because most nodes are like others."""
    units = {name: resource_units(name, value) for name, value in allocatable}
    return tuple(sorted((name, max(0, min(amount, AMOUNT_LIMIT - 1))) for name, amount in units.items()))


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label over all nodes: `ids[i]` indexes `values`, -1 where the node lacks it."""

    ids: Ints32
    values: dict[str, int]
    _rows: dict[int, slice | Ints] = field(default_factory=dict, repr=False, compare=False)

    def rows_of(self, value: int) -> slice | Ints:
        """The rows of the nodes with the value of this id: a slice where they are neighbours."""
        rows = self._rows.get(value)
        if rows is None:
            found = np.flatnonzero(self.ids == value)
            together = len(found) > 0 and int(found[-1] - found[0]) + 1 == len(found)
            rows = self._rows[value] = slice(int(found[0]), int(found[-1]) + 1) if together else found
        return rows

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
    """All nodes in order; immutable. `taint_sets[taint_ids[i]]` are the taints of node i, `images` likewise.

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
    images: tuple[tuple[tuple[str, int], ...], ...]
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
    """The table of these nodes, sorted. What `old` has of the same records is copied, so that few changes cost little.

    `axis` must have every resource that a record names.
    """
    before = _EMPTY if old is None else old
    ordered = tuple(sorted(records, key=attrgetter("order")))
    index = {record.name: row for row, record in enumerate(ordered)}
    sources = np.array([_same_row(before, record) for record in ordered], dtype=np.int64)
    kept, new = np.flatnonzero(sources >= 0), np.flatnonzero(sources < 0).tolist()
    taint_ids, taint_sets = _interned(ordered, _taints, before.taint_ids[sources[kept]], before.taint_sets, kept, new)
    image_ids, images = _interned(ordered, _images, before.image_ids[sources[kept]], before.images, kept, new)
    allocatable = zeros(len(ordered), len(axis))
    allocatable[kept, : before.allocatable.shape[1]] = before.allocatable[sources[kept]]
    unschedulable = np.zeros(len(ordered), dtype=np.bool_)
    unschedulable[kept] = before.unschedulable[sources[kept]]
    for row in new:
        unschedulable[row] = ordered[row].unschedulable
        for name, amount in ordered[row].allocatable:
            allocatable[row, axis.columns[name]] = amount
    for array in (allocatable, unschedulable, taint_ids, image_ids):
        frozen(array)
    return NodeTable(ordered, index, axis, allocatable, unschedulable, taint_ids, taint_sets, image_ids, images)


def rows_in(table: NodeTable, old: NodeTable) -> Ints:
    """int64[N]: the row that each node of `table` has in `old`, -1 where it has none; matched by name."""
    index = old.index
    return np.array([index.get(record.name, -1) for record in table.records], dtype=np.int64)


def _same_row(table: NodeTable, record: NodeRecord) -> int:
    """The row of this very record in the table, or -1."""
    row = table.index.get(record.name, -1)
    return row if row >= 0 and table.records[row] is record else -1


def _taints(record: NodeRecord) -> tuple[Taint, ...]:
    return record.taints


def _images(record: NodeRecord) -> tuple[tuple[str, int], ...]:
    return record.images


def _interned(
    records: Sequence[NodeRecord],
    value_of: Callable[[NodeRecord], tuple[T, ...]],
    kept_ids: Ints32,
    kept_values: tuple[tuple[T, ...], ...],
    kept: Ints,
    new: Sequence[int],
) -> tuple[Ints32, tuple[tuple[T, ...], ...]]:
    """Ids of equal values, and the distinct values by id. The rows `kept` have ids already, the rows `new` get them."""
    known = {value: place for place, value in enumerate(kept_values)}
    ids = np.zeros(len(records), dtype=np.int32)
    ids[kept] = kept_ids
    ids[new] = [known.setdefault(value_of(records[row]), len(known)) for row in new]
    used, dense = np.unique(ids, return_inverse=True)
    values = tuple(known)
    return dense.reshape(-1).astype(np.int32), tuple(values[place] for place in used.tolist())


_NONE = np.zeros(0, dtype=np.int32)
_EMPTY = NodeTable((), {}, ResourceAxis(), zeros(0, 0), np.zeros(0, dtype=np.bool_), _NONE, (), _NONE, ())
