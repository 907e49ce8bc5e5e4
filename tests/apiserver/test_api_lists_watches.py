"""Lists with selectors and pages, and watches."""

from __future__ import annotations

import asyncio
import random

import pytest
from serving import CONFIG_MAPS, NODES, PODS, Api, config_map, groups

from muster.api.codec import Object
from muster.api.resource import CONFIG_MAPS as CONFIG_MAP_RESOURCE
from muster.apiserver.errors import StatusError
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.transport import WatchEvent
from muster.clock import VirtualClock, run_virtual
from muster.testing import make_group, make_node, make_pod


@pytest.fixture
def api() -> Api:
    return Api()


def names(answer: Object) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_a_list_has_the_version_of_the_store_and_items_without_types(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map())
    answer = api.get(CONFIG_MAPS)
    assert (answer["kind"], answer["metadata"]["resourceVersion"]) == ("ConfigMapList", str(api.store.revision))
    assert "kind" not in answer["items"][0]


def test_in_process_lists_share_the_stored_objects() -> None:
    api = Api()
    stored = api.create(CONFIG_MAPS, config_map())

    async def main(clock: VirtualClock) -> None:
        listing = await Client(InProcessTransport(api.server)).list(CONFIG_MAP_RESOURCE, "default")
        assert listing.items[0] is stored

    run_virtual(main)


@pytest.mark.parametrize(
    ("query", "want_names"),
    [
        ({"labelSelector": "app=x"}, ["a", "c"]),
        ({"labelSelector": "app!=x"}, ["b"]),
        ({"labelSelector": "app in (x,z),!old"}, ["a"]),
        ({"labelSelector": "app notin (x)"}, ["b"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b,metadata.namespace=default"}, ["a", "c"]),
    ],
    ids=str,
)
def test_selectors(api: Api, query: dict[str, str], want_names: list[str]) -> None:
    for name, labels in (("a", {"app": "x"}), ("b", {"app": "y"}), ("c", {"app": "x", "old": "1"})):
        api.create(CONFIG_MAPS, config_map(name, labels=labels))
    assert names(api.get(CONFIG_MAPS, **query)) == want_names


def test_pods_are_found_by_node_and_phase(api: Api) -> None:
    api.create(PODS, make_pod("waits"))
    api.create(PODS, make_pod("runs", node="n"))
    assert names(api.get("/api/v1/pods", fieldSelector="spec.nodeName=n,status.phase!=Failed")) == ["runs"]
    assert names(api.get(PODS, fieldSelector="spec.nodeName=")) == ["waits"]


@pytest.mark.parametrize(
    ("path", "query", "want_code"),
    [
        (CONFIG_MAPS, {"fieldSelector": "data.k=v"}, 400),
        (PODS, {"fieldSelector": "spec.image=x"}, 400),
        (CONFIG_MAPS, {"labelSelector": "=a"}, 400),
        (CONFIG_MAPS, {"resourceVersion": "abc"}, 400),
        (CONFIG_MAPS, {"resourceVersionMatch": "Exact"}, 422),
        (CONFIG_MAPS, {"resourceVersion": "99999999"}, 504),
        (CONFIG_MAPS, {"continue": "bogus"}, 400),
    ],
    ids=str,
)
def test_bad_list_requests(api: Api, path: str, query: dict[str, str], want_code: int) -> None:
    api.refuse(want_code, "GET", path, **query)


def test_pages_show_one_state(api: Api) -> None:
    for name in "abcde":
        api.create(CONFIG_MAPS, config_map(name))
    first = api.get(CONFIG_MAPS, limit="2")
    assert first["metadata"]["remainingItemCount"] == 3
    api.delete(CONFIG_MAPS + "/c")
    api.create(CONFIG_MAPS, config_map("bb"))
    second = api.get(CONFIG_MAPS, **{"limit": "2", "continue": first["metadata"]["continue"]})
    third = api.get(CONFIG_MAPS, **{"limit": "2", "continue": second["metadata"]["continue"]})
    assert names(first) + names(second) + names(third) == list("abcde")
    assert "continue" not in third["metadata"]
    assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]


def test_a_page_is_filled_through_a_selector(api: Api) -> None:
    for index in range(6):
        api.create(CONFIG_MAPS, config_map(f"c{index}", labels={"odd": str(index % 2)}))
    page = api.get(CONFIG_MAPS, limit="2", labelSelector="odd=1")
    assert names(page) == ["c1", "c3"]
    assert page["metadata"]["continue"]


def test_a_token_from_before_a_compaction_has_expired(api: Api) -> None:
    for name in "abc":
        api.create(CONFIG_MAPS, config_map(name))
    token = api.get(CONFIG_MAPS, limit="1")["metadata"]["continue"]
    api.create(CONFIG_MAPS, config_map("d"))
    api.store.compact(api.store.revision)
    status = api.refuse(410, "GET", CONFIG_MAPS, **{"continue": token})
    assert status["reason"] == "Expired"
    rest = api.get(CONFIG_MAPS, **{"continue": status["metadata"]["continue"]})
    assert rest["items"], "the rest can be had as it is now"


async def collect(server: ApiServer, path: str, **query: str) -> list[WatchEvent]:
    """What a watch sends before anything else happens."""
    events: list[WatchEvent] = []

    async def read() -> None:
        request = ApiRequest("GET", path, (*query.items(), ("watch", "true")))
        async for batch in server.watch(request):
            events.extend(batch)

    task = asyncio.ensure_future(read())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return events


def watched(api: Api, path: str, **query: str) -> list[tuple[str, str]]:
    async def main(clock: VirtualClock) -> list[WatchEvent]:
        return await collect(api.server, path, **query)

    return [(event.type, event.object["metadata"].get("name", "")) for event in run_virtual(main)]


def test_a_watch_replays_what_happened_since_a_version(api: Api) -> None:
    version = api.create(CONFIG_MAPS, config_map("a"))["metadata"]["resourceVersion"]
    api.patch(CONFIG_MAPS + "/a", {"data": {"key": "new"}})
    api.create(CONFIG_MAPS, config_map("b"))
    api.delete(CONFIG_MAPS + "/a")
    want = [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert watched(api, CONFIG_MAPS, resourceVersion=version) == want


def test_objects_enter_and_leave_a_selection(api: Api) -> None:
    version = api.create(CONFIG_MAPS, config_map("a"))["metadata"]["resourceVersion"]
    api.patch(CONFIG_MAPS + "/a", {"metadata": {"labels": {"in": "yes"}}})
    api.patch(CONFIG_MAPS + "/a", {"metadata": {"labels": {"in": None}}})
    want = [("ADDED", "a"), ("DELETED", "a")]
    assert watched(api, CONFIG_MAPS, resourceVersion=version, labelSelector="in=yes") == want


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}], ids=["no version", "version 0"])
def test_a_watch_without_a_version_begins_with_the_state(api: Api, version: dict[str, str]) -> None:
    api.create(CONFIG_MAPS, config_map("a"))
    assert watched(api, CONFIG_MAPS, **version) == [("ADDED", "a")]


