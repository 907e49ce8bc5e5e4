"""`muster.Cluster`: decisions without a server, on a cluster that only `apply` changes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from muster import Cluster, Result
from muster.api.codec import Object, Objects
from muster.api.manifests import ManifestError
from muster.scheduler.options import PlacementMode
from muster.testing import make_group, make_job, make_node, make_pod


def gang(name: str = "train", workers: int = 4) -> Object:
    """An Indexed Job of workers with one GPU each."""
    return make_job(name, parallelism=workers, indexed=True, pod=make_pod(gpu=1))


def explanation_of(result: Result) -> Object:
    assert result.explanation is not None
    return result.explanation


def gpu_nodes(count: int, gpus: int = 2) -> Objects:
    return [make_node(f"node-{index}", gpu=gpus) for index in range(count)]


def test_import_of_the_package_loads_no_numpy() -> None:
    code = "import sys, muster; assert 'numpy' not in sys.modules; from muster import Cluster; print(Cluster.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Cluster\n"


def test_gang_job_is_placed_as_a_whole_with_names_by_index() -> None:
    result = Cluster.load(gpu_nodes(2)).schedule([gang()])
    assert result.state == "Placed"
    assert result.explanation is None
    assert result.assignments == {
        "default/train-0": "node-0",
        "default/train-1": "node-0",
        "default/train-2": "node-1",
        "default/train-3": "node-1",
    }


def test_gang_that_does_not_fit_is_infeasible_with_verified_changes() -> None:
    result = Cluster.load(gpu_nodes(2)).schedule([gang(workers=6)])
    assert result.state == "Infeasible"
    assert result.assignments == {}
    kinds = {change["kind"]: change for change in explanation_of(result)["changes"]}
    assert kinds["addNodes"]["nodes"] == 1
    assert kinds["lowerMinCount"]["to"] == 4
    assert all(change["verified"] for change in kinds.values())


def test_group_in_the_way_is_named_as_a_change() -> None:
    cluster = Cluster.load(gpu_nodes(2))
    cluster.apply(cluster.schedule([gang("first")]))
    changes = explanation_of(cluster.schedule([gang("second")]))["changes"]
    assert "endGroups" in {change["kind"] for change in changes}


def test_more_members_than_needed_are_placed_as_far_as_they_fit_and_the_rest_is_explained() -> None:
    pods = [make_pod(f"worker-{index}", gpu=1, group="some") for index in range(4)]
    result = Cluster.load(gpu_nodes(1, gpus=3)).schedule([make_group("some", min_count=2), *pods])
    assert result.state == "Placed"
    assert sorted(result.assignments) == ["default/worker-0", "default/worker-1", "default/worker-2"]
    assert explanation_of(result)["reasons"]


def test_job_that_is_no_gang_is_placed_as_far_as_it_fits() -> None:
    job = make_job("single", parallelism=6, pod=make_pod(gpu=1))
    result = Cluster.load(gpu_nodes(2)).schedule([job])
    assert result.state == "Infeasible"
    assert sorted(result.assignments) == [f"default/single-{index}" for index in range(4)]


def test_schedule_changes_nothing_and_apply_does() -> None:
    cluster = Cluster.load(gpu_nodes(2))
    first = cluster.schedule([gang()])
    assert cluster.schedule([gang("other")]).state == "Placed"
    assert cluster.assignments == {}
    cluster.apply(first)
    assert cluster.assignments == first.assignments
    assert cluster.schedule([gang("other")]).state == "Infeasible"
    assert cluster.schedule([gang()]).assignments == first.assignments


def test_groups_are_decided_in_queue_order_each_with_those_before_it_in_place() -> None:
    urgent: Object = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    late = make_pod("late", gpu=2, spec={"priorityClassName": "urgent"})
    result = Cluster.load(gpu_nodes(1)).schedule([urgent, make_pod("early", gpu=1), late])
    assert result.state == "Infeasible"
    assert result.assignments == {"default/late": "node-0"}


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_group_made_by_hand_counts_members_that_run_already(version: str) -> None:
    group = make_group("duo", min_count=2, version=version)
    running = make_pod("one", gpu=1, group="duo", node="node-0")
    cluster = Cluster.load([*gpu_nodes(1), group, running])
    result = cluster.schedule([make_pod("two", gpu=1, group="duo")])
    assert result.state == "Placed"
    assert result.assignments == {"default/two": "node-0"}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ([make_pod("a", group="missing")], "waiting for PodGroup default/missing, which does not exist"),
        ([make_group("pair", min_count=2), make_pod("a", group="pair")], "1 of 2 members exist"),
    ],
    ids=["no group", "too few members"],
)
def test_group_that_cannot_be_tried_says_what_it_waits_for(objects: Objects, want: str) -> None:
    result = Cluster.load(gpu_nodes(1)).schedule(objects)
    assert result.state == "Infeasible"
    assert want in explanation_of(result)["summary"]


def test_group_with_a_topology_constraint_is_placed_in_one_domain_or_refused() -> None:
    rack = "topology.kubernetes.io/rack"
    group = make_group("racked", min_count=4, schedulingConstraints={"topology": [{"key": rack}]})
    pods = [make_pod(f"racked-{index}", group="racked", gpu=1) for index in range(4)]
    racks = {f"node-{index}": f"rack-{index % 2}" for index in range(4)}
    nodes = [make_node(name, gpu=2, labels={rack: label}) for name, label in racks.items()]
    placed = Cluster.load(nodes).schedule([group, *pods])
    assert placed.state == "Placed"
    assert len({racks[node] for node in placed.assignments.values()}) == 1
    refused = Cluster.load(gpu_nodes(4)).schedule([group, *pods])
    assert refused.state == "Infeasible"
    assert rack in explanation_of(refused)["summary"]


def test_text_path_and_objects_say_the_same(tmp_path: Path) -> None:
    text = yaml.safe_dump_all(gpu_nodes(2))
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    results = [Cluster.load(source).schedule([gang()]) for source in (text, file, str(file), gpu_nodes(2))]
    assert len({str(result.assignments) for result in results}) == 1


def test_pods_that_ended_take_no_room() -> None:
    ended = make_pod("old", gpu=2, node="node-0")
    ended["status"] = {"phase": "Succeeded"}
    assert Cluster.load([*gpu_nodes(1), ended]).schedule([gang(workers=2)]).state == "Placed"


def test_objects_given_are_not_changed() -> None:
    objects = [*gpu_nodes(1), gang(workers=2)]
    before = str(objects)
    Cluster.load(objects[:1]).schedule(objects[1:])
    assert str(objects) == before


def test_a_refused_object_leaves_the_cluster_as_it_was() -> None:
    cluster = Cluster.load(gpu_nodes(2))
    with pytest.raises(ManifestError, match=r"minCount"):
        cluster.schedule([gang(), make_group("bad", min_count=0)])
    assert repr(cluster) == "<Cluster: 2 nodes, 0 pods placed, 0 waiting>"
    assert cluster.schedule([gang()]).state == "Placed"


@pytest.mark.parametrize("source", [[], [make_node("more")]], ids=["nothing", "only nodes"])
def test_nothing_to_schedule_is_an_error(source: Objects) -> None:
    with pytest.raises(ManifestError, match="there is no"):
        Cluster.load(gpu_nodes(1)).schedule(source)


def test_result_of_another_cluster_is_refused() -> None:
    result = Cluster.load(gpu_nodes(2)).schedule([gang()])
    with pytest.raises(ManifestError, match="which this cluster does not have"):
        Cluster.load(gpu_nodes(1)).apply(result)


def test_works_where_an_event_loop_runs_already_as_in_a_notebook() -> None:
    async def cell() -> str:
        return Cluster.load(gpu_nodes(2)).schedule([gang()]).state

    assert asyncio.run(cell()) == "Placed"


@pytest.mark.parametrize("placement", ["upstream-1.36", "upstream-1.37"])
def test_a_group_that_needs_another_order_is_undecided_by_the_rules_of_a_release(
    placement: PlacementMode,
) -> None:
    cluster = Cluster.load([make_node("a", cpu="4"), make_node("b", cpu="2")])
    pods = [make_pod("small", group="g", cpu="2"), make_pod("vast", group="g", cpu="4")]
    source = [make_group("g", min_count=2), *pods]

    assert cluster.schedule(source).state == "Placed"
    refused = cluster.schedule(source, placement=placement)
    assert (refused.state, refused.assignments) == ("Undecided", {})
    assert "0/1 placements are available" in explanation_of(refused)["summary"]


def test_ties_go_to_the_first_node_by_the_rules_of_a_release() -> None:
    cluster = Cluster.load([make_node("a", cpu="4"), make_node("b", cpu="4")])
    source = [make_group("g", min_count=1), make_pod("p", group="g", cpu="2"), make_pod("q", group="g", cpu="2")]

    result = cluster.schedule(source, placement="upstream-1.37")
    assert result.assignments == {"default/p": "a", "default/q": "b"}


def test_members_that_run_and_one_that_waits_in_a_snapshot_are_of_one_scheduler() -> None:
    def of_cluster(obj: Object, number: int) -> Object:
        metadata = {**obj["metadata"], "uid": f"u{number}", "annotations": {"sim.muster-k8s.dev/snapshot": ""}}
        return {**obj, "metadata": {"namespace": "default", **metadata}}

    running = [make_pod(f"w-{at}", group="g", node="n", cpu="1") for at in range(2)]
    objects = [make_node("n", cpu="2"), make_group("g", min_count=2), *running, make_pod("w-2", group="g", cpu="1")]
    cluster = Cluster.load([of_cluster(obj, number) for number, obj in enumerate(objects)])
    (found,) = cluster.explain()
    assert (found["scheduled"], found["state"]) == (2, "Placed")
    assert "schedulerName" not in found["summary"]
    assert found["reasons"] == [{"reason": "Insufficient cpu", "count": 1}]


def with_devices(nodes: int) -> Cluster:
    """Nodes of 32 cpu with the GPUs of the example."""
    return Cluster.load([*(make_node(f"node-{at}", cpu="32") for at in range(nodes)), *objects_of("gpus.yaml")])


def objects_of(name: str) -> Objects:
    return list(yaml.safe_load_all((Path(__file__).parents[1] / "examples" / "dra" / name).read_text()))


def renamed(gang: Objects, name: str) -> Objects:
    """The same group and pods under another name."""
    found: Objects = json.loads(json.dumps(gang).replace('"train', f'"{name}'))
    return found


def test_claims_are_made_from_templates_and_devices_of_nodes_count() -> None:
    cluster, gang = with_devices(2), objects_of("gang.yaml")
    other = renamed(gang[1:], "other")

    assert with_devices(1).schedule(gang).state == "Infeasible"
    first = cluster.schedule(gang)
    assert first.state == "Placed"
    cluster.apply(first)
    second = cluster.schedule(other)
    assert second.state == "Infeasible"
    assert explanation_of(second)["summary"] == (
        "needs 3 pods of 2 gpu devices and 4 cpu each; room for 1 of them on 1 node (2 cannot allocate all claims)"
    )


def test_groups_that_are_asked_about_together_take_devices_from_each_other() -> None:
    gang = objects_of("gang.yaml")

    result = with_devices(2).schedule([*gang, *renamed(gang[1:], "other")])

    assert result.state == "Infeasible"
    assert {key.partition("-")[0] for key in result.assignments} == {"default/train"}


def test_an_own_claim_of_a_group_is_made_once_for_all_its_pods() -> None:
    group = make_group("train", min_count=2)
    group["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]
    entry = {"name": "gpus", "resourceClaimTemplateName": "two-gpus"}
    pods = [make_pod(f"p{at}", cpu="20", group="train", spec={"resourceClaims": [entry]}) for at in range(2)]
    template = objects_of("gang.yaml")[0]

    assert (
        with_devices(2).schedule([template, group, *pods]).state == "Infeasible"
    )  # two nodes, and one has the devices
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    placed = with_devices(2).schedule([template, group, *pods])
    assert placed.state == "Placed"
    assert len(set(placed.assignments.values())) == 1
