from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from muster.api.codec import Object
from muster.api.meta import key_of, name_of
from muster.api.resource import CONFIG_MAPS, Resource
from muster.client.client import Client
from muster.client.informer import Change
from muster.client.transport import Body, Query, Response, WatchEvent, WatchEvents
from muster.clock import VirtualClock, run_virtual
from muster.controllers.action import Create, Delete, Result
from muster.controllers.queue import WorkQueue
from muster.controllers.runner import Backoff, Controller, ControllerRunner, Informers, Request
from muster.controllers.state import State
from muster.controllers.timers import Timers


class SlowServer:
    """Stores ConfigMaps; watchers hear of a write `lag_s` later. `failures`: so many creations fail first."""

    def __init__(self, clock: VirtualClock, lag_s: float = 0.0, failures: int = 0) -> None:
        self.clock, self.lag_s, self.failures = clock, lag_s, failures
        self.objects: dict[str, Object] = {}
        self.written: list[str] = []
        self.attempts: list[float] = []
        self._version = 0
        self._news: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if path.endswith("/events"):
            return Response(201, {"metadata": {}})
        if method == "GET":
            return Response(200, {"items": [], "metadata": {"resourceVersion": str(self._version)}})
        if method == "POST":
            self.attempts.append(self.clock.elapsed_s)
            if self.failures:
                self.failures -= 1
                return Response(500, {"kind": "Status", "code": 500, "message": "no"})
            assert isinstance(body, dict)
            return Response(201, self.put(body))
        name = path.rpartition("/")[2]
        gone = self.objects.pop(name)
        self._tell("DELETED", gone)
        return Response(200, {"kind": "Status", "status": "Success"})

    def put(self, obj: Object) -> Object:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version), "uid": f"u{self._version}"}
        stored = {**obj, "metadata": metadata}
        self.objects[name_of(stored)] = stored
        self.written.append(name_of(stored))
        self._tell("ADDED", stored)
        return stored

    def _tell(self, type_: str, obj: Object) -> None:
        async def later() -> None:
            await self.clock.sleep(self.lag_s)
            await self._news.put(WatchEvent(type_, obj))  # type: ignore[arg-type]  # one of the literals

        self._tasks = [*getattr(self, "_tasks", []), asyncio.get_running_loop().create_task(later())]

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        while True:
            yield [await self._news.get()]


class Replicas:
    """Keeps as many ConfigMaps as it wants."""

    name = "replicas"
    resources: tuple[Resource, ...] = (CONFIG_MAPS,)

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.looks = 0

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        return [Request("all")]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        self.looks += 1
        there = sorted(key_of(obj) for obj in state[CONFIG_MAPS].all())
        missing = self.wanted - len(there)
        actions = [Create(CONFIG_MAPS, config_map(f"c{len(there) + n}")) for n in range(missing)]
        surplus = [Delete(CONFIG_MAPS, "default", key.partition("/")[2]) for key in there[self.wanted :]]
        return Result((*actions, *surplus))


def config_map(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
    }


def run(
    controller: Controller, act: Callable[[VirtualClock, SlowServer], object] | None = None, **server: float
) -> SlowServer:
    """Run a controller for an hour of virtual time; `act` is called after the first minute."""

    async def main(clock: VirtualClock) -> SlowServer:
        slow = SlowServer(clock, server.get("lag_s", 0.0), int(server.get("failures", 0)))
        client = Client(slow)
        informers = Informers(client, clock)
        runner = ControllerRunner(
            controller, informers, client, clock, random.Random(0), backoff=Backoff(1.0, 60.0), initial=[Request("all")]
        )
        tasks = [asyncio.get_running_loop().create_task(work) for work in (informers.run(), runner.run())]
        await clock.sleep(60)
        if act is not None:
            act(clock, slow)
        await clock.sleep(3600)
        for task in tasks:
            task.cancel()
        return slow

    return run_virtual(main)


def test_controller_sees_its_own_writes_before_it_looks_again() -> None:
    controller = Replicas(3)
    assert run(controller, lag_s=5).written == ["c0", "c1", "c2"]
    assert controller.looks <= 4


def test_own_deletions_are_waited_for() -> None:
    controller = Replicas(0)
    slow = run(controller, lambda clock, server: server.put(config_map("extra")), lag_s=5)
    assert slow.objects == {}
    assert slow.attempts == []


def test_failed_actions_are_tried_again_later_and_later() -> None:
    slow = run(Replicas(1), failures=3)
    gaps = [round(later - earlier) for earlier, later in zip(slow.attempts, slow.attempts[1:], strict=False)]
    assert gaps == [1, 2, 4]
    assert slow.written == ["c0"]


def test_timer_of_a_key_is_replaced_by_the_next_look() -> None:
    class Ticking(Replicas):
        times: list[float] = []  # noqa: RUF012  # one instance

        def reconcile(self, key: str, state: State, now: float) -> Result:
            self.times.append(now)
            return Result(requeue_after_s=100.0 if len(self.times) < 4 else None, memory=len(self.times))

    controller = Ticking(0)
    run(controller, lambda clock, server: server.put(config_map("news")))
    gaps = [round(later - earlier) for earlier, later in zip(controller.times, controller.times[1:], strict=False)]
    assert gaps == [60, 100, 100]


def test_keys_come_in_order_and_once() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        queue = WorkQueue()
        for key in ("b", "a", "b"):
            queue.add(key)
        first = await queue.get()
        queue.add("b")  # it is being worked on: again afterwards
        second = await queue.get()
        queue.done(first)
        return [first, second, await queue.get(), str(len(queue))]

    assert run_virtual(main) == ["b", "a", "b", "0"]


def test_cancelled_timer_keeps_no_simulation_going() -> None:
    async def main(clock: VirtualClock) -> int:
        timers = Timers(clock)
        timers.set("a", 100, lambda: None)
        timers.set_earlier("a", 200, lambda: None)
        timers.set("b", 100, lambda: None, periodic=True)
        await clock.sleep(0)
        timers.cancel("a")
        await clock.sleep(0)
        return clock.pending

    assert run_virtual(main) == 0
