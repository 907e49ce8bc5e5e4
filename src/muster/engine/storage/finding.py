"""Which volumes the claims of a pod have, can be bound to, or can get, on each node.

Source of the rules: kube-scheduler `volumebinding/binder.go` (FindPodVolumes), component-helpers
`storage/volume/pv_helpers.go` (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from muster.api.codec import Object, canonical
from muster.api.meta import name_of
from muster.api.selectors import NodeSelectorTerm, Operator, label_selector, node_selector_term
from muster.api.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    bytes_of,
    class_of,
    requested_bytes,
)
from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.nodes import NodeTable
from muster.engine.objects import CSI_DRIVER, CSI_STORAGE_CAPACITY, PERSISTENT_VOLUME, STORAGE_CLASS, ObjectStore
from muster.engine.storage.claims import Claims
from muster.engine.storage.offers import Offers, offers

TEXTS = (
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)
_MEMO_LIMIT = 20_000


class Found(Struct, frozen=True):
    """`failed` bool[M, 4]: which of the texts hold for each node. `chosen`: for each waiting claim its volume by node.

    `chosen` has (claim, int32[M] index into `volumes`, -1: to be provisioned) for nodes that are satisfied;
    `provisioned` are the claims that are to be provisioned wherever the pod goes.
    """

    failed: Bools
    volumes: tuple[Object, ...] = ()
    chosen: tuple[tuple[Object, Ints32], ...] = ()
    provisioned: tuple[Object, ...] = ()

    @property
    def satisfied(self) -> Bools:
        """bool[M]: nodes on which nothing is missing."""
        missing: Bools = np.any(self.failed, axis=1)
        return ~missing


class Nodes(Struct, frozen=True):
    """The nodes that are looked at: all of a table, or those of some rows."""

    table: NodeTable
    rows: Ints | None = None

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def of(self, mask: Bools) -> Bools:
        """bool[M] of a bool[N]."""
        return mask if self.rows is None else mask[self.rows]

    def all(self, value: bool) -> Bools:
        """bool[M] with one value."""
        return np.full(len(self), value, dtype=np.bool_)

    def reached(self, volume: Object) -> Bools:
        """bool[M]: nodes that the volume's node affinity allows, which looks at labels only."""
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        return (
            self.all(True) if required is None else self._kept(("reached", required), lambda: self._allowed(required))
        )

    def rows_that_reach(self, affinity: bytes, volume: Object) -> Ints:
        """The rows of the table that the volume's affinity, of which `affinity` is a key, allows."""
        memo, name = self.table.memo, ("rows", affinity)
        rows = memo.get(name)
        if rows is None:
            reached = Nodes(self.table).reached(volume)
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            rows = memo[name] = np.flatnonzero(reached)
        assert isinstance(rows, np.ndarray)
        return rows

    def local(self, rows: Ints) -> Ints:
        """Rows of the table as rows of these nodes, -1 for others."""
        if self.rows is None:
            return rows
        places = np.full(len(self.table), -1, dtype=np.int64)
        places[self.rows] = np.arange(len(self.rows))
        return places[rows]

    def accessible(self, topology: Object | None) -> Bools:
        """bool[M]: nodes from which storage of a topology can be used."""
        if topology is None:
            return self.all(False)
        return self._kept(("accessible", topology), lambda: _selected(topology, self.table))

    def _allowed(self, required: Object) -> Bools:
        mask = np.zeros(len(self.table), dtype=np.bool_)
        for entry in required.get("nodeSelectorTerms") or ():
            mask |= _matches(node_selector_term(entry), self.table)
        return mask

    def _kept(self, key: tuple[str, Object], compute: Callable[[], Bools]) -> Bools:
        """A bool[N] that depends on the table alone, worked out once."""
        memo, name = self.table.memo, (key[0], canonical(key[1]))
        mask = memo.get(name)
        if mask is None:
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            mask = memo[name] = compute()
        assert isinstance(mask, np.ndarray)
        return self.of(mask)


def find_volumes(claims: Claims, table: NodeTable, objects: ObjectStore, rows: Ints | None = None) -> Found:
    """Which nodes (of these rows, or all) have or can get the volumes of these claims, all nodes at once."""
    nodes = Nodes(table, rows)
    failed = np.zeros((len(nodes), len(TEXTS)), dtype=np.bool_)
    _check_bound(claims.bound, nodes, objects, failed)
    if not claims.waiting:
        return Found(failed)
    elsewhere, to_provision, to_match = nodes.all(False), [], []
    for claim in claims.waiting:
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        else:
            here = np.zeros(len(table), dtype=np.bool_)
            if selected in table.index:
                here[table.index[selected]] = True
            elsewhere |= ~nodes.of(here)
            to_provision.append(claim)
    offered = offers(objects)
    chosen = _match(to_match, offered, nodes)
    _provide(to_provision, chosen, nodes, objects, failed, ~elsewhere)
    failed[elsewhere, 1] = True
    return Found(failed, offered.volumes, tuple(chosen), tuple(to_provision))


def _check_bound(bound: Sequence[Object], nodes: Nodes, objects: ObjectStore, failed: Bools) -> None:
    """Stops at the first claim that a node fails, so that a node gets one of the two texts."""
    open_ = nodes.all(True)
    for claim in bound:
        volume = objects.get(PERSISTENT_VOLUME, claim["spec"]["volumeName"])
        if volume is None:
            failed[open_, 3] = True
            return
        outside = open_ & ~nodes.reached(volume)
        failed[outside, 0] = True
        open_ &= ~outside


