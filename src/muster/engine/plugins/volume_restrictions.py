"""VolumeRestrictions: disks that only one pod may mount, and claims that only one pod may use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.between import Apart, AtMost, Between
from muster.engine.model import Status
from muster.engine.objects import PERSISTENT_VOLUME_CLAIM
from muster.engine.profile import UNLIMITED, Feasible, Scaled, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.storage.claims import missing
from muster.engine.storage.volumes import CLAIM, VolumeUse

_DISK = Status("VolumeRestrictions", ("node(s) had no available disk",))
_ONE_POD = Status(
    "VolumeRestrictions",
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod",
    ),
)


class VolumeRestrictions(Struct, frozen=True):
    """Upstream `volumerestrictions/volume_restrictions.go`."""

    name: str = "VolumeRestrictions"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """One where no disk is in the way of itself; none anywhere if another pod has a claim that is for one pod."""
        uses = shape.usage.volumes
        if not uses:
            return unlimited(snapshot)
        if self.verdict(shape, snapshot) is not None or self._taken(uses, snapshot):
            return np.zeros(len(snapshot), dtype=np.int32)
        most = 1 if self._exclusive(uses, snapshot) or any(use.conflicts(use) for use in uses) else UNLIMITED
        return np.where(self._conflicting(uses, snapshot), np.int32(0), np.int32(most))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """Disks are looked at first."""
        disks = self._conflicting(shape.usage.volumes, snapshot)[rows].tolist()
        return [_DISK if conflict else _ONE_POD for conflict in disks]

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A claim that does not exist."""
        for use in shape.usage.volumes:
            if use.kind == CLAIM and snapshot.objects.get(PERSISTENT_VOLUME_CLAIM, use.key) is None:
                return Status(self.name, (missing(use),), resolvable=False)
        return None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None

    def couples(self, shape: Shape, snapshot: Snapshot) -> bool:
        """A claim for one pod may be in use elsewhere."""
        return bool(self._exclusive(shape.usage.volumes, snapshot))

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """It looks at every node."""
        return True

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """What is taken stays taken."""
        return self.count(shape, snapshot)

    def coupling(self, shape: Shape, snapshot: Snapshot) -> OnePod | None:
        """A claim that is for one pod is for one of the shape."""
        return OnePod(len(snapshot)) if self._exclusive(shape.usage.volumes, snapshot) else None

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """One pod for each claim that is for one pod; on each node no two pods whose disks exclude each other."""
        claims: dict[str, set[int]] = {}
        pairs: set[tuple[int, int]] = set()
        for at, shape in enumerate(shapes):
            for use in self._exclusive(shape.usage.volumes, snapshot):
                claims.setdefault(use.key, set()).add(at)
            for other in range(at, len(shapes)):
                uses = shapes[other].usage.volumes
                if any(one.conflicts(two) for one in shape.usage.volumes for two in uses):
                    pairs.add((at, other))
        found: list[Between] = [AtMost(f"claim {key}", frozenset(users), 1) for key, users in claims.items()]
        if pairs:
            found.append(Apart("disks for one pod", np.arange(len(snapshot), dtype=np.int32), frozenset(pairs)))
        return found

    def _conflicting(self, uses: tuple[VolumeUse, ...], snapshot: Snapshot) -> Bools:
        mask = np.zeros(len(snapshot), dtype=np.bool_)
        for use in uses:
            if not use.is_claim:
                for other in snapshot.uses.in_namespace(use.namespace):
                    if use.conflicts(other):
                        mask |= snapshot.uses.column(other) > 0
        return mask

    def _exclusive(self, uses: tuple[VolumeUse, ...], snapshot: Snapshot) -> list[VolumeUse]:
        """The uses of claims that one pod alone may use."""
        found = []
        for use in uses:
            claim = snapshot.objects.get(PERSISTENT_VOLUME_CLAIM, use.key) if use.kind == CLAIM else None
            if claim is not None and "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ()):
                found.append(use)
        return found

    def _taken(self, uses: tuple[VolumeUse, ...], snapshot: Snapshot) -> bool:
        index = snapshot.table.index
        return any(node in index for use in self._exclusive(uses, snapshot) for node in snapshot.uses.nodes(use))


class OnePod:
    """Of all pods of the shape one is placed, since they share a claim that is for one pod."""

    def __init__(self, size: int) -> None:
        self._open = np.ones(size, dtype=np.bool_)

    @property
    def steady(self) -> bool:
        """The first pod closes all nodes."""
        return False

    @property
    def binding(self) -> bool:
        """It is a rule about other pods."""
        return True

    def most(self, usable: Bools) -> int:
        """One."""
        return 1

    def allowed(self) -> Bools | None:
        return self._open

    def scores(self, feasible: Feasible) -> Scaled | None:
        return None

    def place(self, row: int) -> None:
        self._open = np.zeros_like(self._open)
