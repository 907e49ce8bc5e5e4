"""NodeVolumeLimits: a node attaches so many volumes of a CSI driver and no more."""

from __future__ import annotations

from collections.abc import Iterable
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
from muster.engine.profile import UNLIMITED, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.storage.migration import (
    Attachment,
    attachment_of_claim,
    attachment_of_disk,
    attachment_of_volume,
    migrated_on,
)
from muster.engine.storage.volumes import VolumeUse

_STATUS = Status("NodeVolumeLimits", ("node(s) exceed max volume count",))


@dataclass(frozen=True, slots=True)
class NodeVolumeLimits:
    """Upstream `nodevolumelimits/csi.go`. In-tree volumes count on nodes where their plugin is migrated to CSI."""

    name: str = "NodeVolumeLimits"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where the volumes that the node does not have yet can be attached: all pods share them."""
        wanted = _attachments(shape.usage.volumes, snapshot.objects)
        if not wanted:
            return unlimited(snapshot)
        result = np.full(len(snapshot), UNLIMITED, dtype=np.int32)
        attached = _attached(snapshot, frozenset(each.driver for each in wanted))
        for row, record in enumerate(snapshot.table.records):
            limits, migrated = _limits(snapshot.objects, record.name)
            held = attached.get(record.name, set())
            if limits and not _fits(_counted(wanted, migrated), _counted(held, migrated), limits):
                result[row] = 0
        return result

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)


def _counted(attachments: Iterable[Attachment], migrated: frozenset[str]) -> frozenset[tuple[str, str]]:
    """(driver, handle) of what CSI drivers attach to a node where these plugins are migrated."""
    return frozenset((each.driver, each.handle) for each in attachments if not each.plugin or each.plugin in migrated)


def _fits(wanted: frozenset[tuple[str, str]], held: frozenset[tuple[str, str]], limits: dict[str, int]) -> bool:
    """Whether each driver that is needed for a new volume stays within its limit."""
    new = wanted - held
    for driver in {driver for driver, _ in new}:
        total = sum(1 for other, _ in held if other == driver) + sum(1 for other, _ in new if other == driver)
        if driver in limits and total > limits[driver]:
            return False
    return True


def _attached(snapshot: Snapshot, drivers: frozenset[str]) -> dict[str, set[Attachment]]:
    """The volumes that pods of each node use, of these drivers."""
    found: dict[str, set[Attachment]] = {}
    for use in snapshot.uses:
        attachment = _attachment(use, snapshot.objects)
        if attachment is not None and attachment.driver in drivers:
            for node in snapshot.uses.nodes(use):
                found.setdefault(node, set()).add(attachment)
    return found


def _attachments(uses: tuple[VolumeUse, ...], objects: ObjectStore) -> frozenset[Attachment]:
    found = [_attachment(use, objects) for use in uses]
    return frozenset(attachment for attachment in found if attachment is not None)


def _attachment(use: VolumeUse, objects: ObjectStore) -> Attachment | None:
    """The volume of a claim (of one that is not bound yet by its class), or a disk that the pod names itself."""
    if not use.is_claim:
        return attachment_of_disk(use.kind, use.name)
    claim = objects.get(PERSISTENT_VOLUME_CLAIM, use.key)
    if claim is None:
        return None
    volume = objects.get(PERSISTENT_VOLUME, claim["spec"].get("volumeName") or "")
    if volume is not None:
        return attachment_of_volume(volume)
    storage_class = objects.get(STORAGE_CLASS, class_of(claim))
    return None if storage_class is None else attachment_of_claim(storage_class.get("provisioner", ""), use.key)


def _limits(objects: ObjectStore, node: str) -> tuple[dict[str, int], frozenset[str]]:
    """How many volumes of each driver the node attaches, and the in-tree plugins that are migrated there."""
    csi_node = objects.get(CSI_NODE, node)
    if csi_node is None:
        return {}, frozenset()
    drivers = (csi_node.get("spec") or {}).get("drivers") or ()
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: int(count) for name, count in counts.items() if count is not None}, migrated_on(csi_node)
