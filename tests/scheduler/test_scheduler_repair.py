"""Gangs that are bound in part are finished or undone, those that were whole once are left alone."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
from test_scheduler_grouping import owned
from test_scheduler_stories import ALPHA1, Rule, World, gang, run

from muster.api.codec import Object
from muster.api.grouping import default_grouping
from muster.api.meta import is_deleting
from muster.api.resource import EVENTS, JOBS, PODS
from muster.client.informer import Change
from muster.scheduler.core import SchedulerCore
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.repair import FIRST_FENCE_S, JITTER, Repairs, is_rejection
from muster.testing import make_group, make_job, make_node, make_pod


async def bind(world: World, name: str, node: str) -> None:
    """Somebody else's binding."""
    metadata = {"name": name, "namespace": "default"}
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": node}}
    await world.client.create(PODS, "default", binding, name=name, subresource="binding")


async def reject(world: World, name: str) -> None:
    """What a kubelet says that has no room."""
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    await world.client.patch(PODS, "default", name, {"status": status}, subresource="status")


async def pods_left(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in (await world.client.list(PODS)).items]


async def reap(world: World, seconds: float) -> None:
    """Time passes, and a kubelet ends what is deleted."""
    for _ in range(round(seconds / 5)):
        await world.clock.sleep(5)
        for pod in (await world.client.list(PODS)).items:
            if is_deleting(pod):
                await world.delete_pod(pod["metadata"]["name"])


async def undone(world: World) -> list[str]:
    """The pods about which there is an event that their group was undone."""
    events = (await world.client.list(EVENTS)).items
    return sorted(event["involvedObject"]["name"] for event in events if event["reason"] == "PodGroupUndone")


async def half_bound(world: World, *nodes: Object) -> None:
    """A gang of three of which another scheduler (or this one, before it died) has bound one."""
    group, *pods = gang("a", 3, gpu=1)
    await world.create(*nodes, group, pods[0])
    await bind(world, "a-0", "n0")
    await world.create(*pods[1:])


def test_half_bound_gang_with_room_is_finished() -> None:
    async def story(world: World) -> None:
        await half_bound(world, make_node("n0", gpu=3))
        await world.clock.sleep(120)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2"]
        assert await undone(world) == []

    run(story)


def test_half_bound_gang_without_room_is_undone_once_with_an_event() -> None:
    async def story(world: World) -> None:
        await half_bound(world, make_node("n0", gpu=2))
        await world.clock.sleep(25)
        assert sorted(await world.nodes_of()) == ["a-0"]
        await reap(world, 300)
        assert await pods_left(world) == ["a-1", "a-2"]
        assert await world.nodes_of() == {}
        assert await undone(world) == ["a-0"]

    run(story)


def test_room_that_an_undone_gang_gives_back_goes_to_others() -> None:
    async def story(world: World) -> None:
        await half_bound(world, make_node("n0", gpu=2))
        await world.create(*gang("b", 2, gpu=1))
        await reap(world, 60)
        assert sorted(await world.nodes_of("b")) == ["b-0", "b-1"]

    run(story)


def test_without_a_limit_nothing_is_undone() -> None:
    async def story(world: World) -> None:
        await half_bound(world, make_node("n0", gpu=2))
        await world.clock.sleep(600)
        assert sorted(await world.nodes_of()) == ["a-0"]

    run(story, options=SchedulerOptions(repair_after_s=None))


def test_gang_that_was_whole_is_left_alone_when_it_loses_members() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *gang("a", 3, gpu=1))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await world.stop()
        world.start()
        await world.clock.sleep(300)
        assert sorted(await world.nodes_of()) == ["a-1", "a-2"]

    run(story)


def test_group_that_is_made_anew_while_its_members_run_is_left_alone() -> None:
    async def story(world: World) -> None:
        await half_bound(world, make_node("n0", gpu=1))
        await world.client.patch(
            PODS,
            "default",
            "a-0",
            {
                "status": {
                    "conditions": [
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2000-01-01T00:00:00Z"}
                    ]
                }
            },
            subresource="status",
        )
        await world.clock.sleep(300)
        assert sorted(await world.nodes_of()) == ["a-0"]

    run(story)


def test_gang_with_a_rejected_member_and_no_replacement_is_undone() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *gang("a", 3, gpu=1))
        await world.clock.sleep(5)
        await reject(world, "a-1")
        await reap(world, 120)
        assert await pods_left(world) == ["a-1"]
        assert await undone(world) == ["a-0", "a-2"]

    run(story)


