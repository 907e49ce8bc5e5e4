"""When a Job ends and how its conditions say so.

Success and failure are decided once (`SuccessCriteriaMet`, `FailureTarget`); `Complete` or `Failed` follows when the
last pod is gone. Source of the rules: kube-controller-manager `pkg/controller/job/job_controller.go` (syncJob).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import condition
from muster.clock import rfc3339
from muster.controllers.batch.job_counting import Ended, Tally
from muster.controllers.batch.job_pods import is_failed, restarts
from muster.controllers.batch.job_policies import judge_failure, matching_success_rule
from muster.controllers.batch.job_spec import JobSpec

SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
_TERMINAL = {SUCCESS: "Complete", FAILURE: "Failed"}


class Decision(Struct, frozen=True):
    """The Job is to end: `type` is the interim condition."""

    type: str
    reason: str
    message: str

    @property
    def terminal_type(self) -> str:
        """The condition that ends the Job."""
        return _TERMINAL[self.type]


REACHED = Decision(SUCCESS, "CompletionsReached", "Reached expected number of succeeded pods")


def made_decision(job: Object) -> Decision | None:
    """The decision that the status already has."""
    for type_ in (SUCCESS, FAILURE):
        entry = condition(job, type_)
        if entry is not None and entry["status"] == "True":
            return Decision(type_, entry.get("reason", ""), entry.get("message", ""))
    return None


def decide(
    job: Object, spec: JobSpec, pods: Sequence[Object], ended: Ended, tally: Tally, active_s: float | None
) -> Decision | None:
    """Whether the Job ends for another reason than reached completions. `active_s`: seconds since it started."""
    return (
        made_decision(job)
        or _by_failure_policy(spec, pods)
        or _by_limits(spec, pods, ended, tally)
        or _by_deadline(spec, active_s)
        or _by_failed_indexes(spec, ended)
        or _by_success_policy(spec, ended)
    )


def _by_failure_policy(spec: JobSpec, pods: Sequence[Object]) -> Decision | None:
    for pod in pods if spec.failure_rules is not None else ():
        if is_failed(pod, spec) and (message := judge_failure(spec.failure_rules, pod).message):
            return Decision(FAILURE, "PodFailurePolicy", message)
    return None


def _by_limits(spec: JobSpec, pods: Sequence[Object], ended: Ended, tally: Tally) -> Decision | None:
    fresh = sum(judge_failure(spec.failure_rules, pod).counts for pod in ended.failed)
    too_many = tally.failed + len(tally.noted_failed) + fresh > spec.backoff_limit
    if spec.restarts_in_place and not too_many:
        too_many = restarts(pods) >= max(spec.backoff_limit, 1)
    message = "Job has reached the specified backoff limit"
    return Decision(FAILURE, "BackoffLimitExceeded", message) if too_many else None


def _by_deadline(spec: JobSpec, active_s: float | None) -> Decision | None:
    if spec.active_deadline_s is None or active_s is None or active_s < spec.active_deadline_s:
        return None
    return Decision(FAILURE, "DeadlineExceeded", "Job was active longer than specified deadline")


def _by_failed_indexes(spec: JobSpec, ended: Ended) -> Decision | None:
    failed = ended.failed_indexes
    if not failed:
        return None
    if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Decision(FAILURE, "MaxFailedIndexesExceeded", message)
    if len(failed) + len(ended.succeeded_indexes) >= spec.index_count:
        return Decision(FAILURE, "FailedIndexes", "Job has failed indexes")
    return None


def _by_success_policy(spec: JobSpec, ended: Ended) -> Decision | None:
    if not spec.is_indexed:
        return None
    rule = matching_success_rule(spec.success_rules, ended.succeeded_indexes, spec.index_count)
    return None if rule is None else Decision(SUCCESS, "SuccessPolicy", f"Matched rules at index {rule}")


def has_reached_completions(spec: JobSpec, succeeded: int, active: int) -> bool:
    """Whether enough pods succeeded; without `completions` one success is enough once nothing runs any more."""
    if spec.completions is None:
        return succeeded > 0 and active == 0
    return succeeded >= spec.completions


def with_condition(
    conditions: Objects, type_: str, status: str, reason: str, message: str, now: float
) -> tuple[Objects, bool]:
    """The list with that condition set, in place or at the end, and whether anything changed.

    A condition that is False is not added where there is none.
    """
    entry: Object = {
        "type": type_,
        "status": status,
        "lastProbeTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
        "reason": reason,
        "message": message,
    }
    for position, old in enumerate(conditions):
        if old["type"] == type_:
            same = all(old.get(key) == entry[key] for key in ("status", "reason", "message"))
            return (conditions, False) if same else ([*conditions[:position], entry, *conditions[position + 1 :]], True)
    if status == "False":
        return conditions, False
    return [*conditions, entry], True
