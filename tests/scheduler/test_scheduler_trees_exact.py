"""Trees of groups on small clusters against trying everything: placed exactly if some choice fits, else proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple

import pytest

from muster.api.groups import GroupRef
from muster.engine.model import Member
from muster.engine.shape import Shape
from muster.engine.state import ClusterState
from muster.scheduler.domains import OneDomain
from muster.scheduler.tree import Branch, Leaf, Tree, TreeDecision, leaves_of
from muster.scheduler.tree_deciding import decide_tree
from muster.testing import make_node, make_pod

RACK, ZONE, HOST = "rack", "zone", "kubernetes.io/hostname"


class Node(NamedTuple):
    zone: str
    rack: str
    cpu: int
    memory: int


Amounts = dict[str, tuple[int, ...]]
"""Of each group how many members of each shape."""


class Instance:
    """A cluster and a tree, drawn from a seed. `keys`: topology labels that groups and composite groups may have.

    `apart`: the members of some groups keep apart from each other, one a node.
    """

    def __init__(self, seed: int, keys: tuple[str, ...], *, apart: bool = False) -> None:
        self.may_be_apart, self.apart = apart, set[str]()
        self.random = Random(seed)
        self.keys = keys
        draw = self.random.randint
        self.nodes: list[Node] = []
        for _ in range(draw(1, 6)):
            place = draw(0, 1)
            self.nodes.append(Node(f"z{place}", f"z{place}r{draw(0, 1)}", draw(1, 4), draw(1, 4)))
        self.state = ClusterState()
        for at, (zone, rack, cpu, memory) in enumerate(self.nodes):
            labels = {ZONE: zone, RACK: rack, HOST: f"n{at}"}
            self.state.set_node(make_node(f"n{at}", cpu=str(cpu), memory=f"{memory}Gi", labels=labels))
        self.sizes = self.random.sample([(cpu, memory) for cpu in (1, 2, 3) for memory in (0, 1, 2, 3)], 2)
        self.shapes = [self.state.shape_of(make_pod(cpu=str(cpu), memory=f"{gi}Gi")) for cpu, gi in self.sizes]
        self.pods_left, self.groups, self.kinds = draw(3, 8), 0, dict[Shape, int]()
        self.root = self._branch(draw(1, 3))

    def _branch(self, depth: int) -> Branch:
        draw = self.random.randint
        children: list[Tree] = []
        for _ in range(draw(1, 3 if depth > 1 else 4)):
            if not self.pods_left and children:
                break
            deeper = depth > 1 and draw(0, 2) > 0
            children.append(self._branch(depth - 1) if deeper else self._leaf())
        self.groups += 1
        return Branch(f"b{self.groups}", tuple(children), draw(1, len(children)), self._key())

    def _leaf(self) -> Leaf:
        draw = self.random.randint
        size = min(draw(1, 3), max(1, self.pods_left))
        self.pods_left = max(0, self.pods_left - size)
        self.groups += 1
        name, several = f"g{self.groups}", draw(0, 2) == 0
        shape = draw(0, 1)
        kinds = [draw(0, 1) if several else shape for _ in range(size)]
        shapes = [self.shapes[kind] for kind in kinds]
        if self.may_be_apart and draw(0, 1):
            self.apart.add(name)
            shapes = [self._apart(name, self.sizes[kind]) for kind in kinds]
        self.kinds.update(zip(shapes, kinds, strict=True))
        members = tuple(Member(f"default/{name}-{at}", each) for at, each in enumerate(shapes))
        key = self._key()
        need = draw(1, size) if draw(0, 1) else size
        return Leaf(GroupRef("default", name), members, need, topology=None if key is None else OneDomain(key))

    def _apart(self, name: str, size: tuple[int, int]) -> Shape:
        term = {"labelSelector": {"matchLabels": {"of": name}}, "topologyKey": HOST}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        cpu, gi = size
        pod = make_pod(cpu=str(cpu), memory=f"{gi}Gi", labels={"of": name}, spec={"affinity": affinity})
        return self.state.shape_of(pod)

    def _key(self) -> str | None:
        return self.random.choice(self.keys) if self.keys and self.random.randint(0, 1) else None

    def numbers(self, leaf: Leaf) -> tuple[int, ...]:
        """How many members of each shape a group has."""
        found = Counter(self.kinds[member.shape] for member in leaf.members)
        return found[0], found[1]

    def label(self, node: int, key: str) -> str:
        return self.nodes[node].zone if key == ZONE else self.nodes[node].rack

    def choices(self) -> Iterator[Amounts]:
        """Every number of members of every group with which the root succeeds, and nothing runs in vain."""
        leaves = list(leaves_of(self.root))
        for picked in product(*(product(*(range(n + 1) for n in self.numbers(leaf))) for leaf in leaves)):
            amounts = {leaf.ref.name: each for leaf, each in zip(leaves, picked, strict=True)}
            if all(sum(amounts[leaf.ref.name]) in (0, *range(leaf.min_count, 9)) for leaf in leaves):
                running = _running(self.root, amounts)
                if running is not None and all(not sum(each) or name in running for name, each in amounts.items()):
                    yield amounts

    @property
    def most(self) -> int | None:
        """The most members of a choice that fits, by trying everything; None if none fits."""
        by_size = sorted(self.choices(), key=lambda amounts: -sum(map(sum, amounts.values())))
        return next((sum(map(sum, amounts.values())) for amounts in by_size if self._fits(amounts)), None)

    @property
    def earliest(self) -> tuple[bool, ...]:
        """Which groups run in the choice with the most members that takes the first groups; one must fit."""
        fitting = [amounts for amounts in self.choices() if self._fits(amounts)]
        most = max(sum(map(sum, amounts.values())) for amounts in fitting)
        best = [amounts for amounts in fitting if sum(map(sum, amounts.values())) == most]
        return max(tuple(sum(amounts[leaf.ref.name]) > 0 for leaf in leaves_of(self.root)) for amounts in best)

    def _fits(self, amounts: Amounts) -> bool:
        everywhere = tuple(range(len(self.nodes)))
        seen: set[object] = set()
        for regions in self._regions(self.root, amounts, everywhere):
            wanted = sorted(
                (shape, nodes, name if name in self.apart else "")
                for name, nodes in regions
                for shape, n in enumerate(amounts[name])
                for _ in range(n)
            )
            if tuple(wanted) not in seen and self._packs(tuple(wanted)):
                return True
            seen.add(tuple(wanted))
        return False

    def _regions(
        self, tree: Tree, amounts: Amounts, nodes: tuple[int, ...]
    ) -> Iterator[list[tuple[str, tuple[int, ...]]]]:
        """The nodes that each running group may use, for every choice of domains."""
        if not any(sum(amounts[leaf.ref.name]) for leaf in leaves_of(tree)):
            yield []
            return
        key = tree.topology_key if isinstance(tree, Branch) else tree.topology.key if tree.topology else None
        inside = [nodes]
        if key is not None:
            values = sorted({self.label(node, key) for node in nodes})
            inside = [tuple(node for node in nodes if self.label(node, key) == value) for value in values]
        for part in inside:
            if isinstance(tree, Leaf):
                yield [(tree.ref.name, part)]
            else:
                for each in product(*(list(self._regions(child, amounts, part)) for child in tree.children)):
                    yield [region for found in each for region in found]

    def _packs(self, wanted: tuple[tuple[int, tuple[int, ...], str], ...]) -> bool:
        @cache
        def place(at: int, free: tuple[tuple[int, int], ...], taken: frozenset[tuple[str, int]]) -> bool:
            if at == len(wanted):
                return True
            shape, nodes, alone = wanted[at]
            cpu, memory = self.sizes[shape]
            for node in nodes:
                left = free[node][0] - cpu, free[node][1] - memory
                if min(left) < 0 or (alone, node) in taken:
                    continue
                more = taken | {(alone, node)} if alone else taken
                if place(at + 1, (*free[:node], left, *free[node + 1 :]), more):
                    return True
            return False

        return place(0, tuple((cpu, memory) for _, _, cpu, memory in self.nodes), frozenset())

    def faults(self, decision: TreeDecision) -> list[str]:
        """What is wrong with a placement."""
        found, cpu, memory = list[str](), Counter[int](), Counter[int]()
        amounts: Amounts = {}
        where: dict[str, list[int]] = {}
        for leaf in leaves_of(self.root):
            shapes = {member.key: self.kinds[member.shape] for member in leaf.members}
            placed = decision.placements(leaf)
            where[leaf.ref.name] = [int(each.node[1:]) for each in placed]
            counts = Counter(shapes[each.pod] for each in placed)
            amounts[leaf.ref.name] = tuple(counts[shape] for shape in range(2))
            if leaf.ref.name in self.apart and len(set(where[leaf.ref.name])) < len(placed):
                found.append(f"{leaf.ref.name} is not apart")
            if placed and len(placed) < leaf.min_count:
                found.append(f"{leaf.ref.name} has too few")
            for pod, node in placed:
                cpu[int(node[1:])] += self.sizes[shapes[pod]][0]
                memory[int(node[1:])] += self.sizes[shapes[pod]][1]
        for at, node_ in enumerate(self.nodes):
            found += [f"n{at} is too full"] if cpu[at] > node_.cpu or memory[at] > node_.memory else []
        running = _running(self.root, amounts)
        found += [] if running is not None else ["the root has too few"]
        found += [f"{name} runs in vain" for name, each in amounts.items() if sum(each) and name not in (running or ())]
        found += [f"{name} is in several domains" for name in self._scattered(self.root, where)]
        return found

    def _scattered(self, tree: Tree, where: dict[str, list[int]]) -> Iterator[str]:
        key = tree.topology_key if isinstance(tree, Branch) else tree.topology.key if tree.topology else None
        nodes = [node for leaf in leaves_of(tree) for node in where[leaf.ref.name]]
        if key is not None and len({self.label(node, key) for node in nodes}) > 1:
            yield tree.key if isinstance(tree, Branch) else tree.ref.name
        for child in tree.children if isinstance(tree, Branch) else ():
            yield from self._scattered(child, where)


def _running(tree: Tree, amounts: Amounts) -> frozenset[str] | None:
    """The groups below that run with all composite groups above them satisfied; None if the tree is not."""
    if isinstance(tree, Leaf):
        return frozenset({tree.ref.name}) if sum(amounts[tree.ref.name]) >= tree.min_count else None
    below = [each for child in tree.children if (each := _running(child, amounts)) is not None]
    return frozenset[str]().union(*below) if len(below) >= tree.min_groups else None


@pytest.mark.parametrize("keys", [(), (RACK,), (ZONE, RACK)], ids=["anywhere", "one key", "two keys"])
@pytest.mark.parametrize("batch", range(10))
def test_a_tree_is_placed_or_proved_not_to_fit_as_trying_everything_says(batch: int, keys: tuple[str, ...]) -> None:
    check(8 * batch, 8, keys)


@pytest.mark.parametrize("keys", [(), (RACK,)], ids=["anywhere", "one key"])
@pytest.mark.parametrize("batch", range(5))
def test_a_tree_whose_members_keep_apart_is_decided_as_trying_everything_says(
    batch: int, keys: tuple[str, ...]
) -> None:
    check(5 * batch, 5, keys, apart=True)


def check(first: int, number: int, keys: tuple[str, ...], *, apart: bool = False) -> None:
    for seed in range(first, first + number):
        instance = Instance(seed, keys, apart=apart)
        decision = decide_tree(instance.state.snapshot(), instance.root)

        most = instance.most
        assert decision.succeeded == (most is not None), seed
        if most is None:
            assert decision.proved, seed
            continue
        assert instance.faults(decision) == [], seed
        assert sum(len(decision.placements(leaf)) for leaf in leaves_of(instance.root)) == most, seed


def test_of_choices_with_as_many_members_the_first_groups_are_taken() -> None:
    state = ClusterState()
    state.set_node(make_node("n0", cpu="4"))
    leaves = []
    for at, (cpu, memory) in enumerate([("3", "1Gi"), ("2", "3Gi"), ("2", "2Gi"), ("2", "1Gi")]):
        shape = state.shape_of(make_pod(cpu=cpu, memory=memory))
        leaves.append(Leaf(GroupRef("default", f"g{at}"), (Member(f"default/g{at}-0", shape),), 1))

    decision = decide_tree(state.snapshot(), Branch("root", tuple(leaves), 2))

    assert [leaf.ref.name for leaf in leaves if decision.placements(leaf)] == ["g1", "g2"]


def test_without_work_to_spend_nothing_is_claimed() -> None:
    state = ClusterState()
    for at in range(2):
        state.set_node(make_node(f"n{at}", cpu="3"))
    shape = state.shape_of(make_pod(cpu="2"))
    leaves = [
        Leaf(GroupRef("default", name), tuple(Member(f"default/{name}-{at}", shape) for at in range(size)), size)
        for name, size in (("a", 2), ("b", 1))
    ]
    root = Branch("root", tuple(leaves), 2)

    nothing, enough = (decide_tree(state.snapshot(), root, budget=budget) for budget in (0, None))

    assert not nothing.succeeded
    assert not nothing.proved
    assert "no proof" in nothing.reason
    assert enough.proved
    assert enough.reason.endswith("whichever are chosen: pods of 2 cpu compete for cpu")
