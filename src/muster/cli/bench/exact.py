"""Exact placement of mixed groups: what share is placed or proved impossible, how fast, and what greedy rules do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, process_time
from typing import Protocol, TypeVar

from muster.api.codec import Objects
from muster.cli.bench.between import KEYS
from muster.cli.bench.instances import Instance
from muster.cli.bench.judging import best_set, first_fit_decreasing, violations
from muster.cli.bench.outcome import Outcome, row
from muster.cli.bench.planted import PLANTED, TINY_KINDS, planted, tiny
from muster.cli.bench.ruled import PLANTED_RULED, RULED_KINDS, planted_ruled, tiny_ruled
from muster.cli.bench.several import interleaved, k_of_n, measure_interleaved, measure_k_of_n, nine_of_ten
from muster.cli.bench.stored import PLANTED_STORED, STORED_KINDS, STORED_SIZES, planted_stored, tiny_stored
from muster.engine.decide import decide
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.engine.upstream.baseline import greedy

SIZES = (16, 64, 250, 1_000)
SHAPES = (2, 4, 6, 10)
_SEEDS = 3
_TINY_SEEDS = 300


class Kind(Protocol):
    """What a family is made by."""

    @property
    def name(self) -> str:
        """The family."""


K = TypeVar("K", bound=Kind)


def run(progress: Callable[[str], None], seed: int = 0) -> Objects:
    """A row for each family and size: answers, times of `decide`, and how often greedy rules place the group.

    `seed`: the first seed of each family; with another one, all instances are others.
    """
    measure(planted(PLANTED[0], 16, 4, 0))  # what is loaded or computed once
    rows = []
    for family, pods, outcomes in _families(seed):
        progress(family)
        rows.append(row(family, pods, list(outcomes)))
    return rows


def _families(start: int) -> Iterator[tuple[str, str, Iterator[Outcome]]]:
    few, many = range(start, start + _SEEDS), range(start, start + _TINY_SEEDS)
    for family, pods, instances in _instances(few, many):
        yield family, pods, map(measure, instances)
    for size in SIZES:
        gangs = (interleaved(size, shapes, seed) for shapes in SHAPES for seed in few)
        yield "two gangs by turns, either fits alone", f"2 x {size}", map(measure_interleaved, gangs)
    trees = (k_of_n(seed) for seed in many)
    yield "K of N groups, not the first K", "3-15", map(measure_k_of_n, trees)


def _instances(few: range, many: range) -> Iterator[tuple[str, str, Iterator[Instance]]]:
    for kind in TINY_KINDS:
        yield f"tiny, {kind}", "3-8", (tiny(kind, seed) for seed in many)
    for kind in RULED_KINDS:
        yield f"tiny with rules, {kind}", "2-8", (tiny_ruled(kind, seed) for seed in many)
    for kind in STORED_KINDS:
        yield f"tiny with claims, {kind}", "2-6", (tiny_stored(kind, seed) for seed in many)
    yield "nine of ten members fit", "10", (nine_of_ten(1 + seed % 4, seed) for seed in many)
    yield from _made(PLANTED, SIZES, few, planted)
    yield from _made(PLANTED_RULED, SIZES, few, planted_ruled)
    yield from _made(PLANTED_STORED, STORED_SIZES, few, planted_stored)


def _made(
    kinds: Sequence[K], sizes: Sequence[int], seeds: range, make: Callable[[K, int, int, int], Instance]
) -> Iterator[tuple[str, str, Iterator[Instance]]]:
    for kind in kinds:
        for pods in sizes:
            yield kind.name, f"{pods}", (make(kind, pods, shapes, seed) for shapes in SHAPES for seed in seeds)


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
    ffd = len(decreasing) >= instance.min_count and not violations(instance, decreasing)
    return Outcome(
        type(decision).__name__,
        not isinstance(decision, Undecided) and is_wrong(instance, request, decision),
        ms,
        cpu_ms,
        ffd,
        greedy(fresh, request).placed,
        0 if ffd else len(decreasing),
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
