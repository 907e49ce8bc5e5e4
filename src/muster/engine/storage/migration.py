"""In-tree volumes that a CSI driver attaches instead: which driver, and under which handle.

Source of the rules: `k8s.io/csi-translation-lib/plugins`, kube-scheduler `nodevolumelimits/{csi,utils}.go`.
Files of Azure and vSphere disks are translated too, but are not counted by kube-scheduler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.api.codec import Object

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of a CSINode: the in-tree plugins whose volumes the kubelet leaves to CSI drivers, by commas."""

DRIVERS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""The CSI driver of each in-tree plugin (and provisioner) whose migration counts."""

_FIELDS = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "volumeID"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pdName"),
    "azureDisk": ("kubernetes.io/azure-disk", "diskURI"),
    "cinder": ("kubernetes.io/cinder", "volumeID"),
    "portworxVolume": ("kubernetes.io/portworx-volume", "volumeID"),
}
"""The plugin of each field of a volume, and the field that identifies the disk."""

_EBS_ID = re.compile(r"vol-[^/]*\Z")
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume of a driver. `plugin`: the in-tree plugin it belongs to; it counts only where that is migrated."""

    driver: str
    handle: str
    plugin: str = ""


def disk_of(source: Object) -> tuple[str, str] | None:
    """The field and the identity of an in-tree disk of these plugins in a volume of a pod; None if it is none."""
    for field, (_, identity) in _FIELDS.items():
        if source.get(field):
            return field, str(source[field].get(identity) or "")
    return None


def attachment_of_disk(field: str, identity: str) -> Attachment | None:
    """A disk that a pod names itself."""
    if field not in _FIELDS:
        return None
    plugin, _ = _FIELDS[field]
    return Attachment(DRIVERS[plugin], _handle(field, identity, "UNSPECIFIED"), plugin)


def attachment_of_volume(volume: Object) -> Attachment | None:
    """A PersistentVolume; None if it is neither of a CSI driver nor of a plugin that may be migrated."""
    source = volume["spec"].get("csi")
    if source:
        return Attachment(source.get("driver", ""), source.get("volumeHandle", ""))
    disk = disk_of(volume["spec"])
    if disk is None:
        return None
    field, identity = disk
    plugin, _ = _FIELDS[field]
    return Attachment(DRIVERS[plugin], _handle(field, identity, _place(volume)), plugin)


def attachment_of_claim(provisioner: str, key: str) -> Attachment:
    """A claim without a volume, by the provisioner of its class."""
    handle = f"claim {key}"
    if provisioner in DRIVERS:
        return Attachment(DRIVERS[provisioner], handle, provisioner)
    return Attachment(provisioner, handle)


def migrated_on(csi_node: Object) -> frozenset[str]:
    """The in-tree plugins that are migrated on a node."""
    annotations = csi_node["metadata"].get("annotations") or {}
    return frozenset(annotations.get(MIGRATED_PLUGINS, "").split(","))


def _handle(field: str, identity: str, place: str) -> str:
    if field == "gcePersistentDisk":
        kind = "regions" if place.startswith("region ") else "zones"
        return f"projects/UNSPECIFIED/{kind}/{place.removeprefix('region ')}/disks/{identity}"
    if field == "awsElasticBlockStore" and (match := _EBS_ID.search(identity)):
        return match.group()
    return identity


def _place(volume: Object) -> str:
    """The zone of a volume by its labels; of several zones, their region."""
    labels = volume["metadata"].get("labels") or {}
    zones = next((str(labels[key]).split("__") for key in _ZONES if labels.get(key)), [])
    if not zones:
        return "UNSPECIFIED"
    return zones[0] if len(zones) == 1 else f"region {zones[0].rpartition('-')[0]}"
