"""Groups of unlike pods in parts: placed wherever some way to share them out holds enough, else proved not to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from muster.api.topology import Distribution, Subgroups, TopologyTerms
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.testing import make_node, make_pod


def cluster(cpus: Sequence[int], racks: Sequence[int]) -> ClusterState:
    state = ClusterState()
    for at, (cpu, rack) in enumerate(zip(cpus, racks, strict=True)):
        state.set_node(make_node(f"n{at}", cpu=str(cpu), labels={"rack": f"r{rack}"}))
    return state


def request(state: ClusterState, cpus: Sequence[int], need: int, terms: TopologyTerms) -> GroupRequest:
    members = tuple(Member(f"default/m{at}", state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(cpus))
    return GroupRequest("default/g", members, need, layout=Layout(terms, tuple(range(len(cpus)))))


def ways(cpus: Sequence[int], free: list[int]) -> Iterator[tuple[int | None, ...]]:
    """Every way to put each pod on a node with room, or nowhere."""
    if not cpus:
        yield ()
        return
    for node in (None, *range(len(free))):
        if node is None or free[node] >= cpus[0]:
            rest = [left - cpus[0] * (at == node) for at, left in enumerate(free)]
            yield from ((node, *others) for others in ways(cpus[1:], rest))


def is_whole(way: tuple[int | None, ...], racks: Sequence[int], size: int) -> bool:
    parts = [way[at : at + size] for at in range(0, len(way), size)]
    where = [{None if node is None else racks[node] for node in part} for part in parts]
    return all(len(each) == 1 for each in where)


def most(cpus: Sequence[int], free: list[int], racks: Sequence[int], size: int) -> int:
    found = [sum(node is not None for node in way) for way in ways(cpus, free) if is_whole(way, racks, size)]
    return max(found)


@pytest.mark.parametrize("seed", range(60))
def test_unlike_subgroups_are_placed_or_proved_not_to_fit(seed: int) -> None:
    random = Random(seed)
    racks = sorted(random.choices(range(3), k=4))
    free = [random.randint(2, 5) for _ in racks]
    cpus = [random.randint(1, 3) for _ in range(random.randint(2, 5))]
    size = random.randint(1, 3)
    state = cluster(free, racks)
    enough = most(cpus, free, racks, size)
    for need in {max(1, enough), min(len(cpus), enough + 1)}:
        decision = decide(
            state.snapshot(), request(state, cpus, need, TopologyTerms(subgroups=Subgroups(size, "rack")))
        )
        assert isinstance(decision, Placed if need <= enough else Infeasible)
        if isinstance(decision, Placed):
            nodes = {each.pod: int(each.node[1:]) for each in decision.placements}
            assert len(nodes) >= need
            assert is_whole(tuple(nodes.get(f"default/m{at}") for at in range(len(cpus))), racks, size)


def test_a_preferred_share_never_keeps_a_group_out() -> None:
    """Dealt out evenly, the large pods would take the room of each other."""
    state = cluster([3, 3, 1, 6], [0, 0, 1, 1])
    terms = TopologyTerms(distribution=Distribution("balanced", "rack"))
    decision = decide(state.snapshot(), request(state, [1, 3, 3, 3, 3], 5, terms))
    assert isinstance(decision, Placed) and not decision.unplaced


def test_the_proof_says_what_was_tried() -> None:
    state = cluster([4, 4], [0, 1])
    terms = TopologyTerms(subgroups=Subgroups(2, "rack"))
    decision = decide(state.snapshot(), request(state, [3, 2, 1, 1], 4, terms))
    assert isinstance(decision, Infeasible)
    assert "4" in decision.proof and "subgroups of 2" in decision.proof
