"""Pods: defaults, what may change, graceful deletion, priorities.

Sources: upstream `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/pod/strategy.go`, admission plugins Priority and
DefaultTolerationSeconds, and recordings.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object, Objects
from muster.apiserver.context import Context
from muster.apiserver.registry.priority import resolve_pod_priority
from muster.apiserver.registry.strategy import Strategy

DEFAULT_GRACE_S = 30
TOLERATION_S = 300

_FIELDS = frozenset(
    (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )
)


def default_pod_spec(spec: Object) -> None:
    """Fill in a pod spec's default values, also inside templates."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    if not spec.get("securityContext"):
        spec["securityContext"] = {}
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName") and not spec.get("serviceAccount"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in spec.get("initContainers") or ():
        default_container(container)
    for container in spec.get("containers") or ():
        default_container(container)


def default_container(container: Object) -> None:
    """Fill in one container's default values."""
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, value in resources["limits"].items():
            requests.setdefault(name, value)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition(":")[2]
    if "@" in image:
        return "IfNotPresent" if tag != "latest" else "Always"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def default_tolerations(spec: Object) -> None:
    """Tolerate not-ready and unreachable nodes for a while (DefaultTolerationSeconds)."""
    tolerations: Objects = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            entry = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
            tolerations = [*tolerations, entry]
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def quality_of_service(spec: Object) -> str:
    """The QoS class (`Guaranteed`, `Burstable`, `BestEffort`) of a pod spec."""
    guaranteed, any_set = True, False
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            if name in requests or name in limits:
                any_set = True
            if name not in limits or requests.get(name, limits.get(name)) != limits.get(name):
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


class PodStrategy(Strategy):
    """Pods."""

    has_status = True
    counts_generation = True
    returns_deleted = True
    selectable_names = _FIELDS

    def default(self, obj: Object, ctx: Context) -> None:
        default_pod_spec(obj.setdefault("spec", {}))
        spec = obj["spec"]
        spec.setdefault("enableServiceLinks", True)

    def admit_create(self, obj: Object, ctx: Context) -> None:
        default_tolerations(obj["spec"])
        resolve_pod_priority(obj, ctx)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        status: Object = {"phase": "Pending", "qosClass": quality_of_service(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": None,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        obj["status"] = status

    def selectable(self, obj: Object) -> Mapping[str, str]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def grace_period_s(self, obj: Object, requested: int | None) -> int | None:
        spec = obj.get("spec") or {}
        period = requested if requested is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        if period < 0:
            period = 1
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return 0
        return int(period)
