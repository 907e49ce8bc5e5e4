"""Trees of groups: which groups run together, what holds a tree, and choices that a pass in order would miss."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.client.informer import Change
from muster.engine.model import Infeasible, Member, Placed
from muster.engine.state import ClusterState
from muster.scheduler.core import SchedulerCore
from muster.scheduler.gate import Held
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.queue import Place
from muster.scheduler.tree import Branch, Leaf, Tree, leaves_of
from muster.scheduler.tree_deciding import decide_tree
from muster.testing import make_group, make_node, make_pod

WORKLOAD = {"workloadName": "w", "templateName": "t"}


def composite(name: str, groups: int | None, parent: str = "", **spec: object) -> Object:
    """A CompositePodGroup: a gang of so many groups, or basic where that is None."""
    policy: Object = {"basic": {}} if groups is None else {"gang": {"minGroupCount": groups}}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workloadRef": WORKLOAD, "schedulingPolicy": policy, **above, **spec},
    }


def group(name: str, min_count: int | None, parent: str) -> Object:
    return make_group(name, min_count=min_count, parentCompositePodGroupName=parent, workloadRef=WORKLOAD)


def pods(name: str, count: int, **requests: int | str) -> list[Object]:
    return [make_pod(f"{name}-{index}", group=name, **requests) for index in range(count)]  # type: ignore[arg-type]


def gang(name: str, count: int, parent: str, **requests: int | str) -> list[Object]:
    return [group(name, count, parent), *pods(name, count, **requests)]


class World:
    """A scheduler core and what it placed."""

    def __init__(self, *objects: Object) -> None:
        self.core = SchedulerCore(SchedulerOptions())
        self.placed: dict[str, str] = {}
        self.held: list[Held] = []
        self.now = 0.0
        self.add(*objects)

    def add(self, *objects: Object) -> World:
        cache = self.core.cache
        apply = {
            "Node": cache.apply_nodes,
            "Pod": cache.apply_pods,
            "PodGroup": cache.apply_pod_groups,
            "CompositePodGroup": cache.apply_composites,
        }
        for obj in objects:
            apply[obj["kind"]]([Change("ADDED", None, obj)])
        return self.work()

    def remove(self, obj: Object) -> World:
        cache = self.core.cache
        apply = {"Pod": cache.apply_pods, "CompositePodGroup": cache.apply_composites}
        apply[obj["kind"]]([Change("DELETED", obj, None)])
        return self.work()

    def work(self) -> World:
        self.now += 20.0
        self.held += self.core.settle(self.now)
        self.messages: dict[str, str] = {}
        while verdicts := self.core.decide(self.now):
            for verdict in verdicts:
                self.placed.update((each.pod, each.node) for each in verdict.placements)
                if verdict.rejection is not None:
                    self.messages.update(dict.fromkeys(verdict.rejection.pods, verdict.rejection.message))
        return self

    @property
    def groups(self) -> list[str]:
        """The groups with placed members."""
        return sorted({pod.removeprefix("default/").rpartition("-")[0] for pod in self.placed})


def nodes(*cpus: int) -> list[Object]:
    return [make_node(f"n{index}", cpu=str(cpu)) for index, cpu in enumerate(cpus)]


def test_a_tree_that_fits_is_placed_as_one() -> None:
    world = World(*nodes(4), composite("root", 2), *gang("a", 2, "root", cpu="1"), *gang("b", 2, "root", cpu="1"))
    assert len(world.placed) == 4
    assert "tree:default/root" not in world.core.queue


def test_nothing_of_a_tree_is_placed_if_the_root_fails() -> None:
    world = World(*nodes(3), composite("root", 2), *gang("a", 2, "root", cpu="1"), *gang("b", 2, "root", cpu="1"))
    assert world.placed == {}
    assert world.core.queue.count(Place.WAITING) == 1
    assert "composite pod group default/root is unschedulable" in world.messages["default/a-0"]
    assert "do not fit at the same time" in world.messages["default/b-0"]
    assert len(world.add(make_node("more", cpu="1")).placed) == 4


def test_a_failing_group_does_not_block_a_root_that_has_enough() -> None:
    world = World(
        *nodes(4), composite("root", 1), *gang("large", 1, "root", cpu="9"), *gang("small", 2, "root", cpu="1")
    )
    assert world.groups == ["small"]
    assert "Insufficient cpu" in world.messages["default/large-0"]


def test_the_groups_that_fit_are_chosen_when_the_first_ones_do_not() -> None:
    world = World(
        *nodes(4),
        composite("root", 2),
        *gang("a", 3, "root", cpu="1"),  # alone it fits, but then nothing else does
        *gang("b", 2, "root", cpu="1"),
        *gang("c", 2, "root", cpu="1"),
    )
    assert world.groups == ["b", "c"]


def test_a_choice_is_taken_back_across_levels() -> None:
    world = World(
        *nodes(4),
        composite("root", 2),
        composite("left", 1, "root"),
        composite("right", 1, "root"),
        *gang("a", 3, "left", cpu="1"),
        *gang("b", 2, "left", cpu="1"),
        *gang("c", 2, "right", cpu="1"),
    )
    assert world.groups == ["b", "c"]


def test_a_basic_composite_needs_one_group() -> None:
    world = World(*nodes(2), composite("root", None), *gang("a", 3, "root", cpu="1"), *gang("b", 2, "root", cpu="1"))
    assert world.groups == ["b"]


def test_members_beyond_the_minimum_do_not_starve_a_sibling() -> None:
    world = World(
        *nodes(4), composite("root", 2), group("a", 2, "root"), *pods("a", 4, cpu="1"), *gang("b", 2, "root", cpu="1")
    )
    assert sorted(world.placed) == [f"default/{name}" for name in ("a-0", "a-1", "b-0", "b-1")]


def test_a_subtree_that_fails_leaves_nothing_behind() -> None:
    world = World(
        *nodes(4),
        composite("root", 1),
        composite("sub", 2, "root"),
        *gang("a", 1, "sub", cpu="1"),
        *gang("b", 5, "sub", cpu="1"),
        *gang("c", 3, "root", cpu="1"),
    )
    assert world.groups == ["c"]
    assert world.messages["default/a-0"] == "too few of the groups of composite pod group default/sub fit"


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ([group("a", 1, "root")], "waiting for CompositePodGroup default/root, which does not exist"),
        (
            [composite("root", 1, "above"), group("a", 1, "root")],
            "waiting for CompositePodGroup default/above, which does not exist",
        ),
        (
            [composite("x", 1, "y"), composite("y", 1, "x"), group("a", 1, "x")],
            "pod group default/a cannot be scheduled: the composite pod groups above it form a circle at default/x",
        ),
        (
            [
                *(composite(f"c{depth}", 1, f"c{depth + 1}") for depth in range(3)),
                composite("c3", 1),
                group("a", 1, "c0"),
            ],
            "pod group default/a cannot be scheduled: it is more than 3 composite pod groups below its root",
        ),
        (
            [composite("root", 2), group("a", 1, "root"), group("b", 2, "root")],
            "waiting for more members in composite pod group default/root: 1 of 2 groups have enough members",
        ),
    ],
    ids=["no root", "no root above", "circle", "too deep", "too few members"],
)
def test_a_tree_is_held_with_a_reason(objects: list[Object], want: str) -> None:
    world = World(*nodes(4), *objects, *pods("a", 1, cpu="1"))
    assert world.placed == {}
    hold = world.core.gate.hold_of("default/a")
    assert hold is not None
    assert hold.message == want
    assert world.held[-1].hold == hold


def test_a_gated_member_holds_the_whole_tree() -> None:
    gated = make_pod("b-0", group="b", spec={"schedulingGates": [{"name": "wait"}]})
    world = World(*nodes(4), composite("root", 1), *gang("a", 1, "root"), group("b", 1, "root"), gated)
    hold = world.core.gate.hold_of("default/a")
    assert hold is not None
    assert hold.message == "waiting until the scheduling gates of pod default/b-0 are removed"
    assert world.placed == {}


def test_groups_wait_for_their_root_and_run_when_it_comes() -> None:
    world = World(*nodes(4), *gang("a", 1, "sub"), *gang("b", 1, "root"), composite("sub", 1, "root"))
    assert world.placed == {}
    assert len(world.add(composite("root", 2)).placed) == 2
    assert world.core.gate.holds == {}


def test_a_root_that_goes_away_takes_its_tree_out_of_the_queue() -> None:
    root = composite("root", 1)
    world = World(*nodes(1), root, *gang("a", 2, "root", cpu="1"))
    assert world.core.queue.count(Place.WAITING) == 1
    world.remove(root)
    assert "tree:default/root" not in world.core.queue
    assert world.core.gate.hold_of("default/a") is not None


def test_a_tree_without_pending_members_leaves_the_queue() -> None:
    members = gang("a", 1, "root", cpu="9")
    world = World(*nodes(1), composite("root", 1), *members)
    world.remove(members[1])
    assert "tree:default/root" not in world.core.queue


def test_members_that_come_later_are_placed_with_what_runs_counted() -> None:
    world = World(*nodes(4), composite("root", 2), *gang("a", 1, "root", cpu="1"), *gang("b", 1, "root", cpu="1"))
    world.add(*gang("c", 1, "root", cpu="1"))
    assert world.groups == ["a", "b", "c"]


def test_a_member_whose_binding_failed_is_tried_again_with_its_tree() -> None:
    world = World(*nodes(4), composite("root", 1), *gang("a", 2, "root", cpu="1"))
    world.core.bind_failed("default/a-0", world.now)
    assert world.core.queue.entity("tree:default/root") is not None
    world.placed.clear()
    assert world.work().placed == {"default/a-0": "n0"}


def test_two_trees_that_compete_are_never_both_half_placed() -> None:
    trees = [
        obj
        for tree in ("x", "y")
        for obj in (composite(tree, 2), *gang(f"{tree}a", 2, tree, cpu="1"), *gang(f"{tree}b", 2, tree, cpu="1"))
    ]
    world = World(*nodes(6), *trees)
    assert world.groups == ["xa", "xb"]


def test_children_are_tried_in_the_order_of_their_creation() -> None:
    early, late = gang("late-name", 2, "root", cpu="1"), gang("a", 2, "root", cpu="1")
    early[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    late[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    assert World(*nodes(2), composite("root", 1), *late[:1], *early[:1], *late[1:], *early[1:]).groups == ["late-name"]


def test_composites_are_satisfied_by_their_children() -> None:
    world = World(
        *nodes(2), composite("root", 1), composite("sub", 2, "root"), *gang("a", 1, "sub"), *gang("b", 1, "sub")
    )
    assert world.core.entities.composites_above("default/a") == ("default/sub", "default/root")
    assert world.core.entities.is_composite_satisfied("default/root")


# -- the search against trying everything


def leaf(name: str, count: int, cpu: int, state: ClusterState) -> Leaf:
    shape = state.shape_of(make_pod(cpu=str(cpu)))
    members = tuple(Member(f"default/{name}-{index}", shape) for index in range(count))
    return Leaf(GroupRef("default", name), members, count)


def succeeds(tree: Tree, chosen: frozenset[str]) -> bool:
    if isinstance(tree, Leaf):
        return tree.ref.name in chosen
    return sum(succeeds(child, chosen) for child in tree.children) >= tree.min_groups


def fits(leaves: list[Leaf], cpus: list[int]) -> bool:
    """Bin packing by trying everything."""
    sizes = [member.shape.request("cpu") // 1000 for leaf in leaves for member in leaf.members]

    def place(at: int, free: list[int]) -> bool:
        if at == len(sizes):
            return True
        for node in range(len(free)):
            if free[node] >= sizes[at] and place(at + 1, [*free[:node], free[node] - sizes[at], *free[node + 1 :]]):
                return True
        return False

    return sum(sizes) <= sum(cpus) and place(0, cpus)


LEAVES = st.tuples(st.integers(1, 2), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.lists(LEAVES, min_size=1, max_size=3), min_size=1, max_size=2),
    st.data(),
)
def test_a_tree_is_placed_exactly_if_some_choice_of_groups_fits(
    cpus: list[int], wanted: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    state = ClusterState()
    for node in nodes(*cpus):
        state.set_node(node)
    branches = []
    for number, children in enumerate(wanted):
        leaves = [leaf(f"g{number}{at}", count, cpu, state) for at, (count, cpu) in enumerate(children)]
        branches.append(Branch(f"b{number}", tuple(leaves), data.draw(st.integers(1, len(leaves)))))
    root = Branch("root", tuple(branches), data.draw(st.integers(1, len(branches))))
    decision = decide_tree(state.snapshot(), root)

    every = list(leaves_of(root))
    choices = [set(choice) for size in range(len(every) + 1) for choice in combinations(every, size)]
    feasible = any(
        succeeds(root, frozenset(each.ref.name for each in choice)) and fits(list(choice), cpus) for choice in choices
    )
    assert decision.succeeded == feasible
    assert decision.succeeded or decision.proved
    placed = {each.ref.name for each in every if decision.placements(each)}
    if decision.succeeded:
        assert succeeds(root, frozenset(placed))
        check_room(every, decision.placements, cpus)


def check_room(leaves: list[Leaf], placements: object, cpus: list[int]) -> None:
    used = [0] * len(cpus)
    for each in leaves:
        for placement in placements(each):  # type: ignore[operator]  # the bound method of a TreeDecision
            used[int(placement.node[1:])] += each.members[0].shape.request("cpu") // 1000
    assert all(have <= cpu for have, cpu in zip(used, cpus, strict=True))


def test_the_search_says_when_it_proved_nothing() -> None:
    state = ClusterState()
    for node in nodes(2):
        state.set_node(node)
    root = Branch("root", (leaf("a", 3, 1, state),), 1)
    assert decide_tree(state.snapshot(), root).proved
    assert isinstance(decide_tree(state.snapshot(), root).outcomes["default/a"], Infeasible)
    fitting = Branch("root", (leaf("a", 2, 1, state),), 1)
    assert isinstance(decide_tree(state.snapshot(), fitting).outcomes["default/a"], Placed)


def test_the_priority_of_the_root_is_that_of_all_of_its_tree() -> None:
    low: Object = {"priority": 1}
    high: Object = {"priority": 9}
    world = World(
        composite("root", 2, **high),
        *(group("a", 1, "root"), make_pod("a-0", group="a", cpu="1", spec=low)),
        *(group("b", 1, "root"), make_pod("b-0", group="b", cpu="1", spec=high)),
        make_pod("single", cpu="1", spec={"priority": 5}),
    )

    world.add(*nodes(2))

    assert sorted(world.placed) == ["default/a-0", "default/b-0"]
