"""Informers that ask for the first objects as a watch, with servers that end, refuse or forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from muster.api.codec import Object
from muster.api.resource import CONFIG_MAPS
from muster.client.client import Client
from muster.client.informer import Change, Informer
from muster.client.transport import ApiError, Body, Query, Response, TransportError, WatchEvent, WatchEvents
from muster.clock import VirtualClock, run_virtual


def made(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": str(version)}}


def added(name: str, version: int) -> WatchEvent:
    return WatchEvent("ADDED", made(name, version))


def end(version: int) -> WatchEvent:
    annotations = {"k8s.io/initial-events-end": "true"}
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


GONE = WatchEvent("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


class Script:
    """A server whose watches play these batches; an exception in place of a batch is raised."""

    def __init__(self, *watches: list[WatchEvents | Exception], listing: list[Object] | None = None) -> None:
        self.queries: list[dict[str, str]] = []
        self._watches = list(watches)
        self._listing = listing or []

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        self.queries.append({"list": "", **dict(query)})
        return Response(200, {"items": self._listing, "metadata": {"resourceVersion": "9"}})

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        self.queries.append(dict(query))
        if not self._watches:
            await asyncio.Event().wait()
        for batch in self._watches.pop(0):
            if isinstance(batch, Exception):
                raise batch
            yield batch


def play(server: Script, seconds: float = 60.0) -> tuple[list[tuple[str, str]], list[str]]:
    """What handlers were told (type and name), and from which versions watches began ("" for whole ones)."""
    told: list[tuple[str, str]] = []

    def note(changes: list[Change]) -> None:
        told.extend((change.type, change.object["metadata"]["name"]) for change in changes)

    async def main(clock: VirtualClock) -> None:
        informer = Informer(Client(server, streams_lists=True), clock, CONFIG_MAPS)
        informer.add_handler(note)
        task = asyncio.get_running_loop().create_task(informer.run())
        await clock.sleep(seconds)
        task.cancel()

    run_virtual(main)
    return told, [query.get("resourceVersion", "") for query in server.queries]


def test_objects_are_told_when_all_of_them_are_there() -> None:
    server = Script([[added("a", 1)], [added("b", 2), end(5), added("c", 6)], [added("d", 7)]])
    told, versions = play(server)
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]
    assert versions == ["", "7"]
    assert server.queries[0]["sendInitialEvents"] == "true"


def test_broken_watch_goes_on_where_it_was() -> None:
    server = Script([[added("a", 1), end(5)], TransportError("broken")], [[added("b", 6)], TransportError("broken")])
    told, versions = play(server)
    assert told == [("ADDED", "a"), ("ADDED", "b")]
    assert versions == ["", "5", "6"]


def test_watch_that_breaks_before_all_is_sent_begins_anew() -> None:
    server = Script([[added("a", 1)], TransportError("broken")], [[added("b", 2), end(5)]])
    told, versions = play(server)
    assert told == [("ADDED", "b")]
    assert versions == ["", "", "5"]


def test_expired_version_reads_everything_again_and_tells_the_difference() -> None:
    server = Script([[added("a", 1), added("b", 2), end(5)]], [[GONE]], [[added("b", 2), added("c", 8), end(9)]])
    told, versions = play(server)
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("ADDED", "c")]
    assert versions == ["", "5", "", "9"]


def test_server_that_cannot_stream_is_listed() -> None:
    refusal = ApiError(
        {"kind": "Status", "code": 422, "reason": "Invalid", "message": "sendInitialEvents is forbidden"}
    )
    told, versions = play(Script([refusal], listing=[made("a", 3)]))
    assert told == [("ADDED", "a")]
    assert versions == ["", "", "9"]


def test_watch_that_ends_at_once_is_not_repeated_in_a_tight_circle() -> None:
    server = Script([[end(5)]], *([[]] * 1000))
    _, versions = play(server, seconds=10)
    assert len(versions) < 15


class Refusing:
    """A server that answers every request with a Status."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        return Response(self._code, {"kind": "Status", "code": self._code, "message": "no"})

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        raise AssertionError("nothing was listed")


@pytest.mark.parametrize(("code", "seconds", "want_lines"), [(403, 600, 1), (404, 30, 0), (404, 600, 1), (500, 600, 1)])
def test_a_refusal_that_goes_on_is_said_once(
    code: int, seconds: float, want_lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(clock: VirtualClock) -> None:
        task = asyncio.create_task(Informer(Client(Refusing(code)), clock, CONFIG_MAPS).run())
        await clock.sleep(seconds)
        task.cancel()

    with caplog.at_level("INFO"):
        run_virtual(main)
    assert len(caplog.records) == want_lines
