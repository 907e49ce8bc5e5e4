"""Pods as the scheduler keeps them: decoded without what it never looks at, which of a real pod is more than half.

Who reads a field of pods that is not listed here adds it; `tests/api/test_lean_pods.py` holds the list to what shapes,
usages and snapshots are made of.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TypedDict

import msgspec

from muster.api.codec import JSON


def loads_lean(data: bytes | str) -> JSON:
    """As `loads`, for a pod, a list of pods, or an event of a watch of pods, with what scheduling may look at.

    Left out are `managedFields`, what goes on in containers (commands, environment, mounts, probes, image ids, …) and
    what is in volumes that are the same on every node: of a real pod, more than half. Raises ValueError.
    """
    return _DECODER.decode(data)


def _fields(name: str, *plain: str, **typed: JSON) -> JSON:
    """A type of JSON objects with these fields, the plain ones with any value; others are left out."""
    return TypedDict(name, {**dict.fromkeys(plain, JSON), **typed}, total=False)  # type: ignore[operator]  # made from values


def _some(of: JSON) -> JSON:
    """A list of such values, or null."""
    return GenericAlias(list, (of,)) | None


_Metadata = _fields(
    "_Metadata",
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("labels", "annotations", "ownerReferences", "finalizers", "continue", "remainingItemCount"),
)
"""All fields of ObjectMeta and ListMeta but managedFields."""

_Container = _fields("_Container", "name", "image", "resources", "ports", "restartPolicy", "restartPolicyRules")

_Unread = _fields("_Unread")
"""An object of which is only seen that it is there."""

_Volume = _fields(
    "_Volume",
    *("name", "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "emptyDir", "ephemeral"),
    *("fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "image", "iscsi", "nfs"),
    *("persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos"),
    "vsphereVolume",
    **dict.fromkeys(("configMap", "downwardAPI", "projected", "secret"), _Unread | None),
)

_Spec = _fields(
    "_Spec",
    *("activeDeadlineSeconds", "affinity", "hostNetwork", "hostUsers", "nodeName", "nodeSelector", "os", "overhead"),
    *("preemptionPolicy", "priority", "priorityClassName", "resourceClaims", "resources", "restartPolicy"),
    *("runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "terminationGracePeriodSeconds"),
    *("tolerations", "topologySpreadConstraints", "workloadRef"),
    **dict.fromkeys(("containers", "initContainers"), _some(_Container)),
    volumes=_some(_Volume),
)

_ContainerStatus = _fields("_ContainerStatus", "name", "allocatedResources", "ready", "resources", "state")

_Condition = _fields("_Condition", "type", "status", "reason", "message", "lastTransitionTime")

_Status = _fields(
    "_Status",
    *("allocatedResources", "extendedResourceClaimStatus", "message", "nominatedNodeName", "phase", "reason"),
    *("resourceClaimStatuses", "resources", "startTime"),
    conditions=_some(_Condition),
    **dict.fromkeys(("containerStatuses", "initContainerStatuses"), _some(_ContainerStatus)),
)

_Object = _fields(
    "_Object",
    *("apiVersion", "kind", "message", "reason", "details", "code"),
    metadata=_Metadata,
    spec=_Spec | None,
    status=_Status | str | None,
)
"""A Pod or a Status."""

_Value = _fields("_Value", "type", **_Object.__annotations__, items=_some(_Object), object=_Object)
"""One of them, a list of them, or a watch event with one of them."""

_DECODER = msgspec.json.Decoder(_Value)
