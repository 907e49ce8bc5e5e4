"""VolumeBinding: the volumes of a pod's claims must be reachable from its node, or be found or made there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, uid_of
from muster.api.selectors import NodeSelectorTerm, Operator, SelectorError, label_selector, node_selector_term
from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.claims import SELECTED_NODE, Claims, bytes_of, claims_of, class_of, requested_bytes
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.objects import (
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    STORAGE_CLASS,
    ObjectStore,
)
from muster.engine.profile import UNLIMITED, limited_to, noted
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_TEXTS = (
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """Upstream `volumebinding/{volume_binding,binder}.go`."""

    name: str = "VolumeBinding"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where all claims have or can get their volumes."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        if claims is None:
            return np.full(len(snapshot), UNLIMITED, dtype=np.int32)
        if isinstance(claims, str) or claims.immediate:
            return np.zeros(len(snapshot), dtype=np.int32)
        return limited_to(self._found(shape, snapshot, claims).satisfied)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """All that is missing."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        assert isinstance(claims, Claims)
        failed = self._found(shape, snapshot, claims).failed[rows].tolist()
        statuses = {
            pattern: Status(
                self.name, tuple(text for text, bad in zip(_TEXTS, pattern, strict=True) if bad), resolvable=False
            )
            for pattern in set(map(tuple, failed))
        }
        return [statuses[tuple(pattern)] for pattern in failed]

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Claims that cannot be used, or that should have been bound already."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        if isinstance(claims, str):
            return Status(self.name, (claims,), resolvable=False)
        if claims is not None and claims.immediate:
            return Status(self.name, ("pod has unbound immediate PersistentVolumeClaims",), resolvable=False)
        return None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None

    def _found(self, shape: Shape, snapshot: Snapshot, claims: Claims) -> Found:
        return noted(snapshot, (self, shape.usage.volumes), lambda: find_volumes(claims, snapshot))


@dataclass(frozen=True, slots=True)
class Found:
    """`failed` bool[N, 4]: which of the texts hold for each node. `chosen`: for each waiting claim its volume by node.

    `chosen` has (claim, int32[N] index into `volumes`, -1: to be provisioned) for nodes that are satisfied.
    """

    failed: Bools
    volumes: tuple[Object, ...]
    chosen: tuple[tuple[Object, Ints32], ...]

    @property
    def satisfied(self) -> Bools:
        """bool[N]: nodes on which nothing is missing."""
        missing: Bools = np.any(self.failed, axis=1)
        return ~missing


def find_volumes(claims: Claims, snapshot: Snapshot) -> Found:
    """Which nodes have or can get the volumes of these claims (upstream `FindPodVolumes`, for all nodes at once)."""
    table, objects = snapshot.table, snapshot.objects
    failed = np.zeros((len(table), len(_TEXTS)), dtype=np.bool_)
    _check_bound(claims.bound, table, objects, failed)
    if not claims.waiting:
        return Found(failed, (), ())
    elsewhere, to_provision, to_match = np.zeros(len(table), dtype=np.bool_), [], []
    for claim in claims.waiting:
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        else:
            here = np.zeros(len(table), dtype=np.bool_)
            if selected in table.index:
                here[table.index[selected]] = True
            elsewhere |= ~here
            to_provision.append(claim)
    volumes = tuple(sorted(objects.all(PERSISTENT_VOLUME).values(), key=name_of))
    chosen = _match(to_match, volumes, table)
    _provide(to_provision, chosen, snapshot, failed, ~elsewhere)
    failed[elsewhere, 1] = True
    return Found(failed, volumes, tuple(chosen))


def _check_bound(bound: Sequence[Object], table: NodeTable, objects: ObjectStore, failed: Bools) -> None:
    """Stops at the first claim that a node fails, so that a node gets one of the two texts."""
    open_ = np.ones(len(table), dtype=np.bool_)
    for claim in bound:
        volume = objects.get(PERSISTENT_VOLUME, claim["spec"]["volumeName"])
        if volume is None:
            failed[open_, 3] = True
            return
        outside = open_ & ~_reachable(volume, table)
        failed[outside, 0] = True
        open_ &= ~outside


def _match(claims: Sequence[Object], volumes: Sequence[Object], table: NodeTable) -> list[tuple[Object, Ints32]]:
    """The smallest volume that fits each claim on each node, smaller claims first; each volume once a node."""
    chosen: list[tuple[Object, Ints32]] = []
    for claim in sorted(claims, key=lambda claim: requested_bytes(claim) or 0):
        pick = np.full(len(table), -1, dtype=np.int32)
        for place, decisive in _candidates(claim, volumes):
            free = np.ones(len(table), dtype=np.bool_)
            for _, earlier in chosen:
                free &= earlier != place
            reachable = _reachable(volumes[place], table)
            if decisive:  # bound to the claim from its side: this one or none
                pick = np.where(free & reachable, np.int32(place), np.where(free, np.int32(-1), pick))
            else:
                pick = np.where((pick < 0) & free & reachable, np.int32(place), pick)
        chosen.append((claim, pick))
    return chosen


