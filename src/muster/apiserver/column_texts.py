"""What the columns of tables are described with: a short text, or the field (`DEFINITION#FIELD`) that is described.

Source: kubernetes `pkg/printers/internalversion/printers.go` and recordings.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.apiserver.descriptions import descriptions

_META = "apimachinery.pkg.apis.meta.v1.ObjectMeta"
_READY_PODS = "Number of the pod with ready state"

SHARED: Mapping[str, str] = {
    "Name": f"{_META}#name",
    "Age": f"{_META}#creationTimestamp",
    "Created At": f"{_META}#creationTimestamp",
    "Containers": "Names of each container in the template.",
    "Images": "Images referenced by each container in the template.",
}
"""Columns that mean the same for all kinds."""

TEXTS: Mapping[str, Mapping[str, str]] = {
    "ConfigMap": {"Data": "api.core.v1.ConfigMap#data"},
    "ControllerRevision": {
        "Controller": "Controller of the object",
        "Revision": "api.apps.v1.ControllerRevision#revision",
    },
    "CompositePodGroup": {
        "Policy": "api.scheduling.v1alpha3.CompositePodGroupSpec#schedulingPolicy",
        "Workload": "Name of the referenced Workload object",
    },
    "CronJob": {
        "Schedule": "api.batch.v1.CronJobSpec#schedule",
        "Timezone": "api.batch.v1.CronJobSpec#timeZone",
        "Suspend": "api.batch.v1.CronJobSpec#suspend",
        "Active": "api.batch.v1.CronJobStatus#active",
        "Last Schedule": "api.batch.v1.CronJobStatus#lastScheduleTime",
        "Selector": "api.batch.v1.JobSpec#selector",
    },
    "CSINode": {"Drivers": "Drivers indicates the number of CSI drivers registered on the node"},
    "DaemonSet": {
        "Desired": "api.apps.v1.DaemonSetStatus#desiredNumberScheduled",
        "Current": "api.apps.v1.DaemonSetStatus#currentNumberScheduled",
        "Ready": "api.apps.v1.DaemonSetStatus#numberReady",
        "Up-to-date": "api.apps.v1.DaemonSetStatus#updatedNumberScheduled",
        "Available": "api.apps.v1.DaemonSetStatus#numberAvailable",
        "Node Selector": "api.core.v1.PodSpec#nodeSelector",
        "Selector": "api.apps.v1.DaemonSetSpec#selector",
    },
    "Deployment": {
        "Ready": _READY_PODS,
        "Up-to-date": "api.apps.v1.DeploymentStatus#updatedReplicas",
        "Available": "api.apps.v1.DeploymentStatus#availableReplicas",
        "Selector": "api.apps.v1.DeploymentSpec#selector",
    },
    "Endpoints": {"Endpoints": "api.core.v1.Endpoints#subsets"},
    "EndpointSlice": {
        "AddressType": "api.discovery.v1.EndpointSlice#addressType",
        "Ports": "api.discovery.v1.EndpointSlice#ports",
        "Endpoints": "api.discovery.v1.EndpointSlice#endpoints",
    },
    "Event": {
        "Last Seen": "api.core.v1.Event#lastTimestamp",
        "Type": "api.core.v1.Event#type",
        "Reason": "api.core.v1.Event#reason",
        "Object": "api.core.v1.Event#involvedObject",
        "Subobject": "api.core.v1.ObjectReference#fieldPath",
        "Source": "api.core.v1.Event#source",
        "Message": "api.core.v1.Event#message",
        "First Seen": "api.core.v1.Event#firstTimestamp",
        "Count": "api.core.v1.Event#count",
    },
    "Job": {
        "Status": "Status of the job.",
        "Completions": "api.batch.v1.JobStatus#succeeded",
        "Duration": "Time required to complete the job.",
        "Selector": "api.batch.v1.JobSpec#selector",
    },
    "Lease": {"Holder": "api.coordination.v1.LeaseSpec#holderIdentity"},
    "Namespace": {"Status": "The status of the namespace"},
    "NetworkPolicy": {"Pod-Selector": "api.networking.v1.NetworkPolicySpec#podSelector"},
    "Node": {
        "Status": "The status of the node",
        "Roles": "The roles of the node",
        "Version": "api.core.v1.NodeSystemInfo#kubeletVersion",
        "Internal-IP": "api.core.v1.NodeStatus#addresses",
        "External-IP": "api.core.v1.NodeStatus#addresses",
        "OS-Image": "api.core.v1.NodeSystemInfo#osImage",
        "Kernel-Version": "api.core.v1.NodeSystemInfo#kernelVersion",
        "Container-Runtime": "api.core.v1.NodeSystemInfo#containerRuntimeVersion",
    },
    "PersistentVolume": {
        "Capacity": "api.core.v1.PersistentVolumeSpec#capacity",
        "Access Modes": "api.core.v1.PersistentVolumeSpec#accessModes",
        "Reclaim Policy": "api.core.v1.PersistentVolumeSpec#persistentVolumeReclaimPolicy",
        "Status": "api.core.v1.PersistentVolumeStatus#phase",
        "Claim": "api.core.v1.PersistentVolumeSpec#claimRef",
        "StorageClass": "StorageClass of the pv",
        "VolumeAttributesClass": "VolumeAttributesClass of the pv",
        "Reason": "api.core.v1.PersistentVolumeStatus#reason",
        "VolumeMode": "api.core.v1.PersistentVolumeSpec#volumeMode",
    },
    "PersistentVolumeClaim": {
        "Status": "api.core.v1.PersistentVolumeClaimStatus#phase",
        "Volume": "api.core.v1.PersistentVolumeClaimSpec#volumeName",
        "Capacity": "api.core.v1.PersistentVolumeClaimStatus#capacity",
        "Access Modes": "api.core.v1.PersistentVolumeClaimStatus#accessModes",
        "StorageClass": "StorageClass of the pvc",
        "VolumeAttributesClass": "VolumeAttributesClass of the pvc",
        "VolumeMode": "api.core.v1.PersistentVolumeClaimSpec#volumeMode",
    },
    "Pod": {
        "Ready": "The aggregate readiness state of this pod for accepting traffic.",
        "Status": "The aggregate status of the containers in this pod.",
        "Restarts": "The number of times the containers in this pod have been restarted and when the last container in "
        "this pod has restarted.",
        "IP": "api.core.v1.PodStatus#podIP",
        "Node": "api.core.v1.PodSpec#nodeName",
        "Nominated Node": "api.core.v1.PodStatus#nominatedNodeName",
        "Readiness Gates": "api.core.v1.PodSpec#readinessGates",
    },
    "PodDisruptionBudget": {
        "Min Available": "The minimum number of pods that must be available.",
        "Max Unavailable": "The maximum number of pods that may be unavailable.",
        "Allowed Disruptions": "Calculated number of pods that may be disrupted at this time.",
    },
    "PodGroup": {
        "Policy": "api.scheduling.v1beta1.PodGroupSpec#schedulingPolicy",
        "Workload": "Name of the referenced Workload object",
        "Status": "Status of the PodGroup",
    },
    "PriorityClass": {
        "Value": "api.scheduling.v1.PriorityClass#value",
        "Global-Default": "api.scheduling.v1.PriorityClass#globalDefault",
        "PreemptionPolicy": "api.scheduling.v1.PriorityClass#preemptionPolicy",
    },
    "ReplicaSet": {
        "Desired": "api.apps.v1.ReplicaSetSpec#replicas",
        "Current": "api.apps.v1.ReplicaSetStatus#replicas",
        "Ready": "api.apps.v1.ReplicaSetStatus#readyReplicas",
        "Selector": "api.apps.v1.ReplicaSetSpec#selector",
    },
    "ReplicationController": {
        "Desired": "api.core.v1.ReplicationControllerSpec#replicas",
        "Current": "api.core.v1.ReplicationControllerStatus#replicas",
        "Ready": "api.core.v1.ReplicationControllerStatus#readyReplicas",
        "Selector": "api.core.v1.ReplicationControllerSpec#selector",
    },
    "ResourceClaim": {"State": "A summary of the current state (allocated, pending, reserved, etc.)."},
    "ResourceQuota": {
        "Request": "Request represents a minimum amount of cpu/memory that a container may consume.",
        "Limit": "Limits control the maximum amount of cpu/memory that a container may use independent of contention "
        "on the node.",
    },
    "ResourceSlice": {
        "Node": "api.resource.v1.ResourceSliceSpec#nodeName",
        "Driver": "api.resource.v1.ResourceSliceSpec#driver",
        "Pool": "api.resource.v1.ResourcePool#name",
    },
    "Secret": {"Type": "api.core.v1.Secret#type", "Data": "api.core.v1.Secret#data"},
    "Service": {
        "Type": "api.core.v1.ServiceSpec#type",
        "Cluster-IP": "api.core.v1.ServiceSpec#clusterIP",
        "External-IP": "api.core.v1.ServiceSpec#externalIPs",
        "Port(s)": "api.core.v1.ServiceSpec#ports",
        "Selector": "api.core.v1.ServiceSpec#selector",
    },
    "ServiceAccount": {"Secrets": "api.core.v1.ServiceAccount#secrets"},
    "StatefulSet": {"Ready": _READY_PODS},
    "StorageClass": {
        "Provisioner": "api.storage.v1.StorageClass#provisioner",
        "ReclaimPolicy": "api.storage.v1.StorageClass#reclaimPolicy",
        "VolumeBindingMode": "api.storage.v1.StorageClass#volumeBindingMode",
        "AllowVolumeExpansion": "api.storage.v1.StorageClass#allowVolumeExpansion",
    },
}
"""Texts by kind and column."""

_OLDER = {("1.36", "PodGroup", "Policy"): "api.scheduling.v1alpha2.PodGroupSpec#schedulingPolicy"}
"""Fields that a release has elsewhere."""


def column_text(release: str, kind: str, column: str) -> str:
    """What describes a column of a kind's table in a release such as `1.37`; "" if nothing is known."""
    text = _OLDER.get((release, kind, column)) or TEXTS.get(kind, {}).get(column) or SHARED.get(column, "")
    return descriptions(release).get(text, "") if "#" in text else text
