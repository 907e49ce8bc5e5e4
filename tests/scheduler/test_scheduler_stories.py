"""Stories of gangs and pods over the embedded API server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from muster.api.codec import Object
from muster.api.groups import INITIALLY_SCHEDULED
from muster.api.meta import condition, uid_of
from muster.api.resource import EVENTS, JOBS, NODES, POD_GROUPS, PODS, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import Release, ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import Body, Query, Response, TransportError, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.scheduler.binder import Answer, BindRequest
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.service import Scheduler
from muster.testing import make_group, make_job, make_node, make_pod

ALPHA1 = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")

Rule = Callable[[str, str, int], str]
"""(method, path, how often it was asked) → what the network does: "", "before", "after", or a code such as "429"."""


class BadNetwork:
    """A transport that breaks some requests, before or after they took effect, or answers for the server."""

    def __init__(self, inner: InProcessTransport, rule: Rule) -> None:
        self._inner = inner
        self._rule = rule
        self._asked: dict[tuple[str, str], int] = {}

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        asked = self._asked.get((method, path), 0)
        self._asked[method, path] = asked + 1
        fault = self._rule(method, path, asked)
        if fault == "before":
            raise TransportError("connection refused")
        if fault in ("403", "429", "500"):
            return Response(int(fault), {"kind": "Status", "status": "Failure", "code": int(fault), "reason": "Oops"})
        response = await self._inner.request(method, path, query=query, headers=headers, body=body)
        if fault == "after":
            raise TransportError("connection reset")
        return response

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        async for events in self._inner.watch(path, query=query):
            yield events


@dataclass
class World:
    """An API server and a scheduler that can be stopped and started."""

    clock: VirtualClock
    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    rule: Rule = lambda method, path, asked: ""
    server: ServerOptions = field(default_factory=ServerOptions)

    def __post_init__(self) -> None:
        self.api = ApiServer(MemoryStore(), self.clock, random.Random(1), self.server)
        self.client = Client(InProcessTransport(self.api))
        self.task: asyncio.Task[None] | None = None

    def start(self) -> Scheduler:
        network = BadNetwork(InProcessTransport(self.api), self.rule)
        self.scheduler = Scheduler(Client(network), self.clock, random.Random(2), self.options)
        self.task = asyncio.get_running_loop().create_task(self.scheduler.run())
        return self.scheduler

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def create(self, *objects: Object) -> None:
        resources = {"Node": NODES, "Pod": PODS, "PodGroup": POD_GROUPS}
        for obj in objects:
            await self.client.create(resources[obj["kind"]], obj["metadata"].get("namespace"), obj)

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(PODS, "default", name, {"gracePeriodSeconds": 0})

    async def finish(self, name: str) -> None:
        patch = {"status": {"phase": "Succeeded"}}
        await self.client.patch(PODS, "default", name, patch, subresource="status")

    async def nodes_of(self, prefix: str = "") -> dict[str, str]:
        """Bound pods by name."""
        pods = (await self.client.list(PODS)).items
        bound = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
        return {name: node for name, node in bound.items() if name.startswith(prefix)}

    async def said(self, name: str) -> tuple[str, str]:
        """Reason and message of the pod's PodScheduled condition."""
        entry = condition(await self.client.get(PODS, "default", name), "PodScheduled") or {}
        return entry.get("reason", ""), entry.get("message", "")

    async def group_says(self, name: str) -> tuple[str, str]:
        """Status and reason of the group's condition."""
        entry = condition(await self.client.get(POD_GROUPS, "default", name), INITIALLY_SCHEDULED) or {}
        return entry.get("status", ""), entry.get("reason", "")


