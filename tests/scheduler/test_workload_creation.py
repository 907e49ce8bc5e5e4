"""Workloads and PodGroups for Jobs of a Job controller that makes none: made, followed, removed, and used."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from test_scheduler_rights import ASKED, Recorder, allowed, pairs, roles

from muster.api.codec import Object, Objects
from muster.api.grouping import GANG_KEY, default_grouping
from muster.api.groups import INITIALLY_SCHEDULED
from muster.api.meta import condition, controller_of, has_condition, name_of, uid_of
from muster.api.resource import EVENTS, JOBS, NODES, POD_GROUPS, PODS, WORKLOADS, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.cli.install import InstallPlan, Part, apply_plan
from muster.client.client import Client
from muster.client.transport import Transport
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions, JobGroups
from muster.controllers.registry import ControllerService
from muster.controllers.workload_creation import WorkloadCreation
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.service import Scheduler
from muster.testing import make_job, make_node, make_pod

OURS = frozenset({"muster"})
CUSTOM_WORKLOADS = Resource("scheduling.muster-k8s.dev", "v1beta1", "workloads", "Workload")
CUSTOM_GROUPS = Resource("scheduling.muster-k8s.dev", "v1beta1", "podgroups", "PodGroup")
SERVERS = {
    "custom resources": (ServerOptions(emulate="1.35", taint_new_nodes=False), CUSTOM_WORKLOADS, CUSTOM_GROUPS),
    "1.36": (
        ServerOptions(emulate="1.36", taint_new_nodes=False),
        replace(WORKLOADS, version="v1alpha2"),
        replace(POD_GROUPS, version="v1alpha2"),
    ),
    "1.37": (ServerOptions(emulate="1.37", taint_new_nodes=False), WORKLOADS, POD_GROUPS),
}
CONTROLLERS = ("job-controller", "garbage-collector-controller", "podgroup-protection-controller")


class World:
    """A server with a Job controller, the scheduler, and what makes objects for Jobs."""

    def __init__(self, clock: VirtualClock, server: str, job_groups: JobGroups = "off") -> None:
        self.asked: set[ASKED] = set()
        """What the maker of objects asks of the server."""
        options, self.workload_kind, self.group_kind = SERVERS[server]
        self.clock = clock
        self.api = ApiServer(MemoryStore(), clock, random.Random(1), options)
        self.transport: Transport = InProcessTransport(self.api)
        self.client = Client(self.transport)
        self._job_groups = job_groups
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        if self.group_kind == CUSTOM_GROUPS:
            await apply_plan(self.client, self.clock, InstallPlan(crds_only=True))
        grouping = replace(default_grouping(), objects_for_jobs=True)
        options = SchedulerOptions(scheduler_names=OURS, grouping=grouping)
        controllers = ControllerOptions(job_groups=self._job_groups)
        recorder = Recorder(self.transport)
        self.asked = recorder.asked
        running = (
            Scheduler(self.client, self.clock, random.Random(2), options),
            ControllerService(self.client, self.clock, random.Random(3), controllers, CONTROLLERS),
            WorkloadCreation(Client(recorder), self.clock, random.Random(4), OURS),
        )
        self._tasks = [asyncio.get_running_loop().create_task(each.run()) for each in running]
        await self.clock.sleep(1)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, job: Object) -> Object:
        return await self.client.create(JOBS, "default", job)

    async def nodes(self, count: int) -> None:
        for index in range(count):
            await self.client.create(NODES, None, make_node(f"n{index}", gpu=1))

    async def objects(self) -> tuple[Objects, Objects]:
        found = [(await self.client.list(each, "default")).items for each in (self.workload_kind, self.group_kind)]
        return found[0], found[1]

    async def bound(self) -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in (await self.client.list(PODS, "default")).items)


def job(name: str = "train", size: int = 3, scheduler: str = "muster", **more: object) -> Object:
    pod = make_pod(gpu=1, spec={"schedulerName": scheduler})
    return make_job(name, parallelism=size, indexed=True, pod=pod, **more)  # type: ignore[arg-type]


def play(
    story: Callable[[World], Awaitable[None]], server: str = "custom resources", job_groups: JobGroups = "off"
) -> None:
    async def main(clock: VirtualClock) -> None:
        world = World(clock, server, job_groups)
        await world.start()
        await story(world)
        await world.stop()

    run_virtual(main)


@pytest.mark.parametrize("server", SERVERS)
def test_a_gang_job_gets_its_objects_runs_as_one_and_takes_them_with_it(server: str) -> None:
    async def story(world: World) -> None:
        await world.nodes(2)
        made = await world.create(job())
        await world.clock.sleep(10)
        (workload,), (group,) = await world.objects()
        assert [(owner["kind"], owner.get("controller")) for owner in group["metadata"]["ownerReferences"]] == [
            ("Job", True),
            ("Workload", None),
        ]
        assert (controller_of(workload) or {})["uid"] == uid_of(made)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert await world.bound() == 0
        assert (group["status"]["conditions"][0]["status"], group["status"]["conditions"][0]["reason"]) == (
            "False",
            "Unschedulable",
        )
        await world.client.create(NODES, None, make_node("n9", gpu=1))
        await world.clock.sleep(10)
        assert await world.bound() == 3
        (group,) = (await world.objects())[1]
        assert [each["status"] for each in group["status"]["conditions"]] == ["True"]
        reasons = [each["reason"] for each in (await world.client.list(EVENTS)).items]
        assert reasons.count("WorkloadCreated") == 1
        await world.client.delete(JOBS, "default", "train", {"propagationPolicy": "Background"})
        await world.clock.sleep(90)
        for pod in (await world.client.list(PODS, "default")).items:  # no kubelet ends them
            await world.client.patch(PODS, "default", name_of(pod), {"metadata": {"finalizers": None}})
            await world.client.delete(PODS, "default", name_of(pod), {"gracePeriodSeconds": 0})
        await world.clock.sleep(10)
        assert await world.objects() == ([], [])

    play(story, server)


@pytest.mark.parametrize(
    "unwanted",
    [
        make_job("queue", parallelism=2, completions=4, pod=make_pod(spec={"schedulerName": "muster"})),
        job("one", size=1),
        job("of-others", scheduler="default-scheduler"),
        {**job("plain"), "metadata": {"name": "plain", "namespace": "default", "annotations": {GANG_KEY: "false"}}},
        job("suspended", suspend=True),
    ],
    ids=["not all at once", "one pod", "of others", "not wanted", "without pods"],
)
def test_other_jobs_get_nothing(unwanted: Object) -> None:
    async def story(world: World) -> None:
        await world.nodes(2)
        await world.create(unwanted)
        await world.clock.sleep(10)
        assert await world.objects() == ([], [])
        ours = unwanted["spec"]["template"]["spec"].get("schedulerName") == "muster"
        assert (await world.bound() > 0) is (ours and not unwanted["spec"].get("suspend"))

    play(story)


def test_pods_that_the_job_controller_has_put_into_a_group_get_no_second_one() -> None:
    async def story(world: World) -> None:
        await world.nodes(3)
        await world.create(job(scheduling={"schedulingPolicy": {"gang": {}}}))
        await world.clock.sleep(10)
        workloads, groups = await world.objects()
        assert (len(workloads), len(groups)) == (1, 1)
        assert "labels" not in groups[0]["metadata"]
        assert await world.bound() == 3

    play(story, "1.37", "1.37")


@pytest.mark.parametrize("server", ["custom resources", "1.37"])
def test_objects_follow_the_size_of_the_job(server: str) -> None:
    async def story(world: World) -> None:
        await world.nodes(4)
        await world.create(job(size=6))
        await world.clock.sleep(10)
        assert await world.bound() == 0
        await world.client.patch(JOBS, "default", "train", {"spec": {"parallelism": 4, "completions": 4}})
        await world.clock.sleep(60)
        (workload,), (group,) = await world.objects()
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        assert await world.bound() == 4

    play(story, server)


def test_a_group_that_appears_after_its_members_were_bound_says_that_it_was_scheduled() -> None:
    async def story(world: World) -> None:
        await world.nodes(3)
        await world.create(job())
        await world.clock.sleep(10)
        (group,) = (await world.objects())[1]
        await world.client.delete(world.group_kind, "default", name_of(group))
        await world.clock.sleep(10)
        (again,) = (await world.objects())[1]
        assert uid_of(again) != uid_of(group)
        assert has_condition(again, INITIALLY_SCHEDULED)

    play(story)


def test_objects_go_when_the_job_is_no_gang_any_more() -> None:
    async def story(world: World) -> None:
        await world.nodes(2)
        await world.create(job(size=4))
        await world.clock.sleep(10)
        assert await world.bound() == 0
        await world.client.patch(JOBS, "default", "train", {"spec": {"parallelism": 2}})
        await world.clock.sleep(30)
        assert await world.objects() == ([], [])
        assert await world.bound() == 2  # its pods are plain ones

    play(story)


def test_a_job_that_ran_before_is_one_gang_before_and_after_it_has_objects() -> None:
    async def story(world: World) -> None:
        await world.nodes(4)
        await world.create(job(size=4))
        await world.clock.sleep(10)
        (workload,), (group,) = await world.objects()
        for resource, obj in ((world.group_kind, group), (world.workload_kind, workload)):
            await world.client.delete(resource, "default", name_of(obj))
        await world.clock.sleep(10)
        (_,), (again,) = await world.objects()
        assert name_of(again) == name_of(group)
        assert uid_of(again) != uid_of(group)
        assert await world.bound() == 4

    play(story)


def test_a_suspended_job_keeps_its_objects_and_uses_them_again() -> None:
    async def story(world: World) -> None:
        await world.nodes(2)
        await world.create(job())
        await world.clock.sleep(10)
        before = await world.objects()
        await world.client.patch(JOBS, "default", "train", {"spec": {"suspend": True}})
        await world.clock.sleep(30)
        assert (await world.client.list(PODS, "default")).items == []
        await world.client.patch(JOBS, "default", "train", {"spec": {"suspend": False}})
        await world.client.create(NODES, None, make_node("n9", gpu=1))
        await world.clock.sleep(30)
        after = await world.objects()
        assert [uid_of(each) for each in after[1]] == [uid_of(each) for each in before[1]]
        assert await world.bound() == 3
        assert condition(after[1][0], INITIALLY_SCHEDULED) is not None

    play(story)


def test_the_rights_for_it_are_those_that_it_uses() -> None:
    part = Part("create-workloads", ())
    asked: set[ASKED] = set()

    async def story(world: World) -> None:
        await world.create(job(size=4))
        await world.clock.sleep(10)
        for size in ({"parallelism": 3, "completions": 3}, {"parallelism": 2}):
            await world.client.patch(JOBS, "default", "train", {"spec": size})
            await world.clock.sleep(20)
        assert await world.objects() == ([], [])
        asked.update(world.asked)

    for server in ("custom resources", "1.37"):
        play(story, server)
    assert sorted(each for each in asked if not allowed(each, roles(part))) == []
    used = {each[:3] for each in asked if not allowed(each, roles())}
    more = [role for role in roles(part) if role not in roles()]
    given = {each for role in more for rule in role["rules"] for each in pairs(rule)}
    assert given - used == {("update", "batch", "jobs/finalizers")}  # asked for by an admission plugin, not by us
    assert used <= given
