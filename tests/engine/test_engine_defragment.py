"""Moves that would let a group fit: as few as there are, all of them possible at the same time, within budgets."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.engine.decide import verdict
from muster.engine.defragment import Movable, Moves, moves_for
from muster.engine.model import GroupRequest, Member
from muster.engine.preemption.budgets import Budget, Budgets
from muster.engine.preemption.groups import GroupPreemptor
from muster.engine.preemption.model import RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.shape import Shape
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

NOW_S = 1_000.0


class Scene:
    """Nodes and plain pods on them, all of which could be moved."""

    def __init__(self, *nodes: int) -> None:
        self.state = ClusterState()
        self.units: list[Unit] = []
        self.shapes: dict[str, Shape] = {}
        for at, cpu in enumerate(nodes):
            self.state.set_node(make_node(f"n{at}", cpu=str(cpu), labels={"rack": f"r{at // 2}"}))

    def run(self, name: str, node: int, cpu: int, app: str = "") -> Scene:
        key, pod = f"default/{name}", make_pod(name, cpu=str(cpu), node=f"n{node}")
        self.state.add_pod(key, pod, f"n{node}")
        labels = {"app": app} if app else {}
        self.units.append(Unit(key, 5, (RunningPod(key, f"n{node}", 0.0, labels),)))
        self.shapes[key] = self.state.shape_of(make_pod(name, cpu=str(cpu)))
        return self

    def moves(self, cpus: list[int], *budgets: Budget, key: str | None = None) -> Moves | None:
        members = tuple(
            Member(f"default/g{at}", self.state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(cpus)
        )
        cluster = Cluster(self.state.snapshot(), self.units, NOW_S, Budgets(list(budgets)), shape_of=self.shapes.get)
        request = GroupRequest("default/g", members, len(cpus), topology_key=key)
        return moves_for(cluster, GroupPreemptor(request, 5), self.movable())

    def movable(self) -> list[Movable]:
        """All units with what they ask elsewhere: groups stay in one rack if their name says so."""
        found = []
        for unit in self.units:
            members = tuple(Member(pod.key, self.shapes[pod.key]) for pod in unit.pods)
            rack = "rack" if "rack" in unit.key else None
            found.append(Movable(unit, GroupRequest(unit.key, members, len(members), topology_key=rack)))
        return found

    def group(self, name: str, *places: tuple[int, int]) -> Scene:
        """A group with pods on (node, cpu)."""
        before = len(self.units)
        for at, (node, cpu) in enumerate(places):
            self.run(f"{name}-{at}", node, cpu)
        pods = tuple(pod for unit in self.units[before:] for pod in unit.pods)
        self.units[before:] = [Unit(f"group:{name}", 5, pods, is_group=True)]
        return self


def test_one_small_pod_is_moved_for_a_large_one() -> None:
    scene = Scene(4, 4).run("a", 0, 1).run("b", 1, 2)

    found = scene.moves([4])

    assert found is not None
    assert [(move.pod, move.from_node, move.to_node) for move in found.moves] == [("default/a", "n0", "n1")]
    assert [placement.node for placement in found.placements] == ["n0"]
    assert found.fewest


def test_a_pod_that_fits_nowhere_else_is_not_moved() -> None:
    assert Scene(4, 4).run("a", 0, 3).run("b", 1, 2).moves([4]) is None


def test_a_budget_is_respected() -> None:
    selector = LabelSelector((Requirement("app", Operator.IN, ("x",)),))
    scene = Scene(4, 4).run("a", 0, 1, app="x").run("b", 1, 2, app="x")
    other = Scene(4, 4).run("a", 0, 1, app="x").run("b", 1, 2)

    assert scene.moves([4], Budget("default/x", "default", selector, 0)) is None
    assert scene.moves([4], Budget("default/x", "default", selector, 1)) is not None
    spared = other.moves([4], Budget("default/x", "default", selector, 0))
    assert spared is not None
    assert [move.pod for move in spared.moves] == ["default/b"]


def test_a_group_that_must_be_in_one_rack_gets_its_room_there() -> None:
    scene = Scene(2, 2, 2, 2).run("a", 0, 1).run("b", 2, 2)

    found = scene.moves([2, 2], key="rack")

    assert found is not None
    assert {placement.node for placement in found.placements} == {"n0", "n1"}
    assert [move.to_node for move in found.moves] == ["n3"]


def test_a_group_moves_as_a_whole_or_not_at_all() -> None:
    # The gang needs all of n0. One pod of the group could go to n1, but both have to find room.
    narrow = Scene(4, 2, 2).group("a", (0, 1), (1, 1)).run("b", 2, 2)
    wide = Scene(4, 2, 2).group("a", (0, 1), (1, 1))

    tight, found = narrow.moves([4, 1]), wide.moves([4])

    assert tight is None
    assert found is not None
    assert [unit.key for unit in found.units] == ["group:a"]
    assert {move.pod for move in found.moves} == {"default/a-0", "default/a-1"}
    assert found.placements[0].node == "n0"


def test_a_group_that_must_be_in_one_rack_moves_to_one_rack() -> None:
    torn = Scene(4, 2, 2, 2).group("rack-a", (0, 2), (1, 2)).run("b", 2, 1)
    kept = Scene(4, 2, 2, 2).group("rack-a", (0, 2), (1, 2))

    found = kept.moves([4])

    assert torn.moves([4]) is None
    assert found is not None
    assert {move.to_node for move in found.moves} == {"n2", "n3"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(2, 5), min_size=2, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=5),
    st.lists(st.integers(2, 4), min_size=1, max_size=2),
)
def test_moves_can_be_made_and_a_proof_of_the_fewest_is_right(
    nodes: list[int], pods: list[tuple[int, int]], gang: list[int]
) -> None:
    scene, left = Scene(*nodes), list(nodes)
    for at, (node, cpu) in enumerate(pods):
        node %= len(nodes)
        if left[node] >= cpu:
            left[node] -= cpu
            scene.run(f"p{at}", node, cpu)

    found = scene.moves(gang)

    if found is None:
        return
    after = list(left)
    for move in found.moves:
        cpu = scene.shapes[move.pod].request("cpu") // 1000
        after[int(move.from_node[1:])] += cpu
        after[int(move.to_node[1:])] -= cpu
    for placement in found.placements:
        after[int(placement.node[1:])] -= gang[int(placement.pod[9:])]
    assert min(after) >= 0
    assert len(found.placements) == len(gang)
    if found.fewest:
        members = tuple(Member(f"g{at}", scene.state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(gang))
        for few in combinations(scene.units, len(found.moves) - 1):
            with scene.state.snapshot().trial() as trial:
                trial.remove(unit.key for unit in few)
                assert not verdict(trial, GroupRequest("g", members, len(gang)))
