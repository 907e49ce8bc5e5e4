"""New pods of a Job: how many now, with which indexes, and what they look like.

Source of the rules: kube-controller-manager `pkg/controller/job/{job_controller,indexed_job_utils}.go` (manageJob).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import name_of, namespace_of, uid_of
from muster.controllers.batch.job_backoff import BackoffRecord
from muster.controllers.batch.job_counting import (
    FAILURES_KEY,
    IGNORED_KEY,
    Ended,
    all_failures,
    failure_count,
)
from muster.controllers.batch.job_pods import INDEX_KEY, TRACKING_FINALIZER, finish_time_s, index_of, is_terminating
from muster.controllers.batch.job_policies import judge_failure
from muster.controllers.batch.job_spec import JobSpec

MAX_PODS_PER_SYNC = 500
_MAX_GENERATED_BASE = 58
"""The API server cuts `generateName` to this length before it adds its random end."""


class Wanted(Struct, frozen=True):
    """Pods to create now (their indexes, None without), and when to look again for those that must wait."""

    indexes: tuple[int | None, ...] = ()
    retry_after_s: float | None = None


NOTHING_WANTED = Wanted()


def wanted_active(spec: JobSpec, active: int, succeeded: int) -> int:
    """How many pods should be active."""
    if spec.completions is None:
        return active if succeeded > 0 else spec.parallelism
    return max(0, min(spec.completions - succeeded, spec.parallelism))


def wanted_pods(
    spec: JobSpec,
    pods: Sequence[Object],
    active: Sequence[Object],
    ended: Ended,
    succeeded: int,
    backoff: BackoffRecord,
    now: float,
) -> Wanted:
    """Which pods to create now. Where only failed pods are replaced, terminating ones hold their place."""
    terminating = [pod for pod in pods if is_terminating(pod)] if spec.replaces_only_failed else []
    missing = wanted_active(spec, len(active), succeeded) - len(terminating) - len(active)
    if missing <= 0:
        return Wanted()
    if not spec.limits_by_index and (wait := backoff.remaining_s(now)) > 0:
        return Wanted(retry_after_s=wait)
    now_count = min(missing, MAX_PODS_PER_SYNC)
    more = 0.0 if missing > now_count else None
    if not spec.is_indexed:
        return Wanted((None,) * now_count, more)
    taken = {index_of(pod) for pod in (*active, *terminating)}
    taken |= ended.succeeded_indexes | (ended.failed_indexes or frozenset())
    free = _first_free(taken, now_count, spec.index_count)
    if not spec.limits_by_index:
        return Wanted(tuple(free), more)
    waits = {index: _index_wait_s(ended.held.get(index), now) for index in free}
    ready = tuple(index for index in free if waits[index] <= 0)
    later = [wait for wait in waits.values() if wait > 0]
    return Wanted(ready, min(later) if later else more)


def _first_free(taken: set[int | None], number: int, end: int) -> list[int]:
    """The first `number` indexes below `end` that are not taken."""
    free: list[int] = []
    for index in range(end):
        if len(free) == number:
            break
        if index not in taken:
            free.append(index)
    return free


def _index_wait_s(last_failed: Object | None, now: float) -> float:
    if last_failed is None:
        return 0.0
    return BackoffRecord(all_failures(last_failed) + 1, finish_time_s(last_failed)).remaining_s(now)


def new_pod(job: Object, spec: JobSpec, index: int | None, replaced: Object | None, group: str | None) -> Object:
    """A pod of the Job. `replaced`: the failed pod whose place it takes; `group`: the PodGroup it belongs to."""
    template = copy_object(job["spec"]["template"])
    metadata: Object = dict(template.get("metadata") or {})
    pod_spec: Object = template["spec"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), TRACKING_FINALIZER]
    metadata["ownerReferences"] = [owner_reference(job)]
    metadata["namespace"] = namespace_of(job)
    metadata["generateName"] = f"{name_of(job)}-"
    if index is not None:
        metadata["generateName"] = _indexed_prefix(name_of(job), index)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX_KEY: str(index)}
        metadata["labels"] = {**(metadata.get("labels") or {}), INDEX_KEY: str(index)}
        pod_spec["hostname"] = f"{name_of(job)}-{index}"
        for container in [*pod_spec["containers"], *(pod_spec.get("initContainers") or ())]:
            container["env"] = _with_index(container.get("env") or [])
        if spec.limits_by_index:
            metadata["annotations"] |= _failure_annotations(spec, replaced)
    if group is not None:
        pod_spec["schedulingGroup"] = {"podGroupName": group}
    metadata.pop("creationTimestamp", None)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def owner_reference(job: Object) -> Object:
    """The reference by which a Job controls an object."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name_of(job),
        "uid": uid_of(job),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _indexed_prefix(job: str, index: int) -> str:
    end = f"-{index}-"
    return job[: _MAX_GENERATED_BASE - len(end)] + end


def _with_index(env: Objects) -> Objects:
    if any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in env):
        return env
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
    return [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]


def _failure_annotations(spec: JobSpec, replaced: Object | None) -> dict[str, str]:
    """The failures of the index so far, that of the replaced pod included."""
    if replaced is None:
        return {FAILURES_KEY: "0"}
    counts = judge_failure(spec.failure_rules, replaced).counts
    ignored = failure_count(replaced, IGNORED_KEY) + (not counts)
    annotations = {FAILURES_KEY: str(failure_count(replaced, FAILURES_KEY) + counts)}
    return {**annotations, IGNORED_KEY: str(ignored)} if ignored else annotations