def test_gang_whose_rejected_member_is_replaced_goes_on() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=4), *gang("a", 3, gpu=1))
        await world.clock.sleep(5)
        await reject(world, "a-1")
        await world.clock.sleep(5)
        await world.create(make_pod("a-9", group="a", gpu=1))
        await world.clock.sleep(120)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2", "a-9"]
        assert await undone(world) == []

    run(story)


def repairs(min_count: int = 2, after_s: float | None = 30.0) -> tuple[Repairs, SchedulerCore]:
    """A group of which one member is bound."""
    core = SchedulerCore(SchedulerOptions())
    core.cache.apply_nodes([Change("ADDED", None, make_node("n0"))])
    core.cache.apply_pod_groups([Change("ADDED", None, make_group("a", min_count=min_count))])
    core.cache.apply_pods([Change("ADDED", None, make_pod("a-0", group="a", node="n0"))])
    found = Repairs(core.cache, random.Random(1), after_s)
    found.touch("default/a")
    return found, core


def test_group_is_due_only_after_its_time_and_only_once() -> None:
    found, _ = repairs()
    assert found.due(100.0, lambda group: False) == []
    assert found.next_s(lambda group: False) == 130.0
    (undo,) = found.due(130.0, lambda group: False)
    assert 130.0 + FIRST_FENCE_S <= undo.fenced_until_s <= 130.0 + FIRST_FENCE_S * (1 + JITTER)
    assert [record.key for record in undo.members] == ["default/a-0"]
    found.touch("default/a")
    assert found.due(140.0, lambda group: False) == found.due(500.0, lambda group: False) == []


def test_group_that_waits_for_victims_gets_more_time_but_not_for_ever() -> None:
    found, _ = repairs()
    assert found.due(0.0, lambda group: True) == []
    assert found.due(149.0, lambda group: True) == []
    assert len(found.due(150.0, lambda group: True)) == 1


def test_fences_grow_with_every_undoing() -> None:
    found, core = repairs()
    lengths, now = [], 0.0
    for number in range(1, 5):
        found.touch("default/a")
        found.due(now, lambda group: False)
        (undo,) = found.due(now + 30, lambda group: False)
        lengths.append(undo.fenced_until_s - now - 30)
        now = undo.fenced_until_s
        core.cache.apply_pods([Change("DELETED", make_pod(f"a-{number - 1}", group="a", node="n0"), None)])
        next_pod = make_pod(f"a-{number}", group="a", node="n0")
        next_pod["metadata"]["uid"] = str(number)
        core.cache.apply_pods([Change("ADDED", None, next_pod)])
    for number, length in enumerate(lengths):
        assert FIRST_FENCE_S * 2**number <= length <= FIRST_FENCE_S * 2**number * (1 + JITTER)


@pytest.mark.parametrize(
    ("phase", "reason", "states", "want"),
    [
        ("Failed", "OutOfcpu", [], True),
        ("Failed", "OutOfnvidia.com/gpu", [], True),
        ("Failed", "NodeAffinity", [{"waiting": {}}], True),
        ("Failed", "OutOfcpu", [{"terminated": {}}], False),
        ("Failed", "Evicted", [], False),
        ("Running", "OutOfcpu", [], False),
    ],
)
def test_rejection_is_told_from_other_failures(phase: str, reason: str, states: list[Object], want: bool) -> None:
    status = {"phase": phase, "reason": reason, "containerStatuses": [{"state": state} for state in states]}
    assert is_rejection({"status": status}) is want


def test_pod_whose_room_another_scheduler_took_is_crowded_out() -> None:
    core = SchedulerCore(SchedulerOptions())
    core.cache.apply_nodes([Change("ADDED", None, make_node("n0", cpu="4"))])
    mine, free = make_pod("mine", cpu="3"), make_pod("free")
    core.cache.apply_pods([Change("ADDED", None, mine), Change("ADDED", None, free)])
    core.cache.assume("default/mine", "n0")
    core.cache.assume("default/free", "n0")
    assert not core.is_crowded_out("default/mine")
    core.cache.apply_pods([Change("ADDED", None, make_pod("thief", cpu="2", node="n0"))])
    assert core.is_crowded_out("default/mine")
    assert not core.is_crowded_out("default/free"), "it asks for nothing of what is short"


