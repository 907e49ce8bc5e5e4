"""Devices on the embedded server: claims are written before their pods are bound, for all of a gang or for none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from muster.api.codec import Object, Objects
from muster.api.meta import condition, name_of
from muster.api.resource import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import Body, Query, Response, Transport, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.service import Scheduler
from muster.testing import make_group, make_node, make_pod
from muster.testing.devices import (
    make_claim,
    make_claim_template,
    make_device_class,
    make_slice,
    pod_claim,
)

CONTROLLERS = ("resourceclaim-controller",)
RESOURCES = {
    each.kind: each
    for each in (
        DEVICE_CLASSES,
        NODES,
        POD_GROUPS,
        PODS,
        RESOURCE_CLAIM_TEMPLATES,
        RESOURCE_CLAIMS,
        RESOURCE_SLICES,
    )
}


@dataclass
class World:
    """An API server with a scheduler and the controller of claims."""

    clock: VirtualClock
    client: Client
    scheduler: Scheduler

    async def create(self, *objects: Object) -> None:
        for obj in objects:
            resource = RESOURCES[obj["kind"]]
            await self.client.create(resource, "default" if resource.namespaced else None, obj)
            if resource == NODES:
                await self.client.patch(NODES, None, name_of(obj), {"spec": {"taints": None}})

    async def all(self, resource: Resource) -> Objects:
        return list((await self.client.list(resource, "default")).items)

    async def nodes_of(self) -> dict[str, str | None]:
        return {name_of(pod): pod["spec"].get("nodeName") for pod in await self.all(PODS)}

    async def devices_of(self) -> dict[str, list[str]]:
        """The devices of each claim, as `pool/device`."""
        found: dict[str, list[str]] = {}
        for claim in await self.all(RESOURCE_CLAIMS):
            results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
            found[name_of(claim)] = [f"{each['pool']}/{each['device']}" for each in results]
        return found

    async def why(self, pod: str) -> str:
        entry = condition(await self.client.get(PODS, "default", pod), "PodScheduled") or {}
        message: str = entry.get("message", "")
        return message


Story = Callable[[World], Awaitable[None]]


def play(story: Story, options: SchedulerOptions | None = None) -> None:
    """Run a story in virtual time."""

    async def main(clock: VirtualClock) -> None:
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, random.Random(1))))
        scheduler = Scheduler(client, clock, random.Random(2), options)
        service = ControllerService(client, clock, random.Random(3), ControllerOptions(), CONTROLLERS)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(scheduler.run()), loop.create_task(service.run())]
        await clock.sleep(1)
        await story(World(clock, client, scheduler))
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main)


def cluster(*nodes: str, devices: int = 2) -> Objects:
    return [
        make_device_class("gpu"),
        *(each for node in nodes for each in (make_node(node), make_slice(node, devices))),
    ]


def test_claim_has_devices_finalizer_and_consumer_before_its_pod_is_bound() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a"), make_claim("one"), make_pod("p", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(5)
        claim = await world.client.get(RESOURCE_CLAIMS, "default", "one")
        pod = await world.client.get(PODS, "default", "p")
        assert pod["spec"]["nodeName"] == "a"
        assert await world.devices_of() == {"one": ["a/gpu-0"]}
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        consumer = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
        assert claim["status"]["reservedFor"] == [consumer]
        assert claim["status"]["allocation"]["allocationTimestamp"]

    play(story)


def test_pods_wait_for_devices_and_get_those_that_become_free() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a"), make_claim_template("one"))
        await world.create(*(make_pod(f"p{at}", spec=pod_claim("gpu", template="one")) for at in range(3)))
        await world.clock.sleep(5)
        placed = await world.nodes_of()
        assert sorted(map(str, placed.values())) == ["None", "a", "a"]
        left = next(name for name, node in placed.items() if node is None)
        assert "cannot allocate all claims" in await world.why(left)
        first = next(name for name, node in placed.items() if node)
        await world.client.delete(PODS, "default", first, {"gracePeriodSeconds": 0})
        await world.clock.sleep(60)
        assert (await world.nodes_of())[left] == "a"

    play(story)


def test_gang_gets_all_of_its_devices_or_none() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a", "b"), make_claim_template("one"), make_group("g", min_count=5))
        members = [make_pod(f"g{at}", group="g", spec=pod_claim("gpu", template="one")) for at in range(5)]
        await world.create(*members)
        await world.clock.sleep(5)
        assert set((await world.nodes_of()).values()) == {None}
        assert not any((await world.devices_of()).values())
        await world.create(make_node("c"), make_slice("c", 1))
        await world.clock.sleep(60)
        assert None not in (await world.nodes_of()).values()
        taken = [each for devices in (await world.devices_of()).values() for each in devices]
        assert len(taken) == len(set(taken)) == 5

    play(story)


def test_members_that_share_a_claim_go_where_its_devices_are() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a", "b"), make_claim("shared"), make_group("g", min_count=3))
        await world.create(*(make_pod(f"g{at}", group="g", spec=pod_claim("gpu", claim="shared")) for at in range(3)))
        await world.clock.sleep(5)
        assert len(set((await world.nodes_of()).values())) == 1
        claim = await world.client.get(RESOURCE_CLAIMS, "default", "shared")
        assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == ["g0", "g1", "g2"]

    play(story)


def test_claim_of_a_group_is_reserved_for_the_group() -> None:
    async def story(world: World) -> None:
        claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        group = make_group("g", min_count=2, resourceClaims=claims)
        await world.create(*cluster("a", "b"), make_claim_template("one"), group)
        await world.create(*(make_pod(f"g{at}", group="g", spec=pod_claim("gpu", template="one")) for at in range(2)))
        await world.clock.sleep(5)
        (claim,) = await world.all(RESOURCE_CLAIMS)
        assert [each["resource"] for each in claim["status"]["reservedFor"]] == ["podgroups"]
        assert claim["status"]["reservedFor"][0]["apiGroup"] == "scheduling.k8s.io"
        assert len(set((await world.nodes_of()).values())) == 1

    play(story)


class Refusing:
    """A transport that knows no pod to bind at first, and notes whether claims that are written have devices."""

    def __init__(self, inner: Transport, refusals: int) -> None:
        self.refusals = refusals
        self.written: list[bool] = []
        self._inner = inner

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if path.endswith("/binding") and self.refusals:
            self.refusals -= 1
            path = path.replace("/p/", "/nobody/")
        if path.endswith("/one/status") and isinstance(body, dict):
            self.written.append("allocation" in body["status"])
        return await self._inner.request(method, path, query=query, headers=headers, body=body)

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        return self._inner.watch(path, query=query)


def test_devices_of_pods_whose_binding_is_refused_are_given_back() -> None:
    async def story(world: World) -> None:
        refusing = world.client.transport = Refusing(world.client.transport, 2)
        await world.create(*cluster("a"), make_claim("one"), make_pod("p", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(60)
        assert refusing.written == [True, False, True, False, True]
        assert await world.nodes_of() == {"p": "a"}
        assert await world.devices_of() == {"one": ["a/gpu-0"]}

    play(story)


def test_extended_resource_becomes_a_claim_of_the_pod() -> None:
    async def story(world: World) -> None:
        await world.create(make_device_class("gpu", extended="nvidia.com/gpu"), make_node("a"), make_slice("a", 2))
        await world.create(make_pod("p", gpu=2))
        await world.clock.sleep(5)
        pod = await world.client.get(PODS, "default", "p")
        assert pod["spec"]["nodeName"] == "a"
        (claim,) = await world.all(RESOURCE_CLAIMS)
        assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == name_of(claim)
        assert await world.devices_of() == {name_of(claim): ["a/gpu-0", "a/gpu-1"]}
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
        await world.create(make_pod("q", gpu=1))
        await world.clock.sleep(5)
        assert (await world.nodes_of())["q"] is None

    play(story)


def test_pod_is_bound_once_its_devices_are_ready() -> None:
    async def story(world: World) -> None:
        slice_ = make_slice("a", 1, bindingConditions=["ready"], bindingFailureConditions=["broken"], bindsToNode=True)
        await world.create(make_device_class("gpu"), make_node("a"), slice_, make_claim("one"))
        await world.create(make_pod("p", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(5)
        assert await world.nodes_of() == {"p": None}
        claim = await world.client.get(RESOURCE_CLAIMS, "default", "one")
        result = claim["status"]["allocation"]["devices"]["results"][0]
        named = {name: result[name] for name in ("driver", "pool", "device")}
        entry = {"type": "ready", "status": "True", "reason": "Attached", "message": ""}
        entry["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        status = {**claim["status"], "devices": [{**named, "conditions": [entry]}]}
        await world.client.update(RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status")
        await world.clock.sleep(5)
        assert await world.nodes_of() == {"p": "a"}

    play(story)


def test_restart_finds_the_devices_that_were_given() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a", devices=1), make_claim("one"), make_claim("two"))
        await world.create(make_pod("p", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(5)
        other = Scheduler(world.client, world.clock, random.Random(5))
        task = asyncio.get_running_loop().create_task(other.run())
        await other.synced.wait()
        await world.create(make_pod("q", spec=pod_claim("gpu", claim="two")))
        await world.clock.sleep(5)
        assert (await world.nodes_of())["q"] is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(story)


def test_devices_of_a_group_are_taken_back_where_its_pods_have_no_room_any_more() -> None:
    async def story(world: World) -> None:
        group = make_group("train", min_count=2)
        group["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]

        async def begin(prefix: str) -> None:
            await world.create(
                *(make_pod(f"{prefix}{at}", group="train", spec=pod_claim("gpu", template="one")) for at in range(2))
            )
            await world.clock.sleep(30)

        await world.create(*cluster("a", "b"), make_claim_template("one"), group)
        await begin("p")
        nodes = await world.nodes_of()
        assert set(nodes.values()) == {"a"}

        await world.client.patch(NODES, None, "a", {"spec": {"unschedulable": True}})
        for name in nodes:
            await world.client.delete(PODS, "default", name, {"gracePeriodSeconds": 0})
        await begin("q")

        assert set((await world.nodes_of()).values()) == {"b"}
        assert [found for each in (await world.devices_of()).values() for found in each] == ["b/gpu-0"]

    play(story)


def test_devices_that_a_pod_uses_are_never_taken_back() -> None:
    async def story(world: World) -> None:
        await world.create(*cluster("a", "b"), make_claim("one"))
        await world.create(make_pod("user", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(5)
        await world.client.patch(NODES, None, "a", {"spec": {"unschedulable": True}})
        await world.create(make_pod("late", spec=pod_claim("gpu", claim="one")))
        await world.clock.sleep(60)

        assert await world.nodes_of() == {"user": "a", "late": None}
        assert await world.devices_of() == {"one": ["a/gpu-0"]}

    play(story)
