"""Runs a controller that must know first which kinds the server serves."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from muster.api.codec import Object
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from muster.client.client import Client, object_of
from muster.client.informer import Change
from muster.client.transport import ClientError
from muster.clock import Clock
from muster.controllers.kinds import Kinds, group_versions, kinds_of
from muster.controllers.runner import DEFAULT_BACKOFF, Backoff, Controller, ControllerRunner, Informers

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class DiscoveryRunner:
    """Asks the server for its kinds, makes the controller from them (None: not for this server) and runs it.

    When custom kinds come or go and the controller would watch others than before, it is made anew.
    """

    def __init__(
        self,
        make: Callable[[Kinds], Controller | None],
        informers: Informers,
        client: Client,
        clock: Clock,
        rng: random.Random,
        *,
        workers: int = 5,
        backoff: Backoff = DEFAULT_BACKOFF,
    ) -> None:
        self._make = make
        self._informers = informers
        self._client = client
        self._clock = clock
        self._rng = rng
        self._workers = workers
        self._backoff = backoff
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. The informers run elsewhere."""
        kinds = await self._discover()
        definitions = kinds.find(CUSTOM_RESOURCE_DEFINITIONS.group, CUSTOM_RESOURCE_DEFINITIONS.plural)
        if definitions is None:
            controller = self._make(kinds)
            if controller is not None:
                await self._runner(controller).run()
            return
        watched = self._informers.watched(definitions)
        watched.informer.add_handler(self._heard)
        try:
            await self._run_as_kinds_change(kinds)
        finally:
            watched.informer.remove_handler(self._heard)
            self._informers.release(definitions)

    def _heard(self, changes: list[Change]) -> None:
        self._changed.set()

    async def _run_as_kinds_change(self, kinds: Kinds) -> None:
        controller, running = self._make(kinds), None
        try:
            if controller is not None:
                running = self._start(self._runner(controller))
            while True:
                await self._next_change(running)
                following = self._make(await self._discover())
                if _resources(following) == _resources(controller):
                    continue
                # The new one is made first, so that informers that both use go on.
                runner = self._runner(following) if following is not None else None
                await _stop(running)
                controller, running = following, self._start(runner) if runner is not None else None
        finally:
            await _stop(running)

    async def _next_change(self, running: asyncio.Task[None] | None) -> None:
        """Wait until definitions changed; what the running controller raises is raised here."""
        change = asyncio.get_running_loop().create_task(self._changed.wait())
        try:
            waiting = [change] if running is None else [change, running]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
        if running is not None and running.done():
            running.result()
        self._changed.clear()

    def _start(self, runner: ControllerRunner) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(runner.run())

    def _runner(self, controller: Controller) -> ControllerRunner:
        return ControllerRunner(
            controller,
            self._informers,
            self._client,
            self._clock,
            self._rng,
            workers=self._workers,
            backoff=self._backoff,
        )

    async def _discover(self) -> Kinds:
        while True:
            try:
                return await discover(self._client)
            except ClientError as error:
                logger.warning("kinds not discovered", extra={"error": str(error)})
            await self._clock.sleep(RETRY_S)


def _resources(controller: Controller | None) -> tuple[Resource, ...]:
    return controller.resources if controller is not None else ()


async def _stop(running: asyncio.Task[None] | None) -> None:
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def discover(client: Client) -> Kinds:
    """The kinds of a server, by its plain discovery documents. Raises ClientError."""
    lists = [("", "v1", await _get(client, "/api/v1"))]
    for group, version in group_versions(await _get(client, "/apis")):
        lists.append((group, version, await _get(client, f"/apis/{group}/{version}")))
    return kinds_of(lists)


async def _get(client: Client, path: str) -> Object:
    response = await client.transport.request("GET", path, headers={"Accept": "application/json"})
    return object_of(response)
