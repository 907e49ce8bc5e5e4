"""Manifests converted between ways to describe groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import Object, Objects
from muster.api.conversion import MUSTER, NATIVE, TARGETS, convert
from muster.api.dialects import COSCHEDULING, DIALECTS, KAI, VOLCANO

SCHEDULERS = {COSCHEDULING: "scheduler-plugins-scheduler", VOLCANO: "volcano", KAI: "kai-scheduler"}


def pod(name: str, metadata: Object | None = None, **spec: object) -> Object:
    containers = [{"name": "main", "image": "image"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", **(metadata or {})},
        "spec": {"containers": containers, **spec},
    }


def group(version: str, spec: Object, kind: str = "PodGroup", name: str = "train") -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "team"}, "spec": spec}


def gang(version: str = NATIVE[2], count: int = 4) -> Object:
    return group(version, {"schedulingPolicy": {"gang": {"minCount": count}}})


def lost(objects: Objects, target: str) -> list[str]:
    return [remark.path for remark in convert(objects, target).remarks if remark.lost]


@given(st.integers(1, 1000), st.sampled_from(sorted(DIALECTS)), st.sampled_from(NATIVE[1:]))
def test_the_size_of_a_gang_and_its_pods_come_through_every_scheduler_and_back(
    count: int, dialect: str, native: str
) -> None:
    start = [gang(native, count), pod("one", schedulingGroup={"podGroupName": "train"}, schedulerName="muster")]

    there = convert(start, dialect)
    back = convert(there.objects, native)

    assert back.objects == start
    assert there.objects[0]["spec"]["minMember"] == count
    assert "schedulingGroup" not in there.objects[1]["spec"]
    assert not [remark for remark in (*there.remarks, *back.remarks) if remark.lost]


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_not_about_groups_is_passed_on(target: str) -> None:
    others = [
        pod("plain", {"labels": {"app": "web"}}),
        {"apiVersion": "x/v1", "kind": "Queue", "metadata": {"name": "q"}},
    ]

    assert convert(others, target).objects == others


def test_marks_are_found_wherever_a_pod_template_is() -> None:
    template = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "train", "app": "x"}}, "spec": pod("")["spec"]}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "team"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": {"template": template}}}]},
    }

    (converted,) = convert([job_set], NATIVE[3]).objects

    inner = converted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert inner["spec"]["schedulingGroup"] == {"podGroupName": "train"}
    assert inner["metadata"] == {"labels": {"app": "x"}}
    assert template["metadata"] == {"labels": {"scheduling.x-k8s.io/pod-group": "train", "app": "x"}}, "unchanged"


@pytest.mark.parametrize(
    ("api_version", "spec", "expected"),
    [
        (
            COSCHEDULING,
            {"minMember": 2, "scheduleTimeoutSeconds": 9, "minResources": {}},
            ["spec.minResources", "spec.scheduleTimeoutSeconds"],
        ),
        (VOLCANO, {"minMember": 2, "queue": "q", "priorityClassName": "high"}, ["spec.queue"]),
        (
            KAI,
            {"minMember": 2, "topologyConstraint": {"requiredTopologyLevel": "rack", "topology": "row"}},
            ["spec.topologyConstraint.topology"],
        ),
    ],
)
def test_what_another_scheduler_says_and_we_cannot_is_named(
    api_version: str, spec: Object, expected: list[str]
) -> None:
    assert lost([group(api_version, spec)], NATIVE[2]) == expected


def test_priority_class_and_required_level_are_kept() -> None:
    spec = {"minMember": 2, "priorityClassName": "high", "topologyConstraint": {"requiredTopologyLevel": "rack"}}

    (converted,) = convert([group(KAI, spec)], NATIVE[2]).objects

    assert converted["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "priorityClassName": "high",
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }


@pytest.mark.parametrize("dialect", sorted(SCHEDULERS))
def test_pods_move_to_the_scheduler_of_the_target(dialect: str) -> None:
    mark = DIALECTS[dialect].marks[0]
    start = pod("one", {mark.place: {mark.key: "train"}}, schedulerName=SCHEDULERS[dialect])

    (ours,) = convert([start], NATIVE[2]).objects
    (kept,) = convert([pod("one", {mark.place: {mark.key: "train"}}, schedulerName="own")], NATIVE[2]).objects

    assert ours["spec"]["schedulerName"] == "muster"
    assert kept["spec"]["schedulerName"] == "own"


def test_pods_of_the_first_version_get_a_group_for_each_replica_key() -> None:
    templates = [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]
    workload = group(NATIVE[0], {"podGroups": templates}, "Workload")
    pods = [
        pod(f"p{key}", workloadRef={"name": "train", "podGroup": "workers", "podGroupReplicaKey": key}) for key in "ab"
    ]

    converted = convert([*pods, workload], NATIVE[1]).objects

    made = {obj["metadata"]["name"]: obj for obj in converted if obj["kind"] == "PodGroup"}
    assert sorted(made) == ["train-workers-a", "train-workers-b"]
    assert made["train-workers-a"]["metadata"]["namespace"] == "team"
    assert made["train-workers-a"]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert [obj["spec"]["schedulingGroup"]["podGroupName"] for obj in converted if obj["kind"] == "Pod"] == [
        "train-workers-a",
        "train-workers-b",
    ]


def test_a_pod_whose_workload_is_missing_is_told_of() -> None:
    start = pod("one", workloadRef={"name": "gone", "podGroup": "workers"})

    assert lost([start], NATIVE[2]) == [""]


def test_a_group_without_a_workload_becomes_one_in_the_first_version() -> None:
    converted = convert([gang(), pod("one", schedulingGroup={"podGroupName": "train"})], NATIVE[0]).objects

    assert [obj["kind"] for obj in converted] == ["Pod", "Workload"]
    assert converted[0]["spec"]["workloadRef"] == {"name": "train", "podGroup": "group"}
    assert converted[1]["spec"]["podGroups"] == [{"name": "group", "policy": {"gang": {"minCount": 4}}}]


def test_a_group_of_a_workload_is_named_by_template_and_key_in_the_first_version() -> None:
    workload = group(
        NATIVE[2], {"podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"basic": {}}}]}, "Workload"
    )
    ref = {"workloadName": "train", "templateName": "workers"}
    made = group(NATIVE[2], {"schedulingPolicy": {"basic": {}}, "workloadRef": ref}, name="train-0")
    start = [workload, made, pod("one", schedulingGroup={"podGroupName": "train-0"})]

    converted = convert(start, NATIVE[0]).objects

    assert [obj["kind"] for obj in converted] == ["Workload", "Pod"]
    assert converted[1]["spec"]["workloadRef"] == {
        "name": "train",
        "podGroup": "workers",
        "podGroupReplicaKey": "train-0",
    }


def test_composite_groups_are_lost_where_they_do_not_exist() -> None:
    composite = group(NATIVE[2], {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}, "CompositePodGroup")

    for target in TARGETS:
        assert bool(convert([composite], target).objects) == (target in (NATIVE[2], MUSTER)), target


def test_own_resources_carry_the_group_as_a_label_of_the_pods() -> None:
    converted = convert([gang(), pod("one", schedulingGroup={"podGroupName": "train"})], MUSTER).objects

    assert converted[0]["apiVersion"] == MUSTER
    assert converted[1]["metadata"]["labels"] == {"scheduling.muster-k8s.dev/pod-group": "train"}
    assert convert(converted, NATIVE[2]).objects[1]["spec"]["schedulingGroup"] == {"podGroupName": "train"}


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be one of scheduling.k8s.io/v1alpha1"):
        convert([], "v2")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_what_is_written_for_the_target_already_is_passed_on(dialect: str) -> None:
    mark = DIALECTS[dialect].marks[0]
    member = pod("one", {mark.place: {mark.key: "train"}}, schedulerName=SCHEDULERS[dialect])
    objects = [group(dialect, {"minMember": 3, "queue": "q", "status": {}}), member]

    assert convert(objects, dialect).objects == objects
    assert convert(objects, dialect).remarks == []


@pytest.mark.parametrize("version", NATIVE[1:])
def test_groups_in_the_version_of_the_target_keep_their_status(version: str) -> None:
    objects = [{**gang(version), "status": {"conditions": []}}]

    assert convert(objects, version).objects == objects


def test_levels_of_kai_become_a_field_and_an_annotation_and_come_back() -> None:
    constraint = {"requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    start = [group(KAI, {"minMember": 3, "topologyConstraint": constraint})]

    there = convert(start, NATIVE[3])

    assert there.objects[0]["spec"]["schedulingConstraints"] == {"topology": [{"key": "zone"}]}
    assert there.objects[0]["metadata"]["annotations"] == {"scheduling.muster-k8s.dev/topology": "preferred: rack"}
    assert convert(there.objects, KAI).objects == start
    assert lost(there.objects, VOLCANO) == [
        "spec.schedulingConstraints",
        "metadata.annotations[scheduling.muster-k8s.dev/topology]",
    ]


@pytest.mark.parametrize(
    ("obj", "target", "want"),
    [
        ({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}, NATIVE[3], [""]),
        ({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}, VOLCANO, [""]),
        ({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}, KAI, []),
        ({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "q"}}, MUSTER, [""]),
        (
            pod("p", {"labels": {"kai.scheduler/queue": "q", "app": "x"}, "annotations": {"pod-group-name": "g"}}),
            NATIVE[3],
            ["labels[kai.scheduler/queue]"],
        ),
        (pod("p", {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}), NATIVE[3], []),
        (
            pod("p", {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}),
            KAI,
            ["annotations[kueue.x-k8s.io/podset-required-topology]"],
        ),
        (pod("p", {"annotations": {"volcano.sh/task-spec": "w"}}), NATIVE[2], ["annotations[volcano.sh/task-spec]"]),
    ],
)
def test_what_only_another_scheduler_reads_is_named(obj: Object, target: str, want: list[str]) -> None:
    assert lost([obj], target) == want


def test_fields_that_no_version_has_are_named() -> None:
    odd = group(NATIVE[1], {"schedulingPolicy": {"basic": {}}, "minMember": 2})

    found = [(remark.path, remark.lost) for remark in convert([odd], NATIVE[3]).remarks]

    assert found == [("spec.minMember", False)]
