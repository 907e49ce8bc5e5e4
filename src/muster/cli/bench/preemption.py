"""Preemption for a gang on a full cluster of groups: time of the plan, and the pods it evicts.

Beside it upstream mode, which does what kube-scheduler 1.37 does: all groups of lower priority go on trial, the gang is
placed, and each group comes back, the most important first, if the gang still fits where it is. No API around it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from time import perf_counter, process_time

from muster.api.codec import Object, Objects
from muster.engine.mixed import demands_of
from muster.engine.model import GroupRequest, Member
from muster.engine.nodes import RACK_LABEL
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.engine.upstream.cycle import Cycle
from muster.engine.upstream.model import PodGroup
from muster.engine.upstream.preemption import Preemptor, preempt

NODES = (100, 1_000, 2_000, 5_000)
GROUPS = (700, 2_000)
LEVELS = (10, 3, 1)
GANGS = (8, 64)
SEEDS = 5
UPSTREAM_SEEDS = 1
"""Upstream's rule is tried on so many of the clusters: it takes many times as long."""
_CORES = 64
_RACK = 20
_NOW_S = 1_000_000.0
_PRIORITY = 1_000


@dataclass(frozen=True, slots=True)
class Scene:
    """A full cluster: its state and its units."""

    state: ClusterState
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """One plan of ours with its processor and wall time, and upstream's where it was asked for.

    One thread decides, so on a machine with nothing else to do both times are the same.
    """

    plan: Plan | NoPlan
    cpu_ms: float
    wall_ms: float
    theirs: Plan | NoPlan | None = None
    their_cpu_ms: float = 0.0


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each cluster, without and with a rack that must hold all of the gang; for groups that go as a whole,
    and, of ours alone, for pods that go one by one.

    Its decisions: each seed with groups of 10, 3 and 1 levels of priority, for a gang of 8 and one of 64.
    """
    rows = []
    for nodes, groups in product(NODES, GROUPS):
        found: dict[tuple[bool, bool], list[Decision]] = {each: [] for each in product((True, False), (False, True))}
        for seed in range(SEEDS):
            progress(f"{groups} groups on {nodes} nodes, cluster {seed + 1} of {SEEDS}")
            scene = full_cluster(nodes, groups, LEVELS[0], seed)
            for (whole, racks), made in found.items():
                here = scene if whole else one_by_one(scene)
                made += decisions(here, seed, racks, with_upstream=whole and seed < UPSTREAM_SEEDS)
        rows += [_row(made, nodes, groups, whole, racks) for (whole, racks), made in found.items()]
    return rows


def one_by_one(scene: Scene) -> Scene:
    """The same cluster where every pod of a group may be evicted alone."""
    pods = [(unit, pod) for unit in scene.units for pod in unit.pods]
    return Scene(scene.state, tuple(Unit(pod.key, unit.priority, (pod,), in_group=True) for unit, pod in pods))


def decisions(scene: Scene, seed: int, racks: bool, *, with_upstream: bool) -> Iterator[Decision]:
    """Plans for all gangs and levels on one cluster."""
    for levels, gang in product(LEVELS, GANGS):
        group = _gang(scene.state, gang, RACK_LABEL if racks else None)
        cluster = Cluster(scene.state.snapshot(), _in_levels(scene.units, levels, seed), _NOW_S)
        wall, cpu = perf_counter(), process_time()
        plan = preempt_group(cluster, group)
        wall_ms, cpu_ms = 1000 * (perf_counter() - wall), 1000 * (process_time() - cpu)
        if not with_upstream:
            yield Decision(plan, cpu_ms, wall_ms)
            continue
        cpu = process_time()
        theirs = preempt(cluster, _as_upstream(group), Cycle(cluster.profile, "1.37"))
        yield Decision(plan, cpu_ms, wall_ms, theirs, 1000 * (process_time() - cpu))


def _row(made: list[Decision], nodes: int, groups: int, whole: bool, racks: bool) -> Object:
    plans = [each.plan for each in made if isinstance(each.plan, Plan)]
    beside = [
        (each.plan, each.theirs) for each in made if isinstance(each.plan, Plan) and isinstance(each.theirs, Plan)
    ]
    cpu, theirs = [each.cpu_ms for each in made], [each.their_cpu_ms for each in made if each.theirs is not None]
    return {
        "nodes": nodes,
        "groups": groups,
        "victims": "groups" if whole else "pods",
        "in_rack": "yes" if racks else "no",
        "plans": len(plans),
        "p50_ms": round(_percentile(cpu, 50), 1),
        "p99_ms": round(_percentile(cpu, 99), 1),
        "max_ms": round(max(cpu), 1),
        "wall_p99_ms": round(_percentile([each.wall_ms for each in made], 99), 1),
        "proved": sum(plan.proved for plan in plans),
        "evicted": _mean(len(plan.evicted) for plan in plans),
        "upstream_plans": len(beside),
        "upstream_p50_ms": round(_percentile(theirs, 50), 1),
        "upstream_max_ms": round(max(theirs, default=0.0), 1),
        "upstream_evicted": _mean(len(plan.evicted) for _, plan in beside),
        "ours_there": _mean(len(plan.evicted) for plan, _ in beside),
        "upstream_worse": sum(_cost(theirs) > _cost(ours) for ours, theirs in beside),
        "upstream_better": sum(_cost(theirs) < _cost(ours) for ours, theirs in beside),
    }


def _percentile(numbers: list[float], percent: int) -> float:
    """Of few numbers the 99th percentile is the largest."""
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


def _cost(plan: Plan) -> tuple[int, int, int, int]:
    """What is compared: violations, the highest priority of a victim, pods, run time lost."""
    highest = max((unit.priority for unit in plan.victims), default=-1)
    return plan.violations, highest, len(plan.evicted), sum(round(unit.age_s(_NOW_S)) for unit in plan.victims)


def _in_levels(units: Iterable[Unit], levels: int, seed: int) -> tuple[Unit, ...]:
    """The same units with priorities of so many levels."""
    random = Random(f"{levels} {seed}")
    return tuple(replace(unit, priority=random.randrange(levels)) for unit in units)


def _mean(numbers: Iterable[int]) -> float | None:
    found = list(numbers)
    return round(statistics.mean(found), 1) if found else None


def full_cluster(nodes: int, groups: int, levels: int, seed: int) -> Scene:
    """Nodes of 64 cores in racks of 20, filled by groups of one pod size each, spread over neighbouring nodes."""
    random = Random(seed)
    state = ClusterState()
    names = [f"node-{at:05d}" for at in range(nodes)]
    for at, name in enumerate(names):
        state.set_node(_node(name, f"rack-{at // _RACK:04d}"))
    free = [_CORES] * nodes
    average = max(1, nodes * _CORES // groups)
    units, at = [], 0
    for number in range(groups):
        size = random.choice([size for size in (1, 2, 4, 8, 16, 32) if size <= average] or [1])
        count = max(1, round(random.uniform(0.5, 1.5) * average / size))
        pods = []
        for place in range(count):
            at = _next_with_room(free, at, size)
            if at < 0:
                break
            free[at] -= size
            key = f"default/group-{number:04d}-{place}"
            state.add_pod(key, _pod(size, names[at]), names[at])
            pods.append(RunningPod(key, names[at], _NOW_S - random.randint(1, 100_000)))
        if at < 0:
            break
        units.append(Unit(f"group:default/group-{number:04d}", random.randrange(levels), tuple(pods), is_group=True))
    for at, cores in enumerate(free):
        if cores:  # pods that nobody may evict
            state.add_pod(f"default/rest-{at}", _pod(cores, names[at]), names[at])
    return Scene(state, tuple(units))


def _next_with_room(free: list[int], start: int, size: int) -> int:
    """The first node from `start` on (in a circle) with room; -1 without any."""
    for step in range(len(free)):
        at = (start + step) % len(free)
        if free[at] >= size:
            return at
    return -1


def _gang(state: ClusterState, size: int, key: str | None) -> GroupPreemptor:
    shape = state.shape_of(_pod(16))
    members = tuple(Member(f"default/gang-{at}", shape) for at in range(size))
    assert len(demands_of(members)) == 1
    return GroupPreemptor(GroupRequest("default/gang", members, size, topology_key=key), _PRIORITY)


def _as_upstream(group: GroupPreemptor) -> Preemptor:
    asked = group.request
    root = PodGroup(asked.key, asked.members, asked.min_count, topology_key=asked.topology_key)
    return Preemptor(root, group.priority, group.may_preempt)


def _node(name: str, rack: str) -> Object:
    allocatable = {"cpu": str(_CORES), "memory": "512Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, RACK_LABEL: rack}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}


def _pod(cores: int, node: str = "") -> Object:
    requests = {"cpu": str(cores), "memory": f"{cores}Gi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    placed = {"nodeName": node} if node else {}
    return {"metadata": {"name": "pod", "namespace": "default"}, "spec": {"containers": [container], **placed}}
