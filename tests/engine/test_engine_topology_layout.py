"""Levels, preferences, subgroups, shares, replicas and ranks: where a group with a layout goes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.topology import Distribution, Policy, Subgroups, TopologyTerms
from muster.engine.decide import decide, verdict
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.engine.topology.partition import partition_of
from muster.engine.topology.ranks import Seat, codes_of, reseated, walk_length
from muster.engine.topology.shares import shares
from muster.testing import make_node, make_pod

LEVELS = ("zone", "block", "rack")


def tree(*sizes: tuple[str, int]) -> ClusterState:
    """Nodes by their path (`zone/block/rack`) and their number of gpus; names are the path and a number."""
    state = ClusterState()
    for at, (path, gpus) in enumerate(sizes):
        labels = dict(zip(LEVELS, path.split("/"), strict=True))
        state.set_node(make_node(f"{path.replace('/', '-')}-{at:03d}", gpu=gpus, labels=labels))
    return state


def request(
    state: ClusterState,
    gpus: list[int],
    terms: TopologyTerms,
    *,
    min_count: int | None = None,
    pinned: str | None = None,
    running: tuple[tuple[int, str], ...] = (),
    others: tuple[tuple[str, int], ...] = (),
) -> GroupRequest:
    members = tuple(Member(f"default/p{at}", state.shape_of(make_pod(gpu=each))) for at, each in enumerate(gpus))
    taken = {rank for rank, _ in running}
    ranks = tuple([rank for rank in range(len(gpus) + len(running)) if rank not in taken])
    need = len(gpus) + len(running) if min_count is None else min_count
    layout = Layout(terms, ranks, running, others)
    return GroupRequest("default/g", members, need, len(running), terms.required, topology_domain=pinned, layout=layout)


def values(state: ClusterState, decision: Decision, key: str) -> list[str]:
    """The domain of each member, in their order."""
    assert isinstance(decision, Placed), decision
    records = state.snapshot().table
    nodes = dict(decision.placements)
    return [records.records[records.index[nodes[pod]]].labels[key] for pod in sorted(nodes, key=lambda p: int(p[9:]))]


def test_the_lowest_preferred_level_that_fits_is_taken() -> None:
    state = tree(("z/a/1", 2), ("z/a/2", 2), ("z/b/3", 1), ("y/c/4", 8))
    terms = TopologyTerms(levels=LEVELS, required="zone", preferred=("rack", "block"))

    in_rack = decide(state.snapshot(), request(state, [1] * 2, terms, pinned="z"))
    in_block = decide(state.snapshot(), request(state, [1] * 4, terms, pinned="z"))
    in_zone = decide(state.snapshot(), request(state, [1] * 5, terms, pinned="z"))

    assert set(values(state, in_rack, "rack")) <= {"1", "2"}
    assert len(set(values(state, in_rack, "rack"))) == 1
    assert set(values(state, in_block, "block")) == {"a"}
    assert set(values(state, in_zone, "block")) == {"a", "b"}


def test_a_group_that_fits_in_no_preferred_domain_goes_anywhere() -> None:
    state = tree(("z/a/1", 2), ("y/b/2", 2))

    decision = decide(state.snapshot(), request(state, [1] * 4, TopologyTerms(preferred=("rack", "zone"))))

    assert sorted(values(state, decision, "rack")) == ["1", "1", "2", "2"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=7), st.integers(1, 12))
def test_a_group_larger_than_any_preferred_domain_uses_as_few_of_them_as_can_be(
    nodes: list[tuple[int, int]], number: int
) -> None:
    state = tree(*((f"z/b{rack // 2}/r{rack}", gpus) for rack, gpus in nodes))
    room = Counter[int]()
    for rack, gpus in nodes:
        room[rack] += gpus
    decision = decide(state.snapshot(), request(state, [1] * number, TopologyTerms(preferred=("rack",))))
    if sum(room.values()) < number:
        assert isinstance(decision, Infeasible)
        return
    fewest = next(
        size for size in range(1, 5) if any(sum(each) >= number for each in combinations(room.values(), size))
    )
    assert len(set(values(state, decision, "rack"))) == fewest


def test_a_preferred_label_that_some_nodes_lack_keeps_nobody_out() -> None:
    state = tree(("z/a/1", 2), ("z/a/2", 2))
    state.set_node(make_node("plain", gpu=2, labels={"zone": "z"}))

    decision = decide(state.snapshot(), request(state, [1] * 6, TopologyTerms(required="zone", preferred=("rack",))))

    assert isinstance(decision, Placed) and not decision.unplaced


def test_a_wider_level_is_only_taken_for_a_whole_group() -> None:
    state = tree(("z/a/1", 3), ("z/a/2", 2), ("z/b/3", 1))
    terms = TopologyTerms(levels=LEVELS, preferred=("rack", "block", "zone"))

    whole = decide(state.snapshot(), request(state, [1] * 6, terms, min_count=2))
    part = decide(state.snapshot(), request(state, [1] * 9, terms, min_count=2))

    assert len(values(state, whole, "rack")) == 6
    assert len(values(state, part, "rack")) == 6


def test_no_level_has_room() -> None:
    state = tree(("z/a/1", 2), ("y/b/2", 2))
    terms = TopologyTerms(required="zone", preferred=("rack",))

    decision = decide(state.snapshot(), request(state, [1] * 3, terms))

    assert isinstance(decision, Infeasible)
    assert decision.proof.startswith("0/2 topology domains of zone have room: in ")
    assert verdict(state.snapshot(), request(state, [1] * 3, terms)) is False
    nowhere = decide(state.snapshot(), request(state, [1], TopologyTerms(required="island")))
    assert isinstance(nowhere, Infeasible)
    assert nowhere.proof == "no node has the label island"


def test_the_domain_is_chosen_so_that_the_largest_ones_stay_whole() -> None:
    # Racks 1 and 3 are alike, but block a is free as a whole and of block b a part is taken.
    state = tree(("z/a/1", 4), ("z/a/2", 4), ("z/b/3", 4), ("z/b/4", 2))
    terms = TopologyTerms(levels=LEVELS, required="rack")

    assert set(values(state, decide(state.snapshot(), request(state, [1] * 3, terms)), "rack")) == {"3"}
    assert set(values(state, decide(state.snapshot(), request(state, [1] * 2, terms)), "rack")) == {"4"}


def test_replicas_go_to_the_domains_with_the_fewest_others() -> None:
    state = tree(("x/a/1", 4), ("y/b/2", 9), ("z/c/3", 9))
    terms = TopologyTerms(preferred=("rack",), spread_over="zone")
    alone = TopologyTerms(spread_over="zone")

    for asked in (terms, alone):
        first = decide(state.snapshot(), request(state, [1] * 2, asked))
        second = decide(state.snapshot(), request(state, [1] * 2, asked, others=(("x", 1), ("y", 1))))
        assert set(values(state, first, "zone")) == {"x"}
        assert set(values(state, second, "zone")) == {"z"}


def test_a_replacement_goes_to_the_preferred_domain_of_the_members_that_run() -> None:
    state = tree(("z/a/1", 4), ("z/a/1", 4), ("z/a/2", 1))
    running = ((0, "z-a-1-000"), (1, "z-a-1-000"))

    decision = decide(state.snapshot(), request(state, [1], TopologyTerms(preferred=("rack",)), running=running))

    assert values(state, decision, "rack") == ["1"]


# Subgroups


def test_each_subgroup_is_in_one_domain_and_all_are_in_the_common_one() -> None:
    state = tree(("z/a/1", 5), ("z/a/2", 4), ("z/b/3", 9), ("z/b/4", 3), ("z/b/5", 2))
    terms = TopologyTerms(required="block", subgroups=Subgroups(4, "rack"))

    decision = decide(state.snapshot(), request(state, [1] * 8, terms))

    racks = values(state, decision, "rack")
    assert set(values(state, decision, "block")) == {"a"}
    assert sorted((racks[:4], racks[4:])) == [["1"] * 4, ["2"] * 4]


def test_room_that_no_subgroup_can_use_does_not_count() -> None:
    state = tree(("z/a/1", 3), ("z/a/2", 3), ("z/a/3", 3))
    terms = TopologyTerms(subgroups=Subgroups(2, "rack"))

    assert isinstance(decide(state.snapshot(), request(state, [1] * 6, terms)), Placed)
    refused = decide(state.snapshot(), request(state, [1] * 8, terms))
    assert isinstance(refused, Infeasible)
    assert refused.proof == "room for 6 of the 8 pods in subgroups of 2 that are each in one domain of rack"
    assert verdict(state.snapshot(), request(state, [1] * 8, terms)) is False


def test_a_member_that_comes_again_goes_to_its_own_subgroup() -> None:
    state = tree(("z/a/1", 2), ("z/a/1", 2), ("z/a/2", 9))
    running = ((0, "z-a-2-002"), (1, "z-a-2-002"), (3, "z-a-1-000"))
    terms = TopologyTerms(required="block", subgroups=Subgroups(2, "rack"))

    decision = decide(state.snapshot(), request(state, [1], terms, pinned="a", running=running))

    assert values(state, decision, "rack") == ["1"]


def test_unlike_members_of_subgroups_are_placed_as_whole_subgroups() -> None:
    # Each subgroup is a leader of 2 and two workers of 1; rack 1 holds two workers more, but no second leader.
    state = tree(("z/a/1", 4), ("z/a/1", 2), ("z/a/2", 4))
    terms = TopologyTerms(subgroups=Subgroups(3, "rack"))

    decision = decide(state.snapshot(), request(state, [2, 1, 1, 2, 1, 1], terms))

    racks = values(state, decision, "rack")
    assert {tuple(racks[:3]), tuple(racks[3:])} == {("1", "1", "1"), ("2", "2", "2")}


@settings(max_examples=100, deadline=None)
@given(
    rooms=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), min_size=1, max_size=5),
    size=st.integers(1, 3),
    number=st.integers(1, 8),
)
def test_subgroups_are_placed_if_and_only_if_they_can_be(rooms: list[tuple[str, int]], size: int, number: int) -> None:
    state = tree(*((f"z/{block}/{at}", gpus) for at, (block, gpus) in enumerate(rooms)))
    terms = TopologyTerms(required="block", subgroups=Subgroups(size, "rack"))
    parts = [size] * (number // size) + ([number % size] if number % size else [])

    def holds(block: str) -> bool:
        racks = [gpus for each, gpus in rooms if each == block]
        return any(
            all(
                sum(part for part, at in zip(parts, where, strict=True) if at == rack) <= gpus
                for rack, gpus in enumerate(racks)
            )
            for where in product(range(len(racks)), repeat=len(parts))
        )

    decision = decide(state.snapshot(), request(state, [1] * number, terms))

    if not any(holds(block) for block in "ab"):
        assert isinstance(decision, Infeasible)
        return
    racks = values(state, decision, "rack")
    assert len(set(values(state, decision, "block"))) == 1
    assert all(len(set(racks[start : start + size])) == 1 for start in range(0, number, size))


# Shares


@pytest.mark.parametrize(
    ("policy", "want"),
    [("packed", [3, 3]), ("balanced", [3, 3])],
)
def test_pods_are_shared_out_over_few_domains(policy: Policy, want: list[int]) -> None:
    state = tree(("z/a/1", 3), ("z/a/2", 4), ("z/a/3", 3), ("z/a/4", 1))
    terms = TopologyTerms(required="block", distribution=Distribution(policy, "rack"))

    seven = Counter(values(state, decide(state.snapshot(), request(state, [1] * 7, terms)), "rack"))
    six = Counter(values(state, decide(state.snapshot(), request(state, [1] * 6, terms)), "rack"))

    assert sorted(seven.values()) == [3, 4]
    assert sorted(six.values()) == (want if policy == "balanced" else [2, 4])


def test_subgroups_are_balanced_over_blocks() -> None:
    state = tree(*((f"z/{block}/{block}{rack}", 4) for block in "ab" for rack in range(4)))
    terms = TopologyTerms(
        levels=LEVELS, required="zone", subgroups=Subgroups(4, "rack"), distribution=Distribution("balanced", "block")
    )

    six = decide(state.snapshot(), request(state, [1] * 24, terms))

    assert Counter(values(state, six, "block")) == {"a": 12, "b": 12}


@given(room=st.lists(st.integers(0, 6), min_size=1, max_size=5), number=st.integers(0, 12))
def test_shares_are_packed_or_balanced_over_the_fewest_domains(room: list[int], number: int) -> None:
    total = min(number, sum(room))
    fewest = next(few for few in range(len(room) + 1) if any(sum(found) >= total for found in combinations(room, few)))

    packed, balanced = (shares(np.array(room), number, policy).tolist() for policy in ("packed", "balanced"))

    for found in (packed, balanced):
        assert sum(found) == total
        assert all(share <= limit for share, limit in zip(found, room, strict=True))
        assert sum(share > 0 for share in found) == fewest
    if total:
        dealt = [each for each in product(*(range(limit + 1) for limit in room)) if sum(each) == total]
        used = [[share for share in each if share] for each in dealt]
        best = max(min(each) for each in used if len(each) == fewest)
        assert min(share for share in balanced if share) == best


# Ranks


@settings(max_examples=80, deadline=None)
@given(
    nodes=st.lists(st.sampled_from(["x/a/1", "x/a/2", "x/b/3", "y/c/4", "y/c/5"]), min_size=1, max_size=5),
    seats=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    leads=st.booleans(),
)
def test_neighbours_in_rank_are_as_close_as_can_be(nodes: list[str], seats: list[int], leads: bool) -> None:
    table = tree(*((path, 8) for path in nodes)).snapshot().table
    rows = [seat % len(nodes) for seat in seats]
    codes = codes_of(table, LEVELS, rows)
    pools = ["leader" if leads and not at else "worker" for at in range(len(codes))]

    found = reseated([Seat(at, code, pool) for at, (code, pool) in enumerate(zip(codes, pools, strict=True))])

    assert Counter(found) == Counter(codes)
    fixed = codes[:1] if leads else []
    best = min(walk_length([*fixed, *order]) for order in permutations(codes[len(fixed) :]))
    assert walk_length(found) == best


def test_ranks_are_dealt_in_the_order_of_a_tree_whose_labels_are_not_the_order_of_nodes() -> None:
    # In NodeTable order (names, since zone, block and rack labels are others) the islands alternate.
    state = ClusterState()
    for at in range(4):
        state.set_node(make_node(f"n{at}", gpu=1, labels={"island": "ab"[at % 2]}))
    terms = TopologyTerms(levels=("island",))

    decision = decide(state.snapshot(), request(state, [1] * 4, terms))

    assert values(state, decision, "island") == ["a", "a", "b", "b"]


def test_a_replacement_of_the_middle_rank_stays_where_it_is_put() -> None:
    state = tree(("z/a/1", 1), ("z/a/1", 1), ("z/b/2", 1))
    running = ((0, "z-a-1-000"), (2, "z-a-1-001"))

    decision = decide(
        state.snapshot(), request(state, [1, 1], TopologyTerms(levels=LEVELS), running=running, min_count=3)
    )

    assert values(state, decision, "rack")


# Partition


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["", "1", "2"]), st.integers(0, 9)), max_size=8)
)
def test_sums_of_a_partition_are_those_of_a_loop(nodes: list[tuple[str, str, int]]) -> None:
    state = ClusterState()
    for at, (block, rack, _) in enumerate(nodes):
        labels = {key: value for key, value in (("block", block), ("rack", rack)) if value}
        state.set_node(make_node(f"n{at}", labels=labels))
    table = state.snapshot().table
    amounts = np.array([number for _, _, number in nodes], dtype=np.int64)

    partition = partition_of(table, ("block", "rack"))

    want: dict[tuple[str, str], int] = {}
    for block, rack, number in nodes:
        if block and rack:
            want[block, rack] = want.get((block, rack), 0) + number
    assert dict(zip(partition.values, partition.sums(amounts).tolist(), strict=True)) == want
    assert list(partition.values) == list(want)
