"""ProvisioningRequest and PodTemplate objects of a group that lacks room, and what a request says. Pure.

Source: cluster-autoscaler `apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go` (fields, conditions, limits, the
two annotations of pods), `processors/provreq` (pods with the annotation cause no scale-up of their own; a booking ends
once as many pods with it have a node), and Kueue's `admissionchecks/provisioning` for who owns what.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum

from msgspec import Struct

from muster.api.codec import Object, Objects, canonical
from muster.api.meta import has_condition, namespace_of
from muster.api.resource import Resource

PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
SERVED_VERSIONS = ("v1", "v1beta1")
"""Versions with the same fields, best first."""
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")

CONSUMES_KEY = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_KEY = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotations of pods for which a request asks."""
MANAGED_BY = ("app.kubernetes.io/managed-by", "muster")
"""The label by which our own requests are found."""
ENTITY_KEY = "scheduling.muster-k8s.dev/requested-for"
ATTEMPT_KEY = "scheduling.muster-k8s.dev/attempt"
"""Annotations of a request: for what of the scheduler's queue it asks, and how often that was asked for before."""

MOST_POD_SETS = 32
KUBERNETES_CLASSES = ("check-capacity", "best-effort-atomic-scale-up")
"""Classes that cluster-autoscaler has, without their suffix."""
CLASS_SUFFIX = ".autoscaling.x-k8s.io"

_CLASS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_ROOM = 200
_POD_FIELDS = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "os",
    "overhead",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
