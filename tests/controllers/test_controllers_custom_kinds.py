"""Controllers that work on all kinds notice custom ones that come while they run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from muster.api.codec import Object
from muster.api.meta import name_of, uid_of
from muster.api.resource import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.testing.definitions import make_definition

Story = Callable[[Client, VirtualClock], Awaitable[None]]
TOYS = Resource("example.com", "v1", "toys", "Toy")


def play(story: Story) -> None:
    """Run a story on a server with the controllers of owners and namespaces."""

    async def main(clock: VirtualClock) -> None:
        rng = random.Random(7)
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, rng)))
        names = ("garbage-collector-controller", "namespace-controller")
        task = asyncio.get_running_loop().create_task(
            ControllerService(client, clock, rng, ControllerOptions(), names).run()
        )
        await clock.sleep(1)
        await story(client, clock)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main)


def toy(name: str, owner: Object | None = None) -> Object:
    metadata: Object = {"name": name}
    if owner is not None:
        kind = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        metadata["ownerReferences"] = [{**kind, "name": name_of(owner), "uid": uid_of(owner)}]
    return {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": metadata, "spec": {}}


async def install(client: Client, clock: VirtualClock) -> None:
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, make_definition("Toy"))
    await clock.sleep(1)


async def names(client: Client, resource: Resource) -> list[str]:
    return [name_of(obj) for obj in (await client.list(resource, "default")).items]


def test_custom_objects_go_with_their_owners() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await install(client, clock)
        parent = await client.create(TOYS, "default", toy("parent"))
        await client.create(TOYS, "default", toy("child", parent))
        settings = toy("settings", parent)
        await client.create(CONFIG_MAPS, "default", {**settings, "apiVersion": "v1", "kind": "ConfigMap"})
        await client.delete(TOYS, "default", "parent")
        await clock.sleep(2)
        assert await names(client, TOYS) == []
        assert await names(client, CONFIG_MAPS) == []

    play(story)


def test_custom_objects_go_with_their_namespace() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await install(client, clock)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await client.create(NAMESPACES, None, namespace)
        await client.create(TOYS, "team", toy("a"))
        await client.delete(NAMESPACES, None, "team")
        await clock.sleep(3)
        assert "team" not in [name_of(obj) for obj in (await client.list(NAMESPACES)).items]

    play(story)


def test_a_kind_may_go_and_come_back() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        for _ in range(2):
            await install(client, clock)
            parent = await client.create(TOYS, "default", toy("parent"))
            await client.create(TOYS, "default", toy("child", parent))
            await client.delete(TOYS, "default", "parent")
            await clock.sleep(2)
            assert await names(client, TOYS) == []
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, None, "toys.example.com")
            await clock.sleep(2)

    play(story)
