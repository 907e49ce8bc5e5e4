"""Decisions beside the event loop: what happens meanwhile, and answers that come too late."""

from __future__ import annotations

import asyncio
import random

import pytest

from muster.api.codec import Object
from muster.api.resource import NODES, POD_GROUPS, PODS
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.informer import Change
from muster.clock import RealClock
from muster.scheduler.apart import Apart
from muster.scheduler.core import SchedulerCore
from muster.scheduler.options import PlacementMode, SchedulerOptions
from muster.scheduler.preemption.apart import Planning
from muster.scheduler.queue import Place
from muster.scheduler.service import Scheduler
from muster.testing import make_group, make_node, make_pod


def added(*objects: Object) -> list[Change]:
    return [Change("ADDED", None, obj) for obj in objects]


def mixed(name: str, large: int = 2, small: int = 1, min_count: int = 2) -> tuple[Object, list[Object]]:
    """A gang of two members that differ."""
    pods = [make_pod(f"{name}-0", group=name, cpu=str(large)), make_pod(f"{name}-1", group=name, cpu=str(small))]
    return make_group(name, min_count=min_count), pods


class World:
    """A core that decides heavy questions apart; they are computed when the test says so."""

    def __init__(self, *nodes: Object, placement: PlacementMode = "exact") -> None:
        self.core = SchedulerCore(SchedulerOptions(decide_in_thread=True, placement=placement))
        self.core.cache.apply_nodes(added(*nodes))
        self.placed: dict[str, str] = {}
        self.now = 0.0

    def create(self, *pods: Object, group: Object | None = None) -> None:
        if group is not None:
            self.core.cache.apply_pod_groups(added(group))
        self.core.cache.apply_pods(added(*pods))

    def decide(self) -> list[Apart | Planning]:
        """Everything that is decided on the loop; what is not."""
        self.now += 20.0
        self.core.settle(self.now)
        apart: list[Apart | Planning] = []
        while self.core.queue.has_ready:
            for verdict in self.core.decide(self.now):
                self.placed.update((each.pod, each.node) for each in verdict.placements)
            apart += self.core.take_apart()
        return apart

    def conclude(self, apart: Apart | Planning) -> list[str]:
        """The pods that are evicted."""
        self.core.settle(self.now)
        victims: list[str] = []
        for verdict in self.core.conclude(apart, apart.compute(), self.now):
            self.placed.update((each.pod, each.node) for each in verdict.placements)
            victims += [victim.record.key for victim in verdict.victims]
        return victims


def world_with_a_question(*nodes: Object, large: int = 2) -> tuple[World, Apart | Planning]:
    world = World(*nodes)
    group, pods = mixed("a", large=large)
    world.create(*pods, group=group)
    (apart,) = world.decide()
    return world, apart


def test_cheap_pods_do_not_wait_for_a_heavy_question() -> None:
    world, apart = world_with_a_question(make_node(cpu="8"))
    world.create(make_pod("cheap", cpu="1"))
    assert world.decide() == []
    assert list(world.placed) == ["default/cheap"]
    world.conclude(apart)
    assert sorted(world.placed) == ["default/a-0", "default/a-1", "default/cheap"]
    assert world.core.queue.entity("group:default/a") is None


def test_an_answer_whose_room_was_taken_meanwhile_is_found_anew() -> None:
    world, apart = world_with_a_question(make_node("n0", cpu="3"))
    answer = apart.compute()
    world.create(make_pod("thief", cpu="1"))
    world.decide()
    world.core.conclude(apart, answer, world.now)
    assert list(world.placed) == ["default/thief"]
    assert world.decide() == []  # decided on the loop: it cannot come too late again
    assert world.core.queue.count(Place.WAITING) == 1


def test_a_no_that_is_out_of_date_is_asked_again() -> None:
    world, apart = world_with_a_question(make_node("n0", cpu="2"))
    answer = apart.compute()
    world.core.cache.apply_nodes(added(make_node("n1", cpu="2")))
    world.core.settle(world.now)
    assert world.core.conclude(apart, answer, world.now) == []
    assert world.decide() == []
    assert sorted(world.placed) == ["default/a-0", "default/a-1"]


