"""The greedy group cycle of kube-scheduler: order, early stops, placements, and what differs from the exact answer."""

from __future__ import annotations

from random import Random

import pytest

from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.evaluate import evaluate
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy
from muster.engine.upstream.model import Release
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
