"""One look at one CronJob: what became of its Jobs, and whether one is due.

Source of the rules: kube-controller-manager `pkg/controller/cronjob/cronjob_controllerv2.go` (syncCronJob).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

from muster.api.codec import Object, Objects, copy_object
from muster.api.cron import Schedule, ScheduleError, parse_schedule, parse_zone
from muster.api.meta import has_condition, is_deleting, name_of, namespace_of, uid_of
from muster.api.resource import CRON_JOBS, JOBS
from muster.clock import parse_rfc3339, rfc3339
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.batch.cronjob_times import TOO_MANY, due, until_next_s
from muster.controllers.batch.job_spec import is_finished
from muster.controllers.ownership import owner_reference

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@dataclass(slots=True)
class _Look:
    """A CronJob, its Jobs, and what was decided so far."""

    cron_job: Object
    jobs: Sequence[Object]
    now: float
    active: Objects
    status: Object
    actions: list[Action] = field(default_factory=list)

    def emit(self, type_: str, reason: str, message: str) -> None:
        """Record an event about the CronJob."""
        self.actions.append(Emit(self.cron_job, type_, reason, message))


def sync(cron_job: Object, jobs: Sequence[Object], now: float) -> Result:
    """What to do about a CronJob."""
    old = cron_job.get("status") or {}
    look = _Look(cron_job, jobs, now, list(old.get("active") or ()), dict(old))
    _note_jobs(look)
    wait = None if is_deleting(cron_job) else _schedule(look)
    if not is_deleting(cron_job):
        _clean_up(look)
    status = {key: value for key, value in look.status.items() if key != "active"}
    if look.active:
        status["active"] = look.active
    if status != old:
        look.actions.append(Update(CRON_JOBS, {**cron_job, "status": status}, "status"))
    # Schedules go on for ever, so the wait for the next time keeps no simulation going.
    return Result(tuple(look.actions), requeue_after_s=wait, periodic=True)


def _note_jobs(look: _Look) -> None:
    """Bring the list of active Jobs up to date."""
    listed = {reference.get("uid") for reference in look.active}
    for job in look.jobs:
        is_over = is_finished(job)
        if uid_of(job) not in listed and not is_over and not is_deleting(job):
            if SCHEDULED in (job["metadata"].get("annotations") or {}):
                look.active.append(_reference(job))
            else:
                text = f"Saw a job that the controller did not create or forgot: {name_of(job)}"
                look.emit("Warning", "UnexpectedJob", text)
        elif uid_of(job) in listed and is_over:
            end = "Complete" if has_condition(job, "Complete") else "Failed"
            look.active = [entry for entry in look.active if entry.get("uid") != uid_of(job)]
            look.emit("Normal", "SawCompletedJob", f"Saw completed job: {name_of(job)}, condition: {end}")
        _note_success(look, job)
    there = {uid_of(job) for job in look.jobs}
    for reference in list(look.active):
        if reference.get("uid") not in there:
            look.active.remove(reference)
            look.emit("Normal", "MissingJob", f"Active job went missing: {reference.get('name')}")


def _note_success(look: _Look, job: Object) -> None:
    finished = (job.get("status") or {}).get("completionTime")
    if not finished or not has_condition(job, "Complete"):
        return
    last = look.status.get("lastSuccessfulTime")
    if not last or parse_rfc3339(finished) > parse_rfc3339(last):
        look.status["lastSuccessfulTime"] = finished


def _reference(job: Object) -> Object:
    return {
        "kind": "Job",
        "namespace": namespace_of(job),
        "name": name_of(job),
        "uid": uid_of(job),
        "apiVersion": "batch/v1",
        "resourceVersion": job["metadata"].get("resourceVersion", ""),
    }


def _schedule(look: _Look) -> float | None:
    """Make the Job that is due, if one is; seconds until the next time."""
    spec = look.cron_job["spec"]
    if spec.get("suspend"):
        return None
    schedule = _parsed(look)
    if schedule is None:
        return None
    wait = until_next_s(look.cron_job, schedule, look.now)
    found = due(look.cron_job, schedule, look.now)
    if found.missed > TOO_MANY:
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        look.emit("Warning", "TooManyMissedTimes", text)
    if found.time_s is not None and _is_wanted(look, found.time_s):
        _start(look, found.time_s, schedule)
    return wait


def _parsed(look: _Look) -> Schedule | None:
    spec = look.cron_job["spec"]
    zone = spec.get("timeZone")
    try:
        place = UTC if zone is None else parse_zone(zone)
    except ScheduleError as error:
        look.emit("Warning", "UnknownTimeZone", f'invalid timeZone: "{zone}": {error}')
        return None
    try:
        return parse_schedule(spec["schedule"], place)
    except ScheduleError as error:
        look.emit("Warning", "UnparseableSchedule", f'unparseable schedule: "{spec["schedule"]}" : {error}')
        return None


def _is_wanted(look: _Look, time_s: float) -> bool:
    """Whether a time is to be served: it was not before, it is not too late, and no other run forbids it."""
    spec, status = look.cron_job["spec"], look.status
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and time_s + deadline < look.now:
        text = format_datetime(datetime.fromtimestamp(time_s, UTC))
        look.emit("Warning", "MissSchedule", f"Missed scheduled time to start a job: {text}")
        return False
    name = job_name(look.cron_job, time_s)
    if any(entry.get("name") == name for entry in look.active) or status.get("lastScheduleTime") == rfc3339(time_s):
        return False
    if spec.get("concurrencyPolicy") == "Forbid" and look.active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        look.emit("Normal", "JobAlreadyActive", text)
        return False
    return True


def job_name(cron_job: Object, time_s: float) -> str:
    """The name of the Job for a time: it ends in the minute, so that a time is served once."""
    return f"{name_of(cron_job)}-{int(time_s) // 60}"


def _start(look: _Look, time_s: float, schedule: Schedule) -> None:
    if look.cron_job["spec"].get("concurrencyPolicy") == "Replace":
        for reference in look.active:
            look.actions.append(_deletion(look, reference.get("name", "")))
        look.active = []
    name = job_name(look.cron_job, time_s)
    look.actions.append(
        Create(
            JOBS,
            _job(look.cron_job, name, time_s, schedule),
            ignore_exists=True,
            done=Emit(look.cron_job, "Normal", "SuccessfulCreate", f"Created job {name}"),
            failed=Emit(look.cron_job, "Warning", "FailedCreate", "Error creating job: {error}"),
        )
    )
    look.status["lastScheduleTime"] = rfc3339(time_s)


def _job(cron_job: Object, name: str, time_s: float, schedule: Schedule) -> Object:
    template = copy_object(cron_job["spec"]["jobTemplate"])
    given = template.get("metadata") or {}
    stamp = datetime.fromtimestamp(time_s, schedule.zone).isoformat(timespec="seconds").replace("+00:00", "Z")
    metadata: Object = {
        "name": name,
        "namespace": namespace_of(cron_job),
        "annotations": {**(given.get("annotations") or {}), SCHEDULED: stamp},
        "ownerReferences": [owner_reference(cron_job, CRON_JOBS)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}}


def _deletion(look: _Look, name: str) -> Delete:
    done = Emit(look.cron_job, "Normal", "SuccessfulDelete", f"Deleted job {name}")
    failed = Emit(look.cron_job, "Warning", "FailedDelete", "Deleted job: {error}")
    options = {"propagationPolicy": "Background"}
    return Delete(JOBS, namespace_of(look.cron_job), name, options, done, failed)


def _clean_up(look: _Look) -> None:
    """Delete the oldest finished Jobs beyond what is to be kept."""
    finished = [job for job in look.jobs if is_finished(job) and not is_deleting(job)]
    finished.sort(key=_started)
    for type_, limit_name in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        limit = look.cron_job["spec"].get(limit_name)
        ended = [job for job in finished if has_condition(job, type_)]
        if limit is not None:
            look.actions += [_deletion(look, name_of(job)) for job in ended[: max(0, len(ended) - limit)]]


def _started(job: Object) -> tuple[str, str]:
    return (job.get("status") or {}).get("startTime") or job["metadata"]["creationTimestamp"], name_of(job)
