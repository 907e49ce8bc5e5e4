"""Exact placement of mixed groups: what share is placed or proved impossible, how fast, and what greedy rules do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from muster.api.codec import Object, Objects
from muster.cli.bench.between import KEYS
from muster.cli.bench.instances import Instance
from muster.cli.bench.judging import best_set, first_fit_decreasing, violations
from muster.cli.bench.planted import PLANTED, TINY_KINDS, planted, tiny
from muster.cli.bench.ruled import PLANTED_RULED, RULED_KINDS, planted_ruled, tiny_ruled
from muster.engine.decide import decide
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy

SIZES = (16, 64, 250, 1_000)
SHAPES = (2, 4, 6, 10)
_SEEDS = 3
_TINY_SEEDS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one instance. `wrong`: the answer contradicts the truth, or the placement breaks a rule. `ffd`,
    `upstream`: whether first-fit-decreasing (which knows no rules between pods) and kube-scheduler's greedy group cycle
    place the group.

    `ms` by the wall clock, `cpu_ms` of this process, which other work on the machine disturbs less.
    """

    answer: str
    wrong: bool
    ms: float
    cpu_ms: float
    ffd: bool
    upstream: bool


def run(progress: Callable[[str], None], seed: int = 0) -> Objects:
    """A row for each family and size: answers, times of `decide`, and how often greedy rules place the group.

    `seed`: the first seed of each family; with another one, all instances are others.
    """
    measure(planted(PLANTED[0], 16, 4, 0))  # what is loaded or computed once
    rows = []
    for family, pods, instances in _families(seed):
        progress(family)
        rows.append(_row(family, pods, [measure(each) for each in instances]))
    return rows


def _families(start: int) -> Iterator[tuple[str, str, Iterator[Instance]]]:
    few, many = range(start, start + _SEEDS), range(start, start + _TINY_SEEDS)
    for kind in TINY_KINDS:
        yield f"tiny, {kind}", "3-8", (tiny(kind, seed) for seed in many)
    for kind in RULED_KINDS:
        yield f"tiny with rules, {kind}", "2-8", (tiny_ruled(kind, seed) for seed in many)
    for each in PLANTED:
        for pods in SIZES:
            yield each.name, f"{pods}", (planted(each, pods, shapes, seed) for shapes in SHAPES for seed in few)
    for ruled in PLANTED_RULED:
        for pods in SIZES:
            made = (planted_ruled(ruled, pods, shapes, seed) for shapes in SHAPES for seed in few)
            yield ruled.name, f"{pods}", made


def request_of(instance: Instance) -> tuple[Snapshot, GroupRequest]:
    """The instance as the engine sees it; the snapshot knows nothing from earlier questions."""
    state = ClusterState()
    for kind, obj in instance.storage_objects():
        state.set_object(kind, obj)
    for node in instance.node_objects():
        state.set_node(node)
    for name, pod in instance.running_objects():
        state.add_pod(f"default/{pod['metadata']['name']}", pod, name)
    pods = instance.pod_objects()
    members = tuple(
        Member(f"default/{pod['metadata']['name']}", shape)
        for pod, shape in zip(pods, state.shapes_of(pods), strict=True)
    )
    key = KEYS[instance.domain] if instance.domain else None
    return state.snapshot(), GroupRequest("default/group", members, instance.min_count, topology_key=key)


def measure(instance: Instance) -> Outcome:
    """Decides the instance and judges the answer."""
    snapshot, request = request_of(instance)
    start, cpu_start = perf_counter(), process_time()
    decision = decide(snapshot, request)
    ms, cpu_ms = 1000 * (perf_counter() - start), 1000 * (process_time() - cpu_start)
    fresh, _ = request_of(instance)
    decreasing = first_fit_decreasing(instance)
    return Outcome(
        type(decision).__name__,
        not isinstance(decision, Undecided) and is_wrong(instance, request, decision),
        ms,
        cpu_ms,
        len(decreasing) >= instance.min_count and not violations(instance, decreasing),
        greedy(fresh, request).placed,
    )


def is_wrong(instance: Instance, request: GroupRequest, decision: Decision) -> bool:
    """Whether the decision contradicts the truth or breaks a rule. Undecided is wrong where the truth is known."""
    if isinstance(decision, Placed):
        positions = {member.key: at for at, member in enumerate(request.members)}
        placed = {positions[each.pod]: int(each.node.rpartition("-")[2]) for each in decision.placements}
        if violations(instance, placed) or len(placed) < instance.min_count or instance.fits is False:
            return True
        return instance.most is not None and tuple(sorted(placed)) != best_set(instance)
    return instance.fits is True or (instance.fits is False and not isinstance(decision, Infeasible))


def _row(family: str, pods: str, outcomes: Sequence[Outcome]) -> Object:
    times = sorted(outcome.ms for outcome in outcomes)
    count = [outcome.answer for outcome in outcomes].count
    return {
        "family": family,
        "pods": pods,
        "instances": len(outcomes),
        "placed": count("Placed"),
        "proved": count("Infeasible"),
        "undecided": count("Undecided"),
        "wrong": sum(outcome.wrong for outcome in outcomes),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[min(len(times) - 1, int(0.99 * len(times)))], 1),
        "max_ms": round(times[-1], 1),
        "cpu_max_ms": round(max(outcome.cpu_ms for outcome in outcomes), 1),
        "ffd_places": sum(outcome.ffd for outcome in outcomes),
        "upstream_places": sum(outcome.upstream for outcome in outcomes),
    }
