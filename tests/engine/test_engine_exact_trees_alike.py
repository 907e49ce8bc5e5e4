"""Trees over many domains: those that are alike stand for each other, and nothing else does."""

from __future__ import annotations

from random import Random

import pytest

from muster.api.codec import Object
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.exact.trees.asked import Asked, AskedGroup, AskedTree
from muster.engine.exact.trees.building import build
from muster.engine.exact.trees.deciding import TreeAnswer, place_tree
from muster.engine.model import Member
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod


def cluster(racks: list[tuple[str, list[int]]], *, told_apart: bool = False) -> ClusterState:
    """A rack for each entry: its zone, and the cpus of its nodes. `told_apart`: each node has as much of something that
    nobody asks for as no other one."""
    state = ClusterState()
    for at, (zone, cpus) in enumerate(racks):
        for place, cpu in enumerate(cpus):
            more: Object = {"example.com/own": 1 + 10 * at + place} if told_apart else {}
            labels = {"rack": f"r{at:03d}", "zone": zone}
            state.set_node(make_node(f"n{at}-{place}", cpu=str(cpu), memory="64Gi", labels=labels, **more))
    return state


def group(state: ClusterState, name: str, cpus: list[int], key: str | None, pinned: str | None = None) -> AskedGroup:
    pods = [make_pod(f"{name}-{at}", cpu=str(cpu)) for at, cpu in enumerate(cpus)]
    shapes = state.shapes_of(pods)
    members = tuple(
        Member(f"default/{pod['metadata']['name']}", shape) for pod, shape in zip(pods, shapes, strict=True)
    )
    return AskedGroup(name, members, len(members), key, pinned)


def answer(snapshot: Snapshot, asked: Asked) -> TreeAnswer:
    return place_tree(DEFAULT_PROFILE, snapshot, asked, is_only_enough=True)


@pytest.mark.parametrize(("others", "fits"), [(399, True), (400, False)])
def test_tree_over_200_equal_racks_is_decided_either_way(others: int, fits: bool) -> None:
    """A node has room for one of the others and 3 cpu; so the four in one rack need a node that none of them is on."""
    state = cluster([("z", [8, 8])] * 200)
    bound = group(state, "bound", [3, 2, 2, 2], "rack")

    found = answer(state.snapshot(), AskedTree("tree", (bound, group(state, "free", [5] * others, None)), 2))

    assert (found.found is not None, found.is_proved) == (fits, not fits)


def random_tree(random: Random, state: ClusterState) -> AskedTree:
    children: list[AskedGroup | AskedTree] = []
    for at in range(random.randint(2, 3)):
        cpus = [random.randint(1, 3) for _ in range(random.randint(1, 3))]
        child = group(state, f"g{at}", cpus, random.choice([None, "rack", "rack", "zone"]))
        if random.random() < 0.3:
            own = (child, group(state, f"h{at}", [random.randint(1, 3)], "rack"))
            children.append(AskedTree(f"t{at}", own, random.randint(1, 2), random.choice([None, "zone"])))
        else:
            children.append(child)
    return AskedTree("tree", tuple(children), random.randint(1, len(children)), random.choice([None, None, "zone"]))


def test_domains_that_are_alike_change_no_answer() -> None:
    fitting = fewer = 0
    for seed in range(60):
        kinds = [[Random(seed * 7 + each).randint(1, 4) for _ in range(2)] for each in range(2)]
        random = Random(seed)
        racks = [(random.choice("ab"), random.choice(kinds)) for _ in range(5)]
        merged, apart = cluster(racks), cluster(racks, told_apart=True)
        asked = [random_tree(Random(seed), state) for state in (merged, apart)]

        answers = [answer(state.snapshot(), tree) for state, tree in zip((merged, apart), asked, strict=True)]
        classes = [
            build(DEFAULT_PROFILE, state.snapshot(), tree) for state, tree in zip((merged, apart), asked, strict=True)
        ]

        assert [each.found is not None or each.is_proved for each in answers] == [True, True], seed
        assert len({each.is_proved for each in answers}) == 1, seed
        fitting += not answers[0].is_proved
        numbers = [0 if each is None else len(each.classes) for each in classes]
        fewer += numbers[0] < numbers[1]
    assert 15 < fitting < 55
    assert fewer > 5


def test_domains_are_no_longer_alike_where_members_run() -> None:
    """The other group must be able to join the domain in which members of the first run."""
    state = cluster([("z", [4])] * 6)
    pinned, free = group(state, "a", [2], "rack", pinned="r005"), group(state, "b", [1], "rack")

    built = build(DEFAULT_PROFILE, state.snapshot(), AskedTree("tree", (pinned, free), 2))

    assert built is not None
    assert len(built.classes) == 1 + 6