def _match(claims: Sequence[Object], offered: Offers, nodes: Nodes) -> list[tuple[Object, Ints32]]:
    """The smallest volume that fits each claim on each node, smaller claims first; each volume once a node."""
    chosen: list[tuple[Object, Ints32]] = []
    for claim in sorted(claims, key=lambda claim: requested_bytes(claim) or 0):
        pick = np.full(len(nodes), -1, dtype=np.int32)
        taken = [earlier for _, earlier in chosen]
        for places, rows in _in_parts(offered.free_for(claim), offered, nodes):
            free = pick[rows] < 0
            for earlier in taken:
                free &= earlier[rows] != places
            # Of several volumes for a node the first one stays: it is written last.
            pick[rows[free][::-1]] = places[free][::-1]
            if (pick >= 0).all():
                break
        tied = offered.tied_to(claim)
        if tied is not None:  # bound to the claim from its side: this one or none
            free = nodes.all(True)
            for earlier in taken:
                free &= earlier != tied
            reached = nodes.reached(offered.volumes[tied])
            pick = np.where(free, np.where(reached, np.int32(tied), np.int32(-1)), pick)
        chosen.append((claim, pick))
    return chosen


def _in_parts(places: Sequence[int], offered: Offers, nodes: Nodes) -> Iterator[tuple[Ints32, Ints]]:
    """Pairs of a volume and a node (a row of `nodes`) that reaches it, volumes in order, some at a time."""
    at = 0
    while at < len(places):
        start, found, pairs = at, list[Ints](), 0
        while at < len(places) and pairs < len(nodes.table):
            place = places[at]
            found.append(nodes.rows_that_reach(offered.facts[place].affinity, offered.volumes[place]))
            pairs += len(found[-1])
            at += 1
        lengths = [len(rows) for rows in found]
        volumes = np.repeat(np.array(places[start:at], dtype=np.int32), lengths)
        rows = nodes.local(np.concatenate(found))
        here = rows >= 0
        yield volumes[here], rows[here]


def _provide(
    always: Sequence[Object],
    chosen: Sequence[tuple[Object, Ints32]],
    nodes: Nodes,
    objects: ObjectStore,
    failed: Bools,
    concerned: Bools,
) -> None:
    """Whether what was not found can be provisioned; claims in order, a node stops at the first that cannot."""
    everywhere = nodes.all(True)
    open_ = concerned.copy()
    for claim, needed in [*((claim, everywhere) for claim in always), *((claim, pick < 0) for claim, pick in chosen)]:
        rows = open_ & needed
        if not rows.any():
            continue
        allowed, enough = provisioning(claim, nodes, objects)
        failed[rows & ~allowed, 1] = True
        failed[rows & allowed & ~enough, 2] = True
        open_ &= ~(rows & ~(allowed & enough))


def provisioning(claim: Object, nodes: Nodes, objects: ObjectStore) -> tuple[Bools, Bools]:
    """bool[M] twice: nodes where the claim's class may make a volume, and nodes for which there is capacity."""
    storage_class = objects.get(STORAGE_CLASS, class_of(claim))
    provisioner = "" if storage_class is None else storage_class.get("provisioner") or ""
    if storage_class is None or not provisioner or provisioner == NO_PROVISIONER:
        return nodes.all(False), nodes.all(True)
    allowed = nodes.of(_in_topologies(storage_class.get("allowedTopologies") or (), nodes.table))
    size = requested_bytes(claim)
    driver = objects.get(CSI_DRIVER, provisioner)
    if size is None or driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
        return allowed, nodes.all(True)
    enough = nodes.all(False)
    for capacity in objects.all(CSI_STORAGE_CAPACITY).values():
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        if capacity.get("storageClassName") == name_of(storage_class) and limit is not None and bytes_of(limit) >= size:
            enough |= nodes.accessible(capacity.get("nodeTopology"))
    return allowed, enough


def _in_topologies(terms: Sequence[Object], table: NodeTable) -> Bools:
    """bool[N]: nodes in one of the topologies; all without any."""
    mask = np.full(len(table), not terms, dtype=np.bool_)
    for term in terms:
        expressions = term.get("matchLabelExpressions") or ()
        matches = np.full(len(table), bool(expressions), dtype=np.bool_)
        for expression in expressions:
            column, values = table.column(expression["key"]), set(expression.get("values") or ())
            known = np.array([value in values for value in column.values], dtype=np.bool_)
            matches &= np.append(known, False)[column.ids]
        mask |= matches
    return mask


def _selected(topology: Object, table: NodeTable) -> Bools:
    mask = np.ones(len(table), dtype=np.bool_)
    for requirement in label_selector(topology).requirements:
        mask &= table.column(requirement.key).accepted(requirement)
    return mask


def _matches(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    nameless = all(requirement.operator is Operator.NOT_IN for requirement in term.fields)
    mask = np.full(len(table), nameless and bool(term.labels or term.fields), dtype=np.bool_)
    for requirement in term.labels:
        mask &= table.column(requirement.key).accepted(requirement)
    return mask
