from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from muster.api.codec import Object
from muster.api.meta import has_condition
from muster.api.resource import LEASES, NODES, PODS
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import STRATEGIC_MERGE_PATCH, ApiError
from muster.clock import VirtualClock, run_virtual
from muster.nodes.agent import FAIL, NodeAgent
from muster.nodes.spec import make_nodes, parse_node_spec
from muster.testing.builders import make_pod

PREFIX = "sim.muster-k8s.dev/"
Story = Callable[[Client, VirtualClock, NodeAgent], Awaitable[None]]


def _tell(story: Story, *, nodes: str = "2") -> None:
    """Run a story on a cluster of API server and simulated nodes alone."""

    async def main(clock: VirtualClock) -> None:
        server = ApiServer(MemoryStore(), clock, random.Random(0))
        client = Client(InProcessTransport(server))
        agent = NodeAgent(client, clock)
        task = asyncio.get_running_loop().create_task(agent.run())
        for node in make_nodes([parse_node_spec(nodes)], clock.now()):
            await client.create(NODES, None, node)
        await clock.sleep(0.1)
        await story(client, clock, agent)
        task.cancel()

    run_virtual(main)


async def _create(client: Client, name: str, *, node: str = "node-0", never: bool = True, **annotations: str) -> None:
    marks = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    spec = {"restartPolicy": "Never"} if never else None
    await client.create(PODS, "default", make_pod(name, node=node, annotations=marks, spec=spec))


async def _pod(client: Client, name: str) -> Object:
    return await client.get(PODS, "default", name)


async def _phase(client: Client, name: str) -> str:
    phase: str = (await _pod(client, name))["status"]["phase"]
    return phase


def test_pod_passes_its_stages_in_time() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", pull_seconds="2", ready_seconds="3", run_seconds="5")
        await clock.sleep(1)
        assert await _phase(client, "p") == "Pending"
        await clock.sleep(2)
        assert (await _phase(client, "p"), has_condition(await _pod(client, "p"), "Ready")) == ("Running", False)
        await clock.sleep(3)
        assert has_condition(await _pod(client, "p"), "Ready")
        await clock.sleep(5)
        assert await _phase(client, "p") == "Succeeded"

    _tell(story)


def test_a_resized_pod_reports_what_it_has_now() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await client.create(PODS, "default", make_pod("p", node="node-0", cpu="1"))
        await clock.sleep(5)
        (container,) = (await _pod(client, "p"))["spec"]["containers"]
        patch = {"spec": {"containers": [{"name": container["name"], "resources": {"requests": {"cpu": "2"}}}]}}
        await client.patch(PODS, "default", "p", patch, type_=STRATEGIC_MERGE_PATCH, subresource="resize")
        await clock.sleep(1)
        (status,) = (await _pod(client, "p"))["status"]["containerStatuses"]
        assert (status["allocatedResources"]["cpu"], status["resources"]["requests"]["cpu"]) == ("2", "2")

    _tell(story)


def test_time_counts_only_while_all_stand_at_the_barrier() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "a", barrier="b/2", run_seconds="10")
        await clock.sleep(100)
        await _create(client, "b", barrier="b/2", run_seconds="10", never=True)
        await clock.sleep(4)
        await client.delete(PODS, "default", "b")
        await clock.sleep(100)
        assert await _phase(client, "a") == "Running"
        await _create(client, "c", barrier="b/2", run_seconds="10")
        await clock.sleep(5.5)
        assert await _phase(client, "a") == "Running"
        await clock.sleep(1)
        assert (await _phase(client, "a"), await _phase(client, "c")) == ("Succeeded", "Running")

    _tell(story)


def test_all_at_a_barrier_end_together() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        for index in range(7):
            await _create(client, f"p{index}", barrier="b/7", run_seconds="0.3")
            await clock.sleep(0.1)
        await clock.sleep(0.3)
        assert [await _phase(client, f"p{index}") for index in range(7)] == ["Succeeded"] * 7

    _tell(story)


def test_deleted_pod_stops_and_goes_within_its_grace_period() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", never=False)
        await clock.sleep(1)
        await client.delete(PODS, "default", "p")
        assert (await _pod(client, "p"))["metadata"]["deletionTimestamp"]
        await clock.sleep(30)
        with pytest.raises(ApiError, match="not found"):
            await _pod(client, "p")

    _tell(story)


