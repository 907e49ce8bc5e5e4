"""What a server has is asked once for each group and version, and again while the scheduler runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest

from muster.api.codec import Object
from muster.api.grouping import default_grouping
from muster.api.resource import (
    KUEUE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    STORAGE_CLASSES,
    WORKLOADS,
    Resource,
)
from muster.client.client import Client
from muster.client.informer import Change
from muster.client.transport import ApiError, Body, Query, Response, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.scheduler.served import MUSTER_GROUP, PLACES, find
from muster.scheduler.watches import LOOK_AGAIN_S, NEEDED, OBSERVED, Watches
from muster.testing import make_group

CUSTOM = Resource(MUSTER_GROUP, "v1beta1", "podgroups", "PodGroup")
BUILT_IN = tuple(resource for resource in (*OBSERVED, *NEEDED) if resource.group != POD_GROUPS.group)


class FakeServer:
    """A transport to a server that has exactly these resources; whatever it has holds `objects`, by plural."""

    def __init__(self, clock: VirtualClock, *resources: Resource) -> None:
        self.resources = [*BUILT_IN, *resources]
        self.objects: dict[str, list[Object]] = {}
        self.forbidden: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self._clock = clock
        self._busy = 0

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        self.asked[path] += 1
        self._busy += 1
        self.at_once = max(self.at_once, self._busy)
        await self._clock.sleep(0.01)
        self._busy -= 1
        return self._answer(path)

    def _answer(self, path: str) -> Response:
        versions = {each.api_version for each in self.resources}
        if path == "/apis":
            groups = [{"versions": [{"groupVersion": version}]} for version in sorted(versions) if "/" in version]
            return Response(200, {"groups": groups})
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in versions:
            return Response(200, {"resources": [{"name": each.plural} for each in self._in(version)]})
        found = next((each for each in self.resources if each.path() == path), None)
        if found is None:
            return Response(404, {"kind": "Status", "code": 404, "message": "could not find the requested resource"})
        if found.plural in self.forbidden:
            return Response(403, {"kind": "Status", "code": 403, "message": "forbidden"})
        return Response(200, {"metadata": {"resourceVersion": "1"}, "items": self.objects.get(found.plural, [])})

    def _in(self, version: str) -> list[Resource]:
        return [each for each in self.resources if each.api_version == version]

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        while any(each.path() == path for each in self.resources):
            await self._clock.sleep(0.5, periodic=True)
        raise ApiError({"kind": "Status", "code": 404, "message": "could not find the requested resource"})
        yield []


def test_each_group_and_version_is_asked_about_once_and_all_at_the_same_time() -> None:
    async def main(clock: VirtualClock) -> None:
        native = [Resource("scheduling.k8s.io", "v1beta1", each.plural, each.kind) for each in (POD_GROUPS, WORKLOADS)]
        server = FakeServer(clock, *native)
        began = clock.now()
        found = await find(Client(server), clock, (*OBSERVED, *NEEDED), optional=OBSERVED)
        assert clock.now() - began < 0.04, "three rounds: groups, versions, rights"
        assert server.at_once >= len(OBSERVED)
        assert set(server.asked.values()) == {1}
        assert found[POD_GROUPS].version == "v1beta1" and found[NODES] == NODES

    run_virtual(main)


def test_what_may_not_be_seen_counts_as_absent_only_if_it_is_optional() -> None:
    async def main(clock: VirtualClock) -> None:
        server = FakeServer(clock)
        server.forbidden = {"storageclasses", "pods"}
        found = await find(Client(server), clock, (STORAGE_CLASSES, PODS), optional=(STORAGE_CLASSES,))
        assert found == {PODS: PODS}

    run_virtual(main)


@pytest.mark.parametrize("place", PLACES, ids="/".join)
def test_groups_are_found_wherever_they_are_served(place: tuple[str, str]) -> None:
    async def main(clock: VirtualClock) -> None:
        served = Resource(*place, WORKLOADS.plural, WORKLOADS.kind)
        found = await find(Client(FakeServer(clock, served)), clock, (WORKLOADS, POD_GROUPS))
        assert found == {WORKLOADS: served}

    run_virtual(main)


def watching(clock: VirtualClock, server: FakeServer, changes: list[tuple[Resource, Change]]) -> Watches:
    def arrived(resource: Resource, batch: list[Change]) -> None:
        changes.extend((resource, change) for change in batch)

    return Watches(Client(server), clock, default_grouping(), arrived)


def test_a_kind_that_is_defined_and_taken_away_while_it_runs_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    changes: list[tuple[Resource, Change]] = []

    async def main(clock: VirtualClock) -> None:
        server = FakeServer(clock)
        watches = watching(clock, server, changes)
        async with asyncio.TaskGroup() as tasks:
            await watches.start(tasks)
            assert POD_GROUPS not in watches.found
            await clock.sleep(60)
            server.objects["podgroups"] = [{**make_group("a", min_count=3), "apiVersion": CUSTOM.api_version}]
            server.resources += [CUSTOM, KUEUE_TOPOLOGIES]
            await clock.sleep(LOOK_AGAIN_S + 1)
            assert watches.found[POD_GROUPS] == CUSTOM and KUEUE_TOPOLOGIES in watches.found
            assert [(resource, change.type) for resource, change in changes] == [(POD_GROUPS, "ADDED")]
            caplog.clear()
            server.resources.remove(CUSTOM)
            await clock.sleep(3 * LOOK_AGAIN_S)
            assert POD_GROUPS not in watches.found
            assert [(resource, change.type) for resource, change in changes[1:]] == [(POD_GROUPS, "DELETED")]
            assert KUEUE_TOPOLOGIES in watches.found
            raise _Done

    with caplog.at_level(logging.INFO), pytest.raises(ExceptionGroup):
        run_virtual(main)
    assert [(record.message, record.levelname) for record in caplog.records] == [("not served any more", "INFO")]


def test_a_look_at_a_server_that_stays_the_same_is_one_request() -> None:
    async def main(clock: VirtualClock) -> None:
        server = FakeServer(clock, Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"))
        watches = watching(clock, server, [])
        async with asyncio.TaskGroup() as tasks:
            await watches.start(tasks)
            before = sum(server.asked.values()) - server.asked["/apis"]
            await clock.sleep(3 * LOOK_AGAIN_S)
            others = sum(server.asked.values()) - before - server.asked["/apis"]
            assert server.asked["/apis"] > 4 and others <= 1, "what is Kubernetes' own is asked for now and then"
            raise _Done

    with pytest.raises(ExceptionGroup):
        run_virtual(main)


def test_a_server_that_starts_and_lists_less_for_a_moment_loses_nothing() -> None:
    changes: list[tuple[Resource, Change]] = []

    async def main(clock: VirtualClock) -> None:
        server = FakeServer(clock, CUSTOM)
        server.objects["podgroups"] = [{**make_group("a"), "apiVersion": CUSTOM.api_version}]
        watches = watching(clock, server, changes)
        async with asyncio.TaskGroup() as tasks:
            await watches.start(tasks)
            await clock.sleep(60)
            server.resources.remove(CUSTOM)
            looks = server.asked["/apis"]
            while server.asked["/apis"] == looks:
                await clock.sleep(0.1)
            server.resources.append(CUSTOM)
            await clock.sleep(5 * LOOK_AGAIN_S)
            assert [change.type for _, change in changes] == ["ADDED"]
            raise _Done

    with pytest.raises(ExceptionGroup):
        run_virtual(main)


def test_groups_move_to_where_an_upgraded_server_has_them() -> None:
    changes: list[tuple[Resource, Change]] = []
    before, after = (
        Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in ("v1alpha2", "v1beta1")
    )

    async def main(clock: VirtualClock) -> None:
        server = FakeServer(clock, before)
        server.objects["podgroups"] = [make_group("a", version="v1alpha2")]
        watches = watching(clock, server, changes)
        async with asyncio.TaskGroup() as tasks:
            await watches.start(tasks)
            server.resources[server.resources.index(before)] = after
            server.objects["podgroups"] = [make_group("b", version="v1beta1")]
            await clock.sleep(2 * LOOK_AGAIN_S)
            assert watches.found[POD_GROUPS] == after
            raise _Done

    with pytest.raises(ExceptionGroup):
        run_virtual(main)
    assert [(change.type, change.object["metadata"]["name"]) for _, change in changes] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]


class _Done(Exception):
    """The story is over: ends what still watches."""
