"""What autoscalers of nodes see: all members of a gang that could run ask for nodes in one voice, others do not ask.

The observer here is the rule of cluster-autoscaler (unschedulable pods: condition PodScheduled, False, Unschedulable;
pods with a nominated node wait for victims) and of Karpenter (`IsProvisionable`), which is the same in this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from test_scheduler_stories import World, gang, run

from muster.api.codec import Object
from muster.api.meta import condition, name_of
from muster.api.resource import PODS, PRIORITY_CLASSES
from muster.client.informer import Change, Informer
from muster.scheduler.options import SchedulerOptions
from muster.testing import make_group, make_node, make_pod

HOUR_S = 3600.0


def asks_for_a_node(pod: Object) -> bool:
    said, status = condition(pod, "PodScheduled") or {}, pod.get("status") or {}
    is_waiting = said.get("status") == "False" and said.get("reason") == "Unschedulable"
    return is_waiting and not pod["spec"].get("nodeName") and not status.get("nominatedNodeName")


async def asking(world: World) -> list[str]:
    return sorted(name_of(pod) for pod in (await world.client.list(PODS)).items if asks_for_a_node(pod))


async def words(world: World, *names: str) -> set[tuple[str, str]]:
    return {await world.said(name) for name in names}


@asynccontextmanager
async def watched(world: World) -> AsyncIterator[dict[str, list[Object]]]:
    """The conditions PodScheduled that pods had, one after the other; those with which they asked say so in `asks`."""
    seen: dict[str, list[Object]] = {}

    def note(changes: list[Change]) -> None:
        for change in changes:
            said = condition(change.object, "PodScheduled")
            before = seen.setdefault(name_of(change.object), [])
            entry = None if said is None else {**said, "asks": asks_for_a_node(change.object)}
            if entry is not None and (not before or before[-1] != entry):
                before.append(entry)

    informer = Informer(world.client, world.clock, PODS)
    informer.add_handler(note)
    task = asyncio.get_running_loop().create_task(informer.run())
    yield seen
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_all_members_of_a_gang_that_does_not_fit_ask_in_the_same_words() -> None:
    async def story(world: World) -> None:
        group, *pods = gang("a", 5, min_count=4, gpu=1)
        await world.create(make_node("n0", gpu=3), group, *pods[:4])
        await world.clock.sleep(5)
        assert await asking(world) == ["a-0", "a-1", "a-2", "a-3"]
        assert len(await words(world, "a-0", "a-1", "a-2", "a-3")) == 1
        await world.create(pods[4])
        await world.clock.sleep(15)
        assert await asking(world) == ["a-0", "a-1", "a-2", "a-3", "a-4"]
        ((reason, message),) = await words(world, *(f"a-{index}" for index in range(5)))
        assert reason == "Unschedulable"
        assert "pod group default/a is unschedulable" in message

    run(story)


def test_what_a_waiting_gang_says_does_not_change_with_each_retry() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *gang("a", 4, gpu=1))
        await world.clock.sleep(5)
        async with watched(world) as seen:
            for index in range(5):  # others come and go: each time there could be room
                await world.create(make_pod(f"other-{index}", cpu="1"))
                await world.clock.sleep(60)
                await world.finish(f"other-{index}")
            await world.clock.sleep(HOUR_S)
        assert {len(seen[f"a-{index}"]) for index in range(4)} == {1}

    run(story)


def test_status_reason_and_time_stay_while_the_room_changes() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *gang("a", 4, gpu=1))
        await world.clock.sleep(5)
        async with watched(world) as seen:
            await world.create(make_pod("other", gpu=1))
            await world.clock.sleep(30)
            await world.create(make_node("n1", cpu="1"))
            await world.clock.sleep(30)
            await world.finish("other")
            await world.delete_pod("other")
            await world.create(make_pod("another", gpu=2))
            await world.clock.sleep(400)  # nothing helps it, but after five minutes it is tried anyway
        for index in range(4):
            said = seen[f"a-{index}"]
            assert len(said) > 1  # the message counts nodes and what is free
            assert len({(each["status"], each["reason"], each["lastTransitionTime"]) for each in said}) == 1
        assert len(await words(world, *(f"a-{index}" for index in range(4)))) == 1

    run(story)


def test_who_waits_by_a_gate_or_for_members_asks_for_nothing() -> None:
    async def story(world: World) -> None:
        group, first, second = gang("gated", 2, gpu=1)
        second["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
        await world.create(make_node("n0", gpu=0), group, first, second)
        await world.create(*gang("few", 3, min_count=4, gpu=1))
        await world.create(make_pod("orphan", group="missing", gpu=1))
        await world.clock.sleep(30)
        assert await asking(world) == []
        await world.client.patch(PODS, "default", "gated-1", {"spec": {"schedulingGates": None}})
        await world.clock.sleep(30)
        assert await asking(world) == ["gated-0", "gated-1"]

    run(story)


def test_a_gang_that_lost_a_member_asks_no_more_until_it_is_replaced() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=1), *gang("a", 3, gpu=1))
        await world.clock.sleep(5)
        assert await asking(world) == ["a-0", "a-1", "a-2"]
        await world.delete_pod("a-1")
        await world.clock.sleep(10)
        assert await asking(world) == []
        await world.create(make_pod("a-3", group="a", gpu=1))
        await world.clock.sleep(10)
        assert await asking(world) == ["a-0", "a-2", "a-3"]
        assert len(await words(world, "a-0", "a-2", "a-3")) == 1

    run(story)


def test_a_gang_that_waits_for_its_victims_asks_for_no_nodes() -> None:
    async def story(world: World) -> None:
        await world.client.create(
            PRIORITY_CLASSES, None, {"apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "high"}, "value": 9}
        )
        low = [make_pod(f"low-{index}", gpu=1, spec={"terminationGracePeriodSeconds": 20}) for index in range(2)]
        await world.create(make_node("n0", gpu=2), *low)
        await world.clock.sleep(5)
        high = make_group("a", min_count=2, priorityClassName="high")
        pods = [make_pod(f"a-{at}", group="a", gpu=1, spec={"priorityClassName": "high"}) for at in range(2)]
        async with watched(world) as seen:
            await world.create(high, *pods)
            await world.clock.sleep(5)
            assert await asking(world) == []
            for name in ("low-0", "low-1"):
                await world.delete_pod(name)
            await world.clock.sleep(5)
        assert len(await world.nodes_of("a")) == 2
        assert [each["asks"] for name in ("a-0", "a-1") for each in seen[name] if each["asks"]] == []
        assert {seen[name][0]["reason"] for name in ("a-0", "a-1")} == {"Unschedulable"}

    run(story)


@pytest.mark.parametrize("free", [0, 1, 3])
def test_one_node_for_each_pod_that_asks_lets_the_whole_gang_run(free: int) -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(free)), make_node("cpu"))
        await world.create(*gang("a", 4, gpu=1))
        await world.clock.sleep(5)
        missing = len(await asking(world)) - free  # a simulation of the autoscaler finds room for the others
        await world.create(*(make_node(f"new-{index}", gpu=1) for index in range(missing)))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("a")) == 4
        assert await asking(world) == []

    run(story)


def test_no_member_of_many_large_gangs_is_left_without_a_condition() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=1))
        for name in ("a", "b", "c"):
            await world.create(*gang(name, 100, gpu=1))
        await world.clock.sleep(60)
        assert len(await asking(world)) == 300

    run(story, options=SchedulerOptions())
