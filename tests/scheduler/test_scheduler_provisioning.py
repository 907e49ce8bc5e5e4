"""Stories of ProvisioningRequests: one for each gang that lacks room, from an autoscaler that provides at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from test_scheduler_autoscaling import asking
from test_scheduler_grouping import define, owned
from test_scheduler_stories import World, gang, run

from muster.api.codec import Object, Objects
from muster.api.grouping import default_grouping
from muster.api.meta import has_condition, name_of, uid_of
from muster.api.resource import COMPOSITE_POD_GROUPS, EVENTS, JOBS, PODS, PRIORITY_CLASSES
from muster.client.informer import Change, Informer
from muster.clock import rfc3339
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.provisioning.objects import (
    CLASS_KEY,
    CONSUMES_KEY,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    ProvisioningTerms,
)
from muster.scheduler.provisioning.planning import FIRST_PAUSE_S
from muster.testing import make_group, make_job, make_node, make_pod

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
OPTIONS = SchedulerOptions(provisioning=ProvisioningTerms(CLASS), grouping=default_grouping())


async def requests(world: World) -> Objects:
    return (await world.client.list(PROVISIONING_REQUESTS)).items


async def templates(world: World) -> dict[str, Object]:
    return {name_of(each): each for each in (await world.client.list(POD_TEMPLATES)).items}


async def say(world: World, request: Object, type_: str) -> None:
    said = (request.get("status") or {}).get("conditions") or []
    now = rfc3339(world.clock.now())
    entry = {"type": type_, "status": "True", "reason": type_, "message": type_.lower(), "lastTransitionTime": now}
    patch = {"status": {"conditions": [*said, entry]}}
    await world.client.patch(PROVISIONING_REQUESTS, "default", name_of(request), patch)


async def with_kind(world: World) -> None:
    await define(world.client, world.clock, PROVISIONING_REQUESTS)
    await world.stop()
    world.start()
    await world.clock.sleep(1)


@asynccontextmanager
async def autoscaler(world: World) -> AsyncIterator[None]:
    """Makes a node for each pod of each request, then says so; looks at pods no more than cluster-autoscaler would."""
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()

    async def provide(request: Object) -> None:
        await world.clock.sleep(20)
        known = await templates(world)
        for podset in request["spec"]["podSets"]:
            spec = known[podset["podTemplateRef"]["name"]]["template"]["spec"]
            gpus = spec["containers"][0]["resources"]["requests"]["nvidia.com/gpu"]
            await world.create(
                *(make_node(f"{name_of(request)}-{gpus}-{at}", gpu=gpus) for at in range(podset["count"]))
            )
        await say(world, request, "Provisioned")

    def arrived(changes: list[Change]) -> None:
        tasks.extend(loop.create_task(provide(change.object)) for change in changes if change.type == "ADDED")

    informer = Informer(world.client, world.clock, PROVISIONING_REQUESTS)
    informer.add_handler(arrived)
    tasks.append(loop.create_task(informer.run()))
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_gang_that_lacks_room_asks_once_for_all_of_it_and_runs() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        group, *pods = gang("a", 4, gpu=1)
        pods += [make_pod("a-leader", group="a", gpu=2)]
        async with autoscaler(world):
            await world.create(group, *pods)
            await world.clock.sleep(10)
            (request,) = await requests(world)
            assert request["spec"]["provisioningClassName"] == CLASS
            assert sorted(each["count"] for each in request["spec"]["podSets"]) == [1, 4]
            assert request["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
            assert len(await templates(world)) == 2
            for pod in (await world.client.list(PODS)).items:
                assert pod["metadata"]["annotations"] == {CONSUMES_KEY: name_of(request), CLASS_KEY: CLASS}
            await world.clock.sleep(40)
        assert len(await world.nodes_of("a")) == 5
        assert await requests(world) == []
        assert await templates(world) == {}
        said = [each["reason"] for each in (await world.client.list(EVENTS)).items if "Provision" in each["reason"]]
        assert said == ["ProvisioningRequestCreated", "ProvisioningRequestProvisioned"]

    run(story, options=OPTIONS)


def test_pods_are_marked_before_they_say_that_they_wait() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        seen: list[bool] = []

        def note(changes: list[Change]) -> None:
            for change in changes:
                if has_condition(change.object, "PodScheduled", "False"):
                    seen.append(CONSUMES_KEY in (change.object["metadata"].get("annotations") or {}))

        informer = Informer(world.client, world.clock, PODS)
        informer.add_handler(note)
        task = asyncio.get_running_loop().create_task(informer.run())
        await world.create(make_node("n0", gpu=1), *gang("a", 3, gpu=1))
        await world.clock.sleep(10)
        task.cancel()
        assert seen
        assert all(seen)

    run(story, options=OPTIONS)


def test_gangs_that_fit_are_held_or_wait_for_victims_and_plain_pods_ask_for_nothing() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        high = {"apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "high"}, "value": 9}
        await world.client.create(PRIORITY_CLASSES, None, high)
        await world.create(make_node("n0", gpu=4), *gang("fits", 2, gpu=1), *gang("few", 2, min_count=3, gpu=1))
        await world.create(make_pod("plain", gpu=9))
        await world.clock.sleep(10)
        wanted = make_group("victims", min_count=3, priorityClassName="high")
        pods = [make_pod(f"v-{at}", group="victims", gpu=1, spec={"priorityClassName": "high"}) for at in range(3)]
        await world.create(wanted, *pods)
        await world.clock.sleep(10)
        assert await requests(world) == []
        assert await asking(world) == ["plain"]

    run(story, options=OPTIONS)


def test_a_request_goes_with_its_gang() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        await world.create(make_node("n0", gpu=1), *gang("a", 2, gpu=1), *gang("b", 3, gpu=1))
        await world.clock.sleep(10)
        assert len(await requests(world)) == 2
        for name in ("a-0", "a-1", "b-0"):
            await world.delete_pod(name)
        await world.clock.sleep(30)
        assert await requests(world) == []
        assert await templates(world) == {}

    run(story, options=OPTIONS)


def test_a_request_that_failed_is_made_anew_later_and_people_are_told() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        await world.create(make_node("n0", gpu=1), *gang("a", 2, gpu=1))
        await world.clock.sleep(10)
        (first,) = await requests(world)
        await say(world, first, "Failed")
        await world.clock.sleep(FIRST_PAUSE_S - 10)
        assert [uid_of(each) for each in await requests(world)] == [uid_of(first)]
        await world.clock.sleep(20)
        (second,) = await requests(world)
        assert name_of(second) == name_of(first)
        assert uid_of(second) != uid_of(first)
        reasons = [each["reason"] for each in (await world.client.list(EVENTS)).items]
        assert reasons.count("ProvisioningRequestFailed") == 1

    run(story, options=OPTIONS)


def test_a_restart_takes_the_request_over() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        await world.create(make_node("n0", gpu=1), *gang("a", 2, gpu=1))
        await world.clock.sleep(10)
        (first,) = await requests(world)
        await world.stop()
        world.start()
        await world.clock.sleep(30)
        assert [uid_of(each) for each in await requests(world)] == [uid_of(first)]
        await world.create(make_node("n1", gpu=1))
        await world.clock.sleep(10)
        assert len(await world.nodes_of("a")) == 2
        assert await requests(world) == []

    run(story, options=OPTIONS)


def test_a_restart_removes_the_request_of_a_gang_that_is_gone() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        await world.create(make_node("n0", gpu=1), *gang("a", 2, gpu=1))
        await world.clock.sleep(10)
        await world.stop()
        for name in ("a-0", "a-1"):
            await world.delete_pod(name)
        world.start()
        await world.clock.sleep(10)
        assert await requests(world) == []

    run(story, options=OPTIONS)


def test_the_request_for_a_job_that_is_a_gang_by_rule_belongs_to_the_job() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        await world.create(make_node("n0", gpu=1))
        job = await world.client.create(JOBS, "default", make_job("train", parallelism=3, indexed=True))
        await world.create(*(owned(f"train-{at}", job) for at in range(3)))
        await world.clock.sleep(10)
        (request,) = await requests(world)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid_of(job)}
        assert request["metadata"]["ownerReferences"] == [owner]

    run(story, options=OPTIONS)


def test_a_tree_of_groups_is_asked_for_as_a_whole() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        policy = {"gang": {"minGroupCount": 2}}
        reference = {"workloadName": "w", "templateName": "t"}
        root = {"kind": "CompositePodGroup", "metadata": {"name": "root"}, "apiVersion": "scheduling.k8s.io/v1alpha3"}
        spec = {"workloadRef": reference, "schedulingPolicy": policy}
        await world.client.create(COMPOSITE_POD_GROUPS, "default", {**root, "spec": spec})
        await world.create(make_node("n0", gpu=3))
        for name in ("a", "b"):
            group = make_group(name, min_count=2, parentCompositePodGroupName="root", workloadRef=reference)
            await world.create(group, *(make_pod(f"{name}-{at}", group=name, gpu=1) for at in range(2)))
        await world.clock.sleep(10)
        assert await asking(world) == ["a-0", "a-1", "b-0", "b-1"]
        (request,) = await requests(world)
        assert [each["count"] for each in request["spec"]["podSets"]] == [4]
        assert request["metadata"]["ownerReferences"][0]["kind"] == "CompositePodGroup"
        marks = [pod["metadata"]["annotations"][CONSUMES_KEY] for pod in (await world.client.list(PODS)).items]
        assert marks == [name_of(request)] * 4
        await world.create(make_node("n1", gpu=1))
        await world.clock.sleep(30)
        assert len(await world.nodes_of()) == 4
        assert await requests(world) == []

    run(story, options=OPTIONS)


def test_a_gang_for_which_somebody_else_asked_is_left_alone() -> None:
    async def story(world: World) -> None:
        await with_kind(world)
        group, *pods = gang("a", 2, gpu=1)
        for pod in pods:
            pod["metadata"]["annotations"] = {CONSUMES_KEY: "of-kueue"}
        await world.create(make_node("n0", gpu=1), group, *pods)
        await world.clock.sleep(10)
        assert await requests(world) == []
        assert (await world.client.get(PODS, "default", "a-0"))["metadata"]["annotations"] == {CONSUMES_KEY: "of-kueue"}

    run(story, options=OPTIONS)


@pytest.mark.parametrize("provisioning", [None, ProvisioningTerms(CLASS)])
def test_without_the_option_or_the_kind_nothing_is_written(provisioning: ProvisioningTerms | None) -> None:
    async def story(world: World) -> None:
        if provisioning is None:
            await with_kind(world)
        await world.create(make_node("n0", gpu=1), *gang("a", 2, gpu=1))
        await world.clock.sleep(10)
        assert "annotations" not in (await world.client.get(PODS, "default", "a-0"))["metadata"]
        assert await asking(world) == ["a-0", "a-1"]
        if provisioning is None:
            assert await requests(world) == []

    run(story, options=replace(OPTIONS, provisioning=provisioning))
