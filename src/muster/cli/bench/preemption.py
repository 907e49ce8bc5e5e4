"""Preemption for a gang on a full cluster of groups that go as a whole: time of the plan, and the pods it evicts.

Beside it upstream mode, which does what kube-scheduler 1.37 does: all groups of lower priority go on trial, the gang is
placed, and each group comes back, the most important first, if the gang still fits where it is. No API around it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from time import perf_counter

from muster.api.codec import Object, Objects
from muster.engine.mixed import demands_of
from muster.engine.model import GroupRequest, Member
from muster.engine.nodes import RACK_LABEL
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.engine.upstream.cycle import Cycle
from muster.engine.upstream.model import PodGroup
from muster.engine.upstream.preemption import Preemptor, preempt

NODES = (100, 1_000, 5_000)
GROUPS = (700, 2_000)
LEVELS = (10, 3, 1)
GANGS = (8, 64)
_CORES = 64
_RACK = 20
_REPEATS = 3
_NOW_S = 1_000_000.0
_PRIORITY = 1_000


@dataclass(frozen=True, slots=True)
class Scene:
    """A full cluster: its state and its units."""

    state: ClusterState
    units: tuple[Unit, ...]


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each cluster and gang, without and with a rack that must hold all of it."""
    rows = []
    for nodes in NODES:
        for groups in GROUPS:
            for levels in LEVELS:
                progress(f"{groups} groups on {nodes} nodes")
                scenes = [full_cluster(nodes, groups, levels, seed) for seed in range(_REPEATS)]
                for gang in GANGS:
                    rows += [_row(scenes, nodes, groups, levels, gang, racks) for racks in (False, True)]
    return rows


def _row(scenes: list[Scene], nodes: int, groups: int, levels: int, gang: int, racks: bool) -> Object:
    taken_ms, plans, upstream_ms, others = [], list[Plan](), [], list[Plan]()
    for scene in scenes:
        group = _gang(scene.state, gang, RACK_LABEL if racks else None)
        cluster = Cluster(scene.state.snapshot(), scene.units, _NOW_S)
        start = perf_counter()
        plan = preempt_group(cluster, group)
        taken_ms.append(1000 * (perf_counter() - start))
        start = perf_counter()
        theirs = preempt(cluster, _as_upstream(group), Cycle(cluster.profile, "1.37"))
        upstream_ms.append(1000 * (perf_counter() - start))
        plans += [plan] if isinstance(plan, Plan) else []
        others += [theirs] if isinstance(theirs, Plan) else []
    return {
        "nodes": nodes,
        "groups": groups,
        "levels": levels,
        "gang": gang,
        "in_rack": "yes" if racks else "no",
        "median_ms": round(statistics.median(taken_ms), 1),
        "max_ms": round(max(taken_ms), 1),
        "evicted": _mean(len(plan.evicted) for plan in plans),
        "proved": f"{sum(plan.proved for plan in plans)} of {len(scenes)}",
        "upstream_ms": round(statistics.median(upstream_ms), 1),
        "upstream_evicted": _mean(len(plan.evicted) for plan in others),
    }


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