def run(story: Callable[[World], Awaitable[None]], **options: object) -> None:
    """Run a story to its end, then check that nothing but periodic timers is left."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock, **options)  # type: ignore[arg-type]  # keyword arguments of World, passed through
        world.start()
        await story(world)
        await clock.sleep(30)
        assert clock.pending == 0
        await world.stop()

    run_virtual(main)


def gang(name: str, size: int, min_count: int | None = None, **requests: int | str) -> list[Object]:
    """A PodGroup and its pods `name-0`, …"""
    pods = [make_pod(f"{name}-{index}", group=name, **requests) for index in range(size)]  # type: ignore[arg-type]
    return [make_group(name, min_count=size if min_count is None else min_count), *pods]


def test_of_two_gangs_that_compete_one_is_complete_and_the_other_waits_with_a_reason() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(4)))
        for first, second in zip(gang("a", 4, gpu=1), gang("b", 4, gpu=1), strict=True):
            await world.create(first, second)
        await world.clock.sleep(5)
        assert len(await world.nodes_of("a")) == 4
        assert await world.nodes_of("b") == {}
        assert await world.group_says("a") == ("True", "Scheduled")
        assert await world.group_says("b") == ("False", "Unschedulable")
        reason, message = await world.said("b-0")
        assert reason == "Unschedulable"
        assert message.startswith("0/4 nodes are available: 4 Insufficient nvidia.com/gpu. pod group default/b is")
        for index in range(4):
            await world.finish(f"a-{index}")
        await world.clock.sleep(5)
        assert len(await world.nodes_of("b")) == 4

    run(story)


def test_pod_by_pod_the_same_two_gangs_each_hold_a_part() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(4)))
        for first, second in zip(gang("a", 4, gpu=1), gang("b", 4, gpu=1), strict=True):
            await world.create(first, second)
            await world.clock.sleep(1)
        assert len(await world.nodes_of("a")) == len(await world.nodes_of("b")) == 2

    run(story, options=SchedulerOptions(pod_by_pod=True))


def test_members_wait_and_say_for_whom_until_the_last_one_exists() -> None:
    async def story(world: World) -> None:
        group, *pods = gang("a", 3, cpu="1")
        await world.create(make_node(), pods[0])
        await world.clock.sleep(5)
        waits = ("SchedulingGated", "waiting for PodGroup default/a, which does not exist")
        assert await world.said("a-0") == waits
        await world.create(group, pods[1])
        await world.clock.sleep(5)
        waits = ("SchedulingGated", "waiting for more members of pod group default/a: 2 of 3 members exist")
        assert await world.said("a-0") == await world.said("a-1") == waits
        assert await world.nodes_of() == {}
        assert await world.group_says("a") == ("", "")
        await world.create(pods[2])
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 3

    run(story)


def test_held_members_say_nothing_where_real_servers_say_nothing() -> None:
    async def story(world: World) -> None:
        await world.create(make_pod("a", group="missing"))
        await world.clock.sleep(5)
        assert await world.said("a") == ("", "")

    run(story, options=SchedulerOptions(say_why_held=False))


def test_members_beyond_min_count_are_placed_when_room_appears() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("small", gpu=3), *gang("a", 5, min_count=2, gpu=1))
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2"]
        assert await world.group_says("a") == ("True", "Scheduled")
        assert (await world.said("a-3"))[0] == "Unschedulable"
        await world.create(make_node("other", gpu=1))
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2", "a-3"]
        assert await world.group_says("a") == ("True", "Scheduled")

    run(story)


def test_the_replacement_of_one_member_is_placed_at_once() -> None:
    async def story(world: World) -> None:
        await world.create(make_node(gpu=4), *gang("a", 4, gpu=1))
        await world.clock.sleep(5)
        await world.delete_pod("a-1")
        await world.create(make_pod("a-9", group="a", gpu=1))
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["a-0", "a-2", "a-3", "a-9"]

    run(story)


@pytest.mark.parametrize(("completions", "want_bound"), [(3, ["a-1", "a-9"]), (6, ["a-1"])])
def test_members_that_ended_well_keep_their_seat_if_the_job_runs_each_index_once(
    completions: int, want_bound: list[str]
) -> None:
    async def story(world: World) -> None:
        job = await world.client.create(
            JOBS, "default", make_job("j", parallelism=3, completions=completions, indexed=True)
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid_of(job), "controller": True}
        group, *pods = gang("a", 3, gpu=1)
        late = make_pod("a-9", group="a", gpu=1)
        for pod in (*pods, late):
            pod["metadata"]["ownerReferences"] = [owner]
        await world.create(make_node(gpu=3), group, *pods)
        await world.clock.sleep(5)
        await world.finish("a-0")
        await world.delete_pod("a-2")
        await world.create(late)
        await world.clock.sleep(5)
        bound = await world.nodes_of()
        assert sorted(bound.keys() - {"a-0"}) == want_bound

    run(story)


def test_a_basic_group_places_what_fits() -> None:
    async def story(world: World) -> None:
        _, *pods = gang("a", 3, gpu=1)
        await world.create(make_group("a", min_count=None), make_node(gpu=2), *pods)
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 2
        assert await world.group_says("a") == ("True", "Scheduled")

    run(story)


def test_pods_of_a_v1alpha1_workload_are_one_gang_for_each_replica_key() -> None:
    async def story(world: World) -> None:
        template = {"name": "t", "policy": {"gang": {"minCount": 2}}}
        workload = {
            "apiVersion": "scheduling.k8s.io/v1alpha1",
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"podGroups": [template]},
        }
        await world.client.create(ALPHA1, "default", workload)
        refs = [{"name": "w", "podGroup": "t", "podGroupReplicaKey": key} for key in ("x", "x", "y")]
        pods = [make_pod(f"p{index}", cpu="1", spec={"workloadRef": ref}) for index, ref in enumerate(refs)]
        await world.create(make_node(), *pods)
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["p0", "p1"]
        assert await world.said("p2") == (
            "SchedulingGated",
            "waiting for more members of pod group default/w/t/y: 1 of 2 members exist",
        )

    run(story)


@pytest.mark.parametrize(
    ("release", "version", "condition_type"),
    [
        ("1.36", "v1alpha2", "PodGroupScheduled"),
        ("1.37", "v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_gangs_run_on_servers_of_every_release(release: Release, version: str, condition_type: str) -> None:
    async def story(world: World) -> None:
        groups = replace(POD_GROUPS, version=version)
        await world.client.create(groups, "default", make_group("a", min_count=2, version=version))
        await world.create(make_node(), *gang("a", 2, cpu="1")[1:])
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 2
        group = await world.client.get(groups, "default", "a")
        assert [each["type"] for each in group["status"]["conditions"]] == [condition_type]

    run(story, server=ServerOptions(emulate=release, taint_new_nodes=False))


def test_one_scheduling_gate_holds_the_whole_group() -> None:
    async def story(world: World) -> None:
        group, first, second = gang("a", 2, min_count=1, cpu="1")
        second["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
        await world.create(make_node(), group, first, second)
        await world.clock.sleep(5)
        assert await world.nodes_of() == {}
        assert await world.said("a-0") == (
            "SchedulingGated",
            "waiting until the scheduling gates of pod default/a-1 are removed",
        )
        await world.client.patch(PODS, "default", "a-1", {"spec": {"schedulingGates": None}})
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 2

    run(story)


RACK = "topology.kubernetes.io/rack"


def racked_gang(name: str, size: int, min_count: int, cpu: str) -> list[Object]:
    group = make_group(name, min_count=min_count, schedulingConstraints={"topology": [{"key": RACK}]})
    return [group, *(make_pod(f"{name}-{at}", group=name, cpu=cpu) for at in range(size))]


def test_a_gang_with_a_topology_constraint_runs_in_one_rack_and_stays_there() -> None:
    async def story(world: World) -> None:
        racks = [make_node(f"n{at}", cpu="2", labels={RACK: f"r{at // 2}"}) for at in range(4)]
        await world.create(*racks, *racked_gang("a", 3, 3, "1"))
        await world.clock.sleep(5)
        assert sorted((await world.nodes_of()).values()) == ["n0", "n0", "n1"]
        await world.create(make_pod("a-3", group="a", cpu="1"), make_pod("a-4", group="a", cpu="1"))
        await world.clock.sleep(5)
        nodes = await world.nodes_of()
        assert len(nodes) == 4
        assert set(nodes.values()) == {"n0", "n1"}

    run(story)


def test_a_gang_that_fits_in_no_rack_starts_when_a_node_joins_one() -> None:
    async def story(world: World) -> None:
        nodes = [make_node("n0", cpu="1", labels={RACK: "r0"}), make_node("n1", cpu="1"), make_node("n2", cpu="1")]
        await world.create(*nodes, *racked_gang("a", 2, 2, "1"))
        await world.clock.sleep(5)
        assert await world.nodes_of() == {}
        reason, message = await world.said("a-0")
        assert reason == "Unschedulable"
        assert f"0/1 topology domains of {RACK} have room: in r0, room for 1 of the 2 pods like the first" in message
        await world.client.patch(NODES, "", "n2", {"metadata": {"labels": {RACK: "r0"}}})
        await world.clock.sleep(5)
        assert sorted((await world.nodes_of()).values()) == ["n0", "n2"]

    run(story)


def test_a_gang_whose_members_run_in_two_racks_fails_with_the_reason() -> None:
    async def story(world: World) -> None:
        nodes = [make_node(f"n{at}", cpu="4", labels={RACK: f"r{at}"}) for at in range(2)]
        group, *pods = racked_gang("a", 3, 1, "1")
        pods[0]["spec"]["nodeName"], pods[1]["spec"]["nodeName"] = "n0", "n1"
        await world.create(*nodes, group, *pods)
        await world.clock.sleep(5)
        reason, message = await world.said("a-2")
        assert reason == "SchedulerError"
        assert message.endswith("more than 1 domain found for pod group: r0, r1")
        await world.client.patch(NODES, "", "n1", {"metadata": {"labels": {RACK: "r0"}}})
        await world.clock.sleep(5)
        assert "a-2" in await world.nodes_of()

    run(story)


def test_mixed_scheduler_names_fail_the_group() -> None:
    async def story(world: World) -> None:
        group, first, second = gang("a", 2, cpu="1")
        second["spec"]["schedulerName"] = "muster"
        await world.create(make_node(), group, first, second)
        await world.clock.sleep(5)
        assert await world.nodes_of() == {}
        assert await world.group_says("a") == ("False", "SchedulerError")
        assert (await world.said("a-0"))[0] == (await world.said("a-1"))[0] == "SchedulerError"

    run(story)


def test_pods_of_other_schedulers_are_left_alone_but_count() -> None:
    async def story(world: World) -> None:
        foreign = make_pod("foreign", gpu=1, node="node", spec={"schedulerName": "other"})
        waiting = make_pod("waiting", gpu=1, spec={"schedulerName": "other"})
        await world.create(make_node(gpu=1), foreign, waiting, make_pod("ours", gpu=1))
        await world.clock.sleep(5)
        assert await world.nodes_of() == {"foreign": "node"}
        assert await world.said("waiting") == ("", "")
        assert (await world.said("ours"))[0] == "Unschedulable"

    run(story)


def test_events_are_those_of_kubernetes() -> None:
    async def story(world: World) -> None:
        await world.create(make_node(cpu="1"), make_pod("fits", cpu="1"), make_pod("waits", cpu="1"))
        await world.clock.sleep(5)
        events = (await world.client.list(EVENTS)).items
        assert [(each["type"], each["reason"], each["message"]) for each in events] == [
            ("Normal", "Scheduled", "Successfully assigned default/fits to node"),
            (
                "Warning",
                "FailedScheduling",
                "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
                "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            ),
        ]
        reason, message = await world.said("waits")
        assert (reason, message.partition(" no new claims")[0]) == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient cpu.",
        )

    run(story)


@pytest.mark.parametrize("change", ["node added", "node grows", "node uncordoned", "taint removed", "pod ends"])
def test_a_waiting_pod_is_woken_by_what_it_waits_for(change: str) -> None:
    async def story(world: World) -> None:
        taint = {"key": "k", "effect": "NoSchedule"}
        node = make_node(cpu="1", unschedulable=change == "node uncordoned")
        if change == "taint removed":
            node["spec"]["taints"] = [taint]
        await world.create(node)
        if change in ("node added", "node grows", "pod ends"):
            await world.create(make_pod("first", cpu="1", node="node"))
        await world.create(make_pod("waits", cpu="1"))
        await world.clock.sleep(60)
        assert "waits" not in await world.nodes_of()
        if change == "node added":
            await world.create(make_node("new", cpu="1"))
        elif change == "node grows":
            patch: Object = {"status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}}}
            await world.client.patch(NODES, None, "node", patch, subresource="status")
        elif change == "pod ends":
            await world.finish("first")
        else:
            await world.client.patch(NODES, None, "node", {"spec": {"unschedulable": None, "taints": None}})
        await world.clock.sleep(1)
        assert "waits" in await world.nodes_of()

    run(story)


def test_a_restart_half_way_through_a_gang_completes_it() -> None:
    def only_two_binds(method: str, path: str, asked: int) -> str:
        done.append(path)
        return "" if not path.endswith("/binding") or sum(each.endswith("/binding") for each in done) <= 2 else "before"

    done: list[str] = []

    async def story(world: World) -> None:
        await world.create(make_node(gpu=4), *gang("a", 4, gpu=1))
        await world.clock.sleep(3)
        assert len(await world.nodes_of()) == 2
        await world.stop()
        world.rule = lambda method, path, asked: ""
        await world.create(*gang("b", 4, gpu=1))
        world.start()
        await world.clock.sleep(5)
        assert len(await world.nodes_of("a")) == 4
        assert await world.nodes_of("b") == {}
        assert await world.group_says("a") == ("True", "Scheduled")

    run(story, rule=only_two_binds)


def test_a_restart_writes_the_condition_that_was_not_written_before() -> None:
    async def story(world: World) -> None:
        await world.create(make_node(gpu=4), *gang("a", 4, gpu=1))
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 4
        assert await world.group_says("a") == ("", "")
        await world.stop()
        world.rule = lambda method, path, asked: ""
        world.start()
        await world.clock.sleep(5)
        assert await world.group_says("a") == ("True", "Scheduled")

    run(story, rule=lambda method, path, asked: "500" if path.endswith("/a/status") else "")


def test_decisions_are_a_little_ahead_of_bindings_but_wait_for_no_silent_server() -> None:
    """As long as there is enough to bind, what comes meanwhile may be decided first."""

    async def story(world: World) -> None:
        scheduler = world.scheduler
        silence, send = asyncio.Event(), scheduler._binder._send

        async def late(request: BindRequest) -> Answer:
            await silence.wait()
            return await send(request)

        scheduler._binder._send = late  # type: ignore[method-assign]  # a server that takes its time
        await world.create(make_node("n", cpu="100", pods=1000))
        for number in range(200):
            await world.create(*gang(f"g{number}", 2, cpu="1m"))

        def decided() -> int:
            return sum(record.assumed for record in scheduler.core.cache.pods.values())

        await world.clock.sleep(0.1)
        assert 0 < decided() < 400
        await world.clock.sleep(5)
        assert decided() == 400
        silence.set()
        await world.clock.sleep(1)
        assert len(await world.nodes_of()) == 400

    run(story)


def test_a_pod_that_another_scheduler_binds_first_is_lost_to_it_and_the_rest_decides_again() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=2), make_node("n1", gpu=2))
        await world.create(*gang("a", 4, gpu=1))
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        binding: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a-0"}, "target": target}
        await world.client.create(PODS, "default", binding, name="a-0", subresource="binding")
        await world.clock.sleep(20)
        nodes = await world.nodes_of()
        assert len(nodes) == 4
        assert sorted(nodes.values()) == ["n0", "n0", "n1", "n1"]

    run(story, rule=lambda method, path, asked: "before" if path.endswith("/binding") and asked < 1 else "")


def test_when_a_node_goes_before_the_binding_its_members_are_decided_again() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=2), make_node("n1", gpu=2), *gang("a", 4, gpu=1))
        await world.clock.sleep(0.05)
        await world.client.delete(NODES, None, "n1")
        await world.clock.sleep(20)
        assert set((await world.nodes_of()).values()) == {"n0"}
        await world.create(make_node("n2", gpu=2))
        await world.clock.sleep(20)
        assert sorted((await world.nodes_of()).values()) == ["n0", "n0", "n2", "n2"]

    run(story, rule=lambda method, path, asked: "500" if path.endswith("/binding") and asked < 2 else "")


def test_a_member_deleted_before_its_binding_does_not_hold_up_the_others() -> None:
    async def story(world: World) -> None:
        await world.create(make_node(gpu=4), *gang("a", 4, gpu=1))
        await world.clock.sleep(0.05)
        await world.delete_pod("a-2")
        await world.create(make_pod("a-7", group="a", gpu=1))
        await world.clock.sleep(20)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-3", "a-7"]

    run(story, rule=lambda method, path, asked: "429" if path.endswith("/binding") and asked < 2 else "")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**16))
def test_whatever_the_network_does_gangs_end_whole_and_no_node_is_overcommitted(seed: int) -> None:
    rng = random.Random(seed)

    def rule(method: str, path: str, asked: int) -> str:
        return rng.choice(["before", "after", "429", "500", "", "", ""]) if asked < 4 else ""

    async def story(world: World) -> None:
        nodes, pods = rng.randint(1, 3), 0
        await world.create(*(make_node(f"n{index}", gpu=4) for index in range(nodes)))
        for index in range(rng.randint(1, 4)):
            size = rng.randint(1, 6)
            pods += size
            await world.create(*gang(f"g{index}", size, gpu=1))
        await world.clock.sleep(120)
        bound = await world.nodes_of()
        assert all(list(bound.values()).count(node) <= 4 for node in set(bound.values()))
        groups = (await world.client.list(POD_GROUPS)).items
        for group in groups:
            name, size = group["metadata"]["name"], group["spec"]["schedulingPolicy"]["gang"]["minCount"]
            placed = sum(pod.startswith(f"{name}-") for pod in bound)
            assert placed in (0, size)
            assert (placed > 0) == (await world.group_says(name) == ("True", "Scheduled"))
            assert placed or size > nodes * 4 - len(bound)

    run(story, rule=rule)


@pytest.mark.parametrize("code", ["409", "429", "500"])
def test_a_condition_that_cannot_be_written_at_first_is_written_later(code: str) -> None:
    async def story(world: World) -> None:
        await world.create(make_pod("a", gpu=1))
        await world.clock.sleep(30)
        assert (await world.said("a"))[0] == "Unschedulable"

    run(story, rule=lambda method, path, asked: code if path.endswith("/a/status") and asked < 2 else "")


def test_pending_pods_are_counted_in_the_queues_of_kube_scheduler() -> None:
    registry = CollectorRegistry()

    def pending() -> dict[str, float | None]:
        queues = ("active", "backoff", "unschedulable", "gated")
        return {queue: registry.get_sample_value("scheduler_pending_pods", {"queue": queue}) for queue in queues}

    async def story(world: World) -> None:
        await world.stop()
        scheduler = Scheduler(Client(InProcessTransport(world.api)), world.clock, random.Random(2), registry=registry)
        assert pending() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        world.task = asyncio.get_running_loop().create_task(scheduler.run())
        gated = make_pod("gated", spec={"schedulingGates": [{"name": "wait"}]})
        await world.create(make_node(cpu="1"), *gang("large", 3, cpu="2"), *gang("few", 2, 4, cpu="1m"), gated)
        await world.create(make_pod("alone", cpu="3"), make_pod("fits", cpu="1"))
        await world.clock.sleep(5)
        assert pending() == {"active": 0, "backoff": 0, "unschedulable": 4, "gated": 3}

    run(story)


def test_attempts_are_timed_until_the_pod_is_bound_and_from_the_first_of_them() -> None:
    registry = CollectorRegistry()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"scheduler_{name}", labels)

    async def story(world: World) -> None:
        await world.stop()
        scheduler = Scheduler(Client(InProcessTransport(world.api)), world.clock, random.Random(2), registry=registry)
        world.task = asyncio.get_running_loop().create_task(scheduler.run())
        await world.create(make_node(cpu="2"), make_pod("fits", cpu="1"), make_pod("later", cpu="2"))
        await world.clock.sleep(5)
        ours = {"profile": "default-scheduler"}
        assert value("scheduling_attempt_duration_seconds_count", **ours, result="scheduled") == 1
        assert value("scheduling_attempt_duration_seconds_count", **ours, result="unschedulable") == 1
        await world.clock.sleep(95)
        await world.create(make_node("more", cpu="2"))
        await world.clock.sleep(20)
        assert value("scheduling_attempt_duration_seconds_count", **ours, result="scheduled") == 2
        assert value("pod_scheduling_attempts_bucket", le="1.0") == 1
        assert value("pod_scheduling_attempts_count") == 2
        assert value("pod_scheduling_sli_duration_seconds_count", attempts="1") == 1
        assert value("pod_scheduling_sli_duration_seconds_bucket", attempts="2", le="81.92") == 0
        assert value("pod_scheduling_sli_duration_seconds_bucket", attempts="2", le="163.84") == 1

    run(story)
