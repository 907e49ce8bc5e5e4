"""Counting the ended pods of a Job, each exactly once, whatever fails in between.

A pod that ended is first noted in the status (its uid in `uncountedTerminatedPods`, or its index in
`completedIndexes`), then loses its finalizer, and only when that is seen moves from the notes into the counters.
Source of the rules: kube-controller-manager `pkg/controller/job/job_controller.go` (trackJobStatusAndRemoveFinalizers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import uid_of
from muster.controllers.batch.job_indexes import Indexes, read_indexes
from muster.controllers.batch.job_pods import (
    finish_time_s,
    has_tracking_finalizer,
    index_of,
    is_active,
    is_failed,
    phase_of,
)
from muster.controllers.batch.job_policies import judge_failure
from muster.controllers.batch.job_spec import JobSpec

MAX_UNCOUNTED = 500
"""So many pods are noted in one status at most."""

FAILURES_KEY = "batch.kubernetes.io/job-index-failure-count"
IGNORED_KEY = "batch.kubernetes.io/job-index-ignored-failure-count"


class Tally(Struct, frozen=True):
    """What the status of a Job has counted (`succeeded`, `failed`) and noted (the uids)."""

    succeeded: int
    failed: int
    noted_succeeded: tuple[str, ...]
    noted_failed: tuple[str, ...]

    @classmethod
    def of(cls, job: Object) -> Tally:
        """Read the status."""
        status = job.get("status") or {}
        noted = status.get("uncountedTerminatedPods") or {}
        return cls(
            status.get("succeeded") or 0,
            status.get("failed") or 0,
            tuple(noted.get("succeeded") or ()),
            tuple(noted.get("failed") or ()),
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is noted that is not counted."""
        return not self.noted_succeeded and not self.noted_failed

    def settle(self, uids_with_finalizer: frozenset[str]) -> Tally:
        """Count the noted pods that have lost their finalizer (or are gone)."""
        kept_succeeded = tuple(uid for uid in self.noted_succeeded if uid in uids_with_finalizer)
        kept_failed = tuple(uid for uid in self.noted_failed if uid in uids_with_finalizer)
        return Tally(
            self.succeeded + len(self.noted_succeeded) - len(kept_succeeded),
            self.failed + len(self.noted_failed) - len(kept_failed),
            kept_succeeded,
            kept_failed,
        )


class Ended(Struct, frozen=True):
    """Pods that ended and are not noted yet, and what follows for indexes.

    `succeeded_indexes`: noted and new ones; `failed_indexes`: likewise, None without limits by index.
    `held`: by index, the failed pod that keeps its finalizer (and stays uncounted) until it is replaced, because the
    replacement takes over its failure counts.
    """

    succeeded: tuple[Object, ...]
    failed: tuple[Object, ...]
    noted_indexes: Indexes
    succeeded_indexes: Indexes
    failed_indexes: Indexes | None
    held: Mapping[int, Object]


def find_ended(job: Object, spec: JobSpec, pods: Sequence[Object], tally: Tally) -> Ended:
    """What ended since the status was written."""
    fresh = [pod for pod in pods if has_tracking_finalizer(pod) and spec.is_valid_index(index_of(pod))]
    succeeded = [pod for pod in fresh if phase_of(pod) == "Succeeded" and uid_of(pod) not in tally.noted_succeeded]
    failed = [pod for pod in fresh if is_failed(pod, spec) and uid_of(pod) not in tally.noted_failed]
    noted = read_indexes((job.get("status") or {}).get("completedIndexes") or "", spec.index_count)
    done = noted | {index_of(pod) or 0 for pod in fresh if phase_of(pod) == "Succeeded"} if spec.is_indexed else noted
    failed_indexes = _failed_indexes(job, spec, fresh) if spec.limits_by_index else None
    held = _held(spec, pods, failed, done, failed_indexes) if failed_indexes is not None else {}
    return Ended(tuple(succeeded), tuple(failed), noted, done, failed_indexes, held)


