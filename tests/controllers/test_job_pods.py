from __future__ import annotations

from job_objects import pod_of, stored_job

from muster.api.meta import name_of
from muster.controllers.batch.job_creation import new_pod
from muster.controllers.batch.job_pods import is_failed, pods_to_remove
from muster.controllers.batch.job_spec import JobSpec


def test_least_advanced_pods_go_first() -> None:
    job = stored_job(parallelism=4)
    unbound = pod_of(job, "unbound", "Pending")
    unbound["spec"].pop("nodeName")
    pods = [
        pod_of(job, "ready", ready=True),
        pod_of(job, "running"),
        unbound,
        pod_of(job, "starting", "Pending"),
    ]
    removed = pods_to_remove(pods, JobSpec.of(job), 4, lambda pod: 0)
    assert [name_of(pod) for pod in removed] == ["unbound", "starting", "running", "ready"]


def test_repeated_and_invalid_indexes_go_even_if_none_has_to() -> None:
    job = stored_job(parallelism=2, completions=2, indexed=True)
    pods = [
        pod_of(job, "a", index=0, ready=True),
        pod_of(job, "b", index=0),
        pod_of(job, "c", index=2),
        pod_of(job, "d", index=1),
        pod_of(job, "e"),
    ]
    removed = pods_to_remove(pods, JobSpec.of(job), 0, lambda pod: 0)
    assert sorted(name_of(pod) for pod in removed) == ["b", "c", "e"]


def test_tie_decides_between_equal_pods_only() -> None:
    job = stored_job(parallelism=3)
    pods = [pod_of(job, "a", ready=True), pod_of(job, "b"), pod_of(job, "c")]
    removed = pods_to_remove(pods, JobSpec.of(job), 2, lambda pod: int(name_of(pod) == "b"))
    assert [name_of(pod) for pod in removed] == ["c", "b"]


def test_deleted_pod_is_a_failure_unless_only_failed_pods_are_replaced() -> None:
    for policy, want in (("TerminatingOrFailed", True), ("Failed", False)):
        job = stored_job(podReplacementPolicy=policy)
        assert is_failed(pod_of(job, "p", deleted_s=1), JobSpec.of(job)) is want


def test_pod_of_a_long_indexed_job_has_a_prefix_that_keeps_its_index() -> None:
    job = stored_job("j" * 63, parallelism=12, completions=12, indexed=True)
    pod = new_pod(job, JobSpec.of(job), 11, None, None)
    assert pod["metadata"]["generateName"] == "j" * 54 + "-11-"
    assert pod["spec"]["hostname"] == "j" * 63 + "-11"


def test_replacement_carries_the_failures_of_its_index() -> None:
    job = stored_job(
        parallelism=2,
        completions=2,
        indexed=True,
        backoffLimitPerIndex=5,
        podFailurePolicy={"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]},
    )
    counted = pod_of(job, "a", "Failed", index=0, annotations={"batch.kubernetes.io/job-index-failure-count": "2"})
    pod = new_pod(job, JobSpec.of(job), 0, counted, "group")
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "3"
    assert "batch.kubernetes.io/job-index-ignored-failure-count" not in pod["metadata"]["annotations"]
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "group"}
    counted["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = 7
    pod = new_pod(job, JobSpec.of(job), 0, counted, None)
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "2"
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-ignored-failure-count"] == "1"
