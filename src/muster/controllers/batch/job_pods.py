"""The pods of a Job: which count as active, failed or terminating, when they ended, which go first.

Source of the rules: kube-controller-manager `pkg/controller/job/{job_controller,backoff_utils,indexed_job_utils}.go`
and `pkg/controller/controller_utils.go` (ActivePods).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from muster.api.codec import Object
from muster.api.meta import condition, has_condition, is_deleting, name_of
from muster.clock import parse_rfc3339
from muster.controllers.batch.job_spec import JobSpec

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"

RemovalTie = Callable[[Object], int]
"""Orders pods that are equal by every rule: lower goes first."""

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase_of(pod: Object) -> str:
    """`status.phase`."""
    phase: str = (pod.get("status") or {}).get("phase") or "Pending"
    return phase


def has_tracking_finalizer(pod: Object) -> bool:
    """Whether the pod has not been counted yet."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def has_ended(pod: Object) -> bool:
    """Whether the phase is terminal."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Object) -> bool:
    """Whether the pod runs or may run, and nobody deleted it."""
    return not has_ended(pod) and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    """Whether somebody deleted the pod and it has not ended yet."""
    return is_deleting(pod) and not has_ended(pod)


def is_failed(pod: Object, spec: JobSpec) -> bool:
    """Whether the pod counts as a failure: also one that was deleted, unless only failed pods are replaced."""
    if phase_of(pod) == "Failed":
        return True
    return not spec.replaces_only_failed and is_terminating(pod)


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    return has_condition(pod, "Ready")


def index_of(pod: Object) -> int | None:
    """The completion index, None if there is no valid one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_KEY, "")
    return int(text) if text.isdecimal() else None


def finish_time_s(pod: Object) -> float:
    """When the pod ended: its last container, else its Ready condition, else its deletion, else its creation."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    ends = [(entry.get("state") or {}).get("terminated") or {} for entry in status.get("containerStatuses") or ()]
    if ends and all(end.get("finishedAt") for end in ends):
        return max(parse_rfc3339(end["finishedAt"]) for end in ends)
    ready = condition(pod, "Ready")
    if ready is not None and ready["status"] == "False" and ready.get("lastTransitionTime"):
        return parse_rfc3339(ready["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        return parse_rfc3339(metadata["deletionTimestamp"]) - (metadata.get("deletionGracePeriodSeconds") or 0)
    return parse_rfc3339(metadata["creationTimestamp"])


def restarts(pods: Sequence[Object]) -> int:
    """The restarts of all containers of pods that have not ended."""
    return sum(
        entry.get("restartCount") or 0
        for pod in pods
        if phase_of(pod) in ("Pending", "Running")
        for group in ("initContainerStatuses", "containerStatuses")
        for entry in (pod.get("status") or {}).get(group) or ()
    )


def pods_to_remove(active: Sequence[Object], spec: JobSpec, at_least: int, tie: RemovalTie) -> list[Object]:
    """Which active pods go: those without a place (invalid or repeated index), then the least advanced."""
    doomed: list[Object] = []
    left = list(active)
    if spec.is_indexed:
        doomed, left = _without_place(active, spec, tie)
    if len(doomed) < at_least:
        doomed += _least_advanced_first(left, tie)[: at_least - len(doomed)]
    return doomed


def _without_place(active: Sequence[Object], spec: JobSpec, tie: RemovalTie) -> tuple[list[Object], list[Object]]:
    doomed = [pod for pod in active if not spec.is_valid_index(index_of(pod))]
    placed = sorted((pod for pod in active if spec.is_valid_index(index_of(pod))), key=lambda pod: index_of(pod) or 0)
    left: list[Object] = []
    for _, same in groupby(placed, key=index_of):
        *repeated, best = _least_advanced_first(list(same), tie)
        doomed += repeated
        left.append(best)
    return doomed, left


def _least_advanced_first(pods: Sequence[Object], tie: RemovalTie) -> list[Object]:
    return sorted(pods, key=lambda pod: (*_rank(pod), tie(pod), -(index_of(pod) or 0), name_of(pod)))


def _rank(pod: Object) -> tuple[float, ...]:
    """Unbound, pending, not ready, short ready, often restarted, young pods come first."""
    ready = condition(pod, "Ready")
    is_up = ready is not None and ready["status"] == "True"
    since = parse_rfc3339(ready["lastTransitionTime"]) if ready and is_up and ready.get("lastTransitionTime") else 0.0
    counts = [entry.get("restartCount") or 0 for entry in (pod.get("status") or {}).get("containerStatuses") or ()]
    return (
        float(bool(pod["spec"].get("nodeName"))),
        float(_PHASE_ORDER.get(phase_of(pod), 0)),
        float(is_up),
        -since,
        -float(max(counts, default=0)),
        -parse_rfc3339(pod["metadata"]["creationTimestamp"]),
    )
