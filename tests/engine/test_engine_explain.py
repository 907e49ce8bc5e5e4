"""Explanations read well, and every change they propose helps, by no more than is needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.topology import Subgroups, TopologyTerms
from muster.engine.decide import decide
from muster.engine.explanation.explain import explain
from muster.engine.explanation.question import Question, Target
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.testing import make_node, make_pod

GPU = "nvidia.com/gpu"


def explained(
    state: ClusterState,
    pods: list[Object],
    min_count: int | None = None,
    groups: list[tuple[str, list[str]]] | None = None,
) -> Object:
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
    request = GroupRequest("default/g", members, len(pods) if min_count is None else min_count)
    snapshot = state.snapshot()
    return explain(snapshot, request, decide(snapshot, request), groups=groups or [])


def cluster(*nodes: Object) -> ClusterState:
    state = ClusterState()
    for node in nodes:
        state.set_node(node)
    return state


def changes(explanation: Object) -> dict[str, Object]:
    return {change["kind"]: change for change in explanation["changes"]}


def test_gang_without_room_says_what_it_needs_and_what_would_help() -> None:
    explanation = explained(cluster(make_node("n0", gpu=3), make_node("n1", gpu=3)), [make_pod(gpu=2)] * 3)

    assert explanation["summary"] == "needs 3 pods of 2 nvidia.com/gpu each; room for 2 of them on 2 nodes"
    assert explanation["reasons"] == [{"reason": "Insufficient nvidia.com/gpu", "count": 2}]
    found = changes(explanation)
    assert list(found) == ["addNodes", "lowerRequest", "lowerMinCount"]
    assert (found["addNodes"]["nodes"], found["addNodes"]["like"]) == (1, "n0")
    assert (found["lowerRequest"]["from"], found["lowerRequest"]["to"]) == ("2", "1")
    assert found["lowerMinCount"]["to"] == 2
    assert all(change["verified"] and change["minimal"] for change in found.values())


def test_pod_larger_than_any_node_is_told_to_ask_for_less() -> None:
    explanation = explained(cluster(make_node("n0", memory="64Gi")), [make_pod(memory="100Gi")])

    assert list(changes(explanation)) == ["lowerRequest"]
    assert changes(explanation)["lowerRequest"]["to"] == "64Gi"


def test_running_groups_whose_end_makes_room_are_named() -> None:
    state = cluster(make_node("n0", gpu=4))
    state.add_pod("default/a", make_pod(gpu=2), "n0")
    state.add_pod("default/b", make_pod(gpu=2), "n0")
    groups = [("default/A", ["default/a"]), ("default/B", ["default/b"])]

    one = changes(explained(state, [make_pod(gpu=2)], groups=groups))["endGroups"]
    both = changes(explained(state, [make_pod(gpu=4)], groups=groups))["endGroups"]

    assert one["groups"] == ["default/A"]
    assert both["groups"] == ["default/A", "default/B"]
    assert both["text"] == "wait until default/A and default/B end"
    assert both["minimal"] is True


def test_taint_in_the_way_is_named() -> None:
    node = make_node("n0", taints=[{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}])

    explanation = explained(cluster(node), [make_pod(cpu="1")])

    assert explanation["summary"].endswith("(1 node(s) had untolerated taint(s))")
    assert changes(explanation)["tolerate"]["taint"] == "dedicated=ml:NoSchedule"


def test_taints_of_the_node_lifecycle_are_no_advice() -> None:
    node = make_node("n0", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])

    assert list(changes(explained(cluster(node), [make_pod(cpu="1")]))) == ["addNodes"]


def test_group_that_is_placed_in_part_says_what_the_rest_needs() -> None:
    explanation = explained(cluster(make_node("n0", gpu=1)), [make_pod(gpu=1)] * 2, 1)

    assert explanation["summary"].startswith("placed 1 of 2 pods, which is enough")
    assert "lowerMinCount" not in changes(explanation)
    assert changes(explanation)["addNodes"]["nodes"] == 1


def test_group_that_is_placed_needs_no_change() -> None:
    explanation = explained(cluster(make_node("n0"), make_node("n1")), [make_pod(cpu="20")] * 2)

    assert explanation == {"summary": "2 pods placed on 2 nodes", "reasons": [], "changes": []}


def test_missing_claim_is_said_and_nothing_is_proposed() -> None:
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}

    explanation = explained(cluster(make_node("n0")), [make_pod(spec=spec)])

    assert 'could not find ResourceClaim "default/gpu"' in explanation["summary"]
    assert explanation["changes"] == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_proposed_changes_are_enough_and_the_next_smaller_ones_are_not(gpus: list[int], pods: int, each: int) -> None:
    def verdict(nodes: list[int], count: int, size: int) -> bool:
        state = cluster(*(make_node(f"n{at}", gpu=size_) for at, size_ in enumerate(nodes)))
        members = tuple(Member(f"p{at}", state.shape_of(make_pod(gpu=size))) for at in range(count))
        decision = decide(state.snapshot(), GroupRequest("g", members, count))
        assert isinstance(decision, Placed | Infeasible)
        return isinstance(decision, Placed)

    if verdict(gpus, pods, each):
        return
    state = cluster(*(make_node(f"n{at}", gpu=size) for at, size in enumerate(gpus)))
    found = changes(explained(state, [make_pod(gpu=each)] * pods))

    if "addNodes" in found:
        like = gpus[int(found["addNodes"]["like"][1:])]
        number = found["addNodes"]["nodes"]
        assert verdict(gpus + [like] * number, pods, each)
        assert not verdict(gpus + [like] * (number - 1), pods, each)
    else:
        assert max(gpus) < each
    if "lowerRequest" in found:
        to = int(found["lowerRequest"]["to"])
        assert verdict(gpus, pods, to)
        assert not verdict(gpus, pods, to + 1)
    if "lowerMinCount" in found:
        assert verdict(gpus, found["lowerMinCount"]["to"], each)
        assert not verdict(gpus, found["lowerMinCount"]["to"] + 1, each)


def test_whole_new_rack_is_proposed_where_no_rack_has_nodes_of_the_kind() -> None:
    rack = "topology.kubernetes.io/rack"
    state = ClusterState()
    state.set_node(make_node("cpu-0", cpu="8", labels={rack: "r0"}))
    state.set_node(make_node("gpu-0", cpu="8", gpu=4))
    pods = [make_pod(cpu="1", gpu=4)] * 3
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
    request = GroupRequest("default/g", members, 3, topology_key=rack)
    snapshot = state.snapshot()

    changes = explain(snapshot, request, decide(snapshot, request))["changes"]

    (change,) = [each for each in changes if each["kind"] == "addNodes"]
    assert change["text"] == (f"add 3 nodes like gpu-0 (with 4 nvidia.com/gpu) in a new domain of {rack}")
    assert (change["nodes"], change["minimal"], change["new"]) == (3, True, {rack: "new+1"})


def test_whole_new_domain_is_proposed_for_subgroups_where_nodes_of_the_kind_are_in_none() -> None:
    rack, block = "topology.kubernetes.io/rack", "example.com/block"
    state = ClusterState()
    state.set_node(make_node("cpu-0", cpu="8", labels={rack: "r0", block: "b0"}))
    state.set_node(make_node("gpu-0", cpu="8", gpu=4, labels={block: "b0"}))
    members = tuple(Member(f"default/p{at}", state.shape_of(make_pod(cpu="1", gpu=4))) for at in range(3))
    layout = Layout(TopologyTerms(required=block, subgroups=Subgroups(3, rack)), (0, 1, 2))
    request = GroupRequest("default/g", members, 3, topology_key=block, layout=layout)
    snapshot = state.snapshot()

    changes = explain(snapshot, request, decide(snapshot, request))["changes"]

    (change,) = [each for each in changes if each["kind"] == "addNodes"]
    assert change["text"] == f"add 3 nodes like gpu-0 (with 4 nvidia.com/gpu) in a new domain of {rack}"
    assert (change["nodes"], change["minimal"], change["new"]) == (3, True, {rack: "new+1"})


def test_sets_of_groups_that_cannot_make_enough_room_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster(*(make_node(f"n{at}", gpu=8) for at in range(40)))
    for at in range(40):
        state.add_pod(f"default/run{at}", make_pod(gpu=8), f"n{at}")
    groups = [(f"default/G{at:02}", [f"default/run{at}"]) for at in range(40)]
    asked, fits = list[int](), Question.fits

    def counted(question: Question, snapshot: Snapshot | None = None, target: Target | None = None) -> bool | None:
        if isinstance(snapshot, Trial):
            asked.append(len(snapshot.removed))
        return fits(question, snapshot, target)

    monkeypatch.setattr(Question, "fits", counted)
    ended = changes(explained(state, [make_pod(gpu=8)] * 3, groups=groups))["endGroups"]

    assert ended["groups"] == ["default/G00", "default/G01", "default/G02"]
    assert asked == [40, 8, 3]
