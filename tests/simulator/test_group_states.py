from __future__ import annotations

import pytest

from muster.api.codec import Object, Objects
from muster.nodes.spec import parse_node_spec
from muster.simulator.groups import find_groups, settled_state, why
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of
from muster.testing.builders import make_group, make_job, make_pod


def _pods(*phases: str, gated: bool = False) -> Objects:
    """Members of `g`, one a phase; `Waiting` is pending without a node."""
    pods = []
    for index, phase in enumerate(phases):
        node = None if phase == "Waiting" else "n"
        spec: Object = {"schedulingGates": [{"name": "x"}]} if gated else {}
        pod = make_pod(f"p{index}", group="g", node=node, spec=spec)
        pod["status"]["phase"] = "Pending" if phase == "Waiting" else phase
        pods.append(pod)
    return pods


def _state(pods: Objects, *, min_count: int | None = 2, job: Object | None = None) -> str | None:
    group = make_group("g", min_count=min_count)
    if job is not None:
        job["metadata"]["uid"] = "job"
        group["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "job", "controller": True}]
    objects = {"podgroups": [group], "workloads": [], "jobs": [job] if job else [], "pods": pods}
    (view,) = find_groups(objects)
    return settled_state(view)


def _job(**condition: str) -> Object:
    job = make_job()
    if condition:
        job["status"] = {"conditions": [{"status": "True", **condition}]}
    return job


@pytest.mark.parametrize(
    ("phases", "min_count", "want"),
    [
        pytest.param(["Running", "Running", "Waiting"], 2, "Running", id="enough run"),
        pytest.param(["Running", "Pending", "Waiting"], 2, "Scheduled", id="enough have a node"),
        pytest.param(["Running", "Succeeded"], 2, "Scheduled", id="ended members count as scheduled"),
        pytest.param(["Waiting", "Waiting"], 2, None, id="only a decision tells"),
        pytest.param(["Waiting"], 2, "Gated", id="too few members"),
        pytest.param([], 2, "Gated", id="no members"),
        pytest.param(["Running", "Waiting"], None, "Running", id="a basic group needs one"),
        pytest.param(["Succeeded", "Succeeded"], 2, "Succeeded", id="all ended well"),
        pytest.param(["Failed", "Running"], 2, "Failed", id="too few can still end well"),
        pytest.param(["Failed", "Running", "Running"], 2, "Running", id="enough can still end well"),
    ],
)
def test_state_is_the_first_that_holds(phases: list[str], min_count: int | None, want: str | None) -> None:
    assert _state(_pods(*phases), min_count=min_count) == want


def test_scheduling_gate_holds_the_whole_group() -> None:
    assert _state(_pods("Waiting", "Waiting", gated=True)) == "Gated"


@pytest.mark.parametrize(
    ("job", "phases", "want"),
    [
        pytest.param(_job(type="Failed"), ["Running", "Running"], "Failed", id="the owner failed"),
        pytest.param(_job(type="Complete"), ["Succeeded", "Failed"], "Succeeded", id="the owner is complete"),
        pytest.param(_job(), ["Failed", "Waiting", "Waiting"], None, id="the owner replaces what failed"),
    ],
)
def test_owner_decides_how_a_group_ended(job: Object, phases: list[str], want: str | None) -> None:
    assert _state(_pods(*phases), job=job) == want


def test_group_that_nobody_made_says_what_it_waits_for() -> None:
    objects: dict[str, Objects] = {"podgroups": [], "workloads": [], "jobs": [], "pods": _pods("Waiting")}

    (view,) = find_groups(objects)

    assert settled_state(view) == "Gated"
    assert why(view, "Gated") == ("SchedulingGated", "waiting for PodGroup default/g, which does not exist")


def test_groups_of_v1alpha1_are_named_by_workload_template_and_replica() -> None:
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "train"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]},
    }
    pods = []
    for replica in ("", "r0"):
        reference = {"name": "train", "podGroup": "workers", **({"podGroupReplicaKey": replica} if replica else {})}
        pods += [make_pod(f"p{replica}-{index}", cpu="1", spec={"workloadRef": reference}) for index in range(2)]

    groups = report(simulate(manifests_of([workload, *pods]), nodes=[parse_node_spec("1")]))["groups"]

    assert [(group["name"], group["kind"], group["state"], group["scheduled"]) for group in groups] == [
        ("train/workers", "Workload", "Running", 2),
        ("train/workers/r0", "Workload", "Running", 2),
    ]
