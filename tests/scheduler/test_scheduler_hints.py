"""The condition of a PodGroup that cannot run names the reason and, where it is cheap to find, what would help."""

from __future__ import annotations

from test_scheduler_stories import World, gang, run

from muster.api.groups import INITIALLY_SCHEDULED
from muster.api.meta import condition
from muster.api.resource import POD_GROUPS
from muster.scheduler.options import SchedulerOptions
from muster.testing import make_group, make_node, make_pod


async def group_message(world: World, name: str) -> str:
    entry = condition(await world.client.get(POD_GROUPS, "default", name), INITIALLY_SCHEDULED) or {}
    return str(entry.get("message", ""))


def test_gang_of_like_pods_is_told_how_many_nodes_it_lacks_and_anew_when_that_changes() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=2), *gang("a", 6, gpu=1))
        await world.clock.sleep(20)
        assert (await group_message(world, "a")).endswith("; to run it: add 2 nodes like n0")
        await world.create(make_pod("other", gpu=1))
        await world.clock.sleep(20)
        await world.create(make_node("n1", gpu=2))
        await world.clock.sleep(20)
        assert (await group_message(world, "a")).endswith("; to run it: add 2 nodes like n0")

    run(story)


def test_gang_whose_pods_no_node_takes_is_told_nothing_of_nodes() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=2), *gang("a", 2, gpu=3))
        await world.clock.sleep(20)
        assert "to run it" not in await group_message(world, "a")

    run(story)


def test_gang_of_unlike_pods_and_a_quiet_scheduler_name_the_reason_alone() -> None:
    async def mixed(world: World) -> None:
        pods = [make_pod("a-0", group="a", cpu="20"), make_pod("a-1", group="a", cpu="21")]
        await world.create(make_node("n0"), make_group("a", min_count=2), *pods)
        await world.clock.sleep(20)
        said = await group_message(world, "a")
        assert "pod group default/a is unschedulable" in said
        assert "to run it" not in said

    async def quiet(world: World) -> None:
        await world.create(make_node("n0", gpu=2), *gang("a", 6, gpu=1))
        await world.clock.sleep(20)
        assert "to run it" not in await group_message(world, "a")

    run(mixed)
    run(quiet, options=SchedulerOptions(say_why_held=False))
