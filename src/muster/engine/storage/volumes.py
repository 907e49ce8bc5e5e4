"""What a pod's volumes use: claims, and disks that cannot be mounted twice."""

from __future__ import annotations

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import name_of, namespace_of, uid_of
from muster.engine.storage.migration import disk_of

CLAIM = "claim"
EPHEMERAL = "ephemeral"
GCE_DISK = "gcePersistentDisk"
EBS_VOLUME = "awsElasticBlockStore"
ISCSI = "iscsi"
RBD = "rbd"


class VolumeUse(Struct, frozen=True):
    """A claim (`name` in `namespace`; `owner`: the uid of the pod for which an ephemeral one is made) or a disk.

    A disk's `name` identifies it; `hosts`: an RBD image is the same one if its monitors overlap.
    """

    kind: str
    namespace: str
    name: str
    read_only: bool = False
    hosts: tuple[str, ...] = ()
    owner: str = ""
    pod: str = ""

    @property
    def is_claim(self) -> bool:
        """Whether it is a claim, of either kind."""
        return self.kind in (CLAIM, EPHEMERAL)

    @property
    def key(self) -> str:
        """`namespace/name` of a claim."""
        return f"{self.namespace}/{self.name}"

    def conflicts(self, other: VolumeUse) -> bool:
        """Whether two pods with these uses cannot be on one node (upstream `volumerestrictions.isVolumeConflict`)."""
        if self.kind != other.kind or self.kind not in _EXCLUSIVE or self.name != other.name:
            return False
        if self.kind == RBD and not set(self.hosts) & set(other.hosts):
            return False
        return self.kind == EBS_VOLUME or not (self.read_only and other.read_only)


_EXCLUSIVE = (GCE_DISK, EBS_VOLUME, ISCSI, RBD)


def volume_uses(pod: Object) -> tuple[VolumeUse, ...]:
    """The uses of a pod that rules look at, in the order of its volumes."""
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return ()
    return tuple(use for volume in volumes if (use := _use(pod, volume)) is not None)


def _use(pod: Object, volume: Object) -> VolumeUse | None:
    if claim := volume.get("persistentVolumeClaim"):
        return VolumeUse(CLAIM, namespace_of(pod), claim.get("claimName") or "")
    if volume.get("ephemeral"):
        name = f"{name_of(pod)}-{volume.get('name', '')}"
        return VolumeUse(EPHEMERAL, namespace_of(pod), name, owner=uid_of(pod), pod=name_of(pod))
    if disk := volume.get(GCE_DISK):
        return VolumeUse(GCE_DISK, "", disk.get("pdName") or "", bool(disk.get("readOnly")))
    if disk := volume.get(EBS_VOLUME):
        return VolumeUse(EBS_VOLUME, "", disk.get("volumeID") or "", bool(disk.get("readOnly")))
    if disk := volume.get(ISCSI):
        return VolumeUse(ISCSI, "", disk.get("iqn") or "", bool(disk.get("readOnly")))
    if disk := volume.get(RBD):
        name = f"{disk.get('pool') or 'rbd'}/{disk.get('image') or ''}"
        return VolumeUse(RBD, "", name, bool(disk.get("readOnly")), tuple(sorted(disk.get("monitors") or ())))
    if found := disk_of(volume):
        return VolumeUse(found[0], "", found[1])
    return None
