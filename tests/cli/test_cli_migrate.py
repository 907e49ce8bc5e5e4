"""`muster migrate`: groups across an upgrade of the embedded server from 1.36 to 1.37, with interruptions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from muster.api.codec import Object
from muster.api.meta import condition, uid_of
from muster.api.resource import PODS, Resource
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.options import Release, ServerOptions
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.cli.errors import BadInput, CheckFailed
from muster.cli.main import main
from muster.cli.migrate import COMPLETE, Outcome, delete, export, in_version, restore
from muster.client.client import Client
from muster.client.transport import Body, Query, Response, TransportError, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.testing import make_group, make_pod

WORKLOADS = {each: Resource("scheduling.k8s.io", each, "workloads", "Workload") for each in ("v1alpha2", "v1beta1")}
GROUPS = {each: Resource("scheduling.k8s.io", each, "podgroups", "PodGroup") for each in ("v1alpha2", "v1beta1")}


class Weak:
    """A transport that breaks after some requests, on the way there or back."""

    def __init__(self, inner: InProcessTransport, requests: int, is_sent: bool) -> None:
        self._inner, self._left, self._is_sent = inner, requests, is_sent

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        self._left -= method != "GET"
        if method != "GET" and self._left < 0 and not self._is_sent:
            raise TransportError("cut")
        answer = await self._inner.request(method, path, query=query, headers=headers, body=body)
        if method != "GET" and self._left < 0:
            raise TransportError("cut")
        return answer

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        return self._inner.watch(path, query=query)


class World:
    """A server whose release changes while its objects stay."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._store = MemoryStore()
        self.upgrade("1.36")

    def upgrade(self, release: Release) -> None:
        self.api = ApiServer(self._store, self.clock, random.Random(1), ServerOptions(emulate=release))
        self.client = Client(InProcessTransport(self.api))

    def weak(self, requests: int, is_sent: bool) -> Client:
        return Client(Weak(InProcessTransport(self.api), requests, is_sent))

    async def fill(self) -> None:
        """A Workload, a group of it that started, one that did not, and a pod that uses the first."""
        version = "v1alpha2"
        template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
        workload = {
            "apiVersion": f"scheduling.k8s.io/{version}",
            "kind": "Workload",
            "metadata": {"name": "train", "namespace": "default", "labels": {"team": "a"}},
            "spec": {"podGroupTemplates": [template]},
        }
        made = await self.client.create(WORKLOADS[version], "default", workload)
        reference = {"workload": {"workloadName": "train", "podGroupTemplateName": "workers"}}
        started = make_group(
            "started", min_count=2, version=version, disruptionMode="PodGroup", podGroupTemplateRef=reference
        )
        owner = {"apiVersion": workload["apiVersion"], "kind": "Workload", "name": "train", "uid": uid_of(made)}
        started["metadata"]["ownerReferences"] = [owner]
        await self.client.create(GROUPS[version], "default", started)
        await self.client.create(GROUPS[version], "default", make_group("waiting", min_count=3, version=version))
        entry = {
            "type": "PodGroupScheduled",
            "status": "True",
            "reason": "Scheduled",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await self.client.patch(
            GROUPS[version], "default", "started", {"status": {"conditions": [entry]}}, subresource="status"
        )
        await self.client.create(PODS, "default", make_pod("worker", group="started"))


def run(story: Callable[[World], Awaitable[None]]) -> None:
    async def play(clock: VirtualClock) -> None:
        world = World(clock)
        service = ControllerService(
            world.client, clock, random.Random(3), ControllerOptions(), ("garbage-collector-controller",)
        )
        task = asyncio.get_running_loop().create_task(service.run())
        try:
            await story(world)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(play)


async def check_restored(world: World) -> None:
    (workload,) = (await world.client.list(WORKLOADS["v1beta1"])).items
    assert workload["metadata"]["labels"] == {"team": "a"}
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    started, waiting = (await world.client.list(GROUPS["v1beta1"])).items
    assert started["spec"]["workloadRef"] == {"workloadName": "train", "templateName": "workers"}
    assert started["spec"]["disruptionMode"] == {"all": {}}
    (owner,) = started["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["uid"]) == ("scheduling.k8s.io/v1alpha3", uid_of(workload))
    said = condition(started, "PodGroupInitiallyScheduled") or {}
    assert (said["status"], said["lastTransitionTime"]) == ("True", "2026-01-01T00:00:00Z")
    assert waiting["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert "status" not in waiting or not waiting["status"].get("conditions")


def test_groups_come_across_an_upgrade_with_all_they_said(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.fill()
        assert await export(world.client, world.clock, tmp_path) == Outcome(3)
        assert await delete(world.client, world.clock, tmp_path) == Outcome(3)
        assert (await world.client.list(GROUPS["v1alpha2"])).items == []
        assert len((await world.client.list(PODS)).items) == 1
        world.upgrade("1.37")
        assert await restore(world.client, world.clock, tmp_path) == Outcome(3)
        await check_restored(world)
        assert await restore(world.client, world.clock, tmp_path) == Outcome(0, 3)

    run(story)


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("requests", range(5))
def test_a_step_that_was_interrupted_anywhere_goes_on(tmp_path: Path, requests: int, is_sent: bool) -> None:
    async def story(world: World) -> None:
        await world.fill()
        await export(world.client, world.clock, tmp_path)
        with pytest.raises(TransportError):
            await delete(world.weak(requests % 4, is_sent), world.clock, tmp_path)
        await delete(world.client, world.clock, tmp_path)
        assert (await world.client.list(GROUPS["v1alpha2"])).items == []
        assert (await world.client.list(WORKLOADS["v1alpha2"])).items == []
        world.upgrade("1.37")
        if requests < 4:
            with pytest.raises(TransportError):
                await restore(world.weak(requests, is_sent), world.clock, tmp_path)
        await restore(world.client, world.clock, tmp_path)
        await check_restored(world)

    run(story)


def test_nothing_is_deleted_that_is_not_in_the_files_as_it_is(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.fill()
        await export(world.client, world.clock, tmp_path)
        await world.client.create(GROUPS["v1alpha2"], "default", make_group("late", min_count=2, version="v1alpha2"))
        with pytest.raises(CheckFailed, match="1 objects are not in"):
            await delete(world.client, world.clock, tmp_path)
        assert len((await world.client.list(GROUPS["v1alpha2"])).items) == 3
        with pytest.raises(BadInput, match="complete export"):
            await export(world.client, world.clock, tmp_path)

    run(story)


def test_another_object_of_the_name_is_left_and_said(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.fill()
        await export(world.client, world.clock, tmp_path)
        await delete(world.client, world.clock, tmp_path)
        world.upgrade("1.37")
        other = make_group("waiting", min_count=9, version="v1beta1")
        await world.client.create(GROUPS["v1beta1"], "default", other)
        with pytest.raises(CheckFailed) as failed:
            await restore(world.client, world.clock, tmp_path)
        assert failed.value.details == ("PodGroup default/waiting: there is another one of this name",)
        names = [group["metadata"]["name"] for group in (await world.client.list(GROUPS["v1beta1"])).items]
        assert names == ["started", "waiting"]

    run(story)


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.fill()
        folder = tmp_path / "out"
        assert await export(world.client, world.clock, folder, True) == Outcome(3)
        assert not folder.exists()
        await export(world.client, world.clock, folder)
        assert await delete(world.client, world.clock, folder, True) == Outcome(3)
        assert len((await world.client.list(GROUPS["v1alpha2"])).items) == 2
        await delete(world.client, world.clock, folder)
        world.upgrade("1.37")
        assert await restore(world.client, world.clock, folder, True) == Outcome(3)
        assert (await world.client.list(GROUPS["v1beta1"])).items == []

    run(story)


def test_what_was_being_deleted_does_not_come_back_and_shared_devices_are_not_torn_apart(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.fill()
        await world.client.delete(GROUPS["v1alpha2"], "default", "waiting")
        await export(world.client, world.clock, tmp_path / "a")
        claims = [{"name": "gpus", "resourceClaimName": "gpus"}]
        sharing = make_group("sharing", min_count=2, version="v1alpha2", resourceClaims=claims)
        await world.client.create(GROUPS["v1alpha2"], "default", sharing)
        await export(world.client, world.clock, tmp_path / "b")
        with pytest.raises(CheckFailed, match="1 groups share devices"):
            await delete(world.client, world.clock, tmp_path / "b")
        await world.client.patch(GROUPS["v1alpha2"], "default", "sharing", {"metadata": {"finalizers": None}})
        await world.client.delete(GROUPS["v1alpha2"], "default", "sharing")
        await delete(world.client, world.clock, tmp_path / "a")
        world.upgrade("1.37")
        await restore(world.client, world.clock, tmp_path / "a")
        assert [each["metadata"]["name"] for each in (await world.client.list(GROUPS["v1beta1"])).items] == ["started"]

    run(story)


def test_other_owners_stay_as_they_are() -> None:
    owner: Object = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
    group = make_group("g", version="v1alpha2")
    group["metadata"] |= {"ownerReferences": [owner], "uid": "x", "resourceVersion": "7"}
    made = in_version(group, "v1beta1", {"v": "w"})
    assert made["metadata"] == {"name": "g", "namespace": "default", "ownerReferences": [owner]}


def test_a_group_of_no_workload_is_of_none_afterwards() -> None:
    """A real server of 1.36 says `podGroupTemplateRef: null`."""
    group = make_group("g", min_count=2, version="v1alpha2", podGroupTemplateRef=None)
    for version in ("v1beta1", "v1alpha2"):
        assert in_version(group, version, {})["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}


def test_a_directory_without_an_export_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "delete", str(tmp_path)]) == 2
    assert "holds no complete export" in capsys.readouterr().err
    (tmp_path / COMPLETE).write_text('{"objects": 2}')
    assert main(["migrate", "restore", str(tmp_path)]) == 2
    assert "has 0 objects, but 2 were exported" in capsys.readouterr().err
