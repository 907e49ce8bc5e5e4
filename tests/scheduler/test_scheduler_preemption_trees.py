"""The victims for a tree of groups are the least there are: against all subsets of the pods on small clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.groups import GroupRef
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.model import Member
from muster.engine.preemption.groups import preempt_group
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.scheduler.domains import OneDomain
from muster.scheduler.preemption.trees import tree_preemptor
from muster.scheduler.tree import Branch, Leaf
from muster.scheduler.tree_deciding import decide_tree
from muster.testing import make_node, make_pod

NOW_S = 1_000.0


class Scene:
    """Nodes of two cpus in racks of two, full of pods that each are a unit."""

    def __init__(self, pods: Sequence[tuple[int, int, int]], nodes: int = 4) -> None:
        self.state = ClusterState()
        self.units: list[Unit] = []
        for at in range(nodes):
            self.state.set_node(make_node(f"n{at}", cpu="2", labels={"rack": f"r{at // 2}"}))
        left = [2] * nodes
        for at, (node, cpu, priority) in enumerate(pods):
            if left[node] >= cpu:
                left[node] -= cpu
                self.state.add_pod(f"default/v{at}", make_pod(f"v{at}", cpu=str(cpu), node=f"n{node}"), f"n{node}")
                self.units.append(
                    Unit(f"default/v{at}", priority, (RunningPod(f"default/v{at}", f"n{node}", at % 3 * 10.0),))
                )

    def leaf(self, name: str, cpus: Sequence[int], need: int, key: str | None = None, scheduled: int = 0) -> Leaf:
        members = tuple(
            Member(f"default/{name}-{at}", self.state.shape_of(make_pod(cpu=str(cpu)))) for at, cpu in enumerate(cpus)
        )
        topology = None if key is None else OneDomain(key)
        return Leaf(GroupRef("default", name), members, need, scheduled, topology)

    def cluster(self) -> Cluster:
        return Cluster(self.state.snapshot(), self.units, NOW_S)

    def fits(self, tree: Branch, victims: Sequence[Unit]) -> bool | None:
        with self.state.snapshot().trial() as trial:
            trial.remove(pod.key for unit in victims for pod in unit.pods)
            decision = decide_tree(trial, tree)
        return True if decision.succeeded else False if decision.proved else None


def cost(victims: Sequence[Unit]) -> tuple[int, int, int, tuple[str, ...]]:
    return (
        max((unit.priority for unit in victims), default=-(2**63)),
        len(victims),
        sum(round(unit.age_s(NOW_S)) for unit in victims),
        tuple(sorted(unit.key for unit in victims)),
    )


def check(scene: Scene, tree: Branch) -> None:
    sets = [each for size in range(len(scene.units) + 1) for each in combinations(scene.units, size)]
    answers = [scene.fits(tree, each) for each in sets]
    fitting = [cost(each) for each, answer in zip(sets, answers, strict=True) if answer]
    plan = preempt_group(scene.cluster(), tree_preemptor("tree:t", tree, DEFAULT_PROFILE, 100, may_preempt=True))
    if isinstance(plan, NoPlan):
        assert not fitting
        return
    assert scene.fits(tree, plan.victims)
    if plan.proved:
        assert cost(plan.victims) == min(fitting)
    else:
        assert None in answers, "all answers are certain, so the least set is, too"


pods = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.sampled_from([0, 0, 5])), min_size=1, max_size=6)
leaves = st.tuples(st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(1, 3))


@settings(max_examples=25, deadline=None)
@given(pods, st.lists(leaves, min_size=1, max_size=3), st.integers(1, 3), st.booleans(), st.booleans())
def test_trees_evict_least(
    running: list[tuple[int, int, int]],
    groups: list[tuple[list[int], int]],
    least: int,
    nested: bool,
    in_racks: bool,
) -> None:
    scene = Scene(running)
    key = "rack" if in_racks else None
    found = [scene.leaf(f"g{at}", cpus, min(need, len(cpus)), key) for at, (cpus, need) in enumerate(groups)]
    root = Branch("default/root", tuple(found), min(least, len(found)))
    if nested and len(found) > 1:
        root = Branch("default/root", (Branch("default/inner", tuple(found[1:]), 1), found[0]), min(least, 2))
    check(scene, root)


def test_of_two_groups_of_which_one_is_enough_the_one_goes_ahead_that_costs_less() -> None:
    """The group with fewer pods would need two victims, the other one."""
    scene = Scene([(0, 1, 0), (0, 1, 0), (1, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)])
    tree = Branch("default/root", (scene.leaf("large", [2], 1), scene.leaf("many", [1, 1, 1], 3)), 1)

    plan = preempt_group(scene.cluster(), tree_preemptor("tree:t", tree, DEFAULT_PROFILE, 100, may_preempt=True))

    assert isinstance(plan, Plan)
    assert plan.proved
    assert len(plan.victims) == 1


def test_a_tree_that_runs_preempts_for_one_more_of_its_groups() -> None:
    scene = Scene([(at, 2, 0) for at in range(4)])
    groups = (scene.leaf("runs", [], 1, scheduled=1), scene.leaf("a", [2, 2], 2), scene.leaf("b", [2], 1))

    tree = Branch("default/root", groups, 1)

    plan = preempt_group(scene.cluster(), tree_preemptor("tree:t", tree, DEFAULT_PROFILE, 100, may_preempt=True))

    assert isinstance(plan, Plan)
    assert [unit.key for unit in plan.victims] == ["default/v2"]
    assert [placement.pod for placement in plan.placements] == ["default/b-0"]
