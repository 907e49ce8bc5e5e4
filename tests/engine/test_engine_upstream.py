"""The greedy group cycle of kube-scheduler: order, early stops, placements, and what differs from the exact answer."""

from __future__ import annotations

from random import Random

import pytest

from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.evaluate import evaluate
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy
from muster.engine.upstream.cycle import Cycle, complete
from muster.engine.upstream.model import CompositeGroup, PodGroup, Release
from muster.engine.upstream.preemption import Preemptor, preempt
from muster.testing import make_node, make_pod
from muster.testing.clusters import random_cluster

RACK = "topology.kubernetes.io/rack"
RELEASES: tuple[Release, ...] = ("1.36", "1.37")


def cluster(*cpus: int, racks: str = "") -> ClusterState:
    """Nodes with so many cpus, each in the rack whose letter stands at its place."""
    state = ClusterState()
    for at, cpu in enumerate(cpus):
        state.set_node(make_node(f"n{at}", cpu=str(cpu), labels={RACK: racks[at]} if racks else {}))
    return state


def group(state: ClusterState, cpus: list[int], min_count: int, *, topology: bool = False) -> GroupRequest:
    members = tuple(Member(f"default/p{at}", state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(cpus))
    return GroupRequest("default/g", members, min_count, topology_key=RACK if topology else None)


@pytest.mark.parametrize("release", RELEASES)
def test_the_order_of_the_members_decides_whether_a_mixed_group_fits(release: Release) -> None:
    state = cluster(4, 2)
    snapshot = state.snapshot()

    assert greedy(snapshot, group(state, [4, 2], 2), release=release).placed
    assert not greedy(snapshot, group(state, [2, 4], 2), release=release).placed
    assert isinstance(decide(snapshot, group(state, [2, 4], 2)), Placed)


@pytest.mark.parametrize(("release", "tried"), [("1.36", 5), ("1.37", 3)])
def test_1_37_stops_once_min_count_is_out_of_reach(release: Release, tried: int) -> None:
    state = cluster(2)

    found = greedy(state.snapshot(), group(state, [1] * 5, 5), release=release)

    assert len(found.trace.order or ()) == tried
    assert len(found.unplaced) == 5 and not found.placements


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("1.36", "0/1 placements are available, first placement status: pod group is unschedulable"),
        (
            "1.37",
            "pod group is unschedulable, 0/1 placements are available, first placement status: "
            "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining",
        ),
    ],
)
def test_the_words_are_those_of_the_release(release: Release, message: str) -> None:
    state = cluster(2)

    assert greedy(state.snapshot(), group(state, [1] * 3, 3), release=release).message == message


@pytest.mark.parametrize("release", RELEASES)
def test_members_beyond_min_count_that_do_not_fit_are_left_over(release: Release) -> None:
    state = cluster(2, 1)

    found = greedy(state.snapshot(), group(state, [1] * 5, 2), release=release)

    assert found.placed and len(found.placements) == 3
    assert found.pods == dict.fromkeys(found.unplaced, "0/2 nodes are available: 2 Insufficient cpu.")


@pytest.mark.parametrize("release", RELEASES)
def test_of_the_domains_that_hold_the_group_the_fullest_is_taken(release: Release) -> None:
    state = cluster(4, 4, 4, racks="aab")

    found = greedy(state.snapshot(), group(state, [1] * 3, 3, topology=True), release=release)

    assert {placement.node for placement in found.placements} == {"n2"}
    assert found.trace.runs == 2 and found.trace.placements == ["a", "b"]
    assert found.trace.scores["b"]["total"] > found.trace.scores["a"]["total"]


@pytest.mark.parametrize("release", RELEASES)
def test_scheduled_members_pin_the_domain(release: Release) -> None:
    state = cluster(4, 4, 4, racks="aab")
    request = group(state, [1], 2, topology=True)

    found = greedy(state.snapshot(), request, release=release, scheduled={"default/q": "n0"})

    assert found.trace.placements == ["a"] and found.placed


@pytest.mark.parametrize("seed", range(6))
def test_members_go_where_pods_alone_would_go_one_after_the_other(seed: int) -> None:
    features = frozenset({"podAffinity", "spread", "taints"}) if seed % 2 else frozenset({"resources", "taints"})
    made = random_cluster(Random(seed), features, nodes=12, pods=30)
    state = ClusterState()
    for node in made.nodes:
        state.set_node(node)
    pods = [{**pod, "spec": {**pod["spec"], "nodeName": ""}} for pod in made.pods[:20]]
    for pod in pods:
        state.shape_of(pod)  # so that all selectors are known before shapes are compared
    members = tuple(Member(f"default/m{at}", state.shape_of(pod)) for at, pod in enumerate(pods))

    found = greedy(state.snapshot(), GroupRequest("default/g", members, 1), release="1.36")

    with state.snapshot().trial() as trial:
        wanted = {}
        for member in members:
            best = evaluate(DEFAULT_PROFILE, trial, member.shape).best
            if best:
                wanted[member.key] = best[0]
                trial.place(member.shape.usage, trial.table.index[best[0]])
    assert dict(found.placements) == wanted


