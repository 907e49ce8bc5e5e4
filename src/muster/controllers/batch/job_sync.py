"""One look at one Job: what its pods and its status say, and what to do about it.

Each look writes the status at most once, before it touches pods. What follows from its own writes (counters, the
terminal condition) is done at the next look, when they have been seen.
Source of the rules: kube-controller-manager `pkg/controller/job/job_controller.go` (syncJob).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.resource import JOBS, PODS
from muster.clock import rfc3339
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.batch.job_backoff import BackoffRecord
from muster.controllers.batch.job_claims import untrack
from muster.controllers.batch.job_conditions import (
    FAILURE,
    REACHED,
    Decision,
    decide,
    has_reached_completions,
    with_condition,
)
from muster.controllers.batch.job_counting import Count, Ended, Tally, count, find_ended
from muster.controllers.batch.job_creation import NOTHING_WANTED, Wanted, new_pod, wanted_active, wanted_pods
from muster.controllers.batch.job_indexes import write_indexes
from muster.controllers.batch.job_pods import (
    RemovalTie,
    has_ended,
    has_tracking_finalizer,
    is_active,
    is_ready,
    is_terminating,
    pods_to_remove,
)
from muster.controllers.batch.job_spec import JobSpec, conditions_of, start_time_s

MAX_DELETIONS_PER_SYNC = 500


class Look(Struct, frozen=True):
    """What is known of one Job at one moment, and what follows from it at once."""

    job: Object
    spec: JobSpec
    pods: Sequence[Object]
    active: Sequence[Object]
    ended: Ended
    tally: Tally
    backoff: BackoffRecord
    succeeded: int
    started_s: float | None
    now: float

    @classmethod
    def at(cls, job: Object, pods: Sequence[Object], backoff: BackoffRecord | None, now: float) -> Look:
        """Look at a Job that has not finished. `backoff`: as remembered from the last look."""
        spec, tally = JobSpec.of(job), Tally.of(job)
        ended = find_ended(job, spec, pods, tally)
        record = (_remembered(pods, ended) if backoff is None else backoff).after(ended.succeeded, ended.failed)
        succeeded = tally.succeeded + len(tally.noted_succeeded) + len(ended.succeeded)
        started = start_time_s(job)
        return cls(
            job=job,
            spec=spec,
            pods=pods,
            active=[pod for pod in pods if is_active(pod)],
            ended=ended,
            tally=tally,
            backoff=record,
            succeeded=len(ended.succeeded_indexes) if spec.is_indexed else succeeded,
            started_s=now if started is None and not spec.is_suspended else started,
            now=now,
        )

    @property
    def active_s(self) -> float | None:
        """Seconds since the Job started; None while it is suspended."""
        return None if self.started_s is None or self.spec.is_suspended else self.now - self.started_s


def _remembered(pods: Sequence[Object], ended: Ended) -> BackoffRecord:
    """What a controller that starts anew can tell from the pods that were counted before."""
    fresh = {uid_of(pod) for pod in (*ended.succeeded, *ended.failed)}
    old = [pod for pod in pods if has_ended(pod) and uid_of(pod) not in fresh]
    succeeded = [pod for pod in old if pod["status"]["phase"] == "Succeeded"]
    return BackoffRecord().after(succeeded, [pod for pod in old if pod["status"]["phase"] == "Failed"])


class Plan(Struct, frozen=True):
    """Which pods go and come, and whether the Job is to end."""

    decision: Decision | None
    removed: Sequence[Object] = ()
    wanted: Wanted = NOTHING_WANTED


def plan_pods(look: Look, tie: RemovalTie) -> Plan:
    """Decide about the pods of a Job."""
    decision = decide(look.job, look.spec, look.pods, look.ended, look.tally, look.active_s)
    if decision is not None:
        return Plan(decision, look.active)
    removed, wanted = _balance(look, tie)
    left = len(look.active) - len(removed) + len(wanted.indexes)
    if has_reached_completions(look.spec, look.succeeded, left):
        return Plan(REACHED, removed)
    return Plan(None, removed, wanted)


def _balance(look: Look, tie: RemovalTie) -> tuple[Sequence[Object], Wanted]:
    """Pods that are too many, or else pods that are missing; never both at one look."""
    if is_deleting(look.job):
        return (), Wanted()
    if look.spec.is_suspended:
        return look.active[:MAX_DELETIONS_PER_SYNC], Wanted()
    surplus = max(0, len(look.active) - wanted_active(look.spec, len(look.active), look.succeeded))
    removed = pods_to_remove(look.active, look.spec, surplus, tie)[:MAX_DELETIONS_PER_SYNC]
    if removed:
        return removed, Wanted()
    return (), wanted_pods(look.spec, look.pods, look.active, look.ended, look.succeeded, look.backoff, look.now)


def sync(look: Look, tie: RemovalTie, group: str | None) -> tuple[Result, BackoffRecord]:
    """The actions of one look, and the back-off to remember. `group`: the PodGroup of new pods."""
    plan = plan_pods(look, tie)
    counted = _count(look, plan)
    status, events = next_status(look, plan, counted)
    releases = [untrack(pod) for pod in _released(plan, counted)]
    actions: list[Action] = []
    if status != (look.job.get("status") or {}):
        actions.append(Update(JOBS, {**look.job, "status": status}, "status"))
    actions += events
    actions += releases
    actions += [_delete(look.job, pod) for pod in plan.removed]
    actions += [_create(look, index, group) for index in plan.wanted.indexes]
    has_more = bool(releases) or counted.is_full or len(plan.removed) >= MAX_DELETIONS_PER_SYNC
    return Result(tuple(actions), 0.0 if has_more else _next_look_s(look, plan)), look.backoff


def _count(look: Look, plan: Plan) -> Count:
    """Note ended pods. Pods removed because the Job needs fewer are no failures: they leave uncounted."""
    finishing = plan.decision is not None
    failing = finishing and plan.decision is not None and plan.decision.type == FAILURE
    removed = {uid_of(pod) for pod in plan.removed} if plan.decision in (None, REACHED) else set()
    pods = [pod for pod in look.pods if uid_of(pod) not in removed]
    return count(look.job, look.spec, pods, look.ended, finishing=finishing, failing=failing)


def _released(plan: Plan, counted: Count) -> list[Object]:
    uids = {uid_of(pod) for pod in counted.released}
    return [*counted.released, *(p for p in plan.removed if has_tracking_finalizer(p) and uid_of(p) not in uids)]


def _delete(job: Object, pod: Object) -> Delete:
    name = name_of(pod)
    return Delete(
        PODS,
        namespace_of(pod),
        name,
        {"preconditions": {"uid": uid_of(pod)}},
        done=Emit(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}"),
        failed=Emit(job, "Warning", "FailedDelete", "Error deleting: {error}"),
    )


def _create(look: Look, index: int | None, group: str | None) -> Create:
    replaced = None if index is None else look.ended.held.get(index)
    return Create(
        PODS,
        new_pod(look.job, look.spec, index, replaced, group),
        done=Emit(look.job, "Normal", "SuccessfulCreate", "Created pod: {name}"),
        failed=Emit(look.job, "Warning", "FailedCreate", "Error creating: {error}"),
    )


def _next_look_s(look: Look, plan: Plan) -> float | None:
    times = [] if plan.wanted.retry_after_s is None else [plan.wanted.retry_after_s]
    if plan.decision is None and look.active_s is not None and look.spec.active_deadline_s is not None:
        times.append(look.spec.active_deadline_s - look.active_s)
    return min(times, default=None)


def next_status(look: Look, plan: Plan, counted: Count) -> tuple[Object, list[Emit]]:
    """The status to write, and the events about its conditions."""
    removed = {uid_of(pod) for pod in plan.removed}
    left = [pod for pod in look.active if uid_of(pod) not in removed]
    terminating = sum(is_terminating(pod) for pod in look.pods) + len(removed)
    conditions, events = _suspension(look, plan)
    status = {**(look.job.get("status") or {})}
    _set(status, "startTime", _start_time(look, conditions))
    _set(status, "active", len(left) or None)
    status["ready"], status["terminating"] = sum(is_ready(pod) for pod in left), terminating
    _set_counts(status, look, counted)
    if plan.decision is not None:
        conditions = _ending(conditions, look, plan.decision)
        if terminating == 0 and counted.tally.is_settled and not counted.released:
            conditions, ends = _end(conditions, look, plan.decision, status)
            events += ends
    _set(status, "conditions", conditions or None)
    return status, events


def _set(status: Object, key: str, value: object) -> None:
    """Set a field, or take it away where there is nothing to say."""
    if value is None:
        status.pop(key, None)
    else:
        status[key] = value


def _set_counts(status: Object, look: Look, counted: Count) -> None:
    tally = counted.tally
    notes = {"succeeded": list(tally.noted_succeeded), "failed": list(tally.noted_failed)}
    status["uncountedTerminatedPods"] = {key: uids for key, uids in notes.items() if uids}
    _set(status, "succeeded", tally.succeeded or None)
    _set(status, "failed", tally.failed or None)
    if look.spec.is_indexed:
        _set(status, "completedIndexes", write_indexes(counted.succeeded_indexes) or None)
        failed = look.ended.failed_indexes
        _set(status, "failedIndexes", None if failed is None else write_indexes(failed))


def _suspension(look: Look, plan: Plan) -> tuple[Objects, list[Emit]]:
    """The conditions with Suspended as it should be, unless the Job ends or is deleted."""
    conditions = conditions_of(look.job)
    if plan.decision is not None or is_deleting(look.job):
        return conditions, []
    status, verb = ("True", "Suspended") if look.spec.is_suspended else ("False", "Resumed")
    message = f"Job {verb.lower()}"
    conditions, changed = with_condition(conditions, "Suspended", status, f"Job{verb}", message, look.now)
    return conditions, [Emit(look.job, "Normal", verb, message)] if changed else []


def _start_time(look: Look, conditions: Objects) -> str | None:
    """When the Job started: never while suspended, anew when it is resumed."""
    if look.spec.is_suspended and any(c["type"] == "Suspended" and c["status"] == "True" for c in conditions):
        return None
    return rfc3339(look.started_s) if look.started_s is not None else None


def _ending(conditions: Objects, look: Look, decision: Decision) -> Objects:
    entry = (decision.type, "True", decision.reason, decision.message)
    return with_condition(conditions, *entry, look.now)[0]


def _end(conditions: Objects, look: Look, decision: Decision, status: Object) -> tuple[Objects, list[Emit]]:
    """The terminal condition and its events."""
    entry = (decision.terminal_type, "True", decision.reason, decision.message)
    conditions, _ = with_condition(conditions, *entry, look.now)
    if decision.type == FAILURE:
        return conditions, [Emit(look.job, "Warning", decision.reason, decision.message)]
    status["completionTime"] = rfc3339(look.now)
    events = [Emit(look.job, "Normal", "Completed", "Job completed")]
    if look.spec.completions is not None and (status.get("succeeded") or 0) > look.spec.completions:
        events.insert(0, Emit(look.job, "Warning", "TooManySucceededPods", "Too many succeeded pods"))
    return conditions, events
