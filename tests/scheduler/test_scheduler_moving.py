"""Moving instead of evicting: pods and whole groups that fit elsewhere make room for a gang, if that is allowed."""

from __future__ import annotations

import pytest
from test_scheduler_preemption_simulated import OPTIONS

from muster.api.codec import Object, Objects
from muster.cluster import Cluster
from muster.nodes.spec import parse_node_spec
from muster.scheduler.options import SchedulerOptions
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of
from muster.testing import make_group, make_job, make_node, make_pod

LONG = {"sim.muster-k8s.dev/run-seconds": "3000"}
RACK = "topology.kubernetes.io/rack"


def run(objects: Objects, later: Objects, nodes: str, *, allowed: bool = True, seed: int = 0) -> Object:
    outcome = simulate(
        manifests_of(objects),
        timed=[(60.0, manifests_of(later))],
        nodes=[parse_node_spec(nodes)],
        options=ClusterOptions(
            node_events=OPTIONS.node_events, scheduler=SchedulerOptions(allow_consolidation=allowed)
        ),
        seed=seed,
        until_s=900.0,
    )
    assert not outcome.violations
    return report(outcome)


def new_gang(size: int, cpu: str = "8", **spec: object) -> Objects:
    group = make_group("new", min_count=size, **spec)  # type: ignore[arg-type]  # fields of the spec only
    return [group, *(make_pod(f"new-{at}", cpu=cpu, group="new") for at in range(size))]


def gang_job(name: str, size: int, cpu: str, labels: dict[str, str] | None = None) -> Object:
    return make_job(name, parallelism=size, indexed=True, pod=make_pod(cpu=cpu, annotations=LONG, labels=labels))


def states(shown: Object) -> dict[str, str]:
    return {group["name"].partition("-")[0]: group["state"] for group in shown["groups"]}


@pytest.mark.parametrize("allowed", [True, False])
def test_pods_that_fit_elsewhere_are_moved_for_a_gang_if_that_is_allowed(allowed: bool) -> None:
    """One pod of a ReplicaSet on each of three nodes; the gang needs two nodes for itself."""
    selector = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": make_pod(cpu="2")["spec"]}
    replicas: Object = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}}
    replicas["metadata"]["namespace"] = "default"
    replicas["spec"] = {"replicas": 3, "selector": selector, "template": template}

    shown = run([replicas], new_gang(2), "count=3,cpu=8", allowed=allowed)

    assert states(shown)["new"] == ("Running" if allowed else "Unschedulable")
    assert len(shown["evictions"]) == (2 if allowed else 0)
    web = [pod for pod in shown["pods"] if pod["name"].startswith("web-") and pod["phase"] == "Running"]
    assert len(web) == 3
    assert len({pod["node"] for pod in web}) == (1 if allowed else 3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("allowed", [True, False])
def test_a_gang_is_moved_as_a_whole_and_runs_again(allowed: bool, seed: int) -> None:
    """Its two pods share a third node when the other gang has two nodes for itself."""
    shown = run([gang_job("old", 2, "3")], new_gang(2), "count=3,cpu=8", allowed=allowed, seed=seed)

    assert states(shown)["new"] == ("Running" if allowed else "Unschedulable")
    assert len(shown["evictions"]) == (2 if allowed else 0)
    old = [pod for pod in shown["pods"] if pod["name"].startswith("old-") and pod["phase"] == "Running"]
    assert len(old) == 2
    assert len({pod["node"] for pod in old}) == (1 if allowed else 2)


def test_a_gang_that_fits_nowhere_as_a_whole_stays_where_it_is() -> None:
    """One of its pods would fit beside the other, all three do not."""
    shown = run([gang_job("old", 3, "3")], new_gang(2), "count=3,cpu=8")

    assert shown["evictions"] == []
    assert states(shown) == {"old": "Running", "new": "Unschedulable"}


def test_a_gang_under_a_disruption_budget_is_not_moved() -> None:
    budget: Object = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }

    shown = run([budget, gang_job("old", 2, "3", {"app": "db"})], new_gang(2), "count=3,cpu=8")

    assert shown["evictions"] == []
    assert states(shown)["new"] == "Unschedulable"


def test_two_gangs_do_not_move_each_other_in_circles() -> None:
    """More is asked than there is; whoever was moved stays where it went."""
    old = [gang_job("one", 2, "3"), gang_job("two", 2, "3")]

    shown = run(old, [*new_gang(2), gang_job("late", 2, "8")], "count=4,cpu=8")

    moved = [each["pod"] for each in shown["evictions"]]
    assert len(moved) == len(set(moved)) <= 4


def test_explain_proposes_the_moves() -> None:
    nodes = [make_node(f"n{at}", cpu="8") for at in range(3)]
    job = gang_job("old", 2, "3")
    job["metadata"]["uid"] = "job-uid"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "old", "uid": "job-uid", "controller": True}
    pods = [make_pod(f"old-{at}", cpu="3", node=f"n{at}", group="old") for at in range(2)]
    for pod in pods:
        pod["metadata"]["ownerReferences"] = [owner]
    group = make_group("old", min_count=2)

    (found,) = Cluster.load([*nodes, job, group, *pods, *new_gang(2)]).explain(None, "podgroup/new")

    (change,) = [each for each in found["changes"] if each["kind"] == "movePods"]
    assert {move["pod"] for move in change["moves"]} == {"default/old-0", "default/old-1"}
    assert len({move["to"] for move in change["moves"]}) == 1
    assert change["groups"] == ["default/old"]
    assert change["minimal"]
    assert change["text"].endswith("default/old as a whole")