def test_a_no_that_stands_is_a_rejection() -> None:
    world, apart = world_with_a_question(make_node("n0", cpu="2"))
    world.conclude(apart)
    assert world.core.queue.count(Place.WAITING) == 1
    assert world.placed == {}


def test_members_that_changed_meanwhile_are_decided_with_what_is_known_then() -> None:
    world, apart = world_with_a_question(make_node(cpu="8"))
    world.create(make_pod("a-2", group="a", cpu="1"))
    world.conclude(apart)
    assert world.placed == {}
    world.decide()
    assert sorted(world.placed) == ["default/a-0", "default/a-1", "default/a-2"]


def test_a_group_that_went_away_meanwhile_places_nothing() -> None:
    world, apart = world_with_a_question(make_node(cpu="8"))
    pods = [world.core.cache.pods[key].pod for key in ("default/a-0", "default/a-1")]
    world.core.cache.apply_pods([Change("DELETED", pod, None) for pod in pods])
    world.conclude(apart)
    assert world.placed == {}


def test_a_fault_beside_the_loop_fails_its_group_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **named: object) -> object:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("muster.scheduler.answers.decide", broken)
    world, apart = world_with_a_question(make_node(cpu="8"))
    (verdict,) = world.core.conclude(apart, apart.compute(), world.now)
    assert verdict.rejection is not None
    assert verdict.rejection.message == "RuntimeError: out of luck"
    assert world.core.queue.count(Place.ERROR_BACKOFF) == 1


def test_groups_of_one_shape_are_decided_on_the_loop() -> None:
    world = World(make_node(cpu="8"))
    world.create(
        *(make_pod(f"a-{index}", group="a", cpu="1") for index in range(2)), group=make_group("a", min_count=2)
    )
    assert world.decide() == []
    assert len(world.placed) == 2


# Plans of preemption


def running(name: str, node: str, cpu: str = "2") -> Object:
    return make_pod(name, node=node, cpu=cpu, priority=0)


def world_with_a_plan(*pods: Object, placement: PlacementMode = "exact") -> tuple[World, Planning]:
    """Two full nodes, and a gang of priority 10 that wants one of them; its plan is not made yet."""
    world = World(make_node("n0", cpu="2"), make_node("n1", cpu="2"), placement=placement)
    world.create(*(pods or (running("r0", "n0"), running("r1", "n1"))))
    gang = [make_pod(f"a-{at}", group="a", cpu="1", priority=10) for at in range(2)]
    world.create(*gang, group=make_group("a", min_count=2, priority=10))
    (planning,) = world.decide()
    assert isinstance(planning, Planning)
    return world, planning


@pytest.mark.parametrize("placement", ["exact", "upstream-1.36", "upstream-1.37"])
def test_a_plan_is_made_beside_the_loop_and_carried_out(placement: PlacementMode) -> None:
    world, planning = world_with_a_plan(placement=placement)
    world.create(make_pod("cheap", cpu="0"))
    assert world.decide() == []
    assert list(world.placed) == ["default/cheap"]
    victims = world.conclude(planning)
    assert set(victims) <= {"default/r0", "default/r1"}
    assert len(victims) == (2 if placement == "upstream-1.37" else 1)
    assert "group:default/a" in world.core.preemptions
    assert world.decide() == []  # it waits for its victim, and nobody else goes for it


@pytest.mark.parametrize("change", ["the victim is gone", "room came up", "a member is gone"])
def test_a_plan_that_came_too_late_is_made_anew_on_the_loop(change: str) -> None:
    world, planning = world_with_a_plan()
    found = planning.compute()
    if change == "the victim is gone":
        world.core.cache.apply_pods([Change("DELETED", running("r0", "n0"), None)])
    elif change == "room came up":
        world.core.cache.apply_nodes(added(make_node("n2", cpu="2")))
    else:
        world.core.cache.apply_pods([Change("DELETED", world.core.cache.pods["default/a-1"].pod, None)])
    world.core.settle(world.now)

    victims = [each for verdict in world.core.conclude(planning, found, world.now) for each in verdict.victims]

    assert victims == []
    assert world.decide() == []  # planned on the loop: it cannot come too late again
    assert len(world.placed) == (0 if change == "a member is gone" else 2)


