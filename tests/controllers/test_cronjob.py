"""CronJobs: which times are served."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.cron import parse_schedule
from muster.clock import SIMULATION_EPOCH_S, rfc3339
from muster.controllers.action import Create, Delete, Emit, Result, Update
from muster.controllers.batch.cronjob_sync import SCHEDULED, job_name, sync
from muster.controllers.batch.cronjob_times import due

START = SIMULATION_EPOCH_S - SIMULATION_EPOCH_S % 3600


def cron_job(schedule: str = "*/10 * * * *", *, status: Object | None = None, **spec: object) -> Object:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}}}
    return {
        "metadata": {"name": "tick", "namespace": "default", "uid": "u", "creationTimestamp": rfc3339(START)},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
        "status": status or {},
    }


def job(owner: Object, time_s: float, end: str = "", *, scheduled: bool = True) -> Object:
    name = job_name(owner, time_s)
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    metadata["creationTimestamp"] = rfc3339(time_s)
    if scheduled:
        metadata["annotations"] = {SCHEDULED: rfc3339(time_s)}
    conditions = [{"type": end, "status": "True"}] if end else []
    done = {"completionTime": rfc3339(time_s + 30)} if end == "Complete" else {}
    return {"metadata": metadata, "status": {"conditions": conditions, "startTime": rfc3339(time_s), **done}}


def reasons(result: Result) -> list[str]:
    return [action.reason for action in result.actions if isinstance(action, Emit)]


def created(result: Result) -> list[str]:
    return [action.object["metadata"]["name"] for action in result.actions if isinstance(action, Create)]


def status_after(result: Result) -> Object:
    (update,) = [action for action in result.actions if isinstance(action, Update)]
    status: Object = update.object["status"]
    return status


def test_nothing_is_due_before_the_first_time_and_the_wait_keeps_no_simulation_going() -> None:
    result = sync(cron_job(), [], START + 30)
    assert (result.actions, result.periodic) == ((), True)
    assert result.requeue_after_s == pytest.approx(570.1)


def test_last_of_several_missed_times_is_served() -> None:
    result = sync(cron_job(), [], START + 3601)
    assert created(result) == [job_name(cron_job(), START + 3600)]
    assert status_after(result) == {"lastScheduleTime": rfc3339(START + 3600)}


def test_time_that_was_served_is_not_served_again() -> None:
    owner = cron_job(status={"lastScheduleTime": rfc3339(START + 600)})
    assert not created(sync(owner, [job(owner, START + 600, "Complete")], START + 700))


def test_time_that_is_too_long_ago_is_not_served() -> None:
    assert not created(sync(cron_job(startingDeadlineSeconds=20), [], START + 630))
    assert created(sync(cron_job(startingDeadlineSeconds=40), [], START + 630))


def test_suspended_cron_job_waits_for_no_time() -> None:
    result = sync(cron_job(suspend=True), [], START + 601)
    assert (result.actions, result.requeue_after_s) == ((), None)


def test_forbid_waits_and_replace_deletes_the_run_before() -> None:
    old = job(cron_job(), START + 600)
    forbidding = sync(cron_job(concurrencyPolicy="Forbid"), [old], START + 1201)
    assert (created(forbidding), reasons(forbidding)) == ([], ["JobAlreadyActive"])
    replacing = sync(cron_job(concurrencyPolicy="Replace"), [old], START + 1201)
    assert [action.name for action in replacing.actions if isinstance(action, Delete)] == [old["metadata"]["name"]]
    assert len(created(replacing)) == 1 and "active" not in status_after(replacing)


def test_run_is_active_until_it_ends() -> None:
    owner = cron_job(status={"lastScheduleTime": rfc3339(START + 600)})
    running = status_after(sync(owner, [job(owner, START + 600)], START + 610))
    assert [entry["name"] for entry in running["active"]] == [job_name(owner, START + 600)]
    ended = sync({**owner, "status": running}, [job(owner, START + 600, "Complete")], START + 640)
    assert reasons(ended) == ["SawCompletedJob"]
    assert status_after(ended)["lastSuccessfulTime"] == rfc3339(START + 630)


def test_run_that_is_gone_and_one_that_nobody_planned_are_told_of() -> None:
    active = [{"name": "gone", "uid": "gone"}]
    owner = cron_job(status={"active": active, "lastScheduleTime": rfc3339(START + 600)})
    result = sync(owner, [job(owner, START + 60, scheduled=False)], START + 610)
    assert sorted(reasons(result)) == ["MissingJob", "UnexpectedJob"]


def test_oldest_finished_runs_beyond_the_limits_are_deleted() -> None:
    owner = cron_job(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0, suspend=True)
    jobs = [job(owner, START + 60 * n, end) for n, end in enumerate(("Complete", "Failed", "Complete", "Complete"))]
    names = [action.name for action in sync(owner, jobs, START + 610).actions if isinstance(action, Delete)]
    assert names == [jobs[0]["metadata"]["name"], jobs[2]["metadata"]["name"], jobs[1]["metadata"]["name"]]


def test_time_zone_decides_when_a_time_is() -> None:
    owner = cron_job("0 0 * * *", timeZone="Asia/Kolkata")
    result = sync(owner, [], START + 86400)
    (create,) = [action for action in result.actions if isinstance(action, Create)]
    assert create.object["metadata"]["annotations"][SCHEDULED].endswith("T00:00:00+05:30")
    assert reasons(sync(cron_job(timeZone="Nowhere"), [], START)) == ["UnknownTimeZone"]


@settings(deadline=None)
@given(
    st.sampled_from(("* * * * *", "*/7 * * * *", "0 */5 * * *", "30 4 1,15 * *", "@weekly", "0 9-17 * * mon-fri")),
    st.integers(0, 40 * 86400),
)
def test_time_that_is_due_is_the_last_one_that_has_come(text: str, elapsed: int) -> None:
    schedule, owner, now = parse_schedule(text), cron_job(text), START + elapsed
    last, moment = None, schedule.after(START)
    while moment is not None and moment <= now and elapsed <= 3 * 86400:
        last, moment = moment, schedule.after(moment)
    found = due(owner, schedule, now)
    if elapsed <= 3 * 86400:
        assert found.time_s == last
    elif found.time_s is not None:
        following = schedule.after(found.time_s)
        assert found.time_s <= now and following is not None and following > now
