"""Victims are the least there are, judged without the engine: every placement is tried, for every set of units.

Groups and trees of groups on small clusters, with everything that a preemptor may ask at once: domains of several
levels, subgroups, unlike pods, fewer members than there are, victims that only go together, budgets, pods that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

import pytest

from muster.api.groups import GroupRef
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.api.topology import Distribution, Subgroups, TopologyTerms
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.model import GroupRequest, Member
from muster.engine.preemption.budgets import Budget, Budgets
from muster.engine.preemption.groups import GroupPreemptor, TreePreemptor, preempt_group
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.engine.topology.layout import Layout
from muster.scheduler.domains import OneDomain
from muster.scheduler.preemption.trees import tree_preemptor
from muster.scheduler.tree import Branch, Leaf, Tree
from muster.testing import make_node, make_pod

NOW_S = 1_000.0
PRIORITY = 100
RACKS = ("r0", "r0", "r1", "r1", "r2")
ZONES = {"r0": "z0", "r1": "z0", "r2": "z1"}
LABELS = [{"rack": rack, "zone": ZONES[rack]} for rack in RACKS]
ALL = range(len(RACKS))

Places = tuple[int | None, ...]
"""The node of each member; None for one that waits."""


@dataclass(frozen=True)
class Group:
    """A group: cpus of its members, how many it needs, the label of its domain, and the size of subgroups in racks."""

    name: str
    cpus: tuple[int, ...]
    need: int
    key: str | None = None
    size: int = 0
    terms: TopologyTerms | None = None

    def holds(self, places: Places) -> bool:
        """Whether such a placement is what the group asks."""
        used = [node for node in places if node is not None]
        if len(used) < self.need or not _in_one(used, self.key):
            return False
        parts = [places[at : at + self.size] for at in range(0, len(places), self.size)] if self.size else []
        return all(
            all(node is None for node in part)
            or (None not in part and _in_one([node for node in part if node is not None], "rack"))
            for part in parts
        )

    @property
    def leaf(self) -> Leaf:
        """The group as a part of a tree."""
        topology = None if self.key is None else OneDomain(self.key)
        return Leaf(GroupRef("default", self.name), self.members, self.need, topology=topology)

    @property
    def members(self) -> tuple[Member, ...]:
        """Its pods."""
        return tuple(
            Member(f"default/{self.name}-{at}", ClusterState().shape_of(make_pod(cpu=str(cpu))))
            for at, cpu in enumerate(self.cpus)
        )

    @property
    def preemptor(self) -> GroupPreemptor:
        """The group as a preemptor."""
        layout = None if self.terms is None else Layout(self.terms, tuple(range(len(self.cpus))))
        request = GroupRequest(f"default/{self.name}", self.members, self.need, topology_key=self.key, layout=layout)
        return GroupPreemptor(request, PRIORITY)


@dataclass(frozen=True)
class Composite:
    """Groups and composites of which so many are needed, all of it in one domain of the label."""

    name: str
    parts: tuple[Group | Composite, ...]
    need: int
    key: str | None = None

    @property
    def groups(self) -> list[Group]:
        """The groups below it, in order."""
        return [group for part in self.parts for group in ([part] if isinstance(part, Group) else part.groups)]

    @property
    def branch(self) -> Branch:
        """The tree as the scheduler has it."""
        children: list[Tree] = [part.leaf if isinstance(part, Group) else part.branch for part in self.parts]
        return Branch(self.name, tuple(children), self.need, self.key)

    @property
    def preemptor(self) -> TreePreemptor:
        """The tree as a preemptor."""
        return tree_preemptor(f"tree:{self.name}", self.branch, DEFAULT_PROFILE, PRIORITY, may_preempt=True)

    def holds(self, places: dict[str, Places]) -> bool:
        """Whether such a placement is what the tree asks: groups without a node are those that do not run."""
        used = [node for group in self.groups for node in places[group.name] if node is not None]
        if not _in_one(used, self.key):
            return False
        running = sum(_runs(part, places) for part in self.parts)
        whole = all(_runs(part, places) or _is_empty(part, places) for part in self.parts)
        return running >= self.need and whole


def _runs(part: Group | Composite, places: dict[str, Places]) -> bool:
    return part.holds(places[part.name]) if isinstance(part, Group) else part.holds(places)


def _is_empty(part: Group | Composite, places: dict[str, Places]) -> bool:
    groups = [part] if isinstance(part, Group) else part.groups
    return all(node is None for group in groups for node in places[group.name])


def _in_one(nodes: Sequence[int], key: str | None) -> bool:
    return key is None or len({LABELS[node][key] for node in nodes}) <= 1


class Scene:
    """Five nodes in three racks and two zones, and who runs there."""

    def __init__(self, random: Random) -> None:
        self.state = ClusterState()
        self.cpus = [random.randint(1, 3) for _ in ALL]
        self.taken = [0] * len(RACKS)
        for at in ALL:
            self.state.set_node(make_node(f"n{at}", cpu=str(self.cpus[at]), labels=LABELS[at]))
        self.size: dict[str, tuple[int, int]] = {}
        units = [self._unit(random, f"u{number}") for number in range(random.randint(1, 7))]
        self.units = [unit for unit in units if unit.pods]
        self.budgets = Budgets(
            Budget(f"default/{app}", "default", LabelSelector((Requirement("app", Operator.IN, (app,)),)), allowed)
            for app, allowed in (("a", random.randint(0, 1)), ("b", random.randint(0, 2)))
        )

    def _unit(self, random: Random, name: str) -> Unit:
        pods = []
        number = random.choice((1, 1, 2, 3))
        for at in range(number):
            node, cpu, key = random.choice(ALL), random.randint(1, 3), f"default/{name}-{at}"
            if self.taken[node] + cpu > self.cpus[node]:
                continue
            self.taken[node] += cpu
            self.size[key] = (node, cpu)
            self.state.add_pod(key, make_pod(f"{name}-{at}", cpu=str(cpu), node=f"n{node}"), f"n{node}")
            labels = {"app": random.choice("abc")}
            leaving = random.random() < 0.1
            pods.append(RunningPod(key, f"n{node}", NOW_S - random.randint(1, 3), labels, leaving, leaving))
        priority = random.choice((0, 0, 5, PRIORITY))
        return Unit(f"group:{name}" if number > 1 else f"default/{name}", priority, tuple(pods), is_group=number > 1)

    @property
    def cluster(self) -> Cluster:
        """The scene as a planner sees it."""
        return Cluster(self.state.snapshot(), self.units, NOW_S, self.budgets)

    @property
    def lower(self) -> list[Unit]:
        """Who may be evicted."""
        return [unit for unit in self.units if unit.priority < PRIORITY and unit.evicted]

    def free(self, victims: Sequence[Unit]) -> list[int]:
        """What is free once these are gone, and those of lower priority that leave anyway."""
        lower = [unit for unit in self.units if unit.priority < PRIORITY]
        gone = {pod.key for unit in lower for pod in unit.pods if pod.leaving}
        gone |= {pod.key for unit in victims for pod in unit.pods}
        free = [cpu - taken for cpu, taken in zip(self.cpus, self.taken, strict=True)]
        for key in gone:
            node, cpu = self.size[key]
            free[node] += cpu
        return free

    def cost(self, victims: Sequence[Unit]) -> tuple[int, int, int, int, tuple[str, ...]]:
        """What is compared, first things first."""
        return (
            self._violations(victims),
            max((unit.priority for unit in victims), default=-1),
            sum(len(unit.evicted) for unit in victims),
            sum(round(NOW_S - (pod.started_s or NOW_S)) for unit in victims for pod in unit.evicted),
            tuple(sorted(unit.key for unit in victims)),
        )

    def _violations(self, victims: Sequence[Unit]) -> int:
        return self.budgets.violations(victims)


def placements(cpus: Sequence[int], free: list[int]) -> Iterator[Places]:
    """Every way to put each of the pods on a node with room, or nowhere."""
    if not cpus:
        yield ()
        return
    for node in (None, *ALL):
        if node is None:
            rest = free
        elif free[node] >= cpus[0]:
            rest = [left - cpus[0] * (at == node) for at, left in enumerate(free)]
        else:
            continue
        for others in placements(cpus[1:], rest):
            yield (node, *others)


def group_fits(group: Group, free: list[int]) -> bool:
    return any(group.holds(places) for places in placements(group.cpus, free) if any(at is not None for at in places))


def tree_fits(tree: Composite, free: list[int]) -> bool:
    groups = tree.groups
    return any(tree.holds(_by_group(groups, places)) for places in placements(_cpus(groups), free))


def _cpus(groups: Sequence[Group]) -> list[int]:
    return [cpu for group in groups for cpu in group.cpus]


def _by_group(groups: Sequence[Group], places: Places) -> dict[str, Places]:
    found, at = {}, 0
    for group in groups:
        found[group.name] = places[at : at + len(group.cpus)]
        at += len(group.cpus)
    return found


def check(scene: Scene, preemptor: GroupPreemptor | TreePreemptor, fits: Callable[[list[int]], bool]) -> bool:
    """The plan is the least; whether there was one with victims."""
    sets = [each for size in range(len(scene.lower) + 1) for each in combinations(scene.lower, size)]
    fitting = [scene.cost(each) for each in sets if fits(scene.free(each))]
    plan = preempt_group(scene.cluster, preemptor)
    if isinstance(plan, NoPlan):
        assert not fitting or not any(unit.priority < PRIORITY for unit in scene.units), plan.text
        return False
    assert fitting, "nobody is evicted in vain"
    assert scene.cost(plan.victims) == min(fitting) or not plan.proved
    assert plan.violations == scene.cost(plan.victims)[0]
    assert fits(scene.free(plan.victims))
    assert_placed(scene, preemptor, plan)
    assert plan.proved, "so small a cluster is searched to the end"
    return bool(plan.victims)


def assert_placed(scene: Scene, preemptor: GroupPreemptor | TreePreemptor, plan: Plan) -> None:
    """What is planned has room where it is planned."""
    free = scene.free(plan.victims)
    for placement in plan.placements:
        shape = next(member.shape for member in preemptor.members if member.key == placement.pod)
        free[int(placement.node[1:])] -= shape.request("cpu") // 1000
    assert min(free) >= 0


def random_cpus(random: Random, most: int) -> tuple[int, ...]:
    number = random.randint(1, most)
    return (random.randint(1, 2),) * number if random.random() < 0.5 else tuple(random.choices((1, 2, 3), k=number))


def random_group(random: Random, name: str, most: int) -> Group:
    cpus = random_cpus(random, most)
    need = random.choice((len(cpus), random.randint(1, len(cpus))))
    return Group(name, cpus, need, random.choice((None, "rack", "zone")))


def with_layout(random: Random, group: Group) -> Group:
    """The group with what the annotation may say."""
    terms = TopologyTerms(required=group.key)
    size = random.choice((0, 0, 1, 2, 3)) if group.key != "rack" else 0
    if size:
        terms = replace_terms(terms, subgroups=Subgroups(size, "rack"))
    if random.random() < 0.4:
        terms = replace_terms(terms, preferred=random.choice((("rack",), ("zone",), ("rack", "zone"))))
    if random.random() < 0.3:
        terms = replace_terms(
            terms, distribution=Distribution(random.choice(("packed", "balanced")), random.choice(("rack", "zone")))
        )
    return replace(group, size=size, terms=terms)


def replace_terms(terms: TopologyTerms, **fields: object) -> TopologyTerms:
    return TopologyTerms(**{**{name: getattr(terms, name) for name in terms.__struct_fields__}, **fields})


@pytest.mark.parametrize("seed", range(30))
def test_a_group_evicts_the_least(seed: int) -> None:
    random = Random(seed)
    scene, group = Scene(random), random_group(random, "g", 4)
    check(scene, group.preemptor, lambda free: group_fits(group, free))


@pytest.mark.parametrize("seed", range(30))
def test_a_group_with_a_layout_evicts_the_least(seed: int) -> None:
    random = Random(1_000 + seed)
    scene, group = Scene(random), with_layout(random, random_group(random, "g", 4))
    check(scene, group.preemptor, lambda free: group_fits(group, free))


@pytest.mark.parametrize("seed", range(30))
def test_a_tree_evicts_the_least(seed: int) -> None:
    random = Random(2_000 + seed)
    scene, tree = Scene(random), random_tree(random)
    check(scene, tree.preemptor, lambda free: tree_fits(tree, free))


def random_tree(random: Random) -> Composite:
    """Two or three groups of at most five pods, sometimes two of them below a composite of their own."""
    groups: list[Group | Composite] = [random_group(random, f"g{at}", 2) for at in range(random.randint(2, 3))]
    if len(groups) == 3 and random.random() < 0.5:
        inner = Composite("inner", tuple(groups[1:]), random.randint(1, 2), random.choice((None, "rack", "zone")))
        groups = [groups[0], inner]
    return Composite("root", tuple(groups), random.randint(1, len(groups)), random.choice((None, None, "zone", "rack")))
