"""decide answers Placed only with room for all it places, Infeasible only where no min_count fit, else Undecided."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.engine.decide import decide
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod


def ask(state: ClusterState, pods: list[Object], min_count: int, **fields: object) -> GroupRequest:
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
    return GroupRequest("default/g", members, min_count, **fields)  # type: ignore[arg-type]  # only known fields


def cluster(*gpus: int, **node: object) -> ClusterState:
    state = ClusterState()
    for at, count in enumerate(gpus):
        state.set_node(make_node(f"n{at}", gpu=count, **node))  # type: ignore[arg-type]  # only known fields
    return state


def nodes_of(decision: Decision) -> dict[str, str]:
    assert isinstance(decision, Placed)
    return {placement.pod.removeprefix("default/"): placement.node for placement in decision.placements}


def test_gang_is_placed_as_a_whole() -> None:
    state = cluster(4, 4)

    decision = decide(state.snapshot(), ask(state, [make_pod(gpu=2)] * 4, 4))

    assert nodes_of(decision) == {"p0": "n0", "p1": "n0", "p2": "n1", "p3": "n1"}


def test_gang_that_lacks_room_for_one_is_infeasible_with_the_reason_of_that_one() -> None:
    state = cluster(2, 3, 3)

    decision = decide(state.snapshot(), ask(state, [make_pod(gpu=2)] * 4, 4))

    assert isinstance(decision, Infeasible)
    assert decision.diagnosis.unplaced == "default/p3"
    assert decision.diagnosis.text() == "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert decision.diagnosis.plugins == {"NodeResourcesFit"}


def test_as_many_members_as_fit_are_placed_lowest_first() -> None:
    state = cluster(2, 2)

    decision = decide(state.snapshot(), ask(state, [make_pod(gpu=1)] * 6, 3))

    assert list(nodes_of(decision)) == ["p0", "p1", "p2", "p3"]
    assert isinstance(decision, Placed)
    assert decision.unplaced == ("default/p4", "default/p5")
    assert decision.diagnosis is not None
    assert decision.diagnosis.unplaced == "default/p4"


def test_scheduled_members_count_towards_min_count() -> None:
    state = cluster(2)
    request = ask(state, [make_pod(gpu=1)] * 3, 4, scheduled=2)

    assert len(nodes_of(decide(state.snapshot(), request))) == 2


def test_group_that_has_enough_is_never_infeasible() -> None:
    state = cluster(2)
    request = ask(state, [make_pod(gpu=4)], 2, scheduled=2)

    decision = decide(state.snapshot(), request)

    assert isinstance(decision, Placed)
    assert decision.unplaced == ("default/p0",)
    assert decision.diagnosis is not None
    assert decision.diagnosis.text() == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_group_with_too_few_members_is_infeasible() -> None:
    state = cluster(8)

    decision = decide(state.snapshot(), ask(state, [make_pod()] * 2, 3))

    assert isinstance(decision, Infeasible)
    assert decision.proof == "the group has 2 of the 3 pods that it needs"


def test_group_without_members_needs_nothing_more_or_is_infeasible() -> None:
    state = cluster(8)

    assert decide(state.snapshot(), ask(state, [], 2, scheduled=2)) == Placed(())
    assert isinstance(decide(state.snapshot(), ask(state, [], 2, scheduled=1)), Infeasible)


def test_no_nodes_at_all() -> None:
    state = ClusterState()

    decision = decide(state.snapshot(), ask(state, [make_pod(gpu=1)], 1))

    assert isinstance(decision, Infeasible)
    assert decision.diagnosis.text() == "no nodes available to schedule pods"


def test_host_port_allows_one_member_a_node() -> None:
    state = cluster(0, 0, 0)
    pod = make_pod(spec={"containers": [{"name": "c", "image": "x", "ports": [{"hostPort": 80}]}]})

    assert sorted(nodes_of(decide(state.snapshot(), ask(state, [pod] * 3, 3))).values()) == ["n0", "n1", "n2"]
    assert isinstance(decide(state.snapshot(), ask(state, [pod] * 4, 4)), Infeasible)


def test_group_that_only_fits_when_large_pods_go_first_is_placed() -> None:
    state = cluster(4, 4)
    pods = [make_pod(gpu=1)] * 4 + [make_pod(gpu=4)]

    assert nodes_of(decide(state.snapshot(), ask(state, pods, 5)))["p4"] in {"n0", "n1"}


def test_mixed_group_beyond_a_total_is_proved_infeasible() -> None:
    state = cluster(4, 4)
    pods = [make_pod(gpu=3)] * 2 + [make_pod(gpu=1)] * 3

    decision = decide(state.snapshot(), ask(state, pods, 5))

    assert isinstance(decision, Infeasible)
    assert "nvidia.com/gpu suffices for at most 4 of the pods" in decision.proof


def test_mixed_group_that_no_greedy_order_places_is_found_by_the_search() -> None:
    state = ClusterState()
    for at, (cpu, gpu) in enumerate([(7, 7), (7, 7), (8, 4)]):
        state.set_node(make_node(f"n{at}", cpu=str(cpu), gpu=gpu))
    kinds = [(5, 2), (2, 5), (5, 2), (2, 5), (4, 2), (4, 2)]
    pods = [make_pod(cpu=str(cpu), gpu=gpu) for cpu, gpu in kinds]

    assert len(nodes_of(decide(state.snapshot(), ask(state, pods, 6)))) == 6


def test_mixed_group_within_all_totals_is_proved_infeasible_by_the_search() -> None:
    state = cluster(5, 5)

    decision = decide(state.snapshot(), ask(state, [make_pod(gpu=4), make_pod(gpu=4), make_pod(gpu=2)], 3))

    assert isinstance(decision, Infeasible)
    assert decision.proof == "all ways to place 3 pods on the nodes were tried, and none holds them all"


def test_same_question_gives_the_same_answer() -> None:
    state = cluster(4, 4, 4)
    request = ask(state, [make_pod(gpu=1), make_pod(gpu=2)] * 4, 8)

    assert decide(state.snapshot(), request) == decide(state.snapshot(), request)


sizes = st.tuples(st.integers(0, 3), st.sampled_from([0, 1000, 2000, 3000]))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([1000, 3000, 4000]), st.integers(1, 3)), min_size=1, max_size=3
    ),
    st.lists(sizes, min_size=1, max_size=5),
    st.data(),
)
def test_mixed_groups_are_never_overcommitted_and_never_wrongly_refused(
    nodes: list[tuple[int, int, int]], pods: list[tuple[int, int]], data: st.DataObject
) -> None:
    state = ClusterState()
    for at, (gpus, cpu, slots) in enumerate(nodes):
        state.set_node(make_node(f"n{at}", gpu=gpus, cpu=f"{cpu}m", pods=slots))
    min_count = data.draw(st.integers(1, len(pods)))
    request = ask(state, [make_pod(gpu=gpu, cpu=f"{cpu}m") for gpu, cpu in pods], min_count)

    decision = decide(state.snapshot(), request)

    most = max(len(kept) for kept in placeable_sets(nodes, pods))
    match decision:
        case Placed(placements):
            assert min_count <= len(placements) <= most
            where = {int(each.pod[len("default/p") :]): int(each.node[1:]) for each in placements}
            assert has_room(nodes, pods, where)
        case Infeasible():
            assert most < min_count
        case Undecided():
            assert len(decision.best_found) < min_count < len(pods)


def placeable_sets(nodes: list[tuple[int, int, int]], pods: list[tuple[int, int]]) -> list[set[int]]:
    """The sets of pods that fit at once, by trying everything."""
    found = []
    for choice in product(range(-1, len(nodes)), repeat=len(pods)):
        where = {pod: node for pod, node in enumerate(choice) if node >= 0}
        if has_room(nodes, pods, where):
            found.append(set(where))
    return found


def has_room(nodes: list[tuple[int, int, int]], pods: list[tuple[int, int]], where: dict[int, int]) -> bool:
    used: Counter[tuple[int, int]] = Counter()
    for pod, node in where.items():
        for column, amount in enumerate((*pods[pod], 1)):
            used[node, column] += amount
    return all(amount <= nodes[node][column] for (node, column), amount in used.items())


@pytest.mark.parametrize("members", [1, 5])
def test_scratch_work_leaves_the_snapshot_as_it_was(members: int) -> None:
    state = cluster(2, 2)
    snapshot = state.snapshot()
    before = snapshot.requested.copy()

    decide(snapshot, ask(state, [make_pod(gpu=1)] * members, members))

    assert (snapshot.requested == before).all()
