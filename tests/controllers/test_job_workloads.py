"""Objects for Jobs of another Job controller, step by step."""

from __future__ import annotations

from job_objects import pod_of, stored_job
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.names import job_group_names
from muster.api.resource import JOBS, POD_GROUPS, PODS, WORKLOADS
from muster.controllers.action import Action, Create, Delete, Patch
from muster.controllers.batch.job_groups import GroupApi
from muster.controllers.batch.job_workloads import LABEL, JobWorkloads
from muster.testing.controller_state import ControllerState

OLD = GroupApi("1.36", replace(WORKLOADS, version="v1alpha2"), replace(POD_GROUPS, version="v1alpha2"), labels=(LABEL,))
NEW = GroupApi("1.36", WORKLOADS, POD_GROUPS, labels=(LABEL,))


def job(size: int = 3) -> Object:
    return stored_job("train", parallelism=size, indexed=True)


def pods(of: Object, scheduler: str = "muster", **spec: object) -> list[Object]:
    made = [pod_of(of, f"p{at}", "Pending", index=at) for at in range(3)]
    return [{**each, "spec": {**(each.get("spec") or {}), "schedulerName": scheduler, **spec}} for each in made]


def steps(of: Object, api: GroupApi, *objects: Object, of_pods: list[Object] | None = None) -> tuple[Action, ...]:
    state = ControllerState(JOBS, PODS, api.workloads, api.groups)
    state.put(JOBS, of)
    state.put(PODS, *(pods(of) if of_pods is None else of_pods))
    for obj in objects:
        state.put(api.workloads if obj["kind"] == "Workload" else api.groups, obj)
    return JobWorkloads(api, frozenset({"muster"})).reconcile("default/train", state, 0.0).actions


def made(of: Object, api: GroupApi) -> list[Object]:
    """The Workload and the PodGroup of a Job, as they are stored."""
    objects: list[Object] = []
    for _ in range(2):
        (create,) = steps(of, api, *objects)
        assert isinstance(create, Create)
        metadata = {**create.object["metadata"], "uid": f"uid-{create.object['kind']}"}
        objects.append({**create.object, "metadata": metadata})
    assert steps(of, api, *objects) == ()
    return objects


def test_names_follow_from_the_job() -> None:
    workload, group = made(job(), NEW)
    names = job_group_names("train", "uid-of-train")
    assert (workload["metadata"]["name"], group["metadata"]["name"]) == (names[0], names[2])
    assert workload["spec"]["podGroupTemplates"][0]["name"] == names[1]


def test_another_size_changes_the_count_or_makes_the_objects_anew() -> None:
    changed = steps(job(5), NEW, *made(job(), NEW))
    assert [type(each) for each in changed] == [Patch, Patch]
    removed = steps(job(5), OLD, *made(job(), OLD))
    assert [each.resource for each in removed if isinstance(each, Delete)] == [OLD.groups, OLD.workloads]


def test_objects_without_our_label_are_left_alone() -> None:
    workload, group = made(job(), NEW)
    del group["metadata"]["labels"]
    assert steps(job(5), NEW, workload, group) == ()


def test_nothing_is_made_without_pods_of_ours_that_name_no_group() -> None:
    assert steps(job(), NEW, of_pods=[]) == ()
    assert steps(job(), NEW, of_pods=pods(job(), "default-scheduler")) == ()
    assert steps(job(), NEW, of_pods=pods(job(), schedulingGroup={"podGroupName": "mine"})) == ()


def test_a_count_of_the_group_alone_is_set_right() -> None:
    workload, group = made(job(), NEW)
    group["spec"] = {**group["spec"], "schedulingPolicy": {"gang": {"minCount": 9}}}
    (patch,) = steps(job(), NEW, workload, group)
    assert isinstance(patch, Patch)
    assert patch.patch == {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