_CONTAINER_FIELDS = ("image", "name", "ports", "resources", "restartPolicy")
_VOLUMES_ANYWHERE = ("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "projected", "secret")
"""Kinds of volumes that say nothing about nodes."""


class ProvisioningTerms(Struct, frozen=True):
    """What is asked of the autoscaler: the class of the requests and its parameters."""

    class_name: str
    parameters: tuple[tuple[str, str], ...] = ()


class PodSet(Struct, frozen=True):
    """So many pods of one template (a PodTemplateSpec)."""

    template: Object
    count: int

    @property
    def digest(self) -> str:
        """The same for templates that are the same."""
        return hashlib.sha256(canonical(self.template)).hexdigest()[:10]


class State(Enum):
    """What the autoscaler has said last about a request, in words of its conditions."""

    ASKED = "Asked"
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    EXPIRED = "BookingExpired"
    REVOKED = "CapacityRevoked"
    FAILED = "Failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of the request."""
        return self in (State.EXPIRED, State.REVOKED, State.FAILED)


def state_of(request: Object) -> State:
    """The state of a request: what ends it counts before what promises."""
    for state in (State.FAILED, State.REVOKED, State.EXPIRED, State.PROVISIONED, State.ACCEPTED):
        if has_condition(request, state.value):
            return state
    return State.ASKED


def parse_class(text: str) -> str:
    """The name of a class; those of cluster-autoscaler may be written without their suffix. Raises ValueError."""
    name = text + CLASS_SUFFIX if text in KUBERNETES_CLASSES else text
    if not _CLASS.fullmatch(name) or len(name) > 253:
        raise ValueError(f"{text!r} is not the name of a class, such as {' or '.join(KUBERNETES_CLASSES)}")
    return name


def pod_sets(pods: Iterable[tuple[Hashable, Object]]) -> tuple[PodSet, ...]:
    """Pods that are the same to scheduling, counted. `pods`: what tells them apart, and the pod."""
    alike: dict[Hashable, Objects] = {}
    for shape, pod in pods:
        alike.setdefault(shape, []).append(pod)
    counted: dict[str, PodSet] = {}
    for each in alike.values():
        made = PodSet(_template(each), len(each))
        known = counted.get(made.digest)
        counted[made.digest] = made if known is None else PodSet(made.template, known.count + made.count)
    return tuple(counted[digest] for digest in sorted(counted))


def request_name(entity: str, owner: Object) -> str:
    """The name of the request for an entity of the queue; another one once its owner is another object."""
    digest = hashlib.sha256(f"{entity}\0{owner.get('uid') or ''}".encode()).hexdigest()[:10]
    return f"{str(owner['name'])[:_NAME_ROOM].rstrip('-.')}-{digest}"


def pod_marks(name: str, terms: ProvisioningTerms) -> dict[str, str]:
    """The annotations of the pods that a request asks for."""
    return {CONSUMES_KEY: name, CLASS_KEY: terms.class_name}


def request_objects(
    entity: str,
    namespace: str,
    owner: Object,
    sets: Iterable[PodSet],
    terms: ProvisioningTerms,
    *,
    attempt: int = 1,
    version: str = SERVED_VERSIONS[0],
) -> tuple[Objects, Object]:
    """The PodTemplates and the ProvisioningRequest. `owner`: apiVersion, kind, name and uid; they go with it."""
    name = request_name(entity, owner)
    shared = {"namespace": namespace, "labels": dict([MANAGED_BY]), "ownerReferences": [dict(owner)]}
    templates: Objects = []
    entries: Objects = []
    for each in sets:
        called = f"{name}-{each.digest}"
        templates.append(
            {
                "apiVersion": POD_TEMPLATES.api_version,
                "kind": POD_TEMPLATES.kind,
                "metadata": {"name": called, **shared},
                "template": each.template,
            }
        )
        entries.append({"podTemplateRef": {"name": called}, "count": each.count})
    spec: Object = {"provisioningClassName": terms.class_name, "podSets": entries}
    if terms.parameters:
        spec["parameters"] = dict(terms.parameters)
    annotations = {ENTITY_KEY: entity, ATTEMPT_KEY: str(attempt)}
    return templates, {
        "apiVersion": f"{PROVISIONING_REQUESTS.group}/{version}",
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": {"name": name, **shared, "annotations": annotations},
        "spec": spec,
    }


def entity_of(request: Object) -> str:
    """For what of the queue a request of ours asks; "" for one that does not say."""
    return str((request["metadata"].get("annotations") or {}).get(ENTITY_KEY) or "")


def attempt_of(request: Object) -> int:
    """How many requests there were for the same, this one included."""
    text = str((request["metadata"].get("annotations") or {}).get(ATTEMPT_KEY) or "")
    return int(text) if text.isdecimal() else 1


def asked_of(request: Object) -> dict[str, int]:
    """How many pods a request asks for, by the name of the template."""
    return {each["podTemplateRef"]["name"]: each["count"] for each in request["spec"].get("podSets") or ()}


def wanted_of(entity: str, owner: Object, sets: Iterable[PodSet]) -> dict[str, int]:
    """The same of a request that would be made."""
    name = request_name(entity, owner)
    return {f"{name}-{each.digest}": each.count for each in sets}


def template_keys(request: Object) -> list[tuple[str, str]]:
    """Namespace and name of the templates of a request."""
    return [(namespace_of(request), name) for name in asked_of(request)]


def consumes_another(pods: Iterable[Object], name: str) -> bool:
    """Whether pods are for a request that somebody else has made."""
    named = ((pod["metadata"].get("annotations") or {}).get(CONSUMES_KEY) for pod in pods)
    return any(each not in (None, name) for each in named)


def _template(pods: Objects) -> Object:
    """What scheduling looks at in pods that are the same to it: labels that all have, and the spec of the first."""
    labels = dict(pods[0]["metadata"].get("labels") or {})
    for pod in pods[1:]:
        own: Mapping[str, str] = pod["metadata"].get("labels") or {}
        labels = {key: value for key, value in labels.items() if own.get(key) == value}
    spec = pods[0]["spec"]
    made: Object = {field: spec[field] for field in _POD_FIELDS if field in spec}
    for field in ("initContainers", "containers"):
        if spec.get(field):
            made[field] = [{key: each[key] for key in _CONTAINER_FIELDS if key in each} for each in spec[field]]
    volumes = [each for each in spec.get("volumes") or () if not any(kind in each for kind in _VOLUMES_ANYWHERE)]
    if volumes:
        made["volumes"] = volumes
    return {"metadata": {"labels": dict(sorted(labels.items()))}, "spec": made} if labels else {"spec": made}