def test_initial_events_end_with_a_marked_bookmark(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}

    async def main(clock: VirtualClock) -> list[WatchEvent]:
        return await collect(api.server, CONFIG_MAPS, **query)

    *_, last = run_virtual(main)
    assert last.type == "BOOKMARK"
    assert last.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_from_before_the_window_has_expired(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("a"))
    api.create(CONFIG_MAPS, config_map("b"))
    api.store.compact(api.store.revision)
    request = ApiRequest("GET", CONFIG_MAPS, (("watch", "1"), ("resourceVersion", "1")))
    with pytest.raises(StatusError) as raised:
        api.server.watch(request)
    assert (raised.value.code, raised.value.status["reason"]) == (410, "Expired")


def test_a_watch_ends_after_its_time_and_sends_bookmarks() -> None:
    async def main(clock: VirtualClock) -> tuple[list[str], float]:
        server = ApiServer(MemoryStore(), clock, random.Random(1))
        query = (("watch", "1"), ("resourceVersion", "0"), ("allowWatchBookmarks", "1"), ("timeoutSeconds", "200"))
        types: list[str] = []
        async for batch in server.watch(ApiRequest("GET", CONFIG_MAPS, query)):
            types += [event.type for event in batch]
        return types, clock.elapsed_s

    types, elapsed_s = run_virtual(main)
    assert types == ["BOOKMARK"] * 4
    assert elapsed_s == pytest.approx(200, abs=0.1)


def test_a_watch_of_an_older_version_sees_that_version(api: Api) -> None:
    api.create(groups(), make_group("g"))

    async def main(clock: VirtualClock) -> list[WatchEvent]:
        return await collect(api.server, groups("v1alpha2"))

    (event,) = run_virtual(main)
    assert event.object["spec"]["disruptionMode"] == "Pod"


def test_nodes_are_found_by_whether_they_take_pods(api: Api) -> None:
    api.create(NODES, make_node("open"))
    api.create(NODES, make_node("closed", unschedulable=True))
    assert names(api.get(NODES, fieldSelector="spec.unschedulable=true")) == ["closed"]
