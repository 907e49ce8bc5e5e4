"""The ClusterRole and Role of the deployment allow every request that the scheduler makes."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest
from test_scheduler_grouping import define
from test_scheduler_volumes import CONTROLLERS, claim, local_volume, node, pod, storage_class

from muster.api.codec import Object, Objects
from muster.api.groups import POD_GROUP_KEY
from muster.api.resource import (
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Resource,
)
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.cli.install import InstallPlan, Part, apply_plan, deployment
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import Body, Query, Response, Transport, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.scheduler.election import Election, LeaseTerms
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.provisioning.objects import PROVISIONING_REQUESTS, ProvisioningTerms
from muster.scheduler.service import Scheduler
from muster.testing import make_group, make_pod
from muster.testing.devices import make_claim, make_device_class, make_slice, pod_claim

CUSTOM = Resource("scheduling.muster-k8s.dev", "v1beta1", "podgroups", "PodGroup")
_CREATED = (
    *(NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_GROUPS, PODS, PRIORITY_CLASSES, STORAGE_CLASSES),
    *(DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES),
)
RESOURCES = {each.kind: each for each in _CREATED}
ASKED = tuple[str, str, str, str, str]
"""verb, group, resource or resource/subresource, namespace, name."""

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?\Z"
)


class Recorder:
    """A transport that notes what is asked as an authorizer would see it."""

    def __init__(self, inner: Transport) -> None:
        self.asked: set[ASKED] = set()
        self._inner = inner

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        self._note(method, path)
        return await self._inner.request(method, path, query=query, headers=headers, body=body)

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        self._note("WATCH", path)
        return self._inner.watch(path, query=query)

    def _note(self, method: str, path: str) -> None:
        match = _PATH.match(path)
        if match is None:
            return  # discovery: everybody may
        said = match.groupdict("")
        verbs = {"GET": "get" if said["name"] else "list", "POST": "create", "PUT": "update"}
        verb = verbs.get(method, method.lower())
        resource = f"{said['plural']}/{said['sub']}" if said["sub"] else said["plural"]
        self.asked.add((verb, said["group"], resource, said["namespace"], said["name"]))


def allowed(asked: ASKED, roles: Objects) -> bool:
    verb, group, resource, namespace, name = asked
    for role in roles:
        if role["metadata"].get("namespace", namespace) != namespace:
            continue
        for rule in role["rules"]:
            names = rule.get("resourceNames")
            is_named = names is None or name in names
            if verb in rule["verbs"] and group in rule["apiGroups"] and resource in rule["resources"] and is_named:
                return True
    return False


def roles(*parts: Part) -> Objects:
    return [obj for obj in deployment(parts=parts) if obj["kind"] in ("Role", "ClusterRole")]


@pytest.fixture(scope="module")
def asked() -> set[ASKED]:
    """What is asked where Kubernetes has groups, and where custom resources are groups."""
    native = requests_of(ServerOptions(), "scheduling.k8s.io")
    return native | requests_of(ServerOptions(emulate="1.35"), "scheduling.muster-k8s.dev")


def test_everything_that_is_asked_is_allowed(asked: set[ASKED]) -> None:
    assert sorted(each for each in asked if not allowed(each, roles())) == []
    # The story is long enough to have asked for what is special about a scheduler.
    kinds = {(verb, group, resource) for verb, group, resource, _, _ in asked}
    for group in ("scheduling.k8s.io", "scheduling.muster-k8s.dev"):
        assert ("patch", group, "podgroups/status") in kinds
    for verb, resource in (
        ("create", "pods/binding"),
        ("patch", "pods/status"),
        ("delete", "pods"),
        ("update", "persistentvolumes"),
        ("update", "persistentvolumeclaims"),
        ("create", "events"),
        ("patch", "events"),
    ):
        assert (verb, "", resource) in kinds
    assert {("get", "coordination.k8s.io", "leases"), ("update", "coordination.k8s.io", "leases")} <= kinds


def test_no_right_is_given_that_is_never_used(asked: set[ASKED]) -> None:
    """What may be written or read one by one is; the kinds that may be listed are not all on this server."""
    used = {(verb, group, resource) for verb, group, resource, _, _ in asked}
    given = {each for role in roles() for rule in role["rules"] for each in pairs(rule)}
    assert {each for each in given - used if each[0] not in ("list", "watch")} == {
        ("patch", "scheduling.k8s.io", "compositepodgroups/status"),
        ("patch", "scheduling.muster-k8s.dev", "compositepodgroups/status"),
        ("get", "", "pods"),  # after a binding that was refused
        ("get", "resource.k8s.io", "resourceclaims"),  # one that somebody else has written meanwhile
        ("delete", "resource.k8s.io", "resourceclaims"),  # one for extended resources, after a binding that was refused
    }


def test_a_part_brings_the_rights_that_it_uses_and_no_more() -> None:
    part = Part("provisioning-requests", ())
    options = SchedulerOptions(provisioning=ProvisioningTerms("check-capacity.autoscaling.x-k8s.io"))
    asked = requests_of(ServerOptions(), "scheduling.k8s.io", options, PROVISIONING_REQUESTS)
    assert sorted(each for each in asked if not allowed(each, roles(part))) == []
    used = {each[:3] for each in asked if not allowed(each, roles())}
    more = [role for role in roles(part) if role not in roles()]
    assert {each for role in more for rule in role["rules"] for each in pairs(rule)} == used


def pairs(rule: Object) -> Iterator[tuple[str, str, str]]:
    for verb in rule["verbs"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield verb, group, resource


def requests_of(
    options: ServerOptions, group: str, how: SchedulerOptions | None = None, *kinds: Resource
) -> set[ASKED]:
    """What a scheduler asks that binds and evicts groups, binds volumes, repeats events and holds a lease.

    `kinds`: those that are defined besides.
    """
    asked: set[ASKED] = set()

    async def main(clock: VirtualClock) -> None:
        api = ApiServer(MemoryStore(), clock, random.Random(1), options)
        client = Client(InProcessTransport(api))
        await apply_plan(client, clock, InstallPlan())
        for kind in kinds:
            await define(client, clock, kind)
        recorder = Recorder(InProcessTransport(api))
        ours = Client(recorder)
        scheduler = Scheduler(ours, clock, random.Random(2), how or SchedulerOptions())
        election = Election(ours, clock, random.Random(4), LeaseTerms(namespace="muster-system"), "me")
        service = ControllerService(client, clock, random.Random(3), ControllerOptions(), CONTROLLERS)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(each) for each in (scheduler.run(), service.run(), hold(election))]
        await play(client, clock, group)
        await say_twice(ours, clock)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        asked.update(recorder.asked)

    run_virtual(main)
    return asked


async def say_twice(client: Client, clock: VirtualClock) -> None:
    """An event that comes again: the recorder counts it up."""
    events = EventRecorder(client, clock, random.Random(5), "muster")
    task = asyncio.get_running_loop().create_task(events.run())
    about = make_pod("too-big")
    for _ in range(2):
        events.record(about, "Warning", "FailedScheduling", "no room")
    await clock.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def hold(election: Election) -> None:
    await election.acquire()
    await election.keep()


async def use_devices(create: Callable[..., Awaitable[None]], clock: VirtualClock) -> None:
    """A claim, and one that is made for an extended resource."""
    await create(make_device_class("gpu", extended="nvidia.com/gpu"), make_slice("a", 3), make_claim("one"))
    await create(make_pod("with-claim", spec=pod_claim("gpu", claim="one")))
    await create(make_pod("with-extended", gpu=1))
    await clock.sleep(5)


async def play(client: Client, clock: VirtualClock, group: str) -> None:
    async def create(*objects: Object) -> None:
        for obj in objects:
            resource = CUSTOM if obj["apiVersion"] == CUSTOM.api_version else RESOURCES[obj["kind"]]
            await client.create(resource, "default" if resource.namespaced else None, obj)
            if resource == NODES:
                await client.patch(NODES, None, obj["metadata"]["name"], {"spec": {"taints": None}})

    def in_group(made: Object, name: str) -> Object:
        labels = {**(made["metadata"].get("labels") or {}), POD_GROUP_KEY: name}
        return {**made, "metadata": {**made["metadata"], "labels": labels}}

    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
    gang = make_group("g", min_count=2, disruptionMode={"all": {}})
    much = make_group("much", min_count=2)
    if group == CUSTOM.group:
        gang["apiVersion"] = much["apiVersion"] = CUSTOM.api_version
    await create(high, node("a"), node("b"), storage_class("late"), claim("data"), claim("disk", class_name="local"))
    await create(storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    await create(local_volume("here", "a", class_name="local"))
    await create(pod("with-data", "data"), pod("with-disk", "disk"))
    await clock.sleep(5)
    if group != CUSTOM.group:
        await use_devices(create, clock)
    await create(gang, *(in_group(make_pod(f"g-{number}", cpu="2"), "g") for number in range(2)))
    await clock.sleep(5)
    await create(much, *(in_group(make_pod(f"m-{at}", cpu="64"), "much") for at in range(2)))
    await clock.sleep(10)
    for number in range(2):
        await client.delete(PODS, "default", f"m-{number}")
    await create(make_pod("too-big", cpu="64"), make_pod("high", cpu="3", spec={"priorityClassName": "high"}))
    await clock.sleep(60)
