"""The status of a Deployment: counters, and the conditions that tell whether a rollout goes on.

Source of the rules: kube-controller-manager `pkg/controller/deployment/{progress.go,sync.go,util/deployment_util.go}`.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.meta import condition, name_of
from muster.clock import parse_rfc3339, rfc3339
from muster.controllers.apps.deployment_sets import Sets
from muster.controllers.apps.deployment_sizes import count, max_unavailable, replicas_of, total_replicas

AVAILABLE = "Available"
PROGRESSING = "Progressing"
FAILURE = "ReplicaFailure"
_NEVER = 2**31 - 1


def has_deadline(deployment: Object) -> bool:
    """Whether a rollout has to get on within some time."""
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, _NEVER)


def status_condition(status: Object, type_: str) -> Object | None:
    """The entry of that type."""
    return condition({"status": status}, type_)


def with_condition(status: Object, now: float, type_: str, value: str, reason: str, message: str) -> Object:
    """The status with a condition, unless it has that with the same reason; its time changes with its value only."""
    old = status_condition(status, type_)
    if old is not None and old.get("status") == value and old.get("reason") == reason:
        return status
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == value else None
    stamp = rfc3339(now)
    entry = {"type": type_, "status": value, "lastUpdateTime": stamp, "lastTransitionTime": since or stamp}
    return _replaced(status, type_, {**entry, "reason": reason, "message": message})


def _replaced(status: Object, type_: str, entry: Object | None) -> Object:
    kept = [other for other in status.get("conditions") or () if other.get("type") != type_]
    conditions = kept if entry is None else [*kept, entry]
    rest = {key: value for key, value in status.items() if key != "conditions"}
    return {**rest, "conditions": conditions} if conditions else rest


def calculated(deployment: Object, sets: Sets, now: float) -> Object:
    """The counters and the condition Available; other conditions stay."""
    old = deployment.get("status") or {}
    available = count(sets.all, "availableReplicas")
    counts = {
        "replicas": count(sets.all, "replicas"),
        "updatedReplicas": count((sets.new,) if sets.new is not None else (), "replicas"),
        "readyReplicas": count(sets.all, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total_replicas(sets.all) - available),
    }
    status: Object = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        **{name: number for name, number in counts.items() if number},
        **{key: old[key] for key in ("collisionCount", "conditions") if key in old},
    }
    if all("terminatingReplicas" in (found.get("status") or {}) for found in sets.all):
        status["terminatingReplicas"] = count(sets.all, "terminatingReplicas")
    if available >= replicas_of(deployment) - max_unavailable(deployment):
        text = "Deployment has minimum availability."
        return with_condition(status, now, AVAILABLE, "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return with_condition(status, now, AVAILABLE, "False", "MinimumReplicasUnavailable", text)


def is_complete(deployment: Object, status: Object) -> bool:
    """Whether all pods are new and available, and no old ones are left."""
    wanted = replicas_of(deployment)
    names = ("updatedReplicas", "replicas", "availableReplicas")
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return is_seen and all((status.get(name) or 0) == wanted for name in names)


def _progresses(deployment: Object, status: Object) -> bool:
    old = deployment.get("status") or {}

    def more(name: str) -> bool:
        return (status.get(name) or 0) > (old.get(name) or 0)

    fewer_old = _old_pods(status) < _old_pods(old)
    return fewer_old or any(map(more, ("updatedReplicas", "readyReplicas", "availableReplicas")))


def _old_pods(status: Object) -> int:
    return (status.get("replicas") or 0) - (status.get("updatedReplicas") or 0)


def deadline_left_s(deployment: Object, status: Object, now: float) -> float | None:
    """Seconds until a rollout that gets nowhere has timed out (negative: so long ago); None if it cannot."""
    progress = status_condition(status, PROGRESSING)
    if progress is None or not has_deadline(deployment) or progress.get("reason") == "NewReplicaSetAvailable":
        return None
    seconds: float = deployment["spec"]["progressDeadlineSeconds"]
    return parse_rfc3339(progress["lastUpdateTime"]) + seconds - now


def rollout_status(deployment: Object, sets: Sets, now: float) -> Object:
    """The status with the conditions Progressing and ReplicaFailure, as a strategy leaves it."""
    status = calculated(deployment, sets, now)
    current = status_condition(status, PROGRESSING)
    if not has_deadline(deployment):
        status = _replaced(status, PROGRESSING, None)
    elif not _is_over(status, current):
        status = _with_progress(deployment, sets, status, current, now)
    return _with_failure(sets, status)


def _is_over(status: Object, current: Object | None) -> bool:
    """Whether the rollout was completed before, and only its pods come and go since."""
    same = (status.get("replicas") or 0) == (status.get("updatedReplicas") or 0)
    return same and current is not None and current.get("reason") == "NewReplicaSetAvailable"


def _with_progress(deployment: Object, sets: Sets, status: Object, current: Object | None, now: float) -> Object:
    subject = f'ReplicaSet "{name_of(sets.new)}"' if sets.new is not None else f'Deployment "{name_of(deployment)}"'
    if is_complete(deployment, status):
        text = f"{subject} has successfully progressed."
        return with_condition(status, now, PROGRESSING, "True", "NewReplicaSetAvailable", text)
    if _progresses(deployment, status):
        text = f"{subject} is progressing."
        fresh = with_condition(
            _replaced(status, PROGRESSING, None), now, PROGRESSING, "True", "ReplicaSetUpdated", text
        )
        if current is None or current.get("status") != "True":
            return fresh
        entry = status_condition(fresh, PROGRESSING) or {}
        return _replaced(fresh, PROGRESSING, {**entry, "lastTransitionTime": current["lastTransitionTime"]})
    left = deadline_left_s(deployment, status, now)
    timed_out = current is not None and current.get("reason") == "ProgressDeadlineExceeded"
    if timed_out or (left is not None and left < 0):
        text = f"{subject} has timed out progressing."
        return with_condition(status, now, PROGRESSING, "False", "ProgressDeadlineExceeded", text)
    return status


def _with_failure(sets: Sets, status: Object) -> Object:
    """Say that pods cannot be made, as the new ReplicaSet does or else an old one."""
    for found in (*((sets.new,) if sets.new is not None else ()), *sets.old):
        entry = condition(found, FAILURE)
        if entry is not None:
            stamp = entry.get("lastTransitionTime")
            old = status_condition(status, FAILURE)
            if old is not None and (old.get("status"), old.get("reason")) == (entry["status"], entry.get("reason")):
                return status
            return _replaced(status, FAILURE, {"lastUpdateTime": stamp, **entry})
    return _replaced(status, FAILURE, None)


def paused_status(deployment: Object, now: float) -> Object | None:
    """The status that notes that a rollout was paused or resumed; None if there is nothing to note."""
    if not has_deadline(deployment):
        return None
    status = deployment.get("status") or {}
    reason = (status_condition(status, PROGRESSING) or {}).get("reason")
    if reason == "ProgressDeadlineExceeded":
        return None
    is_paused = bool(deployment["spec"].get("paused"))
    if is_paused and reason != "DeploymentPaused":
        return with_condition(status, now, PROGRESSING, "Unknown", "DeploymentPaused", "Deployment is paused")
    if not is_paused and reason == "DeploymentPaused":
        return with_condition(status, now, PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")
    return None
