"""Whether pods run, are ready and, for long enough, available.

Source of the rules: kubernetes `pkg/api/v1/pod/util.go` (IsPodReady, IsPodAvailable) and `pkg/controller`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object
from muster.api.meta import condition, is_deleting
from muster.clock import parse_rfc3339

FINISHED = ("Succeeded", "Failed")


def phase_of(pod: Object) -> str:
    """`status.phase`, "Pending" while it is not set."""
    phase: str = (pod.get("status") or {}).get("phase") or "Pending"
    return phase


def is_active(pod: Object) -> bool:
    """Whether the pod runs or may run, and nobody deleted it."""
    return phase_of(pod) not in FINISHED and not is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def ready_since_s(pod: Object) -> float | None:
    """Since when the pod is ready, in seconds since the epoch; None if it is not or nobody knows."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True" or not ready.get("lastTransitionTime"):
        return None
    return parse_rfc3339(ready["lastTransitionTime"])


def until_available_s(pod: Object, min_ready_s: float, now: float) -> float | None:
    """In how many seconds the pod counts as available: 0 if it does so already, None if it is not even ready."""
    if not is_ready(pod):
        return None
    if min_ready_s <= 0:
        return 0.0
    since = ready_since_s(pod)
    return None if since is None else max(0.0, since + min_ready_s - now)


def is_available(pod: Object, min_ready_s: float, now: float) -> bool:
    """Whether the pod has been ready for that long."""
    return until_available_s(pod, min_ready_s, now) == 0.0


def next_available_s(pods: Iterable[Object], min_ready_s: float, now: float) -> float | None:
    """In how many seconds the next of the pods that wait for it becomes available; None if none does."""
    waits = [wait for pod in pods if (wait := until_available_s(pod, min_ready_s, now))]
    return min(waits) if waits else None
