"""VolumeZone: a volume with zone or region labels is used in its zones."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.api.codec import Object
from muster.api.storage import class_of
from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.objects import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, ObjectStore
from muster.engine.profile import limited_to, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.storage.claims import missing
from muster.engine.storage.volumes import CLAIM, VolumeUse

_STABLE = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_KEYS = (*_STABLE, *_STABLE.values())
_STATUS = Status("VolumeZone", ("node(s) had no available volume zone",), resolvable=False)


class VolumeZone(Struct, frozen=True):
    """Upstream `volumezone/volume_zone.go`."""

    name: str = "VolumeZone"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where every labelled volume is available; nodes outside all zones take everything."""
        table = snapshot.table
        if self.verdict(shape, snapshot) is not None:
            return np.zeros(len(table), dtype=np.int32)
        places = [place for use in shape.usage.volumes for place in _places(use, snapshot.objects)]
        if not places:
            return unlimited(snapshot)
        zoned = np.zeros(len(table), dtype=np.bool_)
        for key in _KEYS:
            zoned |= table.column(key).ids >= 0
        fits = np.ones(len(table), dtype=np.bool_)
        for key, values in places:
            fits &= _within(table, key, values)
        return limited_to(fits | ~zoned)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim that can have no volume."""
        for use in shape.usage.volumes:
            if use.kind == CLAIM and (problem := _problem(use, snapshot.objects)):
                return Status(self.name, (problem,), resolvable=False)
        return None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None


def _problem(use: VolumeUse, objects: ObjectStore) -> str:
    claim = objects.get(PERSISTENT_VOLUME_CLAIM, use.key)
    if claim is None:
        return missing(use)
    name = claim["spec"].get("volumeName") or ""
    if name:
        return "" if objects.get(PERSISTENT_VOLUME, name) else f'persistentvolume "{name}" not found'
    class_name = class_of(claim)
    if not class_name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = objects.get(STORAGE_CLASS, class_name)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{class_name}" not found'
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        return ""
    return "PersistentVolume had no name"


def _places(use: VolumeUse, objects: ObjectStore) -> list[tuple[str, frozenset[str]]]:
    """The zone and region labels of the volume of a claim, with their values."""
    claim = objects.get(PERSISTENT_VOLUME_CLAIM, use.key) if use.kind == CLAIM else None
    volume: Object | None = None
    if claim is not None:
        volume = objects.get(PERSISTENT_VOLUME, claim["spec"].get("volumeName") or "")
    labels = {} if volume is None else volume["metadata"].get("labels") or {}
    found = []
    for key in _KEYS:
        values = [value.strip() for value in labels[key].split("__")] if key in labels else []
        if values and all(values):
            found.append((key, frozenset(values)))
    return found


def _within(table: NodeTable, key: str, values: frozenset[str]) -> Bools:
    """bool[N]: nodes whose label, or if they lack it whose stable label, has one of the values."""
    column = table.column(key)
    fits = np.append(np.array([value in values for value in column.values], dtype=np.bool_), False)[column.ids]
    if key in _STABLE:
        lacking = column.ids < 0
        fits = np.where(lacking, _within(table, _STABLE[key], values), fits)
    return fits
