"""Groups whose pods compete for volumes: judged by trying everything in plain Python, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from muster.cli.bench.exact import is_wrong, request_of
from muster.cli.bench.judging import best_set, violations
from muster.cli.bench.shelf import MADE, Claim, Shelf, Volume
from muster.cli.bench.stored import PLANTED_STORED, STORED_KINDS, PlantedStored, planted_stored, tiny_stored
from muster.engine.between import Choice, Volumes
from muster.engine.decide import decide
from muster.engine.exact.claims import kinds_of, limits_of
from muster.engine.exact.local import on_nodes
from muster.engine.exact.order import in_order
from muster.engine.model import Infeasible, Placed, Undecided


@pytest.mark.parametrize("kind", STORED_KINDS)
def test_tiny_groups_with_volumes_are_decided_rightly_in_both_directions(kind: str) -> None:
    for seed in range(5_000, 5_025):
        instance = tiny_stored(kind, seed)
        snapshot, request = request_of(instance)

        decision = decide(snapshot, request)

        assert not isinstance(decision, Undecided), seed
        assert not is_wrong(instance, request, decision), seed


@pytest.mark.parametrize("seed", [756, 942])
def test_of_several_choices_the_first_members_are_placed_whose_volumes_depend_on_who_comes_first(seed: int) -> None:
    instance = tiny_stored("shared claims", seed)
    snapshot, request = request_of(instance)

    assert not is_wrong(instance, request, decide(snapshot, request))


@pytest.mark.parametrize("kind", PLANTED_STORED, ids=lambda kind: kind.name)
def test_planted_groups_with_volumes_are_placed_and_those_with_too_few_refused(kind: PlantedStored) -> None:
    instance = planted_stored(kind, 24, 4, 100)
    snapshot, request = request_of(instance)

    decision = decide(snapshot, request)

    assert not isinstance(decision, Undecided)
    assert not is_wrong(instance, request, decision)


def test_judge_lets_the_pod_with_the_least_choice_come_first_and_sees_what_is_missing() -> None:
    instance = next(each for seed in range(99) if (each := tiny_stored("few volumes", seed)).fits and each.volumes)
    placed = decide(*request_of(instance))
    assert isinstance(placed, Placed)
    everything_on_one = dict.fromkeys(range(len(instance.pods)), 0)

    assert violations(instance, everything_on_one)
    assert len(best_set(instance)) == instance.most


def test_shelf_gives_the_smallest_volume_that_reaches_the_node_and_makes_one_where_it_may() -> None:
    volumes = (Volume("large", 9), Volume("small", 1, node=0), Volume("far", 1, zone="b"))
    claims = (Claim("x", 1), Claim("y", 1), Claim("z", 1), Claim("m", 1, made_by=MADE))
    shelf = Shelf(volumes, claims, ["a", "a"])

    assert [shelf.put([name], 0) for name in "xyzm"] == [True, True, False, True]
    assert shelf.has == {"x": ("small", -1), "y": ("large", -1), "m": ("", 0)}
    assert not shelf.put(["m"], 1)


def test_pods_come_in_the_order_in_which_each_claim_finds_a_volume() -> None:
    made = np.zeros(2, dtype=np.bool_)
    reach = np.array([[True, True], [True, False]])
    choices = (Choice("a", (0, 1), made), Choice("b", (0, 1), made))
    rule = Volumes("claims", np.arange(2, dtype=np.int32), {0: (0,), 1: (1,)}, choices, reach)

    assert in_order([rule], {(0, 0): 1, (1, 1): 1}) == [(1, 1), (0, 0)]
    assert in_order([rule], {(0, 1): 1, (1, 1): 1}) is None


def test_claims_that_wait_for_volumes_of_a_set_are_limited_by_its_size() -> None:
    made = np.zeros(3, dtype=np.bool_)
    reach = np.array([[True, True, False], [False, False, True]])
    choices = tuple(Choice(name, (0, 1), made) for name in "abc")
    rule = Volumes("claims", np.arange(3, dtype=np.int32), {0: (0,), 1: (1,), 2: (2,)}, choices, reach)

    (kind,) = kinds_of(rule, np.ones(3, dtype=int))
    limits = {(tuple(each.nodes.tolist()), each.weights, each.most) for each in limits_of(kind, rule.name)}

    assert kind.on_each.tolist() == [1, 1, 1]
    assert ((True, True, False), (1, 1, 1), 1) in limits
    assert ((True, True, True), (1, 1, 1), 2) in limits


def test_volumes_that_reach_one_node_each_are_room_of_the_nodes_and_nothing_else() -> None:
    made = np.array([False, False, True])
    choices = tuple(Choice(name, (0, 1, 2), made) for name in "ab")
    reach = np.array([[True, False, False], [True, False, False], [False, True, False]])
    rule = Volumes("claims", np.arange(3, dtype=np.int32), {0: (0, 1), 2: ()}, choices, reach)
    demand = np.array([1, 2, 3])

    local = on_nodes([rule], np.ones((3, 3), dtype=np.int64), demand)

    assert local.rest == (rule,)
    assert local.requests.tolist() == [[2], [0], [0]]
    assert local.free.tolist() == [[2], [1], [2]]  # where one is made, as many as there are claims


@pytest.mark.parametrize("seed", [900, 901, 904])
def test_group_of_many_shapes_that_takes_all_local_volumes_and_all_room_is_placed(seed: int) -> None:
    instance = planted_stored(PLANTED_STORED[2], 64, 10, seed)
    snapshot, request = request_of(instance)

    decision = decide(snapshot, request)

    assert isinstance(decision, Placed)
    assert not is_wrong(instance, request, decision)


def test_proof_says_that_volumes_are_what_lacks() -> None:
    instance = planted_stored(PLANTED_STORED[3], 16, 4, 0)
    snapshot, request = request_of(instance)

    decision = decide(snapshot, request)

    assert isinstance(decision, Infeasible)
    assert "claims that choose volumes" in decision.proof