def _candidates(claim: Object, volumes: Sequence[Object]) -> list[tuple[int, bool]]:
    """(place, whether it is bound to the claim) of volumes that fit the claim, those not bound by size, then bound."""
    size = requested_bytes(claim) or 0
    loose, tied = [], []
    for place, volume in enumerate(volumes):
        if _capacity(volume) < size or is_deleting(volume) or not _same_kind(claim, volume):
            continue
        if volume["spec"].get("claimRef"):
            if _is_bound_to(volume, claim):
                tied.append((place, True))
        elif _is_available_for(claim, volume):
            loose.append((_capacity(volume), place))
    return [(place, False) for _, place in sorted(loose)] + tied[:1]


def _same_kind(claim: Object, volume: Object) -> bool:
    modes = [(obj["spec"].get("volumeMode") or "Filesystem") for obj in (claim, volume)]
    attributes = [(obj["spec"].get("volumeAttributesClassName") or "") for obj in (claim, volume)]
    return modes[0] == modes[1] and attributes[0] == attributes[1]


def _is_bound_to(volume: Object, claim: Object) -> bool:
    reference, metadata = volume["spec"]["claimRef"], claim["metadata"]
    same = (reference.get("name"), reference.get("namespace")) == (metadata["name"], metadata.get("namespace"))
    return same and (not reference.get("uid") or reference["uid"] == uid_of(claim))


def _is_available_for(claim: Object, volume: Object) -> bool:
    if (volume.get("status") or {}).get("phase") != "Available" or class_of(volume) != class_of(claim):
        return False
    if not set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ()):
        return False
    selector = claim["spec"].get("selector")
    if selector is None:
        return True
    try:
        return label_selector(selector).matches(volume["metadata"].get("labels") or {})
    except SelectorError:
        return False


def _provide(
    always: Sequence[Object],
    chosen: Sequence[tuple[Object, Ints32]],
    snapshot: Snapshot,
    failed: Bools,
    concerned: Bools,
) -> None:
    """Whether what was not found can be provisioned; claims in order, a node stops at the first that cannot."""
    everywhere = np.ones(len(snapshot), dtype=np.bool_)
    open_ = concerned.copy()
    for claim, needed in [*((claim, everywhere) for claim in always), *((claim, pick < 0) for claim, pick in chosen)]:
        rows = open_ & needed
        if not rows.any():
            continue
        allowed, enough = _provisioning(claim, snapshot)
        failed[rows & ~allowed, 1] = True
        failed[rows & allowed & ~enough, 2] = True
        open_ &= ~(rows & ~(allowed & enough))


def _provisioning(claim: Object, snapshot: Snapshot) -> tuple[Bools, Bools]:
    """bool[N] twice: nodes where the claim's class may make a volume, and nodes for which there is capacity."""
    table, objects = snapshot.table, snapshot.objects
    none, every = np.zeros(len(table), dtype=np.bool_), np.ones(len(table), dtype=np.bool_)
    storage_class = objects.get(STORAGE_CLASS, class_of(claim))
    provisioner = "" if storage_class is None else storage_class.get("provisioner") or ""
    if storage_class is None or not provisioner or provisioner == _NO_PROVISIONER:
        return none, every
    allowed = _in_topologies(storage_class.get("allowedTopologies") or (), table)
    size = requested_bytes(claim)
    driver = objects.get(CSI_DRIVER, provisioner)
    if size is None or driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
        return allowed, every
    enough = none.copy()
    for capacity in objects.all(CSI_STORAGE_CAPACITY).values():
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        if capacity.get("storageClassName") == name_of(storage_class) and limit is not None and bytes_of(limit) >= size:
            enough |= _has_access(capacity.get("nodeTopology"), table)
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


def _has_access(topology: Object | None, table: NodeTable) -> Bools:
    mask = np.full(len(table), topology is not None, dtype=np.bool_)
    if topology is not None:
        for requirement in label_selector(topology).requirements:
            mask &= table.column(requirement.key).accepted(requirement)
    return mask


def _reachable(volume: Object, table: NodeTable) -> Bools:
    """bool[N]: nodes that the volume's node affinity allows, which looks at labels only."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return np.ones(len(table), dtype=np.bool_)
    mask = np.zeros(len(table), dtype=np.bool_)
    for entry in required.get("nodeSelectorTerms") or ():
        mask |= _matches(node_selector_term(entry), table)
    return mask


def _matches(term: NodeSelectorTerm, table: NodeTable) -> Bools:
    nameless = all(requirement.operator is Operator.NOT_IN for requirement in term.fields)
    mask = np.full(len(table), nameless and bool(term.labels or term.fields), dtype=np.bool_)
    for requirement in term.labels:
        mask &= table.column(requirement.key).accepted(requirement)
    return mask


def _capacity(volume: Object) -> int:
    return bytes_of((volume["spec"].get("capacity") or {}).get("storage", "0"))
