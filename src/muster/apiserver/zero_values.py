"""Fields that are not kept: zero or false values that Go writes with `omitempty` and no pointer, and what is off.

OpenAPI does not say so. Found by asking kube-apiserver 1.36.3 (`tests/real/differential.py`) and in the published Go
types. A name is the end of a definition's (`core.v1.Container`).
"""

from __future__ import annotations

from collections.abc import Mapping

_META = "apimachinery.pkg.apis.meta.v1."
_CRD = "apiextensions-apiserver.pkg.apis.apiextensions.v1."

_FIELDS: Mapping[str, str] = {
    _META + "Condition": "observedGeneration",
    _META + "ObjectMeta": "generation",
    "api.apps.v1.DaemonSetSpec": "minReadySeconds",
    "api.apps.v1.DaemonSetStatus": "observedGeneration updatedNumberScheduled numberAvailable numberUnavailable",
    "api.apps.v1.DeploymentSpec": "minReadySeconds paused",
    "api.apps.v1.DeploymentStatus": (
        "observedGeneration replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas"
    ),
    "api.apps.v1.ReplicaSetSpec": "minReadySeconds",
    "api.apps.v1.ReplicaSetStatus": "fullyLabeledReplicas readyReplicas availableReplicas observedGeneration",
    "api.apps.v1.StatefulSetSpec": "minReadySeconds",
    "api.apps.v1.StatefulSetStatus": "observedGeneration readyReplicas currentReplicas updatedReplicas",
    "api.batch.v1.JobStatus": "active succeeded failed",
    "api.core.v1.Container": "stdin stdinOnce tty",
    "api.core.v1.ContainerPort": "hostPort",
    "api.core.v1.ContainerStateTerminated": "signal",
    "api.core.v1.EphemeralContainer": "stdin stdinOnce tty",
    "api.core.v1.Event": "count",
    "api.core.v1.EventSeries": "count",
    "api.core.v1.NodeSpec": "unschedulable",
    "api.core.v1.PersistentVolumeClaimVolumeSource": "readOnly",
    "api.core.v1.PodCondition": "observedGeneration",
    "api.core.v1.PodSpec": "hostIPC hostNetwork hostPID",
    "api.core.v1.PodStatus": "observedGeneration",
    "api.core.v1.Probe": "initialDelaySeconds",
    "api.core.v1.ReplicationControllerSpec": "minReadySeconds",
    "api.core.v1.ReplicationControllerStatus": (
        "fullyLabeledReplicas readyReplicas availableReplicas observedGeneration"
    ),
    "api.core.v1.ServicePort": "nodePort",
    "api.core.v1.ServiceSpec": "healthCheckNodePort publishNotReadyAddresses",
    "api.core.v1.VolumeMount": "readOnly",
    "api.policy.v1.PodDisruptionBudgetStatus": "observedGeneration",
    "api.scheduling.v1.PriorityClass": "globalDefault",
    _CRD + "CustomResourceColumnDefinition": "priority",
    _CRD + "CustomResourceDefinitionSpec": "preserveUnknownFields",
    _CRD + "CustomResourceDefinitionVersion": "deprecated",
    _CRD + "JSONSchemaProps": (
        "exclusiveMaximum exclusiveMinimum nullable uniqueItems x-kubernetes-embedded-resource "
        "x-kubernetes-int-or-string"
    ),
}


_OFF_IN_1_35: Mapping[str, str] = {
    "api.resource.v1.Device": (
        "allNodes allowMultipleAllocations bindingConditions bindingFailureConditions bindsToNode consumesCounters "
        "nodeName nodeSelector taints"
    ),
    "api.resource.v1.DeviceCapacity": "requestPolicy",
    "api.resource.v1.ResourceSliceSpec": "perDeviceNodeSelection sharedCounters",
}
"""Fields whose features are off in 1.35.4."""


_OFF_UP_TO_1_36: Mapping[str, str] = {
    "api.apps.v1.RollingUpdateStatefulSetStrategy": "maxUnavailable",
    "api.core.v1.Lifecycle": "stopSignal",
    "api.resource.v1.Device": "nodeAllocatableResourceMappings",
    "api.resource.v1.DeviceAttribute": "strings versions bools ints",
    "api.storage.v1.CSIDriverSpec": "preventPodSchedulingIfMissing",
}
"""Fields whose features are off in 1.36.3 as the recordings have it; what is sent in them is dropped."""


_GONE: Mapping[str, str] = {
    "api.coordination.v1.LeaseSpec": "preferredHolder strategy",
    "api.core.v1.NodeSpec": "configSource",
    "api.resource.v1.ResourceSliceSpec": "partitionTypeAttribute skipNodeOperations",
}
"""Fields that are in the schema, and that no release keeps unless asked to."""


def is_off(release: str, definition: str, field: str) -> bool:
    """Whether a release (`1.36`) drops the field silently."""
    tables = [_GONE]
    tables += [_OFF_UP_TO_1_36] if release in ("1.35", "1.36") else []
    tables += [_OFF_IN_1_35] if release == "1.35" else []
    return any(field in table.get(definition.removeprefix("io.k8s."), "").split() for table in tables)


def drops_zero(definition: str, field: str) -> bool:
    """Whether a zero or false in that field of a definition (`io.k8s.api.core.v1.Container`) counts as absent."""
    return field in _FIELDS.get(definition.removeprefix("io.k8s."), "").split()
