"""What a snapshot of a cluster keeps: everything that scheduling reads, and nothing that is secret. Pure."""

from __future__ import annotations

from muster.api.codec import Object, Objects
from muster.api.manifests import SNAPSHOT_KEY
from muster.api.resource import (
    COMPOSITE_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    WORKLOADS,
    Resource,
)
from muster.scheduler.explaining.feed import in_stored_form

READ: tuple[Resource, ...] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    CSI_DRIVERS,
    NODES,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    POD_DISRUPTION_BUDGETS,
    WORKLOADS,
    COMPOSITE_POD_GROUPS,
    POD_GROUPS,
    JOBS,
    PODS,
)
"""What is listed, in the order in which a snapshot has it. Secrets and ConfigMaps are not."""

NEEDED = (NODES, PODS)
"""Without these there is no snapshot; what else may not be read is left out."""

_KEPT_ANNOTATIONS = ("muster-k8s.dev/", "scheduling.k8s.io/", "batch.kubernetes.io/", "kueue.x-k8s.io/")
_METADATA = (
    "name",
    "namespace",
    "uid",
    "labels",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
    "generation",
)
_POD_SPEC = (
    "affinity",
    "hostNetwork",
    "hostUsers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "workloadRef",
)
_CONTAINER = ("name", "image", "resources", "ports", "restartPolicy", "restartPolicyRules")
_POD_STATUS = (
    "phase",
    "reason",
    "conditions",
    "nominatedNodeName",
    "startTime",
    "resources",
    "allocatedResources",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
)
_CONTAINER_STATUS = ("name", "resources", "allocatedResources", "ready", "state")
_NODE_STATUS = ("allocatable", "capacity", "conditions", "declaredFeatures", "images", "features")
_VOLUMES = ("persistentVolumeClaim", "ephemeral", "image", "gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")
"""Volumes that say something about where a pod can run."""


def trimmed(obj: Object, resource: Resource) -> Object:
    """The object with what scheduling reads of it, in stored form, marked as part of a snapshot."""
    metadata = obj["metadata"]
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if any(part in key for part in _KEPT_ANNOTATIONS)
    }
    kept = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    kept["annotations"] = {**annotations, SNAPSHOT_KEY: "true"}
    # Objects out of a list do not say their kind.
    whole = {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": kept}
    cut = _CUTS.get(resource.kind)
    return in_stored_form(whole if cut is None else cut(whole))


def _pod(pod: Object) -> Object:
    spec, status = pod["spec"], pod.get("status") or {}
    kept = {name: spec[name] for name in _POD_SPEC if spec.get(name) is not None}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            kept[name] = [_only(each, _CONTAINER) for each in spec[name]]
    volumes = [_only(each, ("name", *_VOLUMES)) for each in spec.get("volumes") or ()]
    volumes = [each for each in volumes if len(each) > 1]
    if volumes:
        kept["volumes"] = volumes
    said = _only(status, _POD_STATUS)
    for name in ("containerStatuses", "initContainerStatuses"):
        if status.get(name):
            said[name] = [_only(each, _CONTAINER_STATUS) for each in status[name]]
    return {**_top(pod), "spec": kept, "status": said}


def _node(node: Object) -> Object:
    spec = _only(node.get("spec") or {}, ("taints", "unschedulable", "providerID", "podCIDR"))
    return {**_top(node), "spec": spec, "status": _only(node.get("status") or {}, _NODE_STATUS)}


def _owner(obj: Object) -> Object:
    """Controllers: what selects pods and how many there are; their pod templates may hold secrets."""
    spec = _only(
        obj.get("spec") or {},
        (
            "selector",
            "replicas",
            "parallelism",
            "completions",
            "completionMode",
            "suspend",
            "backoffLimit",
            "scheduling",
            "serviceName",
            "manualSelector",
        ),
    )
    template = (obj.get("spec") or {}).get("template")
    if template is not None:
        labels = (template.get("metadata") or {}).get("labels")
        bare = _pod({"metadata": {}, "apiVersion": "v1", "kind": "Pod", **template})
        spec["template"] = {"metadata": {"labels": labels} if labels else {}, "spec": bare["spec"]}
    return {**_top(obj), "spec": spec, "status": obj.get("status") or {}}


def _service(obj: Object) -> Object:
    return {**_top(obj), "spec": _only(obj.get("spec") or {}, ("selector", "type", "clusterIP", "ports"))}


def _volume(obj: Object) -> Object:
    """A volume without what it takes to open it."""
    spec = obj.get("spec") or {}
    source = {"csi": _only(spec["csi"], ("driver", "volumeHandle"))} if spec.get("csi") else {}
    kept = _only(
        spec,
        ("accessModes", "capacity", "claimRef", "nodeAffinity", "persistentVolumeReclaimPolicy", "storageClassName"),
    )
    other = {
        name: spec[name] for name in ("local", "hostPath", "gcePersistentDisk", "awsElasticBlockStore") if name in spec
    }
    return {
        **_top(obj),
        "spec": {**kept, **source, **other, "volumeMode": spec.get("volumeMode", "Filesystem")},
        "status": obj.get("status") or {},
    }


def _class(obj: Object) -> Object:
    """A storage class without its parameters, which may name secrets."""
    return {key: value for key, value in obj.items() if key not in ("parameters", "mountOptions")}


def _device_class(obj: Object) -> Object:
    """A device class without its configuration, which is the drivers' own."""
    return {**_top(obj), "spec": _only(obj.get("spec") or {}, ("selectors", "extendedResourceName"))}


def _device_claim(obj: Object) -> Object:
    """A claim for devices without configuration, as device classes."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    said = _only(status, ("allocation", "reservedFor", "devices"))
    if said.get("allocation"):
        devices = _only(said["allocation"].get("devices") or {}, ("results",))
        said["allocation"] = {**said["allocation"], "devices": devices}
    return {
        **_top(obj),
        "spec": {"devices": _only(spec.get("devices") or {}, ("requests", "constraints"))},
        "status": said,
    }


def _top(obj: Object) -> Object:
    return {key: obj[key] for key in ("apiVersion", "kind", "metadata")}


def _only(obj: Object, names: tuple[str, ...]) -> Object:
    return {name: obj[name] for name in names if obj.get(name) is not None}


_CUTS = {
    "Pod": _pod,
    "Node": _node,
    "Job": _owner,
    "ReplicaSet": _owner,
    "StatefulSet": _owner,
    "ReplicationController": _owner,
    "Service": _service,
    "PersistentVolume": _volume,
    "StorageClass": _class,
    "DeviceClass": _device_class,
    "ResourceClaim": _device_claim,
}


def without_ended(objects: Objects) -> Objects:
    """Without pods that have ended and count for no group, and without old sets: they take no room."""
    return [obj for obj in objects if not _is_over(obj)]


def _is_over(obj: Object) -> bool:
    if obj["kind"] == "ReplicaSet":
        return not (obj.get("spec") or {}).get("replicas") and not (obj.get("status") or {}).get("replicas")
    if obj["kind"] != "Pod":
        return False
    ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    in_group = (obj["spec"].get("schedulingGroup") or obj["spec"].get("workloadRef")) is not None
    return ended and not in_group
