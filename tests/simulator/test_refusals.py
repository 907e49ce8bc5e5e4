from __future__ import annotations

from muster.api.codec import Object
from muster.nodes.spec import parse_node_spec
from muster.simulator.refusals import standing_refusals
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of
from muster.testing.builders import make_job, make_pod


def _event(reason: str, name: str = "j", type_: str = "Warning", message: str = "no") -> Object:
    return {"kind": "Job", "namespace": "default", "name": name, "type": type_, "reason": reason, "message": message}


def test_refusal_stands_until_something_is_made() -> None:
    first, second = _event("FailedCreate", message="first"), _event("FailedWorkloadCreate", message="second")
    other = _event("FailedCreate", "k")

    assert standing_refusals([first, second, other, _event("SuccessfulCreate", "k", "Normal")]) == [second]
    assert standing_refusals([_event("SuccessfulCreate", type_="Normal"), first]) == [first]
    assert standing_refusals([_event("BackoffLimitExceeded"), _event("FailedScheduling")]) == []


def _gang_of_four() -> Object:
    return make_job("train", parallelism=4, indexed=True, pod=make_pod(cpu="1"))


def _quota(hard: str) -> Object:
    metadata = {"name": "team", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": hard}}}


def test_group_that_lacks_members_says_who_refuses_them() -> None:
    objects = manifests_of([_gang_of_four(), _quota("2")])

    (group,) = report(simulate(objects, nodes=[parse_node_spec("1")], until_s=300))["groups"]

    assert group["state"] == "Gated"
    assert "2 of 4 members exist; Job train: Error creating: pods" in group["message"]
    assert "exceeded quota: team" in group["message"]


def test_quota_of_the_beginning_is_in_force_from_the_beginning() -> None:
    objects = manifests_of([make_pod("a"), make_pod("b"), _quota("2"), _gang_of_four()])

    result = report(simulate(objects, nodes=[parse_node_spec("1")], until_s=300))

    assert {pod["name"] for pod in result["pods"]} == {"a", "b"}


def test_cronjob_runs_as_long_as_it_is_asked_to() -> None:
    template = {"spec": {"template": make_job(pod=make_pod())["spec"]["template"]}}
    spec = {"schedule": "*/5 * * * *", "jobTemplate": template}
    cronjob = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}
    nodes = [parse_node_spec("1")]

    ended = report(simulate(manifests_of([cronjob]), nodes=nodes, until_s=960))
    kept = report(simulate(manifests_of([cronjob]), nodes=nodes, until_s=960, keeps_schedules=True))

    assert (len(ended["pods"]), ended["time_s"] < 10) == (0, True)
    assert (len(kept["pods"]), kept["time_s"]) == (3, 960)
