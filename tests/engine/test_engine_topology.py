"""A group with a topology constraint runs in one domain, the best one, or is proved to fit in none."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engine.decide import decide, verdict
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.explanation.explain import explain
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.profile import Profile
from muster.engine.state import ClusterState
from muster.engine.topology.domains import DomainError, decide_in_one_domain, pinned_domain
from muster.testing import make_node, make_pod

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"


def racks(**gpus: list[int]) -> ClusterState:
    """A cluster of racks; `free` is for nodes without the label."""
    state = ClusterState()
    for rack, sizes in gpus.items():
        for at, size in enumerate(sizes):
            labels = {} if rack == "free" else {RACK: rack, ZONE: "z"}
            state.set_node(make_node(f"{rack}-{at}", gpu=size, labels=labels))
    return state


def request(state: ClusterState, gpus: list[int], min_count: int, **fields: object) -> GroupRequest:
    pods = [make_pod(gpu=gpu) for gpu in gpus]
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
    known = {"topology_key": RACK, **fields}
    return GroupRequest("default/g", members, min_count, **known)  # type: ignore[arg-type]  # only known fields


def racks_used(decision: Decision) -> set[str]:
    assert isinstance(decision, Placed)
    return {placement.node.partition("-")[0] for placement in decision.placements}


def test_the_smallest_domain_that_holds_the_group_is_chosen() -> None:
    state = racks(a=[8, 8, 8], b=[4, 4], c=[2])

    assert racks_used(decide(state.snapshot(), request(state, [2] * 3, 3))) == {"b"}
    assert racks_used(decide(state.snapshot(), request(state, [2] * 6, 6))) == {"a"}
    assert racks_used(decide(state.snapshot(), request(state, [2], 1))) == {"c"}


def test_the_domain_that_holds_most_members_is_preferred() -> None:
    state = racks(a=[4], b=[2])

    assert racks_used(decide(state.snapshot(), request(state, [1] * 4, 1))) == {"a"}


def test_room_in_several_domains_together_is_not_enough() -> None:
    state = racks(a=[4], b=[4], free=[8])

    decision = decide(state.snapshot(), request(state, [2] * 3, 3))

    assert isinstance(decision, Infeasible)
    assert decision.proof == f"0/2 topology domains of {RACK} have room: in a, room for 2 of the 3 pods like the first"
    assert decision.diagnosis.text() == (
        "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, "
        f"2 node(s) were outside of the topology domain {RACK}=a."
    )


def test_scheduled_members_pin_the_domain() -> None:
    state = racks(a=[2], b=[8])
    pinned = request(state, [1] * 3, 2, scheduled=1, topology_domain="a")

    decision = decide(state.snapshot(), pinned)

    assert racks_used(decision) == {"a"}
    assert isinstance(decision, Placed)
    assert decision.unplaced == ("default/p2",)
    gone = decide(state.snapshot(), request(state, [1], 2, scheduled=1, topology_domain="gone"))
    assert isinstance(gone, Infeasible)
    assert "gone, which has no nodes any more" in gone.proof


def test_a_label_that_no_node_has_is_infeasible() -> None:
    state = racks(free=[8])

    decision = decide(state.snapshot(), request(state, [1], 1))

    assert isinstance(decision, Infeasible)
    assert decision.proof == f"no node has the label {RACK}"


def test_an_empty_label_value_is_a_domain() -> None:
    state = racks(free=[8])
    state.set_node(make_node("x-0", gpu=1, labels={RACK: ""}))

    assert racks_used(decide(state.snapshot(), request(state, [1], 1))) == {"x"}


def test_the_domain_of_scheduled_members() -> None:
    table = racks(a=[1, 1], b=[1], free=[1]).snapshot().table

    assert pinned_domain(table, RACK, {}) is None
    assert pinned_domain(table, RACK, {"default/x": "a-0", "default/y": "a-1", "default/z": "unknown"}) == "a"
    with pytest.raises(DomainError, match="more than 1 domain found for pod group: a, b"):
        pinned_domain(table, RACK, {"default/x": "b-0", "default/y": "a-1"})
    with pytest.raises(DomainError, match="no topology domain found for pod default/x"):
        pinned_domain(table, RACK, {"default/x": "free-0"})


def test_an_explanation_offers_another_key_and_nodes_for_the_domain() -> None:
    state = racks(a=[4], b=[4])
    asked = request(state, [2] * 3, 3)

    said = explain(state.snapshot(), asked, decide(state.snapshot(), asked))

    assert f"in one domain of {RACK}; 0/2 topology domains" in said["summary"]
    changes = {change["kind"]: change for change in said["changes"]}
    assert (changes["changeTopology"]["key"], changes["changeTopology"]["to"]) == (RACK, ZONE)
    assert (changes["addNodes"]["nodes"], changes["addNodes"]["domain"]) == (1, "a")
    assert changes["lowerMinCount"]["to"] == 2
    assert all(change["verified"] for change in said["changes"])


small = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3)


def most_that_fit(nodes: list[int], gpus: list[int]) -> int:
    """By trying every placement."""
    best = 0
    for choice in product(range(len(nodes) + 1), repeat=len(gpus)):
        used = [0] * (len(nodes) + 1)
        for node, gpu in zip(choice, gpus, strict=True):
            used[node] += gpu
        if all(used[at] <= size for at, size in enumerate(nodes)):
            best = max(best, sum(node < len(nodes) for node in choice))
    return best


@given(small, st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_decisions_agree_with_brute_force_over_domains(
    sizes: list[list[int]], gpus: list[int], min_count: int, unlabelled: int
) -> None:
    state = racks(**{f"r{at}": nodes for at, nodes in enumerate(sizes)}, free=[4] * unlabelled)
    asked = request(state, gpus, min_count)

    decision = decide(state.snapshot(), asked)

    most = max(most_that_fit(nodes, gpus) for nodes in sizes)
    assert verdict(state.snapshot(), asked) == (most >= min_count)
    if most < min_count:
        assert isinstance(decision, Infeasible)
    else:
        assert isinstance(decision, Placed)
        assert len(decision.placements) == most
        assert len(racks_used(decision)) == 1
        assert "free" not in racks_used(decision)


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", RACK])
def test_pods_that_must_be_in_one_domain_are_spread_over_what_it_has(key: str) -> None:
    """Nodes outside of the domain do not count, as upstream has it: their emptiness would forbid a second pod."""
    state = racks(a=[4, 4], b=[1, 1])
    spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    constraint = {**spread, "labelSelector": {"matchLabels": {"app": "x"}}}
    pods = [make_pod(labels={"app": "x"}, gpu=1, spec={"topologySpreadConstraints": [constraint]}) for _ in range(4)]
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))

    decision = decide(state.snapshot(), GroupRequest("default/g", members, 4, topology_key=RACK))

    assert racks_used(decision) == {"a"}
    if key != RACK:
        assert isinstance(decision, Placed)
        assert sorted(placement.node for placement in decision.placements) == ["a-0", "a-0", "a-1", "a-1"]


def test_affinity_and_its_opposite_look_beyond_the_domain() -> None:
    """Pods elsewhere in the zone keep away those that must not be in it with them, wherever the group is bound to."""
    state = racks(a=[4], b=[4])
    state.add_pod("default/other", make_pod("other", labels={"app": "noisy"}, node="b-0"), "b-0")
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "noisy"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    member = Member("default/p", state.shape_of(make_pod(gpu=1, spec={"affinity": affinity})))

    decision = decide(state.snapshot(), GroupRequest("default/g", (member,), 1, topology_key=RACK))

    assert isinstance(decision, Infeasible)


def test_domain_that_stays_undecided_gets_what_is_left_of_the_budget() -> None:
    state = ClusterState()
    for rack in "ab":
        state.set_node(make_node(f"n-{rack}", cpu="4", labels={RACK: rack}))
    members = tuple(Member(f"default/p{at}", state.shape_of(make_pod(cpu="1"))) for at in range(3))
    request = GroupRequest("default/g", members, 3, topology_key=RACK)
    budgets: list[int] = []

    def inside(profile: Profile, budget: int) -> Decision:
        budgets.append(budget)
        if budget > 20:
            return decide(state.snapshot(), replace(request, topology_key=None), profile=profile)
        return Undecided(budget, "hard", Diagnosis("default/p0", 2, ()))

    decision = decide_in_one_domain(DEFAULT_PROFILE, state.snapshot(), request, RACK, 64, inside)

    assert isinstance(decision, Placed)
    assert budgets == [16, 16, 32]
