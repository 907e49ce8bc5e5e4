"""Subgroups in domains whose pods have rules about each other: placed if and only if some way is, by trying all."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.topology import Subgroups, TopologyTerms
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.testing import make_node, make_pod

HOST = "kubernetes.io/hostname"


class Pod(NamedTuple):
    """A pod: cpus, its app, and the apps that it is apart from or near to in its domain of a label."""

    cpu: int
    app: str = "w"
    apart: tuple[str, str] | None = None
    near: tuple[str, str] | None = None
    spread: bool = False
    """Evenly over the nodes of its rack, with all pods of its app."""


class Node(NamedTuple):
    """A node."""

    cpu: int
    rack: str
    zone: str

    def value(self, key: str, place: int) -> str:
        return {HOST: str(place), "rack": self.rack, "zone": self.zone}[key]


def pod_object(pod: Pod, place: int) -> Object:
    made = make_pod(f"p{place}", cpu=str(pod.cpu), labels={"app": pod.app})
    affinity: Object = {}
    for kind, rule in (("podAntiAffinity", pod.apart), ("podAffinity", pod.near)):
        if rule is not None:
            term = {"topologyKey": rule[0], "labelSelector": {"matchLabels": {"app": rule[1]}}}
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if affinity:
        made["spec"]["affinity"] = affinity
    if pod.spread:
        constraint: Object = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        selector = {"matchLabels": {"app": pod.app}}
        made["spec"]["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    return made


def asked(nodes: list[Node], pods: list[Pod], size: int) -> tuple[ClusterState, GroupRequest]:
    state = ClusterState()
    for place, node in enumerate(nodes):
        labels = {"rack": node.rack, "zone": node.zone, HOST: f"n{place}"}
        state.set_node(make_node(f"n{place}", cpu=str(node.cpu), labels=labels))
    shapes = state.shapes_of([pod_object(pod, place) for place, pod in enumerate(pods)])
    members = tuple(Member(f"default/p{place}", shape) for place, shape in enumerate(shapes))
    layout = Layout(TopologyTerms(subgroups=Subgroups(size, "rack")), tuple(range(len(pods))))
    return state, GroupRequest("default/g", members, len(pods), layout=layout)


def holds(nodes: list[Node], pods: list[Pod], size: int, places: tuple[int, ...]) -> bool:
    """Whether the pods may be where they are."""
    used = [0] * len(nodes)
    for pod, place in zip(pods, places, strict=True):
        used[place] += pod.cpu
    if any(have > node.cpu for have, node in zip(used, nodes, strict=True)):
        return False
    racks = [nodes[place].rack for place in places]
    if any(len(set(racks[start : start + size])) > 1 for start in range(0, len(pods), size)):
        return False
    return _are_apart(nodes, pods, places) and _can_come(nodes, pods, places)


def _are_apart(nodes: list[Node], pods: list[Pod], places: tuple[int, ...]) -> bool:
    return not any(
        pod.apart is not None
        and other.app == pod.apart[1]
        and nodes[places[at]].value(pod.apart[0], places[at]) == nodes[places[by]].value(pod.apart[0], places[by])
        for at, pod in enumerate(pods)
        for by, other in enumerate(pods)
        if at != by
    )


def _keeps_even(nodes: list[Node], pods: list[Pod], places: tuple[int, ...], at: int, there: frozenset[int]) -> bool:
    """Whether the node of a pod, with it, has at most one pod of its app more than any node of its rack."""
    rack = nodes[places[at]].rack
    counts = {place: 0 for place, node in enumerate(nodes) if node.rack == rack}
    for by in there:
        if places[by] in counts and pods[by].app == pods[at].app:
            counts[places[by]] += 1
    return counts[places[at]] + 1 - min(counts.values()) <= 1


def _can_come(nodes: list[Node], pods: list[Pod], places: tuple[int, ...]) -> bool:
    """Whether the pods can come one after the other, each where it may come beside those before it."""

    @cache
    def rest(there: frozenset[int]) -> bool:
        return len(there) == len(pods) or any(
            may_come(at, there) and rest(there | {at}) for at in range(len(pods)) if at not in there
        )

    def may_come(at: int, there: frozenset[int]) -> bool:
        rule = pods[at].near
        if pods[at].spread and not _keeps_even(nodes, pods, places, at, there):
            return False
        if rule is None:
            return True
        others = [by for by in there if pods[by].app == rule[1]]
        if not others:
            return pods[at].app == rule[1]
        mine = nodes[places[at]].value(rule[0], places[at])
        return any(nodes[places[by]].value(rule[0], places[by]) == mine for by in others)

    return rest(frozenset())


def judge(nodes: list[Node], pods: list[Pod], size: int) -> None:
    state, request = asked(nodes, pods, size)
    decision = decide(state.snapshot(), request)
    ways = product(range(len(nodes)), repeat=len(pods))
    is_possible = any(holds(nodes, pods, size, places) for places in ways)
    assert isinstance(decision, Placed if is_possible else Infeasible), (decision, nodes, pods)
    if isinstance(decision, Placed):
        where = {each.pod: int(each.node[1:]) for each in decision.placements}
        assert holds(nodes, pods, size, tuple(where[f"default/p{at}"] for at in range(len(pods))))


RULES: dict[str, Object] = {
    "apart by node": {"apart": (HOST, "w")},
    "apart by rack": {"apart": ("rack", "x")},
    "apart by zone": {"apart": ("zone", "x")},
    "near by rack": {"near": ("rack", "w")},
    "near by zone": {"near": ("zone", "w")},
    "near others by zone": {"near": ("zone", "x")},
    "even": {"spread": True},
}


@pytest.mark.parametrize("rule", list(RULES))
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_unlike_subgroups_with_rules_are_placed_if_and_only_if_they_can_be(rule: str, data: st.DataObject) -> None:
    count, size = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 2))
    number = data.draw(st.integers(size + 1, 5 if count < 5 else 4))
    nodes = [
        Node(data.draw(st.integers(1, 4)), rack := data.draw(st.sampled_from("abc")), "z0" if rack == "a" else "z1")
        for _ in range(count)
    ]
    pods = []
    for _ in range(number):
        app = data.draw(st.sampled_from("wwx"))
        ruled = data.draw(st.integers(0, 3)) > 0
        pods.append(Pod(data.draw(st.integers(1, 2)), app, **(RULES[rule] if ruled else {})))
    judge(nodes, pods, size)


def test_leaders_that_keep_apart_take_racks_of_their_own() -> None:
    # Each rack holds all four pods, but the leaders of the two subgroups may not share one.
    nodes = [Node(6, "a", "z0"), Node(6, "b", "z0")]
    pods = [Pod(2, "x", apart=("rack", "x")), Pod(1), Pod(2, "x", apart=("rack", "x")), Pod(1)]
    judge(nodes, pods, 2)
    judge(nodes[:1], pods, 2)


def test_sixty_four_unlike_pods_with_rules_are_decided() -> None:
    # Eight subgroups of a leader and seven workers on eight racks; one rack is too small for a leader.
    nodes = [Node(10 if at < 4 else 8, f"r{at // 2}", "z0") for at in range(16)]
    leader, worker = Pod(4, "x", apart=("rack", "x")), Pod(1, apart=(HOST, "x"))
    state, request = asked(nodes, [leader, *[worker] * 7] * 8, 8)
    assert isinstance(decide(state.snapshot(), request), Placed)
    state, request = asked(nodes[2:], [leader, *[worker] * 7] * 8, 8)
    assert isinstance(decide(state.snapshot(), request), Infeasible)