def running(state: ClusterState, *units: tuple[str, int, list[str]]) -> list[Unit]:
    """Units (key, priority, nodes of their pods) of one cpu a pod, put on their nodes."""
    found = []
    for key, priority, nodes in units:
        pods = [RunningPod(f"default/{key}{at}", node, 0.0) for at, node in enumerate(nodes)]
        for pod in pods:
            state.add_pod(pod.key, make_pod(pod.key.partition("/")[2], node=pod.node, cpu="1"), pod.node)
        found.append(Unit(key, priority, tuple(pods), is_group=len(pods) > 1))
    return found


def preempted(release: Release, state: ClusterState, units: list[Unit], asks: GroupRequest) -> Plan | NoPlan:
    group = PodGroup(asks.key, asks.members, asks.min_count, topology_key=asks.topology_key)
    return preempt(Cluster(state.snapshot(), units, 1.0), Preemptor(group, 10), Cycle(DEFAULT_PROFILE, release))


def victims(plan: Plan | NoPlan) -> list[str]:
    assert isinstance(plan, Plan)
    return sorted(unit.key for unit in plan.victims)


@pytest.mark.parametrize(("release", "want"), [("1.36", ["c"]), ("1.37", ["a"])])
def test_1_36_looks_for_other_nodes_for_each_unit_put_back_and_1_37_does_not(release: Release, want: list[str]) -> None:
    """The first node is where the member went; the unit on it is the most important of all."""
    state = cluster(1, 1, 1)
    units = running(state, ("a", 3, ["n0"]), ("b", 2, ["n1"]), ("c", 1, ["n2"]))

    plan = preempted(release, state, units, group(state, [1], 1))

    assert victims(plan) == want
    assert isinstance(plan, Plan) and [each.node for each in plan.placements] == ([] if release == "1.36" else ["n0"])


@pytest.mark.parametrize("release", RELEASES)
def test_a_unit_goes_and_comes_back_as_a_whole(release: Release) -> None:
    state = cluster(2, 2)
    units = running(state, ("unit", 1, ["n0", "n1"]), ("single", 2, ["n1"]))

    assert victims(preempted(release, state, units, group(state, [2], 1))) == ["unit"]


@pytest.mark.parametrize("release", RELEASES)
def test_nobody_goes_for_a_group_that_would_not_fit_anyway(release: Release) -> None:
    state = cluster(2, 2)
    units = running(state, ("a", 1, ["n0"]), ("b", 20, ["n1", "n1"]))

    assert isinstance(preempted(release, state, units, group(state, [2, 2], 2)), NoPlan)


def test_1_36_evicts_nobody_for_a_group_with_topology() -> None:
    state = cluster(1, 1, racks="ab")
    units = running(state, ("a", 1, ["n0"]), ("b", 2, ["n1"]))
    request = group(state, [1], 1, topology=True)

    refused = preempted("1.36", state, units, request)
    assert isinstance(refused, NoPlan) and "not supported for pod groups with scheduling constraints" in refused.text
    assert victims(preempted("1.37", state, units, request)) == ["a"]


def leaf(state: ClusterState, name: str, number: int, cpu: int = 1, *, topology: str | None = None) -> PodGroup:
    members = tuple(Member(f"default/{name}{at}", state.shape_of(make_pod(cpu=str(cpu)))) for at in range(number))
    return PodGroup(f"default/{name}", members, number, topology_key=topology)


def test_a_tree_ends_once_enough_children_are_out_of_reach_and_binds_nothing() -> None:
    state = cluster(4)
    root = CompositeGroup("default/root", (leaf(state, "a", 2), leaf(state, "b", 1, 5), leaf(state, "c", 1)), 3)
    cycle = Cycle(DEFAULT_PROFILE, "1.37")

    results = complete(root, cycle.run(state.snapshot(), root))

    assert [name.partition("/")[2] for _, name in cycle.trace.tree] == ["root", "a", "b", "root"]
    assert all(not result.word.is_success for result in results.values())
    assert "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining" in results["default/c"].word.message


def test_domains_of_a_tree_nest() -> None:
    state = ClusterState()
    for at, (zone, cpu) in enumerate([("a", 2), ("a", 2), ("b", 3), ("b", 2)]):
        state.set_node(make_node(f"n{at}", cpu=str(cpu), labels={"zone": zone, RACK: f"r{at}"}))
    children = (leaf(state, "x", 3, topology=RACK), leaf(state, "y", 2, topology=RACK))
    root = CompositeGroup("default/root", children, 2, topology_key="zone")

    results = Cycle(DEFAULT_PROFILE, "1.37").run(state.snapshot(), root)

    assert {each.node for each in results["default/x"].placements} == {"n2"}
    assert {each.node for each in results["default/y"].placements} == {"n3"}
