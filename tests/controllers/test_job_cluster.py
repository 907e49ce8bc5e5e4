"""The Job controller on the embedded API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from muster.api.resource import EVENTS, JOBS, POD_GROUPS, PODS, WORKLOADS
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions, JobGroups
from muster.controllers.registry import ControllerService
from muster.testing.builders import make_job

Story = Callable[[Client, VirtualClock, Callable[[], ControllerService]], Awaitable[None]]


def play(story: Story, release: JobGroups = "1.36") -> None:
    """Tell a story on a cluster; the last argument of the story makes Job controllers."""

    async def main(clock: VirtualClock) -> None:
        rng = random.Random(0)
        server = ApiServer(MemoryStore(), clock, rng, ServerOptions(job_groups=release))
        client = Client(InProcessTransport(server))
        options = ControllerOptions(job_groups=release)
        await story(client, clock, lambda: ControllerService(client, clock, rng, options, ["job-controller"]))

    run_virtual(main)


def start(service: ControllerService) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(service.run())


async def counts(client: Client) -> tuple[int, int, int]:
    """How many Workloads, PodGroups and pods there are."""
    found = [len((await client.list(resource, "default")).items) for resource in (WORKLOADS, POD_GROUPS, PODS)]
    return (found[0], found[1], found[2])


def test_gang_with_a_long_name_gets_its_group() -> None:
    async def story(client: Client, clock: VirtualClock, make: Callable[[], ControllerService]) -> None:
        start(make())
        await client.create(JOBS, "default", make_job("j" * 61, parallelism=2, indexed=True))
        await clock.sleep(3)
        assert await counts(client) == (1, 1, 2)
        pods = (await client.list(PODS, "default")).items
        (group,) = (await client.list(POD_GROUPS, "default")).items
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {group["metadata"]["name"]}

    play(story)


def test_restart_at_any_moment_makes_nothing_twice() -> None:
    async def story(client: Client, clock: VirtualClock, make: Callable[[], ControllerService]) -> None:
        await client.create(JOBS, "default", make_job(parallelism=3, indexed=True))
        for turns in range(1, 60):
            task = start(make())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await clock.sleep(0.01)
        start(make())
        await clock.sleep(5)
        assert await counts(client) == (1, 1, 3)
        job = await client.get(JOBS, "default", "job")
        assert job["status"]["active"] == 3

    play(story)


def test_scaled_gang_takes_its_count_along() -> None:
    async def story(client: Client, clock: VirtualClock, make: Callable[[], ControllerService]) -> None:
        start(make())
        job = make_job(parallelism=2, indexed=True, scheduling={"schedulingPolicy": {"gang": {}}})
        await client.create(JOBS, "default", job)
        await clock.sleep(3)
        await client.patch(JOBS, "default", "job", {"spec": {"parallelism": 4, "completions": 4}})
        await clock.sleep(3)
        assert await counts(client) == (1, 1, 4)
        (group,) = (await client.list(POD_GROUPS, "default")).items
        (workload,) = (await client.list(WORKLOADS, "default")).items
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 4}}

    play(story, "1.37")


def test_plain_job_becomes_a_basic_group_in_1_37_also_when_suspended() -> None:
    async def story(client: Client, clock: VirtualClock, make: Callable[[], ControllerService]) -> None:
        start(make())
        await client.create(JOBS, "default", make_job(parallelism=2, suspend=True))
        await clock.sleep(3)
        assert await counts(client) == (1, 1, 0)
        (group,) = (await client.list(POD_GROUPS, "default")).items
        assert group["spec"]["schedulingPolicy"] == {"basic": {}}
        await client.patch(JOBS, "default", "job", {"spec": {"suspend": False}})
        await clock.sleep(3)
        assert await counts(client) == (1, 1, 2)
        told = {event["reason"] for event in (await client.list(EVENTS, "default")).items}
        assert {"WorkloadCreated", "PodGroupCreated", "Suspended", "Resumed", "SuccessfulCreate"} <= told

    play(story, "1.37")
