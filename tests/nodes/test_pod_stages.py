from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.nodes import stages
from muster.nodes.barriers import Barriers
from muster.nodes.stages import Barrier, Kind, Life, load_stages, plan_of
from muster.nodes.status import status_of
from muster.testing.builders import make_pod

DATA = load_stages()
PREFIX = "sim.muster-k8s.dev/"


def _pod(owner: str = "", spec: Object | None = None, **annotations: str) -> Object:
    pod = make_pod(annotations={PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}, spec=spec)
    if owner:
        pod["metadata"]["ownerReferences"] = [{"kind": owner, "uid": "u", "controller": True}]
    return pod


def _live(pod: Object, steps: int) -> list[tuple[str, float | None]]:
    """The stages that the pod passes and when each ends."""
    plan = plan_of(pod, DATA)
    life = stages.begin(plan, DATA, 0.0)
    passed = []
    for _ in range(steps):
        name = DATA.stages[life.index].name if life.kind is Kind.STAGE else life.kind.value
        passed.append((name, life.deadline))
        life = stages.advance(plan, DATA, life, life.deadline or 0.0)
    return passed


def test_pod_of_a_job_runs_ten_seconds_and_succeeds() -> None:
    assert _live(_pod("Job"), 2) == [("run", 10.0), ("ended", None)]


@pytest.mark.parametrize("owner", ["", "ReplicaSet"])
def test_other_pods_run_on(owner: str) -> None:
    assert _live(_pod(owner), 1) == [("run", None)]


def test_stages_take_the_time_that_annotations_give() -> None:
    pod = _pod(pull_seconds="3", start_seconds="2", ready_seconds="1.5", run_seconds="10")

    assert _live(pod, 5) == [("pull", 3), ("start", 5), ("ready", 6.5), ("run", 16.5), ("ended", None)]


def test_exit_code_decides_how_a_pod_ends() -> None:
    plan = plan_of(_pod(run_seconds="1", exit_code="3"), DATA)

    life = stages.advance(plan, DATA, stages.begin(plan, DATA, 0.0), 1.0)

    status = status_of(_pod(), life, DATA, pod_ip="10.0.0.1", host_ip="192.168.0.1", now=1.0)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_failed_container_is_restarted_with_growing_back_off() -> None:
    pod = _pod("Job", {"restartPolicy": "OnFailure"}, run_seconds="1", exit_code="1")

    want = [("run", 1.0), ("backoff", 11.0), ("run", 12.0), ("backoff", 32.0), ("run", 33.0)]
    assert _live(pod, 5) == want


@pytest.mark.parametrize(
    ("key", "value"),
    [("run_seconds", "soon"), ("run_seconds", "-1"), ("run_seconds", "inf"), ("exit_code", "-1"), ("exit_code", "256")]
    + [("stop_seconds", "never"), ("barrier", "name"), ("barrier", "name/0"), ("barrier", "/4"), ("barrier", "name/x")],
)
def test_annotation_without_meaning_is_named_and_ignored(key: str, value: str) -> None:
    plan = plan_of(_pod("Job", None, **{key: value}), DATA)

    assert plan.invalid == (PREFIX + key.replace("_", "-"),)
    assert (plan.seconds[-1], plan.exit_code, plan.barrier) == (10.0, 0, None)


@pytest.mark.parametrize(
    ("stop", "grace", "want"), [(None, 30, 5.0), ("20", 30, 25.0), ("20", 10, 15.0), ("20", 0, 5.0), ("soon", 30, 5.0)]
)
def test_deleted_pod_ends_when_it_has_stopped_or_its_grace_period_is_over(
    stop: str | None, grace: int, want: float
) -> None:
    plan = plan_of(_pod("", {"terminationGracePeriodSeconds": grace}, **({"stop_seconds": stop} if stop else {})), DATA)

    life = stages.terminate(plan, DATA, stages.begin(plan, DATA, 0.0), 5.0)

    assert (life.ended if life.kind is Kind.ENDED else life.deadline) == want
    assert stages.terminate(plan, DATA, life, 6.0) is life


def test_running_status_is_that_of_a_ready_kubelet_pod() -> None:
    pod = _pod()
    status = status_of(pod, stages.begin(plan_of(pod, DATA), DATA, 0.0), DATA, pod_ip="a", host_ip="b", now=0.0)

    assert status["phase"] == "Running"
    assert {entry["type"]: entry["status"] for entry in status["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    (container,) = status["containerStatuses"]
    assert (container["ready"], container["started"], container["state"]) == (
        True,
        True,
        {"running": {"startedAt": "1970-01-01T00:00:00Z"}},
    )


def test_transition_time_stays_while_a_condition_does() -> None:
    pod = _pod(ready_seconds="5")
    plan = plan_of(pod, DATA)
    life = stages.begin(plan, DATA, 0.0)
    pod["status"] = status_of(pod, life, DATA, pod_ip="a", host_ip="b", now=0.0)

    after = status_of(pod, stages.advance(plan, DATA, life, 5.0), DATA, pod_ip="a", host_ip="b", now=5.0)

    times = {entry["type"]: entry["lastTransitionTime"] for entry in after["conditions"]}
    assert times["Initialized"] == "1970-01-01T00:00:00Z"
    assert times["Ready"] == "1970-01-01T00:00:05Z"


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 5)), max_size=20))
def test_frozen_time_does_not_count(moves: list[tuple[bool, float]]) -> None:
    life = Life(Kind.STAGE, 3, 1000.0, 0.0, began=0.0)
    now = counted = 0.0
    for frozen, seconds in moves:
        life = stages.freeze(life, now) if frozen else stages.resume(life, now)
        now += seconds
        counted += 0.0 if frozen else seconds

    left = stages.freeze(life, now).left_s
    assert left == pytest.approx(1000.0 - counted)


def test_barrier_opens_when_enough_stand_there_and_closes_when_one_goes() -> None:
    barriers, barrier = Barriers(), Barrier(("ns", "b"), 2)

    barriers.join(barrier, "ns/p0", "job")
    assert not barriers.is_open(barrier, "job")
    barriers.join(barrier, "ns/p1", "job")
    assert barriers.is_open(barrier, "job")
    barriers.leave(barrier, "ns/p1", ended_well=False)
    assert not barriers.is_open(barrier, "job")


def test_member_that_ended_well_holds_up_only_others_owners() -> None:
    barriers, barrier = Barriers(), Barrier(("ns", "b"), 2)
    barriers.join(barrier, "ns/p0", "job")
    barriers.join(barrier, "ns/p1", "job")

    barriers.leave(barrier, "ns/p1", ended_well=True)

    assert barriers.is_open(barrier, "job")
    assert not barriers.is_open(barrier, "another job")
