"""The writes that several controllers make to pods: conditions, failing, deleting."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.meta import condition, name_of, namespace_of, uid_of
from muster.api.resource import PODS
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.clock import rfc3339
from muster.controllers.action import Delete, Patch

FINISHED = ("Succeeded", "Failed")


def is_finished(pod: Object) -> bool:
    """Whether the pod's phase is final."""
    return (pod.get("status") or {}).get("phase") in FINISHED


def pod_condition(pod: Object, now: float, type_: str, status: str, reason: str = "", message: str = "") -> Object:
    """A condition to write; its transition time is kept unless its status changes."""
    old = condition(pod, type_) or {}
    if old.get("status") == status and old.get("lastTransitionTime"):
        since = old["lastTransitionTime"]
    else:
        since = rfc3339(now)
    fields = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    return {key: value for key, value in fields.items() if value}


def patch_status(pod: Object, *conditions: Object, phase: str = "") -> Patch:
    """Set conditions (those of other types stay), and the phase if one is given, of exactly this pod."""
    status: Object = {}
    if conditions:
        types = [entry["type"] for entry in ((pod.get("status") or {}).get("conditions") or ())]
        order = dict.fromkeys((*types, *(entry["type"] for entry in conditions)))
        # A merge alone would put new conditions before the others.
        status = {"$setElementOrder/conditions": [{"type": type_} for type_ in order], "conditions": list(conditions)}
    if phase:
        status["phase"] = phase
    patch: Object = {"metadata": {"uid": uid_of(pod)}, "status": status}
    return Patch(PODS, namespace_of(pod), name_of(pod), patch, STRATEGIC_MERGE_PATCH, "status")


def disruption(pod: Object, now: float, reason: str, message: str, *, phase: str = "") -> Patch:
    """Say why a pod is going to be deleted (condition DisruptionTarget)."""
    return patch_status(pod, pod_condition(pod, now, "DisruptionTarget", "True", reason, message), phase=phase)


def delete_pod(pod: Object, **options: object) -> Delete:
    """Delete exactly this pod."""
    return Delete(PODS, namespace_of(pod), name_of(pod), {"preconditions": {"uid": uid_of(pod)}, **options})
