"""Snapshot: the cluster at one moment, read-only; Trial: a scratch copy of it in which pods are placed and removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from muster.api.codec import Object
from muster.engine.arrays import Ints, frozen, zeros
from muster.engine.axis import ResourceAxis, widened
from muster.engine.devices.allocated import Use
from muster.engine.devices.rooms import Spot
from muster.engine.devices.scratch import Scratch
from muster.engine.identity import Identity
from muster.engine.nodes import NodeRecord, NodeTable, build_table, rows_in
from muster.engine.objects import ObjectStore
from muster.engine.population import Population
from muster.engine.ports import PortTable
from muster.engine.requests import Usage
from muster.engine.storage.reserving import Reservations, reservation_at
from muster.engine.storage.volumes import VolumeUse


class Snapshot:
    """Nodes and what their pods take. Arrays are read-only and shared; nothing of it changes after it was taken.

    `requested` int64[N, R], the pods of the node in column `axis.PODS`; `scored` int64[N, 2] cpu and memory as scores
    count them; `placed`: node name → pod key → what it takes (also of nodes that are not known); `population` counts
    its pods by identity, `uses` by volume; `objects`: what else rules look at. `reserved`: what pods nominated to a
    node would take there, see `facing`; `guests`: those of them that are on their nodes for a trial. Three notes are
    kept with it: `counts`, how many pods of a shape fit (by rules and shape), which many groups ask of one snapshot,
    `notes`, what plugins work out for a shape, and `where`, the node of each pod, once somebody asked. `devices`: those
    that pods of a trial have; None while there are none.
    """

    __slots__ = (
        "counts",
        "devices",
        "guests",
        "nominated",
        "notes",
        "objects",
        "placed",
        "population",
        "ports",
        "requested",
        "reserved",
        "scored",
        "table",
        "uses",
        "where",
    )

    def __init__(
        self,
        table: NodeTable,
        requested: Ints,
        scored: Ints,
        ports: PortTable,
        placed: Mapping[str, Mapping[str, Usage]],
        *,
        population: Population[Identity] | None = None,
        uses: Population[VolumeUse] | None = None,
        objects: ObjectStore | None = None,
        nominated: Mapping[str, tuple[Nomination, ...]] | None = None,
    ) -> None:
        self.table = table
        self.requested = requested
        self.scored = scored
        self.ports = ports
        self.placed = placed
        self.population = Population[Identity](table.index) if population is None else population
        self.uses = Population[VolumeUse](table.index) if uses is None else uses
        self.objects = ObjectStore() if objects is None else objects
        self.nominated = {} if nominated is None else nominated
        self.reserved: Mapping[str, tuple[Usage, ...]] = {}
        self.guests: Mapping[str, tuple[Usage, ...]] = {}
        self.counts: dict[object, Ints] = {}
        self.notes: dict[object, object] = {}
        self.where: dict[str, str] = {}
        self.devices: Scratch | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def axis(self) -> ResourceAxis:
        """The resources of the columns."""
        return self.table.axis

    def free(self) -> Ints:
        """int64[N, R]: what is left; negative where a node is overcommitted."""
        return self.table.allocatable - self.requested

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """A scratch copy. Whatever happens inside, this snapshot is as before; the trial is void afterwards."""
        trial = Trial(self)
        try:
            yield trial
        finally:
            trial.close()

    def with_nodes(self, records: Iterable[NodeRecord]) -> Snapshot:
        """The same pods on another set of nodes; pods of nodes that are gone are not counted. For what-if questions."""
        ordered = list(records)
        axis = self.axis.extended(name for record in ordered for name, _ in record.allocatable)
        table = build_table(ordered, axis, self.table)
        requested, scored, ports = moved_usage(self, table)
        frozen(requested)
        frozen(scored)
        return Snapshot(
            table,
            requested,
            scored,
            ports,
            self.placed,
            population=self.population.copy(table.index),
            uses=self.uses.copy(table.index),
            objects=self.objects,
            nominated=self.nominated,
        )

    def facing(self, priority: int, keys: Iterable[str] = ()) -> Snapshot:
        """What pods of this priority find: nominated pods of at least the same priority have their room `reserved`.

        `keys`: pods whose own nominations do not count. The same snapshot if no nomination matters.
        """
        if not self.nominated:
            return self
        own = frozenset(keys)
        reserved = {
            node: usages
            for node, nominations in self.nominated.items()
            if node in self.table.index
            and (
                usages := tuple(each.usage for each in nominations if each.priority >= priority and each.key not in own)
            )
        }
        if not reserved:
            return self
        seen = Snapshot(
            self.table,
            self.requested,
            self.scored,
            self.ports,
            self.placed,
            population=self.population,
            uses=self.uses,
            objects=self.objects,
            nominated=self.nominated,
        )
        seen.where, seen.reserved = self.where, reserved
        seen.devices = None if self.devices is None else self.devices.copy()
        return seen


class Nomination(Struct, frozen=True):
    """A pending pod for which room was made on a node (`status.nominatedNodeName`), and what it would take there."""

    key: str
    priority: int
    usage: Usage


class Trial(Snapshot):
    """A snapshot that can be written. Pods that are placed here need no key; only `remove` and `restore` look at keys.

    `removed`: the node of each running pod that was taken away, and what it took there. Claims of pods that are placed
    here are assumed to get their volumes there (`objects` then shows them so).
    """

    __slots__ = ("_reserved_volumes", "removed")

    def __init__(self, base: Snapshot) -> None:
        requested, scored = base.requested.copy(order="K"), base.scored.copy(order="K")
        super().__init__(
            base.table,
            requested,
            scored,
            base.ports.copy(),
            base.placed,
            population=base.population.copy(scratch=True),
            uses=base.uses.copy(scratch=True),
            objects=base.objects,
            nominated=base.nominated,
        )
        self.counts = dict(base.counts)
        self.reserved = base.reserved
        self.where = base.where
        self.removed: dict[str, tuple[str, Usage]] = {}
        self._reserved_volumes: tuple[Reservations, dict[tuple[tuple[VolumeUse, ...], int], int]] | None = None
        self.devices = None if base.devices is None else base.devices.copy()
        if isinstance(base, Trial) and base._reserved_volumes is not None:
            reservations, pods = base._reserved_volumes
            self.objects, self._reserved_volumes = base.objects.copy(), (reservations.copy(), dict(pods))

    def place(self, usage: Usage, row: int, count: int = 1) -> None:
        """Adds `count` pods that take this to the node of that row (removes them, if negative)."""
        self.place_many(usage, np.array([row], dtype=np.int64), np.array([count], dtype=np.int64))

    def place_many(self, usage: Usage, rows: Ints, counts: Ints) -> None:
        """Adds counts[j] pods to the node rows[j]; rows must be distinct."""
        self.counts.clear()
        self.notes.clear()
        vector = self.axis.vector(usage.requests, pods=1)
        self.requested[rows] += counts[:, None] * vector
        self.scored[rows] += counts[:, None] * np.array(usage.scored, dtype=np.int64)
        if usage.ports:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                self.ports.add(row, usage.ports, count)
        if usage.devices is not None:
            self.devices = Scratch.over(self.objects) if self.devices is None else self.devices
            spots = spots_of(self.table)
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                self.devices.place(usage.devices, spots[row], count)
        if usage.identity is not None or usage.volumes:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                if count:
                    add_presence(self, self.table.records[row].name, usage, count)
                    if any(use.is_claim for use in usage.volumes):
                        self._reserve(usage.volumes, row, count)

    def fix_claim(self, key: str, allocation: Object, uses: Iterable[Use]) -> None:
        """Gives a ResourceClaim (`namespace/name`) its devices, whichever pods come."""
        self.counts.clear()
        self.notes.clear()
        self.devices = Scratch.over(self.objects) if self.devices is None else self.devices
        self.devices.fix(key, allocation, uses)

    def place_each(self, places: Iterable[tuple[Usage, int]]) -> None:
        """Adds pods, each to the node of its row, equal pods in one go."""
        rows_of: dict[int, tuple[Usage, list[int]]] = {}
        for usage, row in places:
            rows_of.setdefault(id(usage), (usage, []))[1].append(row)
        self._place_rows(rows_of.values(), 1)

    def _place_rows(self, rows_of: Iterable[tuple[Usage, list[int]]], sign: int) -> None:
        for usage, rows in rows_of:
            distinct, counts = np.unique(np.array(rows, dtype=np.int64), return_counts=True)
            self.place_many(usage, distinct, sign * counts.astype(np.int64))

    def _reserve(self, uses: tuple[VolumeUse, ...], row: int, count: int) -> None:
        """Assume the volumes of pods that come (take back, if negative, those of pods that were placed here)."""
        if self._reserved_volumes is None:
            reservation = reservation_at(uses, row, self.table, self.objects) if count > 0 else None
            if not reservation:
                return
            self.objects, self._reserved_volumes = self.objects.copy(), (Reservations(), {})
        reservations, pods = self._reserved_volumes
        before = pods.get((uses, row), 0)
        now = pods[uses, row] = max(0, before + count)
        if not before and now:
            reservations.add((uses, row), reservation_at(uses, row, self.table, self.objects), self.objects)
        elif before and not now:
            reservations.remove((uses, row), self.objects)

    def remove(self, keys: Iterable[str]) -> None:
        """Takes running pods away; keys that no node has are ignored."""
        where, by_node = self._where(), dict[str, list[str]]()
        for key in keys:
            node = where.get(key)
            if node is not None:
                by_node.setdefault(node, []).append(key)
        placed, moved = dict(self.placed), list[tuple[str, Usage]]()
        for node, gone in by_node.items():
            pods = dict(placed.get(node, {}))
            for key in gone:
                usage = pods.pop(key, None)
                if usage is not None:
                    self.removed[key] = (node, usage)
                    moved.append((node, usage))
            placed[node] = pods
        self._count(moved, -1)
        self.placed = placed

    def restore(self, keys: Iterable[str]) -> None:
        """Puts back pods that `remove` took away, on their nodes; others are ignored."""
        placed, moved = dict(self.placed), list[tuple[str, Usage]]()
        own: set[str] = set()
        for key in keys:
            known = self.removed.pop(key, None)
            if known is None:
                continue
            node, usage = known
            if node not in own:
                own.add(node)
                placed[node] = dict(placed.get(node, {}))
            pods = placed[node]
            assert isinstance(pods, dict)
            pods[key] = usage
            moved.append(known)
        self._count(moved, 1)
        self.placed = placed

    def _count(self, moved: Sequence[tuple[str, Usage]], sign: int) -> None:
        """Adds (sign 1) or takes away (-1) what these pods take, equal pods in one go."""
        self.counts.clear()
        self.notes.clear()
        rows_of: dict[int, tuple[Usage, list[int]]] = {}
        index = self.table.index
        for node, usage in moved:
            row = index.get(node)
            if row is None:
                add_presence(self, node, usage, sign)
            else:
                rows_of.setdefault(id(usage), (usage, []))[1].append(row)
        self._place_rows(rows_of.values(), sign)

    def _where(self) -> dict[str, str]:
        """Pod key → node, made once a snapshot and shared by its trials."""
        if not self.where:
            self.where.update((key, node) for node, pods in self.placed.items() for key in pods)
        return self.where

    def close(self) -> None:
        """Makes the trial unusable: its arrays are given up."""
        empty = np.zeros((0, 0), dtype=np.int64)
        self.requested, self.scored, self.placed, self.removed = empty, empty, {}, {}
        self.counts, self.notes = {}, {}


def spots_of(table: NodeTable) -> tuple[Spot, ...]:
    """The nodes as the search for devices sees them, in table order."""
    spots = table.memo.get("spots")
    if not isinstance(spots, tuple):
        spots = table.memo["spots"] = tuple(
            Spot(
                record.name,
                record.labels,
                frozenset(name for name, amount in record.allocatable if amount > 0 and "/" in name),
            )
            for record in table.records
        )
    return spots


def add_presence(snapshot: Snapshot, node: str, usage: Usage, count: int) -> None:
    """Counts more pods of one kind (fewer, if negative) on a node for the rules between pods, known node or not."""
    if usage.identity is not None:
        snapshot.population.add(usage.identity, node, count)
    for use in usage.volumes:
        snapshot.uses.add(use, node, count)


def moved_usage(old: Snapshot, table: NodeTable) -> tuple[Ints, Ints, PortTable]:
    """`requested`, `scored` and `ports` of the old snapshot's pods for another table.

    Rows of nodes that both tables have are copied, rows of new nodes are summed from the pods that wait for them.
    """
    sources = rows_in(table, old.table)
    rows = np.flatnonzero(sources >= 0)
    old_rows = sources[rows]
    requested, scored = zeros(len(table), len(table.axis)), zeros(len(table), 2)
    requested[rows] = widened(old.requested, len(table.axis))[old_rows]
    scored[rows] = old.scored[old_rows]
    ports = old.ports.moved(len(table), rows, old_rows)
    for row in np.flatnonzero(sources < 0).tolist():
        for usage in old.placed.get(table.records[row].name, {}).values():
            add_usage(table.axis, requested, scored, ports, row, usage, 1)
    return requested, scored, ports


def add_usage(
    axis: ResourceAxis, requested: Ints, scored: Ints, ports: PortTable, row: int, usage: Usage, sign: int
) -> None:
    """Adds (sign 1) or takes away (-1) one pod on a row; the axis must have its resources."""
    requested[row, 0] += sign
    for name, amount in usage.requests:
        requested[row, axis.columns[name]] += sign * amount
    scored[row, 0] += sign * usage.scored[0]
    scored[row, 1] += sign * usage.scored[1]
    if usage.ports:
        ports.add(row, usage.ports, sign)


def add_usages(axis: ResourceAxis, snapshot: Snapshot, usage: Usage, rows: Sequence[int], signs: Sequence[int]) -> None:
    """As `add_usage`, for pods that take the same on rows[j]; rows may occur several times."""
    touched, places = np.unique(np.array(rows, dtype=np.int64), return_inverse=True)
    number = np.bincount(places, np.array(signs)).astype(np.int64)  # sums of ±1 are exact in floats
    snapshot.requested[touched, 0] += number
    for name, amount in usage.requests:
        snapshot.requested[touched, axis.columns[name]] += number * amount
    snapshot.scored[touched, 0] += number * usage.scored[0]
    snapshot.scored[touched, 1] += number * usage.scored[1]
    if usage.ports:
        for row, count in zip(touched.tolist(), number.tolist(), strict=True):
            snapshot.ports.add(row, usage.ports, count)
