"""One look at a Job after the other, on a model of the cluster in which any write may be lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import NOW, pod_of, stored_job

from muster.api.codec import Object, copy_object
from muster.api.meta import has_condition, name_of
from muster.clock import rfc3339
from muster.controllers.action import Create, Delete, Patch, Result, Update
from muster.controllers.batch.job_backoff import BackoffRecord
from muster.controllers.batch.job_pods import TRACKING_FINALIZER, has_ended
from muster.controllers.batch.job_spec import is_finished
from muster.controllers.batch.job_sync import Look, sync


class Model:
    """A Job and its pods; each action is lost with a probability, and then the rest of its list too."""

    def __init__(self, job: Object, rng: random.Random, loss: float = 0.0) -> None:
        self.job, self.rng, self.loss = job, rng, loss
        self.pods: dict[str, Object] = {}
        self.now = NOW
        self.backoff: BackoffRecord | None = None
        self.created = 0
        self.outcomes: list[str] = []

    def look(self) -> Result:
        """Look once and carry out what follows."""
        result, backoff = sync(Look.at(self.job, list(self.pods.values()), self.backoff, self.now), lambda pod: 0, None)
        for action in result.actions:
            if self.rng.random() < self.loss:
                return result
            self._apply(action)
        self.backoff = backoff
        return result

    def _apply(self, action: object) -> None:
        match action:
            case Update(_, obj, "status"):
                self.job = {**self.job, "status": obj["status"]}
            case Patch(_, _, name):
                self.pods[name]["metadata"]["finalizers"] = []
                if self.pods[name]["metadata"].get("gone"):
                    del self.pods[name]
            case Delete(_, _, name):
                if name in self.pods:
                    self.pods[name]["metadata"]["deletionTimestamp"] = rfc3339(self.now + 30)
                    self.pods[name]["metadata"]["deletionGracePeriodSeconds"] = 30
            case Create(_, obj):
                self._create(obj)

    def _create(self, obj: Object) -> None:
        self.created += 1
        pod = copy_object(obj)
        pod["metadata"] |= {
            "name": f"p{self.created}",
            "uid": f"u{self.created}",
            "creationTimestamp": rfc3339(self.now),
        }
        pod["spec"]["nodeName"] = "node"
        pod["status"] = {"phase": "Running"}
        self.pods[name_of(pod)] = pod

    def end(self, name: str, phase: str) -> None:
        """A pod ends by itself."""
        end = {"exitCode": int(phase == "Failed"), "finishedAt": rfc3339(self.now)}
        status = {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
        self.pods[name]["status"] = status
        self.outcomes.append(phase)

    def end_deleted(self) -> None:
        """The kubelet ends deleted pods; those without finalizer are gone."""
        for name, pod in list(self.pods.items()):
            if pod["metadata"].get("deletionTimestamp"):
                if not has_ended(pod):
                    pod["status"]["phase"] = "Failed"
                if TRACKING_FINALIZER in pod["metadata"]["finalizers"]:
                    pod["metadata"]["gone"] = True
                else:
                    del self.pods[name]

    def running(self) -> list[str]:
        return [n for n, p in self.pods.items() if not has_ended(p) and not p["metadata"].get("deletionTimestamp")]


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 4), st.integers(1, 7))
def test_each_ended_pod_is_counted_once_whatever_is_lost(seed: int, indexed: bool, width: int, total: int) -> None:
    rng = random.Random(seed)
    job = stored_job(parallelism=width, completions=total, indexed=indexed, backoffLimit=1000)
    model = Model(job, rng, loss=0.2)
    for _ in range(400):
        if is_finished(model.job):
            break
        model.now += rng.choice([0, 1, 700])
        model.look()
        running = model.running()
        if running and rng.random() < 0.5:
            model.end(rng.choice(running), rng.choice(["Succeeded", "Failed"]))
        assert len(model.running()) <= width
    assert is_finished(model.job)
    assert has_condition(model.job, "Complete")
    assert model.job["status"]["succeeded"] == total
    assert model.job["status"].get("failed", 0) == model.outcomes.count("Failed")
    assert model.outcomes.count("Succeeded") == total
    if indexed:
        assert model.job["status"]["completedIndexes"] == {1: "0", 2: "0,1"}.get(total, f"0-{total - 1}")


@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, 4))
def test_failed_job_counts_all_its_pods_and_ends_after_the_last(seed: int, limit: int, width: int) -> None:
    model = Model(stored_job(parallelism=width, completions=20, backoffLimit=limit), random.Random(seed), loss=0.2)
    for _ in range(400):
        if is_finished(model.job):
            break
        model.now += 700
        model.look()
        running = model.running()
        if running and not has_condition(model.job, "FailureTarget"):
            model.end(running[0], "Failed")
        if model.rng.random() < 0.5:
            model.end_deleted()
    assert has_condition(model.job, "Failed")
    assert model.job["status"]["failed"] == model.created
    assert not model.running()


def test_status_is_not_written_when_nothing_changed() -> None:
    model = Model(stored_job(parallelism=2), random.Random(0))
    for _ in range(3):
        model.look()
    assert model.look().actions == ()


def test_deadline_is_a_timer_until_it_fails_the_job() -> None:
    model = Model(stored_job(activeDeadlineSeconds=60), random.Random(0))
    model.look()
    model.now += 20
    assert model.look().requeue_after_s == 40
    model.now += 40
    model.look()
    assert has_condition(model.job, "FailureTarget")
    assert model.job["status"]["conditions"][0]["reason"] == "DeadlineExceeded"


def test_suspended_job_loses_its_pods_and_start_time_without_failures() -> None:
    model = Model(stored_job(parallelism=3), random.Random(0))
    for _ in range(2):
        model.look()
    model.job["spec"]["suspend"] = True
    model.look()
    model.end_deleted()
    model.look()
    assert model.running() == []
    status = model.job["status"]
    assert "startTime" not in status and "failed" not in status and "active" not in status
    assert has_condition(model.job, "Suspended")


@pytest.mark.parametrize(("policy", "want_pods"), [("TerminatingOrFailed", 3), ("Failed", 2)])
def test_terminating_pod_holds_its_place_only_where_failed_pods_are_replaced(policy: str, want_pods: int) -> None:
    model = Model(stored_job(parallelism=2, podReplacementPolicy=policy), random.Random(0))
    for _ in range(2):
        model.look()
    model.pods["p1"]["metadata"] |= {"deletionTimestamp": rfc3339(model.now + 30), "deletionGracePeriodSeconds": 30}
    model.look()
    model.now += 11
    model.look()
    assert model.created == want_pods


def test_backoff_survives_a_restart_of_the_controller() -> None:
    job = stored_job(parallelism=1, status={"failed": 2, "startTime": rfc3339(NOW)})
    pods = [pod_of(job, f"p{n}", "Failed", ended_s=n, counted=True) for n in (1, 2)]
    result, _ = sync(Look.at(job, pods, None, NOW + 5), lambda pod: 0, None)
    assert result.requeue_after_s == 17
