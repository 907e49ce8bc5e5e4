"""What a change of a node or a pod means for decisions: pure comparisons of two versions of an object.

Source of the rules: kube-scheduler `backend/queue/events.go` and each plugin's `EventsToRegister`.
"""

from __future__ import annotations

from enum import Enum

from muster.api.codec import JSON, Object
from muster.api.meta import has_condition, is_deleting
from muster.api.quantity import resource_units
from muster.engine.topology.domains import PLUGIN as TOPOLOGY_PLUGIN
from muster.scheduler.waiting import ANY


class ClusterEvent(Enum):
    """What happened to a node that could make room for a pod on it."""

    NODE_ADDED = "NodeAdd"
    NODE_GREW = "NodeAllocatableChange"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    POD_REMOVED = "AssignedPodDelete"
    POD_LEAVES = "AssignedPodUpdate"


NODE_LOCAL_PLUGINS = frozenset(
    {
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        TOPOLOGY_PLUGIN,
    }
)
"""Plugins whose verdict on a node depends on that node alone: a change elsewhere cannot lift it."""

BETWEEN_PODS = frozenset({"PodTopologySpread", "InterPodAffinity"})
"""Plugins whose verdict a pod that is placed anywhere may lift."""

OF_VOLUMES = frozenset({"VolumeBinding", "VolumeZone", "NodeVolumeLimits", "VolumeRestrictions"})

OF_DEVICES = frozenset({"DynamicResources"})

OBJECT_CONCERNS: dict[str, frozenset[str]] = {
    "Namespace": frozenset({"InterPodAffinity"}),
    "Service": frozenset({"PodTopologySpread"}),
    "ReplicationController": frozenset({"PodTopologySpread"}),
    "ReplicaSet": frozenset({"PodTopologySpread"}),
    "StatefulSet": frozenset({"PodTopologySpread"}),
    "PersistentVolume": OF_VOLUMES,
    "PersistentVolumeClaim": OF_VOLUMES,
    "StorageClass": OF_VOLUMES,
    "CSINode": OF_VOLUMES,
    "CSIDriver": OF_VOLUMES,
    "CSIStorageCapacity": OF_VOLUMES,
    "DeviceClass": OF_DEVICES,
    "DeviceTaintRule": OF_DEVICES,
    "ResourceClaim": OF_DEVICES,
    "ResourceSlice": OF_DEVICES,
}
"""Which plugins' verdicts a change of an object of a kind may lift."""

CONCERNS: dict[ClusterEvent, frozenset[str]] = {
    ClusterEvent.NODE_ADDED: NODE_LOCAL_PLUGINS,
    ClusterEvent.NODE_GREW: frozenset({"NodeResourcesFit", TOPOLOGY_PLUGIN}),
    ClusterEvent.NODE_LABELS: frozenset({"NodeAffinity", TOPOLOGY_PLUGIN}),
    ClusterEvent.NODE_TAINTS: frozenset({"TaintToleration", "NodeUnschedulable", TOPOLOGY_PLUGIN}),
    ClusterEvent.POD_REMOVED: frozenset({"NodeResourcesFit", "NodePorts", TOPOLOGY_PLUGIN}),
    ClusterEvent.POD_LEAVES: frozenset(),  # only those that wait for anything
}
"""Which plugins' verdicts an event may lift. That nodes are outside of the domain that was looked at closest hides what
else is wrong with them."""


def waits_for(plugins: frozenset[str]) -> frozenset[str]:
    """What a pod that these plugins rejected waits for.

    Where rules look at more than one node, that is anything on nodes, and changes of what else those rules look at.
    """
    if plugins and plugins <= NODE_LOCAL_PLUGINS:
        return plugins
    return frozenset({ANY}) | (plugins & (BETWEEN_PODS | OF_VOLUMES | OF_DEVICES))


def nodes_could_help(plugins: frozenset[str]) -> bool:
    """Whether more nodes could help a pod that these plugins rejected; none of them, where there were no nodes."""
    return not plugins or bool(plugins - {"VolumeBinding", "VolumeRestrictions"})


def node_events(old: Object | None, new: Object) -> frozenset[ClusterEvent]:
    """The events in a change of a node; none for a heartbeat."""
    if old is None:
        return frozenset({ClusterEvent.NODE_ADDED})
    events = set()
    if _labels(old) != _labels(new) or _status(old, "declaredFeatures") != _status(new, "declaredFeatures"):
        events.add(ClusterEvent.NODE_LABELS)
    if old.get("spec") != new.get("spec"):
        events.add(ClusterEvent.NODE_TAINTS)
    if _grew(_allocatable(old), _allocatable(new)):
        events.add(ClusterEvent.NODE_GREW)
    return frozenset(events)


def usage_differs(old: Object, new: Object) -> bool:
    """Whether what an assigned pod uses, or how others see it (labels), may be different."""
    return request_differs(old, new) or bool(_resources_in_status(old) != _resources_in_status(new))


def request_differs(old: Object, new: Object) -> bool:
    """Whether what a pending pod asks for may be different."""
    claims = _status(old, "resourceClaimStatuses") != _status(new, "resourceClaimStatuses")
    return bool(old["spec"] != new["spec"] or _labels(old) != _labels(new) or claims)


def has_devices(claim: Object | None) -> bool:
    """Whether a ResourceClaim is there and has devices."""
    return claim is not None and (claim.get("status") or {}).get("allocation") is not None


def claim_may_help(old: Object | None, new: Object | None, *, waits_for_writes: bool) -> bool:
    """Whether a change of a ResourceClaim may let some pod be placed.

    That devices were given or another consumer was noted helps nobody, unless pods wait until that is written.
    """
    if old is None or new is None or is_deleting(new):
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    if not has_devices(old) and has_devices(new):
        return waits_for_writes
    if before.get("allocation") != after.get("allocation"):
        return True
    return len(before.get("reservedFor") or ()) > len(after.get("reservedFor") or ())


def has_succeeded(pod: Object) -> bool:
    """Whether the pod has ended well."""
    return (pod.get("status") or {}).get("phase") == "Succeeded"


def is_terminal(pod: Object) -> bool:
    """Whether the pod has ended: it uses nothing and counts for no group."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Object) -> bool:
    """Whether a pending pod is not to be scheduled any more: being deleted, or marked for disruption."""
    return is_deleting(pod) or has_condition(pod, "DisruptionTarget")


def _labels(obj: Object) -> JSON:
    return obj["metadata"].get("labels") or {}


def _status(obj: Object, field: str) -> JSON:
    return (obj.get("status") or {}).get(field)


def _allocatable(node: Object) -> Object:
    allocatable: Object = _status(node, "allocatable") or {}
    return allocatable


def _resources_in_status(pod: Object) -> JSON:
    status = pod.get("status") or {}
    containers = [
        (entry.get("allocatedResources"), entry.get("resources"))
        for field in ("containerStatuses", "initContainerStatuses")
        for entry in status.get(field) or ()
    ]
    return containers if any(pair != (None, None) for pair in containers) else []


def _grew(old: Object, new: Object) -> bool:
    return any(
        name not in old or resource_units(name, value) > resource_units(name, old[name])
        for name, value in new.items()
        if old.get(name) != value
    )
