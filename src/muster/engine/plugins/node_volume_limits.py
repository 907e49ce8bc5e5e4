"""NodeVolumeLimits: a node attaches so many volumes of a CSI driver and no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.api.storage import class_of
from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.objects import (
    CSI_NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    ObjectStore,
)
from muster.engine.profile import UNLIMITED
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.volumes import VolumeUse

_STATUS = Status("NodeVolumeLimits", ("node(s) exceed max volume count",))


@dataclass(frozen=True, slots=True)
class NodeVolumeLimits:
    """Upstream `nodevolumelimits/csi.go`. Volumes of in-tree plugins that were migrated to CSI are not counted."""

    name: str = "NodeVolumeLimits"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where the volumes that the node does not have yet can be attached: all pods share them."""
        result = np.full(len(snapshot), UNLIMITED, dtype=np.int32)
        wanted = _attachments(shape.usage.volumes, snapshot.objects)
        if not wanted:
            return result
        attached = _attached(snapshot, frozenset(driver for driver, _ in wanted))
        for row, record in enumerate(snapshot.table.records):
            limits = _limits(snapshot.objects, record.name)
            held = attached.get(record.name, frozenset())
            if limits and not _fits(wanted, held, limits):
                result[row] = 0
        return result

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)


def _fits(wanted: frozenset[tuple[str, str]], held: frozenset[tuple[str, str]], limits: dict[str, int]) -> bool:
    """Whether each driver that is needed for a new volume stays within its limit."""
    new = wanted - held
    for driver in {driver for driver, _ in new}:
        total = sum(1 for other, _ in held if other == driver) + sum(1 for other, _ in new if other == driver)
        if driver in limits and total > limits[driver]:
            return False
    return True


def _attached(snapshot: Snapshot, drivers: frozenset[str]) -> dict[str, frozenset[tuple[str, str]]]:
    """(driver, handle) of the volumes that pods of each node use, of these drivers."""
    found: dict[str, set[tuple[str, str]]] = {}
    for use in snapshot.uses:
        attachment = _attachment(use, snapshot.objects)
        if attachment is not None and attachment[0] in drivers:
            for node in snapshot.uses.nodes(use):
                found.setdefault(node, set()).add(attachment)
    return {node: frozenset(held) for node, held in found.items()}


def _attachments(uses: tuple[VolumeUse, ...], objects: ObjectStore) -> frozenset[tuple[str, str]]:
    found = [_attachment(use, objects) for use in uses]
    return frozenset(attachment for attachment in found if attachment is not None)


def _attachment(use: VolumeUse, objects: ObjectStore) -> tuple[str, str] | None:
    """(driver, handle) of the volume of a claim; one that is not bound yet has the driver of its class."""
    claim = objects.get(PERSISTENT_VOLUME_CLAIM, use.key) if use.is_claim else None
    if claim is None:
        return None
    volume = objects.get(PERSISTENT_VOLUME, claim["spec"].get("volumeName") or "")
    if volume is not None:
        source = volume["spec"].get("csi")
        return (source.get("driver", ""), source.get("volumeHandle", "")) if source else None
    storage_class = objects.get(STORAGE_CLASS, class_of(claim))
    return None if storage_class is None else (storage_class.get("provisioner", ""), f"claim {use.key}")


def _limits(objects: ObjectStore, node: str) -> dict[str, int]:
    csi_node = objects.get(CSI_NODE, node)
    drivers = () if csi_node is None else (csi_node.get("spec") or {}).get("drivers") or ()
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: int(count) for name, count in counts.items() if count is not None}
