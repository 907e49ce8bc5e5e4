"""Groups that get into each other's way: two gangs whose pods come by turns, of which either fits alone; gangs of ten
of which nine fit, and that would hold their places for ever; trees of which K groups must run, but not the first K.

Each is judged without the engine. Pod by pod means: each pod by itself, the largest first, on the first node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from time import perf_counter, process_time

from muster.api.groups import GroupRef
from muster.cli.bench.instances import Instance, Node, Pod, node_name
from muster.cli.bench.judging import best_set, first_fit_decreasing, violations
from muster.cli.bench.outcome import Outcome
from muster.cli.bench.planted import PLANTED, planted
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Infeasible, Member, Placed, Placement, Undecided
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy
from muster.scheduler.tree import Branch, Leaf
from muster.scheduler.tree_deciding import decide_tree


def state_of(instance: Instance) -> ClusterState:
    """The nodes of an instance."""
    state = ClusterState()
    for node in instance.node_objects():
        state.set_node(node)
    return state


def _members(state: ClusterState, instance: Instance, places: Sequence[int]) -> tuple[Member, ...]:
    pods = instance.pod_objects()
    shapes = state.shapes_of([pods[at] for at in places])
    return tuple(Member(f"default/pod-{at:04d}", shape) for at, shape in zip(places, shapes, strict=True))


def _placed(placements: Sequence[Placement]) -> dict[int, int]:
    return {int(each.pod.rpartition("-")[2]): int(each.node.rpartition("-")[2]) for each in placements}


# -- two gangs ---------------------------------------------------------------------------------------------------------


def interleaved(pods: int, shapes: int, seed: int) -> Instance:
    """Nodes that hold exactly one of two equal gangs, whose pods come by turns."""
    one = planted(PLANTED[1], pods, shapes, seed)
    return replace(one, family="two gangs by turns", pods=tuple(pod for pod in one.pods for _ in range(2)))


def measure_interleaved(instance: Instance) -> Outcome:
    """Decides about both, the second beside the first: one must be placed, the other refused."""
    state, gangs = state_of(instance), [range(0, len(instance.pods), 2), range(1, len(instance.pods), 2)]
    requests = [
        GroupRequest(f"default/g{at}", _members(state, instance, places), len(places))
        for at, places in enumerate(gangs)
    ]
    upstream = greedy(state.snapshot(), requests[0]).placed
    start, cpu_start = perf_counter(), process_time()
    first = decide(state.snapshot(), requests[0])
    objects = instance.pod_objects()
    for pod, node in _placed(first.placements).items() if isinstance(first, Placed) else ():
        state.add_pod(f"default/pod-{pod:04d}", objects[pod], node_name(node))
    second = decide(state.snapshot(), requests[1])
    ms, cpu_ms = 1000 * (perf_counter() - start), 1000 * (process_time() - cpu_start)
    by_pod = first_fit_decreasing(instance)
    whole = any(all(place in by_pod for place in places) for places in gangs)
    if isinstance(first, Undecided) or isinstance(second, Undecided):
        return Outcome("Undecided", False, ms, cpu_ms, whole, upstream, 0 if whole else len(by_pod))
    right = isinstance(first, Placed) and isinstance(second, Infeasible)
    right = right and isinstance(first, Placed) and not violations(instance, _placed(first.placements))
    return Outcome("Placed", not right, ms, cpu_ms, whole, upstream, 0 if whole else len(by_pod))


# -- nine of ten -------------------------------------------------------------------------------------------------------


def nine_of_ten(shapes: int, seed: int) -> Instance:
    """Nodes that hold exactly nine of the ten members."""
    random = Random(f"nine-{shapes}-{seed}")
    kinds = [Pod((random.randint(1, 16), random.randint(1, 64), random.choice([0, 1, 2, 4]))) for _ in range(shapes)]
    pods, nodes = [random.choice(kinds) for _ in range(9)], list[Node]()
    left = list(pods)
    while left:
        size = random.randint(1, 3)
        mix, left = left[:size], left[size:]
        nodes.append(Node(tuple(sum(pod.asks[each] for pod in mix) for each in range(3))))
    return Instance("nine of ten members", seed, tuple(nodes), (*pods, random.choice(kinds)), 10, False)


# -- K of N ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeInstance:
    """The pods of each group by position, and how many groups must run whole. `fits`: whether that is possible."""

    instance: Instance
    groups: tuple[range, ...]
    enough: int
    fits: bool


def k_of_n(seed: int) -> TreeInstance:
    """A tree whose first K groups do not fit together; other K of them may."""
    for turn in range(1_000):
        random = Random(f"k-of-n-{seed}-{turn}")
        kinds = [Pod((random.randint(1, 6), random.randint(1, 8), random.choice([0, 0, 1]))) for _ in range(3)]
        sizes = [random.randint(1, 3) for _ in range(random.randint(3, 5))]
        pods = tuple(random.choice(kinds) for _ in range(sum(sizes)))
        nodes = tuple(
            Node((random.randint(4, 14), random.randint(6, 18), random.choice([0, 1, 2])))
            for _ in range(random.randint(2, 4))
        )
        starts = [sum(sizes[:at]) for at in range(len(sizes))]
        groups = tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
        enough = random.randint(2, len(groups) - 1)
        whole = Instance("K of N groups", seed, nodes, pods, len(pods))
        if not _fit(whole, groups[:enough]):
            fits = any(_fit(whole, some) for some in combinations(groups, enough))
            if fits or seed % 3 == 0:
                return TreeInstance(whole, groups, enough, fits)
    raise AssertionError("no such tree among a thousand")


def _fit(whole: Instance, groups: Sequence[range]) -> bool:
    pods = tuple(whole.pods[at] for group in groups for at in group)
    return len(best_set(replace(whole, pods=pods))) == len(pods)


def measure_k_of_n(tree: TreeInstance) -> Outcome:
    """Decides about the tree and judges the answer."""
    state = state_of(tree.instance)
    leaves = tuple(
        Leaf(GroupRef("default", f"g{at}"), _members(state, tree.instance, group), len(group))
        for at, group in enumerate(tree.groups)
    )
    root, snapshot = Branch("default/tree", leaves, tree.enough), state.snapshot()
    start, cpu_start = perf_counter(), process_time()
    decision = decide_tree(snapshot, root)
    ms, cpu_ms = 1000 * (perf_counter() - start), 1000 * (process_time() - cpu_start)
    placed = _placed([each for leaf in leaves for each in decision.placements(leaf)])
    answer = "Placed" if decision.succeeded else "Infeasible" if decision.proved else "Undecided"
    if answer == "Placed":
        wrong = bool(violations(tree.instance, placed)) or _whole(tree, placed) < tree.enough or not tree.fits
    else:
        wrong = tree.fits
    by_pod = first_fit_decreasing(tree.instance)
    ffd = _whole(tree, by_pod) >= tree.enough
    return Outcome(answer, wrong, ms, cpu_ms, ffd, _one_after_the_other(tree), 0 if ffd else len(by_pod))


def _whole(tree: TreeInstance, placed: dict[int, int]) -> int:
    return sum(all(at in placed for at in group) for group in tree.groups)


def _one_after_the_other(tree: TreeInstance) -> bool:
    """Whether enough groups are placed if each takes what it can get, by the greedy cycle, in the order of names."""
    state, objects, done = state_of(tree.instance), tree.instance.pod_objects(), 0
    for at, group in enumerate(tree.groups):
        request = GroupRequest(f"default/g{at}", _members(state, tree.instance, group), len(group))
        found = greedy(state.snapshot(), request)
        done += found.placed
        for pod, node in _placed(found.placements).items():
            state.add_pod(f"default/pod-{pod:04d}", objects[pod], node_name(node))
    return done >= tree.enough
