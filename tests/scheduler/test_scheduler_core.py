"""The scheduler as a state machine, without an API server: batches, requeueing and what they cost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object, copy_object
from muster.client.informer import Change
from muster.engine.decide import decide
from muster.scheduler.changes import ClusterEvent, node_events, usage_differs
from muster.scheduler.core import SchedulerCore
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.queue import Place
from muster.testing import make_group, make_node, make_pod


def added(*objects: Object) -> list[Change]:
    return [Change("ADDED", None, obj) for obj in objects]


def gone(obj: Object) -> list[Change]:
    return [Change("DELETED", obj, None)]


def core_with(*nodes: Object) -> SchedulerCore:
    core = SchedulerCore(SchedulerOptions())
    core.cache.apply_nodes(added(*nodes))
    return core


def work(core: SchedulerCore, now: float = 0.0) -> dict[str, str]:
    """Settle and decide until nothing is ready; where the placed pods went."""
    placed: dict[str, str] = {}
    core.settle(now)
    while verdicts := core.decide(now):
        for verdict in verdicts:
            placed.update((each.pod, each.node) for each in verdict.placements)
    return placed


SHAPES = ({"cpu": "1"}, {"cpu": "2"}, {"cpu": "1", "memory": "4Gi"})


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(range(len(SHAPES))), st.integers(0, 2)), max_size=25),
)
def test_equal_pods_decided_together_go_where_they_would_go_one_by_one(
    cpus: list[int], wanted: list[tuple[int, int]]
) -> None:
    nodes = [make_node(f"n{index}", cpu=str(cpu), memory="16Gi") for index, cpu in enumerate(cpus)]
    pods = [
        make_pod(f"p{index}", priority=priority, **SHAPES[shape])  # type: ignore[arg-type]  # cpu and memory are texts
        for index, (shape, priority) in enumerate(wanted)
    ]
    results = []
    for batch in (1, 1000):
        core = SchedulerCore(SchedulerOptions(batch=batch, strict_order=True))
        core.cache.apply_nodes(added(*nodes))
        core.cache.apply_pods(added(*pods))
        placed = work(core)
        shapes = Counter((wanted[int(pod.removeprefix("default/p"))][0], node) for pod, node in placed.items())
        results.append((sorted(placed), shapes))
    assert results[0] == results[1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(range(len(SHAPES))), st.integers(0, 1)), max_size=25),
)
def test_the_same_pods_are_placed_by_shape_as_in_strict_order(cpus: list[int], wanted: list[tuple[int, int]]) -> None:
    nodes = [make_node(f"n{index}", cpu=str(cpu), memory="16Gi") for index, cpu in enumerate(cpus)]
    pods = [
        make_pod(f"p{index}", priority=priority, **SHAPES[shape])  # type: ignore[arg-type]  # cpu and memory are texts
        for index, (shape, priority) in enumerate(wanted)
    ]
    results = []
    for strict in (True, False):
        core = SchedulerCore(SchedulerOptions(strict_order=strict))
        core.cache.apply_nodes(added(*nodes))
        core.cache.apply_pods(added(*pods))
        placed = work(core)
        results.append(sorted(placed))
        assert all(core.cache.pods[pod].node == node for pod, node in placed.items())
    # Otherwise who is left over may depend on where the others, or those before them, went.
    if len(results[0]) == len(pods) and len({priority for _, priority in wanted}) < 2:
        assert results[0] == results[1]
    assert bool(results[0]) == bool(results[1])


def test_pods_of_many_shapes_that_take_turns_cost_a_pass_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0

    def counted(*args: object, **named: object) -> object:
        nonlocal passes
        passes += 1
        return decide(*args, **named)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr("muster.scheduler.answers.decide", counted)
    core = core_with(*(make_node(f"n{index}") for index in range(4)))
    core.cache.apply_pods(added(*(make_pod(f"p{index}", cpu=f"{100 + index % 5}m") for index in range(50))))
    assert len(work(core)) == 50
    assert passes == 5


def test_strict_order_stops_after_some_passes_and_goes_on_where_it_stopped() -> None:
    core = SchedulerCore(SchedulerOptions(passes=4))
    core.cache.apply_nodes(added(make_node(cpu="3")))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}
    towards = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    pods = [make_pod(f"p{index}", cpu=("900m", "100m")[index % 2], spec=towards) for index in range(10)]
    core.cache.apply_pods(added(*pods))
    core.settle(0.0)
    decided = [[verdict.ask.entity for verdict in core.decide(0.0)] for _ in range(3)]
    names = [f"pod:default/p{index}" for index in range(10)]
    assert decided == [names[:4], names[4:8], names[8:]]


@pytest.mark.parametrize(("size", "options", "want"), [(2, {"passes": 4}, [4, 4, 2]), (3, {"batch": 10}, [4, 4, 2])])
def test_groups_are_decided_a_few_at_a_time_however_alike(size: int, options: dict[str, int], want: list[int]) -> None:
    core = SchedulerCore(SchedulerOptions(**options))  # type: ignore[arg-type]  # numbers both
    core.cache.apply_nodes(added(make_node()))
    for number in range(10):
        pods = [make_pod(f"{number}-{at}", group=f"g{number}", cpu="1m") for at in range(size)]
        core.cache.apply_pod_groups(added(make_group(f"g{number}", min_count=size)))
        core.cache.apply_pods(added(*pods))
    core.settle(0.0)
    assert [len(core.decide(0.0)) for _ in range(3)] == want
    assert not core.queue.has_ready


def test_pods_of_many_shapes_in_strict_order_are_placed_without_a_pass_each(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0

    def counted(*args: object, **named: object) -> object:
        nonlocal passes
        passes += 1
        return decide(*args, **named)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr("muster.scheduler.answers.decide", counted)
    core = SchedulerCore(SchedulerOptions(strict_order=True))
    core.cache.apply_nodes(added(*(make_node(f"n{index}", cpu="1") for index in range(4))))
    core.cache.apply_pods(added(*(make_pod(f"p{index}", cpu=f"{100 + index % 5}m") for index in range(50))))
    assert len(work(core)) == 36
    assert passes <= 5


@pytest.mark.parametrize("batch", [1, 1000])
def test_who_comes_after_a_pod_that_preempts_finds_its_room_taken(batch: int) -> None:
    core = SchedulerCore(SchedulerOptions(strict_order=True, batch=batch))
    core.cache.apply_nodes(added(make_node("n0", cpu="4"), make_node("n1", cpu="3")))
    core.cache.apply_pods(added(make_pod("low", cpu="2", priority=-1, node="n0")))
    asked = {"a": "4", "b": "1", "c": "2", "d": "1"}
    core.cache.apply_pods(added(*(make_pod(name, cpu=cpu, priority=0) for name, cpu in asked.items())))
    assert work(core) == {"default/b": "n1", "default/c": "n1"}


def test_a_verdict_leaves_nothing_assumed_for_a_gang_that_does_not_fit() -> None:
    core = core_with(make_node(gpu=3))
    core.cache.apply_pod_groups(added(make_group("a", min_count=4)))
    core.cache.apply_pods(added(*(make_pod(f"a-{index}", group="a", gpu=1) for index in range(4))))
    assert work(core) == {}
    assert not any(record.node for record in core.cache.pods.values())
    assert core.queue.count(Place.WAITING) == 1


def test_forgetting_a_failed_binding_gives_the_room_back() -> None:
    core = core_with(make_node(gpu=1))
    core.cache.apply_pods(added(make_pod("a", gpu=1), make_pod("b", gpu=1)))
    assert work(core) == {"default/a": "node"}
    core.bind_failed("default/a", 0.0)
    assert work(core) == {"default/b": "node"}
    core.bind_failed("default/a", 0.0)
    assert core.cache.pods["default/b"].node == "node"


def test_binding_errors_in_a_row_back_off_longer_and_longer() -> None:
    core = core_with(make_node(gpu=1))
    core.cache.apply_pods(added(make_pod("a", gpu=1)))
    now, delays = 0.0, []
    for _ in range(4):
        assert work(core, now) == {"default/a": "node"}
        core.bind_failed("default/a", now)
        core.settle(now)
        retry = core.queue.next_retry_s()
        assert retry is not None
        delays.append(retry - now)
        now = retry
    assert delays == [1, 2, 4, 8]


def test_lowering_min_count_releases_held_members_and_raising_it_does_not() -> None:
    core = core_with(make_node(gpu=4))
    group = make_group("a", min_count=3)
    core.cache.apply_pod_groups(added(group))
    core.cache.apply_pods(added(*(make_pod(f"a-{index}", group="a", gpu=1) for index in range(2))))
    assert work(core) == {}
    core.cache.apply_pod_groups([Change("MODIFIED", group, make_group("a", min_count=4))])
    assert work(core) == {}
    core.cache.apply_pod_groups([Change("MODIFIED", group, make_group("a", min_count=2))])
    assert len(work(core)) == 2


def test_the_priority_of_the_group_decides_its_place_among_pods() -> None:
    core = core_with(make_node(gpu=2))
    core.cache.apply_pods(added(make_pod("plain", gpu=2, priority=5)))
    core.cache.apply_pod_groups(added(make_group("a", min_count=2, priority=9)))
    core.cache.apply_pods(added(*(make_pod(f"a-{index}", group="a", gpu=1) for index in range(2))))
    assert sorted(work(core)) == ["default/a-0", "default/a-1"]


def test_members_are_placed_by_index_not_by_the_text_of_their_names() -> None:
    core = core_with(make_node(gpu=3))
    core.cache.apply_pod_groups(added(make_group("a", min_count=2)))
    core.cache.apply_pods(added(*(make_pod(f"a-{index}", group="a", gpu=1) for index in (10, 9, 2, 1))))
    assert sorted(work(core)) == ["default/a-1", "default/a-2", "default/a-9"]


def test_a_disrupted_or_deleted_pending_pod_is_not_placed() -> None:
    core = core_with(make_node())
    deleted, disrupted = make_pod("deleted"), make_pod("disrupted")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    disrupted["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    core.cache.apply_pods(added(deleted, disrupted))
    assert work(core) == {}


def test_a_pod_that_cannot_be_read_fails_alone() -> None:
    core = core_with(make_node())
    core.cache.apply_pods(added(make_pod("bad", cpu="much"), make_pod("good", cpu="1")))
    core.settle(0.0)
    verdicts = core.decide(0.0)
    assert [each.rejection.reason if each.rejection else "" for each in verdicts] == ["SchedulerError", ""]
    assert core.queue.next_retry_s() is None


def test_a_node_event_that_does_not_help_makes_the_pod_wait_for_what_else_is_missing() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    tainted = make_node(cpu="1", taints=[taint])
    core = core_with(tainted)
    filler = make_pod("filler", cpu="1", node="node")
    core.cache.apply_pods(added(filler, make_pod("waits", cpu="1")))
    assert work(core) == {}
    core.cache.apply_nodes([Change("MODIFIED", tainted, make_node(cpu="1"))])
    assert work(core, 60.0) == {}
    core.cache.apply_pods(gone(filler))
    assert work(core, 120.0) == {"default/waits": "node"}


# -- the cost rule ----------------------------------------------------------------------------------------------------


class Counted(SchedulerCore):
    """Counts the tests of pools and the entities that were tried or moved."""

    __slots__ = ("tests",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tests = 0
        waiting_for = self.queue.waiting_for

        def counted(plugins: list[str]) -> object:
            pools = waiting_for(plugins)
            self.tests += len(pools)
            return pools

        self.queue.waiting_for = counted  # type: ignore[method-assign,assignment]  # spy of this test

    def spent(self) -> int:
        return self.tests + sum(self.queue.moves.values())


def crowded(shapes: int, pending: int) -> tuple[Counted, list[Object]]:
    """Full nodes and `pending` pods of `shapes` shapes that have been tried; the running pods."""
    core = Counted(SchedulerOptions(batch=10_000))
    core.cache.apply_nodes(added(*(make_node(f"n{index}", cpu="10") for index in range(50))))
    running = [make_pod(f"r{index}", cpu="1", node=f"n{index % 50}") for index in range(500)]
    core.cache.apply_pods(added(*running))
    waiting = [make_pod(f"p{index}", cpu=str(2 + index % shapes)) for index in range(pending)]
    core.cache.apply_pods(added(*waiting))
    assert work(core) == {}
    assert core.queue.count(Place.WAITING) == pending
    return core, running


def test_events_that_help_nobody_cost_a_test_a_shape_and_none_a_pending_pod() -> None:
    core, running = crowded(shapes=6, pending=3000)
    before = core.spent()
    for index in range(50):
        core.cache.apply_pods(gone(running[index]))
        assert work(core, 100.0 + index) == {}
    assert core.spent() - before <= 50 * 6


def test_room_for_a_few_wakes_a_few() -> None:
    core, running = crowded(shapes=1, pending=3000)
    before = core.spent()
    core.cache.apply_pods([change for index in (0, 50, 1, 51, 2, 52) for change in gone(running[index])])
    assert len(work(core, 100.0)) == 3
    assert core.spent() - before <= 30


def test_status_of_pods_and_heartbeats_of_nodes_move_nothing() -> None:
    core, _ = crowded(shapes=6, pending=3000)
    before = core.spent()
    for record in list(core.cache.pods.values())[:1000]:
        changed = copy_object(record.pod)
        changed["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        core.cache.apply_pods([Change("MODIFIED", record.pod, changed)])
    beat = make_node("n0", cpu="10")
    beat["status"]["conditions"] = []
    core.cache.apply_nodes([Change("MODIFIED", core.cache.nodes["n0"], beat)])
    assert work(core, 100.0) == {}
    assert core.spent() == before


def test_bound_pods_that_appear_do_not_touch_gated_members() -> None:
    core = Counted(SchedulerOptions())
    core.cache.apply_nodes(added(make_node(pods=10_000, cpu="10000")))
    core.cache.apply_pods(added(*(make_pod(f"p{index}", group=f"g{index // 100}") for index in range(3000))))
    core.settle(0.0)
    assert core.queue.count(Place.GATED) == 30
    before = core.spent()
    for index in range(500):
        core.cache.apply_pods(added(make_pod(f"r{index}", cpu="1", node="node")))
        core.settle(1.0)
    assert core.spent() == before


# -- what changes mean ------------------------------------------------------------------------------------------------


def test_events_of_a_node_name_what_could_make_room() -> None:
    old = make_node(cpu="4")
    assert node_events(None, old) == {ClusterEvent.NODE_ADDED}
    assert node_events(old, make_node(cpu="8")) == {ClusterEvent.NODE_GREW}
    assert node_events(old, make_node(cpu="2")) == set()
    assert node_events(old, make_node(cpu="4", gpu=1)) == {ClusterEvent.NODE_GREW}
    assert node_events(old, make_node(cpu="4", labels={"a": "b"})) == {ClusterEvent.NODE_LABELS}
    assert node_events(old, make_node(cpu="4", unschedulable=True)) == {ClusterEvent.NODE_TAINTS}


def test_a_resize_in_place_changes_what_a_pod_uses_and_a_phase_does_not() -> None:
    old = make_pod(node="node", cpu="1")
    started, resized = copy_object(old), copy_object(old)
    started["status"]["phase"] = "Running"
    resized["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "2"}}]
    assert not usage_differs(old, started)
    assert usage_differs(old, resized)


def test_a_pod_that_cannot_be_scored_says_so_in_upstreams_words() -> None:
    core = core_with(make_node("a"), make_node("b"))
    pod = make_pod("p")
    expression = {"key": "disk", "operator": "Gt", "values": ["many"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    core.cache.apply_pods(added(pod))
    core.settle(0.0)
    (verdict,) = core.decide(0.0)
    assert verdict.rejection is not None and verdict.rejection.reason == "SchedulerError"
    assert verdict.rejection.message.startswith('running PreScore plugin "NodeAffinity": [0].matchExpressions[0]')


def waiting_gangs(count: int = 3, *, in_rack: bool = False) -> list[Object]:
    """Gangs of two, each of another shape, so that none of them stands for another."""
    groups = [make_group(f"g{at}", min_count=2) for at in range(count)]
    for group in groups if in_rack else ():
        group["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    members = [
        make_pod(f"g{at}-{member}", cpu="2", memory=f"{at + 1}Gi", group=f"g{at}")
        for at in range(count)
        for member in range(2)
    ]
    return [*groups, *members]


def full_core(nodes: int, gangs: list[Object], *, racks: int = 1) -> SchedulerCore:
    """Nodes of two cores, each taken by a pod `used-…`, and gangs that were tried in vain."""
    labels = [{"rack": f"r{at % racks}"} for at in range(nodes)]
    core = core_with(*(make_node(f"n{at}", cpu="2", labels=labels[at]) for at in range(nodes)))
    core.cache.apply_pods(added(*(used(at) for at in range(nodes))))
    core.cache.apply_pod_groups(added(*(each for each in gangs if each["kind"] == "PodGroup")))
    core.cache.apply_pods(added(*(each for each in gangs if each["kind"] == "Pod")))
    assert work(core) == {}
    return core


def used(at: int) -> Object:
    return make_pod(f"used-{at}", cpu="2", node=f"n{at}")


def attempts(core: SchedulerCore) -> int:
    return core.queue.moves["unschedulable", "ScheduleAttemptFailure"]


def test_room_for_one_member_makes_no_gang_try_and_room_for_all_makes_one_of_them() -> None:
    core = full_core(3, waiting_gangs())
    assert attempts(core) == 3
    core.cache.apply_pods(gone(used(0)))
    assert work(core, 100.0) == {}
    assert attempts(core) == 3
    core.cache.apply_pods(gone(used(1)))
    assert set(work(core, 200.0)) == {"default/g0-0", "default/g0-1"}
    assert attempts(core) == 3
    core.cache.apply_pods(gone(used(2)))
    core.cache.apply_pods([Change("DELETED", core.cache.pods["default/g0-0"].pod, None)])
    assert set(work(core, 300.0)) == {"default/g1-0", "default/g1-1"}


def test_a_gang_that_has_slept_for_long_tries_though_nothing_helps_it() -> None:
    core = full_core(3, waiting_gangs(count=1))
    core.cache.apply_pods(gone(used(0)))
    assert work(core, 100.0) == {}
    assert attempts(core) == 1
    assert core.queue.flush(1000.0) == 1
    assert work(core, 1000.0) == {}
    assert attempts(core) == 2


def test_room_in_two_domains_makes_no_gang_try_that_needs_one() -> None:
    core = full_core(4, waiting_gangs(in_rack=True), racks=2)
    core.cache.apply_pods(gone(used(0)))
    core.cache.apply_pods(gone(used(1)))
    assert work(core, 100.0) == {}
    assert attempts(core) == 3
    core.cache.apply_pods(gone(used(2)))
    assert work(core, 200.0) == {"default/g0-0": "n0", "default/g0-1": "n2"}


def test_a_gang_that_may_preempt_tries_again_as_soon_as_one_member_fits() -> None:
    never = make_pod("held", cpu="2", node="n1", priority=9)
    core = core_with(*(make_node(f"n{at}", cpu="2") for at in range(2)))
    core.cache.apply_pods(added(make_pod("held-0", cpu="2", node="n0", priority=9), never))
    core.cache.apply_pod_groups(added(make_group("g0", min_count=2)))
    core.cache.apply_pods(added(*(make_pod(f"g0-{at}", cpu="2", group="g0", priority=5) for at in range(2))))
    assert work(core) == {}
    core.cache.apply_nodes(added(make_node("n2", cpu="2")))
    core.cache.apply_pods(added(make_pod("low", cpu="1", node="n2", priority=1)))
    core.cache.apply_pods(gone(never))
    core.settle(100.0)
    plans = [verdict.plan for verdict in core.decide(100.0) if verdict.plan is not None]
    assert [plan.evicted for plan in plans] == [("default/low",)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_no_gang_sleeps_while_it_fits(ends: list[int], racks: int, constrained: bool) -> None:
    core = full_core(6, waiting_gangs(in_rack=constrained), racks=racks)
    for turn, at in enumerate(ends):
        core.cache.apply_pods(gone(used(at)))
        work(core, 100.0 * (turn + 1))
    free = [at for at in range(6) if not core.cache.state.snapshot().placed.get(f"n{at}")]
    by_rack = Counter(at % racks if constrained else 0 for at in free)
    placed = sum(record.node != "" for key, record in core.cache.pods.items() if key.startswith("default/g"))
    assert placed == 6 or max(by_rack.values(), default=0) < 2


@pytest.mark.parametrize("lift", ["taint", "cordon", "pod", "room"])
def test_what_is_lifted_in_another_domain_than_the_most_promising_one_wakes_a_gang(lift: str) -> None:
    """A refusal tells what is wrong in one domain; the others may lack something else."""
    taints: list[Object] = [{"key": "maintenance", "effect": "NoSchedule"}] if lift == "taint" else []
    first = [make_node(f"n{at}", cpu="2", labels={"rack": "r0", "kind": "wrong"}) for at in range(3)]
    cpu = "1" if lift == "room" else "2"
    second = [
        make_node(f"m{at}", cpu=cpu, labels={"rack": "r1"}, taints=taints, unschedulable=lift == "cordon")
        for at in range(2)
    ]
    core = core_with(*first, *second)
    others = [make_pod(f"used-{at}", cpu="2", node=f"n{at}") for at in range(3)]
    others += [make_pod(f"there-{at}", cpu="1", node=f"m{at}") for at in range(2)] if lift == "pod" else []
    core.cache.apply_pods(added(*others))
    gang = waiting_gangs(1, in_rack=True)
    core.cache.apply_pod_groups(added(gang[0]))
    core.cache.apply_pods(added(*gang[1:]))
    assert work(core) == {}
    if lift == "pod":
        for at in range(2):
            core.cache.apply_pods(gone(others[3 + at]))
    else:
        free = [make_node(f"m{at}", cpu="2", labels={"rack": "r1"}) for at in range(2)]
        core.cache.apply_nodes([Change("MODIFIED", old, new) for old, new in zip(second, free, strict=True)])
    assert work(core, 100.0) == {"default/g0-0": "m0", "default/g0-1": "m1"}


def away(node: Object) -> Object:
    tainted = copy_object(node)
    tainted["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    return tainted


def preempting(core: SchedulerCore, *thieves: Object) -> tuple[list[Object], list[Object]]:
    """Two full nodes and a gang for which all pods there go, one node being unreachable by then; nodes and victims.

    `thieves`: pods that others bind there meanwhile.
    """
    nodes = [make_node(f"n{at}", cpu="2") for at in range(2)]
    victims = [used(at) for at in range(2)]
    core.cache.apply_nodes(added(*nodes))
    core.cache.apply_pods(added(*victims))
    core.cache.apply_pod_groups(added(make_group("g0", min_count=2)))
    core.cache.apply_pods(added(*(make_pod(f"g0-{at}", cpu="2", group="g0", priority=5) for at in range(2))))
    core.settle(0.0)
    assert [len(verdict.victims) for verdict in core.decide(0.0)] == [2]
    core.cache.apply_nodes([Change("MODIFIED", nodes[0], away(nodes[0]))])
    core.cache.apply_pods(added(*thieves))
    for victim in victims:
        core.cache.apply_pods(gone(victim))
    assert work(core, 100.0) == {}
    return nodes, victims


def test_room_is_kept_on_a_node_that_ends_its_pods_before_it_is_ready_again() -> None:
    core = SchedulerCore(SchedulerOptions())
    nodes, _ = preempting(core)
    core.cache.apply_pods(added(make_pod("same", cpu="2", priority=5)))
    assert work(core, 101.0) == {}
    core.cache.apply_nodes([Change("MODIFIED", away(nodes[0]), nodes[0])])
    assert work(core, 110.0) == {"default/g0-0": "n0", "default/g0-1": "n1"}


def test_room_is_not_kept_for_long_on_a_node_that_does_not_come_back() -> None:
    core = SchedulerCore(SchedulerOptions())
    preempting(core)
    core.cache.apply_pods(added(make_pod("same", cpu="2", priority=5)))
    assert work(core, 101.0) == {}
    core.queue.flush(1000.0)
    assert {**work(core, 1000.0), **work(core, 1100.0)} == {"default/same": "n1"}


@pytest.mark.parametrize("how", ["cordoned", "gone"])
def test_room_is_not_kept_on_a_node_that_is_taken_away(how: str) -> None:
    core = SchedulerCore(SchedulerOptions())
    nodes, _ = preempting(core)
    core.cache.apply_pods(added(make_pod("same", cpu="2", priority=5)))
    if how == "gone":
        core.cache.apply_nodes([Change("DELETED", away(nodes[0]), None)])
    else:
        core.cache.apply_nodes([Change("MODIFIED", away(nodes[0]), make_node("n0", cpu="2", unschedulable=True))])
    core.queue.flush(1000.0)
    assert {**work(core, 1000.0), **work(core, 1100.0)} == {"default/same": "n1"}


def test_room_is_kept_on_a_node_that_comes_back_though_somebody_lesser_took_a_part_of_it() -> None:
    core = SchedulerCore(SchedulerOptions())
    nodes, _ = preempting(core, make_pod("thief", cpu="1", node="n1"))
    core.cache.apply_pods(added(make_pod("same", cpu="1", priority=5)))
    assert work(core, 101.0) == {}
    core.cache.apply_nodes([Change("MODIFIED", away(nodes[0]), nodes[0])])
    core.settle(110.0)
    assert [plan.evicted for verdict in core.decide(110.0) if (plan := verdict.plan) is not None] == [
        ("default/thief",)
    ]


def test_a_gang_for_which_others_may_be_moved_tries_again_as_soon_as_one_member_fits() -> None:
    core = SchedulerCore(SchedulerOptions(allow_consolidation=True))
    core.cache.apply_nodes(added(*(make_node(f"n{at}", cpu="2") for at in range(3))))
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}]
    movable = make_pod("web", cpu="1", node="n0")
    movable["metadata"]["ownerReferences"] = owner
    core.cache.apply_pods(added(movable, used(1), used(2)))
    core.cache.apply_pods(added(make_pod("half", cpu="1", node="n0")))
    core.cache.apply_pod_groups(added(make_group("g0", min_count=2)))
    core.cache.apply_pods(added(*(make_pod(f"g0-{at}", cpu="2", group="g0") for at in range(2))))
    assert work(core) == {}
    small = make_node("n3", cpu="1")
    core.cache.apply_nodes(added(small))
    core.cache.apply_pods(gone(make_pod("half", cpu="1", node="n0")))
    core.cache.apply_pods(gone(used(1)))
    core.settle(100.0)
    plans = [verdict.plan for verdict in core.decide(100.0) if verdict.plan is not None]
    assert [plan.evicted for plan in plans] == [("default/web",)]
