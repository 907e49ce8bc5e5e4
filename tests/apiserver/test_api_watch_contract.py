"""Watches at their full contract: forms of their events, many watchers, slow ones, and the end of a kind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator

from serving import CONFIG_MAPS, PODS, config_map

from muster.api.codec import JSON, Object, dumps
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import WatchEvent, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.testing import make_pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/play.test/v1/namespaces/default/toys"
TOY: Object = {
    "metadata": {"name": "toys.play.test"},
    "spec": {
        "group": "play.test",
        "scope": "Namespaced",
        "names": {"plural": "toys", "kind": "Toy"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def make_front(clock: VirtualClock, store: MemoryStore | None = None) -> Front:
    return Front(ApiServer(store or MemoryStore(), clock, random.Random(1)), clock)


async def ask(front: Front, method: str, path: str, body: JSON = None) -> Object:
    data = dumps(body) if body is not None else None
    answer = await front.answer(ApiRequest(method, path, (), {"content-type": "application/json"}, data))
    assert not isinstance(answer, Streamed) and isinstance(answer.body, dict) and answer.status < 400, answer
    return answer.body


async def watch(front: Front, path: str, *, accept: str = "", **query: str) -> AsyncGenerator[WatchEvents, None]:
    request = ApiRequest("GET", path, (("watch", "true"), *query.items()), {"accept": accept})
    answer = await front.answer(request)
    assert isinstance(answer, Streamed), answer
    return answer.events


async def take(events: AsyncGenerator[WatchEvents, None]) -> list[WatchEvent]:
    return list(await asyncio.wait_for(anext(events), 5))


def test_only_the_first_event_of_a_table_watch_describes_the_columns() -> None:
    async def main(clock: VirtualClock) -> None:
        front = make_front(clock)
        await ask(front, "POST", PODS, make_pod("one"))
        events = await watch(front, PODS, accept=TABLE, resourceVersion="0")
        (first,) = await take(events)
        await ask(front, "POST", PODS, make_pod("two"))
        (second,) = await take(events)
        await events.aclose()
        assert first.object["kind"] == second.object["kind"] == "Table"
        assert first.object["columnDefinitions"][0]["name"] == "Name"
        assert second.object["columnDefinitions"] is None
        assert [event.object["rows"][0]["cells"][0] for event in (first, second)] == ["one", "two"]

    run_virtual(main)


def test_a_metadata_watch_sends_metadata_alone_also_of_what_is_deleted() -> None:
    async def main(clock: VirtualClock) -> None:
        front = make_front(clock)
        events = await watch(front, CONFIG_MAPS, accept=METADATA, resourceVersion="0")
        await ask(front, "POST", CONFIG_MAPS, config_map(labels={"a": "b"}))
        (added,) = await take(events)
        await ask(front, "DELETE", f"{CONFIG_MAPS}/settings")
        (deleted,) = await take(events)
        await events.aclose()
        assert (added.type, deleted.type) == ("ADDED", "DELETED")
        for event in (added, deleted):
            assert event.object["kind"] == "PartialObjectMetadata"
            assert "data" not in event.object and event.object["metadata"]["labels"] == {"a": "b"}

    run_virtual(main)


def test_thousands_of_watchers_share_one_object_and_one_history() -> None:
    async def main(clock: VirtualClock) -> None:
        front = make_front(clock)
        streams = [await watch(front, CONFIG_MAPS, resourceVersion="1") for _ in range(2000)]
        waiting = [asyncio.ensure_future(take(stream)) for stream in streams]
        await asyncio.sleep(0)
        await ask(front, "POST", CONFIG_MAPS, config_map())
        received = [event for events in await asyncio.gather(*waiting) for event in events]
        assert len(received) == 2000 and len({id(event.object) for event in received}) == 1
        for stream in streams:
            await stream.aclose()

    run_virtual(main)


def test_a_slow_watcher_is_cut_off_and_the_others_miss_nothing() -> None:
    async def main(clock: VirtualClock) -> None:
        front = make_front(clock, MemoryStore(window=50))
        slow, quick = [await watch(front, CONFIG_MAPS, resourceVersion="0") for _ in range(2)]
        await ask(front, "POST", CONFIG_MAPS, config_map())
        await take(slow)
        seen = len(await take(quick))
        for number in range(200):
            body = {"metadata": {"name": "settings"}, "data": {"n": str(number)}}
            await ask(front, "PUT", f"{CONFIG_MAPS}/settings", body)
            seen += len(await take(quick))
        assert seen == 201
        (last,) = await take(slow)
        assert (last.type, last.object["code"], last.object["reason"]) == ("ERROR", 410, "Expired")
        await slow.aclose()
        await quick.aclose()

    run_virtual(main)


def test_watches_of_a_deleted_kind_end() -> None:
    async def main(clock: VirtualClock) -> None:
        front = make_front(clock)
        await ask(front, "POST", DEFINITIONS, TOY)
        await ask(front, "POST", TOYS, {"apiVersion": "play.test/v1", "kind": "Toy", "metadata": {"name": "car"}})
        events = await watch(front, TOYS, resourceVersion="0")
        await take(events)
        await ask(front, "DELETE", f"{DEFINITIONS}/toys.play.test")
        types = [event.type async for batch in events for event in batch]
        assert types == ["DELETED"]

    run_virtual(main)
