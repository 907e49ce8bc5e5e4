from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import pod_of, stored_job
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.names import fnv32a, safe_hash, truncated_label, truncated_pair
from muster.api.resource import POD_GROUPS, WORKLOADS
from muster.controllers.action import Create, Emit, Patch
from muster.controllers.batch.job_groups import GroupApi, GroupPlan, compiled_template, plan_group
from muster.controllers.batch.job_spec import JobSpec

INFERRED, EXPLICIT = GroupApi("1.36"), GroupApi("1.37")
OLD = GroupApi("1.36", replace(WORKLOADS, version="v1alpha2"), replace(POD_GROUPS, version="v1alpha2"))


def gang_job(size: int = 4, name: str = "train", spec: Object | None = None) -> Object:
    job = stored_job(name, parallelism=size, indexed=True)
    job["spec"] |= spec or {}
    return job


def plan(job: Object, api: GroupApi, *stored: Object, pods: tuple[Object, ...] = ()) -> GroupPlan:
    workloads = [obj for obj in stored if obj["kind"] == "Workload"]
    groups = [obj for obj in stored if obj["kind"] == "PodGroup"]
    return plan_group(job, JobSpec.of(job), pods, workloads, groups, api)


def created(step: GroupPlan) -> Object:
    """The object of the only action, as it would be stored."""
    (action,) = step.actions
    assert isinstance(action, Create) and not step.is_ready
    return {**action.object, "metadata": {**action.object["metadata"], "uid": "uid-" + action.object["kind"]}}


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (gang_job(), True),
        (gang_job(1), False),
        (stored_job(parallelism=4), False),
        (stored_job(parallelism=2, completions=4, indexed=True), False),
        (gang_job(spec={"suspend": True}), True),
    ],
    ids=["all four", "one pod", "no indexes", "fewer at once", "suspended"],
)
def test_gang_is_inferred_under_four_conditions(job: Object, want: bool) -> None:
    assert bool(plan(job, INFERRED).actions) is want