# -- groups without a PodGroup ---------------------------------------------------------------------------------------


async def of_template(world: World) -> list[Object]:
    """Pods of a template of a Workload, as Kubernetes 1.35 has them."""
    spec = {"podGroups": [{"name": "t", "policy": {"gang": {"minCount": 3}}}]}
    workload = {"apiVersion": ALPHA1.api_version, "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}
    await world.client.create(ALPHA1, "default", workload)
    return [make_pod(f"a-{at}", gpu=1, spec={"workloadRef": {"name": "w", "podGroup": "t"}}) for at in range(4)]


async def of_job(world: World) -> list[Object]:
    """Pods of a Job that is a gang by rule; the fourth one in the place of one that is lost."""
    job = await world.client.create(JOBS, "default", make_job("a", parallelism=3, indexed=True))
    return [owned(f"a-{at}", job) for at in range(4)]


WITHOUT_POD_GROUP = pytest.mark.parametrize("made", [of_template, of_job])
GROUPED = SchedulerOptions(grouping=default_grouping())
Made = Callable[[World], Awaitable[list[Object]]]


def only_first(binds: int) -> Rule:
    """A network that breaks before each binding after the first ones."""
    bound: set[str] = set()

    def rule(method: str, path: str, asked: int) -> str:
        if not path.endswith("/binding") or path in bound:
            return ""
        if len(bound) == binds:
            return "before"
        bound.add(path)
        return ""

    return rule


async def restart(world: World, rule: Rule = lambda method, path, asked: "") -> None:
    """Another scheduler, which knows what the API says."""
    await world.stop()
    world.rule = rule
    world.start()


@WITHOUT_POD_GROUP
def test_gang_left_half_bound_by_a_scheduler_that_died_is_finished_or_undone(made: Made) -> None:
    async def story(world: World) -> None:
        pods = await made(world)
        await world.create(make_node("n0", gpu=3), *pods[:3])
        await world.clock.sleep(1)
        assert len(await world.nodes_of("a")) == 1
        await restart(world, only_first(0))
        await world.clock.sleep(1)
        await restart(world)
        await world.clock.sleep(1)
        assert len(await world.nodes_of("a")) == 3
        assert await undone(world) == []

    run(story, options=GROUPED, rule=only_first(1))


@WITHOUT_POD_GROUP
def test_gang_left_half_bound_that_finds_no_room_is_undone(made: Made) -> None:
    async def story(world: World) -> None:
        pods = await made(world)
        await world.create(make_node("n0", gpu=3), *pods[:3])
        await world.clock.sleep(1)
        ((first, _),) = (await world.nodes_of("a")).items()
        await world.stop()
        await world.create(make_pod("other", gpu=2))
        await bind(world, "other", "n0")
        await restart(world)
        await reap(world, 60)
        assert await undone(world) == [first]
        assert await world.nodes_of("a") == {}

    run(story, options=GROUPED, rule=only_first(1))


@WITHOUT_POD_GROUP
@pytest.mark.parametrize("is_replaced", [False, True])
def test_gang_without_a_pod_group_that_was_whole_is_left_alone(made: Made, is_replaced: bool) -> None:
    """Also by another scheduler, which sees too few members on nodes and one that may wait."""

    async def story(world: World) -> None:
        pods = await made(world)
        await world.create(make_node("n0", gpu=3), *pods[:3])
        await world.clock.sleep(1)
        await world.stop()
        await world.delete_pod("a-0")
        await world.create(make_pod("other", gpu=1))
        await bind(world, "other", "n0")
        await world.create(*pods[3:] if is_replaced else ())
        await restart(world)
        await reap(world, 300)
        assert sorted(await world.nodes_of("a")) == ["a-1", "a-2"]
        assert await undone(world) == []

    run(story, options=GROUPED)


def test_gang_that_was_whole_when_it_was_smaller_is_left_alone() -> None:
    """A Job that was made larger has too few members on nodes, all of which are still there."""

    async def story(world: World) -> None:
        pods = await of_job(world)
        await world.create(make_node("n0", gpu=3), *pods[:3])
        await world.clock.sleep(1)
        await world.stop()
        await world.client.patch(JOBS, "default", "a", {"spec": {"parallelism": 4, "completions": 4}})
        await restart(world)
        await reap(world, 300)
        assert len(await world.nodes_of("a")) == 3

    run(story, options=GROUPED)
