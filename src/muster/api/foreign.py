"""What manifests say to other schedulers only, and objects about groups that cannot be read. Pure.

Sources: the published types and constants of Volcano (`batch`, `bus`, `flow`, `scheduling`, `topology` groups), KAI
(`pkg/common/constants`), Kueue (`apis/kueue`), scheduler-plugins and YuniKorn (`pkg/common/constants`).
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import JSON, Object
from muster.api.topology import (
    KUEUE_PREFERRED,
    KUEUE_REQUIRED,
    KUEUE_SLICE_KEY,
    KUEUE_SLICE_SIZE,
    KUEUE_UNCONSTRAINED,
)
from muster.api.versions import GROUP

NAMES = {
    "scheduling.x-k8s.io": "coscheduling",
    "scheduling.volcano.sh": "Volcano",
    "scheduling.run.ai": "KAI",
}
"""Names of schedulers by the API group of their PodGroup."""

UNDERSTOOD = frozenset({KUEUE_REQUIRED, KUEUE_PREFERRED, KUEUE_UNCONSTRAINED, KUEUE_SLICE_KEY, KUEUE_SLICE_SIZE})
"""Annotations of other projects that Muster reads from pods."""

_GROUPS = (
    ("volcano.sh", "Volcano"),
    ("scheduling.run.ai", "KAI"),
    ("kai.scheduler", "KAI"),
    ("run.ai", "KAI"),
    ("runai", "KAI"),
    ("kueue.x-k8s.io", "Kueue"),
    ("scheduling.x-k8s.io", "coscheduling"),
    ("pod-group.scheduling.sigs.k8s.io", "coscheduling"),
    ("yunikorn.apache.org", "YuniKorn"),
)
"""API groups and prefixes of labels, with all below them, and whose they are."""

_FIELDS = {
    "PodGroup": {
        "podGroupTemplateRef",
        "workloadRef",
        "parentCompositePodGroupName",
        "schedulingPolicy",
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    },
    "CompositePodGroup": {
        "workloadRef",
        "parentCompositePodGroupName",
        "schedulingPolicy",
        "schedulingConstraints",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    },
    "Workload": {"controllerRef", "podGroups", "podGroupTemplates", "compositePodGroupTemplates"},
}
_OBJECTS = (
    "metadata",
    "metadata.labels",
    "metadata.annotations",
    "spec",
    "spec.schedulingGroup",
    "spec.workloadRef",
    "spec.podGroupTemplateRef",
    "spec.podGroupTemplateRef.workload",
    "spec.schedulingPolicy",
    "spec.schedulingPolicy.gang",
    "spec.schedulingPolicy.basic",
    "spec.schedulingConstraints",
    "spec.topologyConstraint",
    "spec.controllerRef",
    "status",
)
_LISTS = ("podGroups", "podGroupTemplates", "compositePodGroupTemplates", "resourceClaims", "subGroups")
_COUNTS = ("spec.schedulingPolicy.gang.minCount", "spec.schedulingPolicy.gang.minGroupCount", "spec.minMember")


def owner_of(obj: Object) -> str:
    """The scheduler for which alone an object is; "" for any other object."""
    return _owner(str(obj.get("apiVersion") or "").partition("/")[0])


_GROUPS_WITHOUT_BEARING = frozenset(
    (
        *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "autoscaling"),
        *("authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "discovery.k8s.io"),
        *("events.k8s.io", "flowcontrol.apiserver.k8s.io", "gateway.networking.k8s.io", "networking.k8s.io"),
        "rbac.authorization.k8s.io",
    )
)
_QUEUES = frozenset(
    (
        *("Queue", "ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort", "WorkloadPriorityClass", "AdmissionCheck"),
        *("MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig", "SchedulingShard"),
    )
)


def without_bearing(obj: Object) -> str:
    """Why an object of a kind that is not known says nothing about where pods run here; "" if it may.

    Those are kinds of Kubernetes about other things (roles, networks, autoscaling), and the queues of other schedulers.
    """
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    if group in _GROUPS_WITHOUT_BEARING:
        return "has no bearing on scheduling, and is left out"
    owner = owner_of(obj)
    return f"only {owner} reads it, and it is left out" if owner and obj.get("kind") in _QUEUES else ""


def owner_of_mark(key: str) -> str:
    """The scheduler that reads a label or annotation of pods; "" for any other one."""
    prefix, slash, _ = key.partition("/")
    return _owner(prefix) if slash else ""


def _owner(domain: str) -> str:
    for name, owner in _GROUPS:
        if domain == name or domain.endswith(f".{name}"):
            return owner
    return ""


def unknown_fields(obj: Object) -> list[str]:
    """Fields in the `spec` of a Workload, PodGroup or CompositePodGroup that no version has."""
    known = _FIELDS.get(str(obj.get("kind")), set())
    return [f"spec.{field}" for field in sorted(set(obj.get("spec") or {}) - known)] if known else []


def fault_of(obj: Object) -> str:
    """What is wrong in the form of an object about groups, or of pods in any object; "" if it can be read."""
    group = str(obj.get("apiVersion") or "").partition("/")[0]
    if obj.get("kind") in _FIELDS and group in (*NAMES, GROUP, "scheduling.muster-k8s.dev"):
        return next(_faults(obj), "")
    return next((fault for pod in _pods(obj) for fault in _faults(pod)), "")


def _pods(value: JSON) -> Iterator[Object]:
    """Pods and pod templates: what has a `spec` with containers."""
    if isinstance(value, list):
        for item in value:
            yield from _pods(item)
    elif isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield value
        else:
            for item in value.values():
                yield from _pods(item)


def _faults(obj: Object) -> Iterator[str]:
    for path in _OBJECTS:
        if not isinstance(_at(obj, path), dict | None):
            yield f"{path}: must be an object"
            return
    for field in _LISTS:
        found = _at(obj, f"spec.{field}")
        if found is not None and not (isinstance(found, list) and all(isinstance(each, dict) for each in found)):
            yield f"spec.{field}: must be a list of objects"
    for path in _COUNTS:
        found = _at(obj, path)
        if found is not None and (not isinstance(found, int) or isinstance(found, bool)):
            yield f"{path}: must be a whole number"


def _at(obj: JSON, path: str) -> JSON:
    for field in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(field)
    return obj
