"""The controllers of nodes, owners and namespaces at work on the embedded server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from muster.api.codec import Object, canonical
from muster.api.meta import has_condition, is_deleting, name_of, uid_of
from muster.api.resource import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, POD_GROUPS, PODS, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import VirtualClock, rfc3339_micro, run_virtual
from muster.controllers.factories import CLUSTER_CONTROLLERS
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.testing.builders import make_group, make_node, make_pod

Story = Callable[[Client, VirtualClock], Awaitable[None]]


def play(story: Story) -> Client:
    """Run a story on a cluster with all controllers of this package; the client still reads what it left."""

    async def main(clock: VirtualClock) -> Client:
        rng = random.Random(7)
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, rng)))
        service = ControllerService(client, clock, rng, ControllerOptions(), CLUSTER_CONTROLLERS)
        task = asyncio.get_running_loop().create_task(service.run())
        await clock.sleep(1)
        await story(client, clock)
        assert not task.done()
        task.cancel()
        return client

    return run_virtual(main)


def config_map(name: str, *owners: Object, finalizers: list[str] | None = None) -> Object:
    references = [
        {"apiVersion": "v1", "kind": owner["kind"], "name": name_of(owner), "uid": uid_of(owner), **blocking}
        for owner in owners
        for blocking in [{"blockOwnerDeletion": True}]
    ]
    metadata: Object = {"name": name, "finalizers": finalizers or [], "ownerReferences": references}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def make(client: Client, name: str, *owners: Object, finalizers: list[str] | None = None) -> Object:
    return await client.create(CONFIG_MAPS, "default", config_map(name, *owners, finalizers=finalizers))


async def names(client: Client, resource: Resource = CONFIG_MAPS, namespace: str | None = "default") -> list[str]:
    return [name_of(obj) for obj in (await client.list(resource, namespace)).items]


async def hold_lease(client: Client, clock: VirtualClock, name: str, duration_s: int) -> None:
    spec = {"renewTime": rfc3339_micro(clock.now()), "leaseDurationSeconds": duration_s}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    if name in await names(client, LEASES, "kube-node-lease"):
        await client.patch(LEASES, "kube-node-lease", name, {"spec": spec})
    else:
        await client.create(LEASES, "kube-node-lease", lease)


@pytest.mark.parametrize(
    ("policy", "want_left"), [("Background", []), ("Foreground", []), ("Orphan", ["child", "leaf"])]
)
def test_dependents_go_with_their_owner_or_are_orphaned(policy: str, want_left: list[str]) -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        child = await make(client, "child", await make(client, "owner"))
        await make(client, "leaf", child)
        await client.delete(CONFIG_MAPS, "default", "owner", {"propagationPolicy": policy})
        await clock.sleep(5)
        assert await names(client) == want_left

    play(story)


def test_owner_deleted_in_the_foreground_waits_for_what_blocks_it_at_every_level() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        child = await make(client, "child", await make(client, "owner"))
        await make(client, "leaf", child, finalizers=["example.test/hold"])
        await client.delete(CONFIG_MAPS, "default", "owner", {"propagationPolicy": "Foreground"})
        await clock.sleep(5)
        assert await names(client) == ["child", "leaf", "owner"]
        await client.patch(CONFIG_MAPS, "default", "leaf", {"metadata": {"finalizers": None}})
        await clock.sleep(5)
        assert await names(client) == []

    play(story)


def test_circle_of_owners_does_not_wait_for_itself() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        first = await make(client, "first")
        second = await make(client, "second", first)
        references = config_map("first", second)["metadata"]["ownerReferences"]
        await client.patch(CONFIG_MAPS, "default", "first", {"metadata": {"ownerReferences": references}})
        await client.delete(CONFIG_MAPS, "default", "first", {"propagationPolicy": "Foreground"})
        await clock.sleep(10)
        assert await names(client) == []

    play(story)


def test_dying_namespace_lets_pods_end_first_and_then_goes_with_all_else() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await client.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        await client.create(NODES, None, make_node())
        await client.create(CONFIG_MAPS, "ns", config_map("c"))
        await client.create(PODS, "ns", make_pod("p", namespace="ns", node="node"))
        await client.delete(NAMESPACES, None, "ns")
        await clock.sleep(5)
        assert is_deleting(await client.get(PODS, "ns", "p"))
        assert await names(client, CONFIG_MAPS, "ns") == ["c"]
        await client.delete(PODS, "ns", "p", {"gracePeriodSeconds": 0})
        await clock.sleep(5)
        assert "ns" not in await names(client, NAMESPACES, None)
        assert await names(client, EVENTS, "ns") == []

    play(story)


def test_group_in_use_survives_its_deletion_until_its_last_pod_ends() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await client.create(POD_GROUPS, "default", make_group("g"))
        await client.create(PODS, "default", make_pod("p", group="g"))
        await client.delete(POD_GROUPS, "default", "g")
        await clock.sleep(2)
        assert await names(client, POD_GROUPS) == ["g"]
        await client.delete(PODS, "default", "p")
        await clock.sleep(2)
        assert await names(client, POD_GROUPS) == []

    play(story)


async def lose_a_node(client: Client, clock: VirtualClock) -> None:
    for name in ("lost", "other"):
        await client.create(NODES, None, make_node(name))
        await hold_lease(client, clock, name, 3600)
    lasting = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}
    tolerations = [{"key": "node.kubernetes.io/unreachable", **lasting}]
    await client.create(PODS, "default", make_pod("p", node="lost", spec={"tolerations": tolerations}))
    await clock.sleep(30)
    assert clock.pending == 0
    await hold_lease(client, clock, "lost", 40)


def test_pods_of_a_node_that_stops_are_evicted_after_grace_period_and_toleration() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await lose_a_node(client, clock)
        await clock.sleep(48)
        assert has_condition(await client.get(NODES, None, "lost"), "Ready")
        await clock.sleep(10)
        assert has_condition(await client.get(NODES, None, "lost"), "Ready", "Unknown")
        await clock.sleep(25)
        pod = await client.get(PODS, "default", "p")
        assert is_deleting(pod) and has_condition(pod, "DisruptionTarget")

    play(story)


def test_simulation_is_kept_going_until_the_pods_of_a_lost_node_are_evicted_and_no_longer() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await lose_a_node(client, clock)
        while clock.pending or not is_deleting(await client.get(PODS, "default", "p")):
            assert clock.elapsed_s < 200
            await clock.sleep(1, periodic=True)
            if not is_deleting(await client.get(PODS, "default", "p")):
                assert clock.pending > 0

    play(story)


def test_pod_of_a_deleted_node_fails_and_goes() -> None:
    async def story(client: Client, clock: VirtualClock) -> None:
        await client.create(NODES, None, make_node())
        await client.create(PODS, "default", make_pod("p", node="node"))
        await clock.sleep(5)
        await client.delete(NODES, None, "node")
        await clock.sleep(40)
        assert await names(client, PODS) == ["p"]
        await clock.sleep(25)
        assert await names(client, PODS) == []
        assert clock.pending == 0

    play(story)


def test_same_seed_gives_the_same_objects_byte_for_byte() -> None:
    kept: list[bytes] = []

    async def story(client: Client, clock: VirtualClock) -> None:
        await lose_a_node(client, clock)
        await clock.sleep(200)
        kept.append(b"".join([canonical((await client.list(kind)).items) for kind in (NODES, PODS, EVENTS)]))

    play(story)
    play(story)
    assert kept[0] == kept[1]