def _failed_indexes(job: Object, spec: JobSpec, fresh: Sequence[Object]) -> Indexes:
    text = (job.get("status") or {}).get("failedIndexes") or ""
    return read_indexes(text, spec.index_count) | {index_of(pod) or 0 for pod in fresh if _ends_index(pod, spec)}


def _ends_index(pod: Object, spec: JobSpec) -> bool:
    """Whether this pod's failure is one too many for its index."""
    if not is_failed(pod, spec):
        return False
    verdict = judge_failure(spec.failure_rules, pod)
    over_limit = verdict.counts and failure_count(pod, FAILURES_KEY) >= (spec.backoff_limit_per_index or 0)
    return verdict.action == "FailIndex" or over_limit


def _held(
    spec: JobSpec, pods: Sequence[Object], failed: Sequence[Object], done: Indexes, failed_indexes: Indexes
) -> dict[int, Object]:
    active = {index_of(pod) for pod in pods if is_active(pod)}
    held: dict[int, Object] = {}
    for pod in failed:
        index = index_of(pod)
        if index is None or index in done or index in failed_indexes or index in active:
            continue
        last = held.get(index)
        if last is None or (all_failures(last), finish_time_s(last)) <= (all_failures(pod), finish_time_s(pod)):
            held[index] = pod
    return held


def failure_count(pod: Object, key: str) -> int:
    """The failures of its index that a pod carries as an annotation."""
    text = (pod["metadata"].get("annotations") or {}).get(key, "")
    return int(text) if text.isdecimal() else 0


def all_failures(pod: Object) -> int:
    """Counted and ignored failures of its index before this pod."""
    return failure_count(pod, FAILURES_KEY) + failure_count(pod, IGNORED_KEY)


class Count(Struct, frozen=True):
    """The next status' tally and indexes, and the pods that lose their finalizer once it is written."""

    tally: Tally
    succeeded_indexes: Indexes
    released: tuple[Object, ...]
    is_full: bool


def count(job: Object, spec: JobSpec, pods: Sequence[Object], ended: Ended, *, finishing: bool, failing: bool) -> Count:
    """Note what ended. `finishing`: the Job is to end, so all pods are released; `failing`: and they count as failed.

    In an Indexed Job succeeded indexes are the count; the uids of succeeded pods are not noted.
    """
    with_finalizer = [pod for pod in pods if has_tracking_finalizer(pod)]
    if spec.is_indexed:
        with_finalizer.sort(key=lambda pod: (index_of(pod) is None, index_of(pod) or 0))
    before = Tally.of(job).settle(frozenset(uid_of(pod) for pod in with_finalizer))
    succeeded, failed = list(before.noted_succeeded), list(before.noted_failed)
    indexes, released = set(ended.noted_indexes), list[Object]()
    is_full = False
    for pod in with_finalizer:
        if not _is_released(job, spec, pod, ended, finishing):
            continue
        if len(indexes) - len(ended.noted_indexes) + len(succeeded) + len(failed) >= MAX_UNCOUNTED:
            is_full = True
            break
        released.append(pod)
        uid, index = uid_of(pod), index_of(pod)
        if not spec.is_valid_index(index):
            continue
        if phase_of(pod) == "Succeeded" and uid not in failed:
            if spec.is_indexed:
                indexes.add(index or 0)
            elif uid not in succeeded:
                succeeded.append(uid)
        elif (is_failed(pod, spec) or failing) and uid not in failed and judge_failure(spec.failure_rules, pod).counts:
            failed.append(uid)
    counted = len(indexes) if spec.is_indexed else before.succeeded
    tally = Tally(counted, before.failed, tuple(succeeded), tuple(failed))
    return Count(tally, frozenset(indexes), tuple(released), is_full)


def _is_released(job: Object, spec: JobSpec, pod: Object, ended: Ended, finishing: bool) -> bool:
    if finishing or job["metadata"].get("deletionTimestamp") or phase_of(pod) == "Succeeded":
        return True
    if not is_failed(pod, spec):
        return False
    held = ended.held.get(-1 if index_of(pod) is None else index_of(pod) or 0)
    return held is None or uid_of(held) != uid_of(pod)
