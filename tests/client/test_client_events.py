from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping

from muster.api.codec import Object
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import Body, Query, Response, WatchEvents
from muster.clock import VirtualClock, run_virtual

JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "default", "uid": "u"},
}


class Events:
    """A server that keeps events."""

    def __init__(self) -> None:
        self.stored: dict[str, Object] = {}

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        assert isinstance(body, dict)
        if method == "POST":
            self.stored[body["metadata"]["name"]] = dict(body)
        else:
            self.stored[path.rpartition("/")[2]].update(body)
        return Response(200, {"metadata": {}})

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        raise NotImplementedError


def recorded(messages: list[tuple[float, str]], *, combines: bool) -> list[tuple[str, int]]:
    """Message and count of what is stored after these were recorded, each so many seconds after the one before."""

    async def main(clock: VirtualClock) -> list[tuple[str, int]]:
        server = Events()
        recorder = EventRecorder(Client(server), clock, random.Random(0), "test", combines=combines)
        task = asyncio.get_running_loop().create_task(recorder.run())
        for wait_s, message in messages:
            await clock.sleep(wait_s)
            recorder.record(JOB, "Normal", "Reason", message)
        await clock.sleep(1)
        task.cancel()
        return [(event["message"], event["count"]) for event in server.stored.values()]

    return run_virtual(main)


def test_repeated_event_raises_a_count() -> None:
    assert recorded([(0, "a"), (5, "a"), (5, "b"), (5, "a")], combines=False) == [("a", 3), ("b", 1)]


def test_repeated_event_after_a_long_time_is_a_new_one() -> None:
    assert recorded([(0, "a"), (601, "a")], combines=False) == [("a", 1), ("a", 1)]


def test_similar_events_are_combined_from_the_tenth_on() -> None:
    stored = recorded([(0, f"m{n}") for n in range(12)], combines=True)
    assert stored[:9] == [(f"m{n}", 1) for n in range(9)]
    assert stored[9:] == [("(combined from similar events): m11", 3)]


def test_one_object_gets_25_events_at_once_and_then_one_in_five_minutes() -> None:
    burst = [(0.0, "same")] * 40
    assert recorded(burst, combines=True) == [("same", 25)]
    assert recorded([*burst, (301, "same"), (0, "same")], combines=True) == [("same", 26)]