def test_jobs_with_an_owner_or_a_named_group_get_none() -> None:
    owned, linked = gang_job(), gang_job()
    owned["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "set", "uid": "u", "controller": True}]
    linked["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    assert plan(owned, INFERRED) == plan(linked, INFERRED) == plan(gang_job(), GroupApi("off")) == GroupPlan()


def test_workload_comes_before_group_before_pods() -> None:
    job = gang_job()
    workload = created(plan(job, INFERRED))
    group = created(plan(job, INFERRED, workload))
    assert workload["spec"]["podGroupTemplates"] == [
        {"name": "train-pgt-0", "schedulingPolicy": {"gang": {"minCount": 4}}}
    ]
    assert [(owner["kind"], owner.get("controller", False)) for owner in group["metadata"]["ownerReferences"]] == [
        ("Job", True),
        ("Workload", False),
    ]
    assert plan(job, INFERRED, workload, group) == GroupPlan(group=group["metadata"]["name"])


@pytest.mark.parametrize("api", [INFERRED, EXPLICIT])
def test_group_has_the_priority_class_of_its_pods(api: GroupApi) -> None:
    job = gang_job()
    job["spec"]["template"]["spec"]["priorityClassName"] = "high"
    workload = created(plan(job, api))
    group = created(plan(job, api, workload))
    assert workload["spec"]["podGroupTemplates"][0]["priorityClassName"] == "high"
    assert group["spec"]["priorityClassName"] == "high"


def test_old_version_names_its_workload_in_the_nested_form() -> None:
    job = gang_job()
    workload = created(plan(job, OLD))
    group = created(plan(job, OLD, workload))
    assert group["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    reference = {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": "train-pgt-0"}
    assert group["spec"]["podGroupTemplateRef"] == {"workload": reference}
    assert plan(job, OLD, workload, group).group == group["metadata"]["name"]


def test_objects_of_others_are_not_used() -> None:
    job = gang_job()
    workload = created(plan(job, INFERRED))
    workload["metadata"]["ownerReferences"] = []
    assert created(plan(job, INFERRED, workload))["kind"] == "Workload"


def test_started_job_without_group_runs_without() -> None:
    job = gang_job()
    assert plan(job, INFERRED, pods=(pod_of(job, "p", index=0),)) == GroupPlan()


def test_several_workloads_mean_plain_scheduling() -> None:
    job = gang_job()
    first = created(plan(job, INFERRED))
    second = {**first, "metadata": {**first["metadata"], "name": "other"}}
    assert plan(job, INFERRED, first, second) == GroupPlan()


@pytest.mark.parametrize(
    ("scheduling", "want"),
    [
        (None, {"basic": {}}),
        ({}, {"basic": {}}),
        ({"schedulingPolicy": {"basic": {}}}, {"basic": {}}),
        ({"schedulingPolicy": {"gang": {}}}, {"gang": {"minCount": 4}}),
        ({"schedulingPolicy": {"gang": {"minCount": 2}}}, {"gang": {"minCount": 2}}),
    ],
)
def test_explicit_scheduling_is_compiled(scheduling: Object | None, want: Object) -> None:
    job = gang_job(spec={} if scheduling is None else {"scheduling": scheduling})
    assert compiled_template(job, JobSpec.of(job), EXPLICIT)["schedulingPolicy"] == want


def test_changed_count_goes_to_workload_and_group_once() -> None:
    job = gang_job(spec={"scheduling": {"schedulingPolicy": {"gang": {}}}})
    workload = created(plan(job, EXPLICIT))
    group = created(plan(job, EXPLICIT, workload))
    job["spec"]["parallelism"] = 6
    step = plan(job, EXPLICIT, workload, group, pods=(pod_of(job, "p", index=0),))
    assert [action.resource.kind for action in step.actions if isinstance(action, Patch)] == ["Workload", "PodGroup"]
    workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] = 6
    group["spec"]["schedulingPolicy"] = {"gang": {"minCount": 6}}
    assert plan(job, EXPLICIT, workload, group).actions == ()


def test_delegated_job_makes_its_group_from_the_parents_template() -> None:
    job = stored_job("worker", parallelism=2)
    job["metadata"]["annotations"] = {"scheduling.k8s.io/group-template-name": "workers"}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    job["metadata"]["ownerReferences"] = [owner]
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    parent = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default", "uid": "uw"},
        "spec": {
            "controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": "set"},
            "podGroupTemplates": [template],
        },
    }
    assert plan(job, EXPLICIT) == GroupPlan()
    group = created(plan(job, EXPLICIT, parent))
    assert [entry["kind"] for entry in group["metadata"]["ownerReferences"]] == ["Job"]
    assert group["spec"]["workloadRef"] == {"workloadName": "w", "templateName": "workers"}


def test_failure_to_create_is_told_since_1_37_or_where_it_is_asked_for() -> None:
    told = "FailedWorkloadCreate"
    for api, want in ((INFERRED, None), (EXPLICIT, told), (GroupApi("1.36", tells_failures=True), told)):
        (action,) = plan(gang_job(), api).actions
        assert isinstance(action, Create)
        failed: Emit | None = action.failed
        assert (failed.reason if failed else None) == want


def test_hash_is_fnv1a() -> None:
    assert fnv32a(b"") == 0x811C9DC5
    assert fnv32a(b"foobar") == 0xBF9CF968
    assert set(safe_hash("a", "b")) <= set("bcdfghjklmnpqrstvwxz2456789")


@given(st.text("ab-.", max_size=300), st.text("ab-", max_size=80))
def test_names_fit_and_keep_their_end(first: str, second: str) -> None:
    assert len(truncated_pair(first, second, "hash")) <= 253
    assert truncated_pair(first, second, "hash").endswith("-hash")
    label = truncated_label(first, "-pgt-0")
    assert len(label) <= 63 and label.endswith("-pgt-0")


def test_the_longer_part_of_a_name_gives_way() -> None:
    assert truncated_pair("a" * 10, "b" * 300, "h") == "a" * 10 + "-" + "b" * 240 + "-h"
    assert truncated_pair("a" * 300, "b" * 300, "h") == "a" * 125 + "-" + "b" * 125 + "-h"