@pytest.mark.parametrize("placement", ["upstream-1.36", "upstream-1.37"])
def test_victims_by_upstreams_rules_that_are_gone_meanwhile_are_looked_for_anew(placement: PlacementMode) -> None:
    world, planning = world_with_a_plan(placement=placement)
    found = planning.compute()
    gone = [running(f"r{at}", f"n{at}") for at in range(2)]
    world.core.cache.apply_pods([Change("DELETED", pod, None) for pod in gone])
    world.core.settle(world.now)

    assert [each for verdict in world.core.conclude(planning, found, world.now) for each in verdict.victims] == []
    assert world.decide() == []
    assert sorted(world.placed) == ["default/a-0", "default/a-1"]


def test_no_plan_that_is_out_of_date_is_looked_for_again() -> None:
    world, planning = world_with_a_plan(running("r0", "n0", "1"), make_pod("r1", node="n1", cpu="2", priority=99))
    world.core.cache.apply_nodes(added(make_node("n2", cpu="2")))
    world.core.settle(world.now)
    assert world.conclude(planning) == []
    world.decide()
    assert sorted(world.placed) == ["default/a-0", "default/a-1"]


def test_a_live_scheduler_binds_what_a_thread_decided() -> None:
    async def main() -> dict[str, str]:
        clock = RealClock()
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, random.Random(1))))
        scheduler = Scheduler(client, clock, random.Random(2), SchedulerOptions(decide_in_thread=True))
        running = asyncio.create_task(scheduler.run())
        await scheduler.ready.wait()
        group, pods = mixed("a")
        await client.create(NODES, None, make_node(cpu="8"))
        await client.create(POD_GROUPS, "default", group)
        for pod in pods:
            await client.create(PODS, "default", pod)
        bound: dict[str, str] = {}
        for _ in range(200):
            await asyncio.sleep(0.01)
            items = (await client.list(PODS)).items
            bound = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in items if pod["spec"].get("nodeName")}
            if len(bound) == 2:
                break
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bound

    assert asyncio.run(main()) == {"a-0": "node", "a-1": "node"}


def spread_pods(number: int) -> list[Object]:
    selector = {"matchLabels": {"app": "x"}}
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    pods = [make_pod(f"x-{at}", group="x", cpu="1", labels={"app": "x"}) for at in range(number)]
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"] = [constraint]
    return pods


def test_a_group_whose_members_have_rules_about_each_other_is_decided_apart_and_still_holds_afterwards() -> None:
    world = World(*(make_node(f"n{at}", cpu="8", labels={"zone": f"z{at}"}) for at in range(3)))
    world.create(*spread_pods(9), group=make_group("x", min_count=9))
    (apart,) = world.decide()

    world.conclude(apart)

    assert sorted(world.placed.values()) == ["n0"] * 3 + ["n1"] * 3 + ["n2"] * 3


class Ticking:
    """A clock on which a second passes whenever somebody looks at it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1.0
        return self.seconds

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        raise AssertionError("nobody sleeps")


@pytest.mark.parametrize(("limit_s", "want"), [(1.0, 0), (10_000.0, 4)])
def test_a_search_ends_when_its_seconds_are_over(limit_s: float, want: int) -> None:
    options = SchedulerOptions(decide_limit_s=limit_s)
    core = SchedulerCore(options, Ticking())
    zones = (("9", "a"), ("6", "b"), ("6", "b"))  # the first pod alone would go to zone a, which does not hold all
    core.cache.apply_nodes(
        added(*(make_node(f"n{at}", cpu=cpu, labels={"zone": z}) for at, (cpu, z) in enumerate(zones)))
    )
    pods = [make_pod(f"a-{at}", group="a", cpu="3", labels={"app": "x"}) for at in range(4)]
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    for pod in pods:
        pod["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    core.cache.apply_pod_groups(added(make_group("a", min_count=4)))
    core.cache.apply_pods(added(*pods))
    core.settle(1.0)

    placed = [each for verdict in core.decide(1.0) for each in verdict.placements]

    assert len(placed) == want