def test_finalizer_keeps_a_deleted_pod_which_has_failed() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        pod = make_pod("p", node="node-0")
        pod["metadata"]["finalizers"] = ["example.com/keep"]
        await client.create(PODS, "default", pod)
        await clock.sleep(1)
        await client.delete(PODS, "default", "p")
        await clock.sleep(31)
        kept = await _pod(client, "p")
        assert (kept["status"]["phase"], kept["metadata"]["deletionGracePeriodSeconds"]) == ("Failed", 0)
        await client.patch(PODS, "default", "p", {"metadata": {"finalizers": None}})
        with pytest.raises(ApiError, match="not found"):
            await _pod(client, "p")

    _tell(story)


def test_pod_of_an_unknown_node_starts_when_the_node_appears() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", node="later")
        await clock.sleep(1)
        assert await _phase(client, "p") == "Pending"
        await client.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "later"}})
        await clock.sleep(1)
        assert await _phase(client, "p") == "Running"
        node = await client.get(NODES, None, "later")
        assert has_condition(node, "Ready")
        assert node["status"]["allocatable"]["cpu"] == "32"

    _tell(story)


def test_stopped_node_says_nothing_and_its_lease_becomes_short() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", run_seconds="10")
        await clock.sleep(5)
        await agent.stop_node("node-0")
        lease = await client.get(LEASES, "kube-node-lease", "node-0")
        assert lease["spec"]["leaseDurationSeconds"] == 40
        await clock.sleep(100)
        assert await _phase(client, "p") == "Running"
        await agent.start_node("node-0")
        await clock.sleep(1)
        assert await _phase(client, "p") == "Failed"
        lease = await client.get(LEASES, "kube-node-lease", "node-0")
        assert lease["spec"]["leaseDurationSeconds"] == 3600

    _tell(story)


def test_a_node_fails_while_its_annotation_says_so() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", run_seconds="10")
        await clock.sleep(5)
        await _annotate(client, "true")
        lease = await client.get(LEASES, "kube-node-lease", "node-0")
        assert lease["spec"]["leaseDurationSeconds"] == 40
        await client.patch(NODES, None, "node-0", {"metadata": {"labels": {"a": "b"}}})
        await clock.sleep(100)
        assert await _phase(client, "p") == "Running", "nothing goes on there"
        await _annotate(client, None)
        await clock.sleep(1)
        assert await _phase(client, "p") == "Failed"
        lease = await client.get(LEASES, "kube-node-lease", "node-0")
        assert lease["spec"]["leaseDurationSeconds"] == 3600

    async def _annotate(client: Client, value: str | None) -> None:
        await client.patch(NODES, None, "node-0", {"metadata": {"annotations": {FAIL: value}}})
        await asyncio.sleep(1)

    _tell(story)


def test_a_node_that_is_to_have_failed_never_begins() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        metadata = {"name": "dead", "annotations": {FAIL: "true"}}
        await client.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await clock.sleep(1)
        lease = await client.get(LEASES, "kube-node-lease", "dead")
        assert lease["spec"]["leaseDurationSeconds"] == 40

    _tell(story)


def test_leases_are_renewed_before_they_run_out() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        before = await client.get(LEASES, "kube-node-lease", "node-1")
        await clock.sleep(3600)
        after = await client.get(LEASES, "kube-node-lease", "node-1")
        assert after["spec"]["renewTime"] > before["spec"]["renewTime"]

    _tell(story)


def test_restarted_agent_takes_running_pods_over() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await _create(client, "p", run_seconds="10")
        await clock.sleep(5)
        await agent.stop_node("node-0")  # the first agent keeps quiet from now on
        second = asyncio.get_running_loop().create_task(NodeAgent(client, clock).run())
        await clock.sleep(4)
        assert await _phase(client, "p") == "Running"
        await clock.sleep(2)
        assert await _phase(client, "p") == "Succeeded"
        second.cancel()

    _tell(story)


def test_pod_bound_to_a_dead_node_starts_when_the_node_comes_back() -> None:
    async def story(client: Client, clock: VirtualClock, agent: NodeAgent) -> None:
        await agent.stop_node("node-0")
        await _create(client, "p", run_seconds="10")
        await clock.sleep(60)
        assert await _phase(client, "p") == "Pending"
        await agent.start_node("node-0")
        await clock.sleep(5)
        assert await _phase(client, "p") == "Running"
        await clock.sleep(6)
        assert await _phase(client, "p") == "Succeeded"

    _tell(story)
