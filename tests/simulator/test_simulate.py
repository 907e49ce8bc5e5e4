from __future__ import annotations

import pytest

from muster.api.codec import Object, Objects
from muster.api.manifests import ManifestError
from muster.nodes.spec import parse_node_spec
from muster.simulator.faults import NodeFault
from muster.simulator.options import ClusterOptions, UnknownComponent, check_without
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import World, manifests_of
from muster.testing.builders import make_group, make_node, make_pod

PREFIX = "sim.muster-k8s.dev/"
NODES = [parse_node_spec("count=2,nvidia.com/gpu=2")]


def _pod(name: str, *, group: str | None = None, run_s: float | None = 10, namespace: str = "default") -> Object:
    annotations = {} if run_s is None else {PREFIX + "run-seconds": str(run_s)}
    spec = {"restartPolicy": "Never"}
    return make_pod(name, namespace=namespace, group=group, gpu=1, annotations=annotations, spec=spec)


def _gang(name: str, size: int, *, min_count: int | None = None, run_s: float | None = 10) -> Objects:
    group = make_group(name, min_count=size if min_count is None else min_count)
    return [group, *(_pod(f"{name}-{index}", group=name, run_s=run_s) for index in range(size))]


def _run(*objects: Object, **kwargs: object) -> Object:
    return report(simulate(manifests_of(objects), nodes=NODES, **kwargs))  # type: ignore[arg-type]  # test helper


def _states(result: Object) -> dict[str, str]:
    return {group["name"]: group["state"] for group in result["groups"]}


def test_gangs_that_do_not_fit_together_run_one_after_the_other() -> None:
    result = _run(*_gang("first", 4), *_gang("second", 4))

    assert _states(result) == {"first": "Succeeded", "second": "Succeeded"}
    first, second = (group["first_scheduled_s"] for group in result["groups"])
    assert first < 1 < 10 < second < 12
    assert result["time_s"] < 23
    assert result["invariants"]["violations"] == []


def test_gang_that_can_never_fit_says_why() -> None:
    (group,) = _run(*_gang("big", 5))["groups"]

    assert (group["state"], group["scheduled"], group["members"]) == ("Unschedulable", 0, 5)
    assert {"reason": "Insufficient nvidia.com/gpu", "count": 2} in group["explanation"]["reasons"]
    assert "Insufficient nvidia.com/gpu" in group["message"]
    assert {change["kind"] for change in group["explanation"]["changes"]} >= {"addNodes", "lowerMinCount"}


def test_gang_that_waits_for_others_is_told_for_which() -> None:
    waiting_one = [(5.0, manifests_of(_gang("waiting", 4)))]

    (_, waiting) = _run(*_gang("server", 2, run_s=None), timed=waiting_one)["groups"]

    assert waiting["state"] == "Unschedulable"
    ends = [change for change in waiting["explanation"]["changes"] if change["kind"] == "endGroups"]
    assert [change["groups"] for change in ends] == [["default/server"]]


def test_gang_waits_until_its_members_exist() -> None:
    objects = _gang("late", 4)

    result = simulate(manifests_of(objects[:3]), timed=[(30.0, manifests_of(objects[3:]))], nodes=NODES)

    (group,) = report(result)["groups"]
    assert group["state"] == "Succeeded"
    assert 30 < group["first_scheduled_s"] < 31


def test_gang_that_lacks_members_is_gated_with_a_reason() -> None:
    (group,) = _run(*_gang("few", 3)[:3])["groups"]

    assert group["state"] == "Gated"
    assert "2 of 3 members" in group["message"]


def test_pod_that_names_a_missing_group_waits_with_a_reason() -> None:
    result = _run(_pod("alone", group="nowhere"))

    assert _states(result) == {"nowhere": "Gated"}
    assert result["pods"][0]["reason"] == "SchedulingGated"
    assert "does not exist" in result["pods"][0]["message"]


def test_running_group_ends_the_simulation_when_nothing_is_left_to_happen() -> None:
    result = _run(*_gang("server", 2, run_s=None))

    assert _states(result) == {"server": "Running"}
    assert result["time_s"] < 2


def test_time_limit_ends_a_simulation_that_is_not_quiet() -> None:
    result = _run(*_gang("long", 2, run_s=1000), until_s=60.0)

    assert result["time_s"] == 60
    assert _states(result) == {"long": "Running"}


def test_missing_namespace_is_made_and_node_without_status_is_filled_in() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    pod = make_pod("p", namespace="some-ns", cpu="1")

    result = report(simulate(manifests_of([pod, node])))

    assert result["nodes"][0]["allocatable"] == {"cpu": "32", "memory": "256Gi", "pods": "110"}
    assert result["nodes"][0]["requested"] == {"cpu": "1", "memory": "0", "pods": "1"}
    assert (result["pods"][0]["node"], result["pods"][0]["phase"]) == ("bare", "Running")


def test_node_in_a_manifest_is_simulated() -> None:
    result = report(simulate(manifests_of([make_node("n", gpu=1), _pod("p")])))

    assert (result["pods"][0]["phase"], result["pods"][0]["node"]) == ("Succeeded", "n")
    assert 10 <= result["pods"][0]["finished_s"] - result["pods"][0]["scheduled_s"] < 10.1


def test_object_that_the_server_refuses_is_named_with_its_place() -> None:
    bad = make_group("bad", min_count=0)

    with pytest.raises(ManifestError, match="minCount") as caught:
        simulate(manifests_of([make_pod(), bad]))

    assert (caught.value.file, caught.value.line) == ("<objects>", 2)


def test_version_that_is_not_served_is_named_with_its_place() -> None:
    with pytest.raises(ManifestError, match=r"scheduling\.k8s\.io/v7"):
        simulate(manifests_of([make_group("new", version="v7")]))


def test_cluster_without_scheduler_leaves_pods_pending() -> None:
    result = _run(_pod("p"), options=ClusterOptions(without=frozenset({"scheduler"})))

    assert (result["pods"][0]["phase"], result["pods"][0]["node"]) == ("Pending", None)
    assert result["invariants"]["violations"] == []


def test_progress_sees_time_go_on() -> None:
    seen: list[float] = []

    def watch(world: World) -> None:
        seen.append(world.time_s)

    _run(_pod("p"), on_progress=watch)

    assert seen == sorted(seen)
    assert len(seen) > 5


def test_node_that_dies_takes_its_pods_along_until_they_are_evicted() -> None:
    fault = Faults(nodes=(NodeFault("node-0", at_s=5.0),))

    result = _run(_pod("p", run_s=1000), faults=fault, until_s=600.0)

    assert result["pods"][0]["node"] == "node-0"
    assert result["pods"][0]["phase"] != "Succeeded"


def test_node_that_comes_back_has_lost_its_pods() -> None:
    fault = Faults(nodes=(NodeFault("node-0", at_s=5.0, back_s=20.0),))

    result = _run(_pod("p", run_s=1000), faults=fault)

    (pod,) = result["pods"]
    assert (pod["phase"], 20 <= pod["finished_s"] < 21) == ("Failed", True)


@pytest.mark.parametrize(
    "name", ["nodes", "scheduler", "controllers", "job-controller", "replicationcontroller-controller"]
)
def test_components_are_left_out_by_known_names(name: str) -> None:
    assert check_without([name]) == {name}


def test_unknown_component_is_answered_with_what_was_meant() -> None:
    with pytest.raises(UnknownComponent, match="did you mean job-controller"):
        check_without(["job-controler"])
