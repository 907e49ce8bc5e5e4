"""Pods: what happens to them on creation, update and deletion.

Sources: upstream `pkg/registry/core/pod/strategy.go` and recordings.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object, dumps
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import LONGEST_LABEL, FieldError, subdomain_problems
from muster.apiserver.registry.poddefaults import (
    DEFAULT_GRACE_S,
    default_pod_level_requests,
    default_pod_spec,
    default_tolerations,
    merge_label_keys,
    quality_of_service,
)
from muster.apiserver.registry.podspec import (
    validate_group_link,
    validate_new_pod,
    validate_pod_names,
    validate_pod_update,
)
from muster.apiserver.registry.podwarnings import pod_warnings
from muster.apiserver.registry.priority import resolve_pod_priority
from muster.apiserver.registry.resize import is_only_a_resize, validate_resize
from muster.apiserver.registry.strategy import Strategy

REMEMBERED = 4096
"""How many different valid specs are remembered, so that they are not checked again."""

_NAMES = {"hostname": "", "nodeName": "", "schedulingGroup": "", "workloadRef": ""}
"""The fields of a spec in which pods of one template differ; they are checked each time."""

_PODS = Qualified("", "pods")
_FIELDS = frozenset(
    (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    )
)


def _check_runtime_class(pod: Object, ctx: Context) -> None:
    """The runtime class must exist, and alone says what a pod costs beside its containers (admission RuntimeClass)."""
    spec, name = pod["spec"], pod["metadata"].get("name") or ""
    wanted = spec.get("runtimeClassName")
    found = ctx.read("runtimeclasses", "", wanted) if wanted else None
    if wanted and found is None:
        raise forbidden(_PODS, name, f'pod rejected: RuntimeClass "{wanted}" not found')
    overhead = ((found or {}).get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and not overhead:
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(_PODS, name, why)
    if overhead:
        if spec.get("overhead") and spec["overhead"] != overhead:
            raise forbidden(_PODS, name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = dict(overhead)


def _warn_of_name(name: str, ctx: Context) -> None:
    """Names that are valid, but no host names."""
    if not name or subdomain_problems(name):
        return
    problems = ["must be no more than 63 characters"] if len(name) > LONGEST_LABEL else []
    if "." in name:
        problems.append("must not contain dots")
    if problems:
        what = "this is used in the Pod's hostname, which can result in surprising behavior"
        ctx.warn(f"metadata.name: {what}; a DNS label is recommended: [{' '.join(problems)}]")


class PodStrategy(Strategy):
    """Pods."""

    has_status = True
    counts_generation = True
    returns_deleted = True
    selectable_names = _FIELDS

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.get("spec")
        if spec is None:
            spec = obj["spec"] = {}
        default_pod_spec(spec)
        default_pod_level_requests(spec)
        if spec.get("enableServiceLinks") is None:
            spec["enableServiceLinks"] = True

    def admit_create(self, obj: Object, ctx: Context) -> None:
        default_tolerations(obj["spec"])
        resolve_pod_priority(obj, ctx)
        _check_runtime_class(obj, ctx)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        spec = obj["spec"]
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        if spec.get("affinity") or spec.get("topologySpreadConstraints"):
            merge_label_keys(spec, obj["metadata"].get("labels") or {})
        status: Object = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": ctx.timestamp,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        status["qosClass"] = quality_of_service(spec)
        obj["status"] = status
        _warn_of_name(obj["metadata"].get("name") or "", ctx)

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        default_tolerations(new["spec"])

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        old_class = (old.get("status") or {}).get("qosClass")
        if old_class and not (new.get("status") or {}).get("qosClass"):
            new["status"] = {**(new.get("status") or {}), "qosClass": old_class}

    def __init__(self) -> None:
        self._valid: dict[bytes, list[str]] = {}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        # Most pods are made from a template: what is alike in them is checked once.
        alike = dumps({**obj["spec"], **_NAMES})
        warnings = self._valid.get(alike)
        if warnings is not None and not validate_group_link(obj["spec"]):
            for text in warnings:
                ctx.warn(text)
            return validate_pod_names(obj["spec"])
        errors = validate_new_pod(obj)
        if not errors:
            if len(self._valid) >= REMEMBERED:
                self._valid.clear()
            self._valid[alike] = pod_warnings(obj["spec"])
        for text in self._valid.get(alike, ()):
            ctx.warn(text)
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if ctx.options.is_lenient and is_only_a_resize(new, old):
            ctx.warn("spec.containers[*].resources: a real server wants --subresource resize for this")
            return validate_resize(new, old)
        return validate_pod_update(new, old)

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
            "status.podIPs": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def grace_period_s(self, obj: Object, requested: int | None) -> int | None:
        spec = obj.get("spec") or {}
        period = requested if requested is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
            return 0
        return int(period) if period >= 0 else 1
