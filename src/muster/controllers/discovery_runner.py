"""Runs a controller that must know first which kinds the server serves."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from muster.api.codec import Object
from muster.client.client import Client, object_of
from muster.client.transport import ClientError
from muster.clock import Clock
from muster.controllers.kinds import Kinds, group_versions, kinds_of
from muster.controllers.runner import DEFAULT_BACKOFF, Backoff, Controller, ControllerRunner, Informers

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class DiscoveryRunner:
    """Asks the server for its kinds, makes the controller from them (None: not for this server) and runs it."""

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

    async def run(self) -> None:
        """Work until cancelled. The informers run elsewhere."""
        controller = self._make(await self._discover())
        if controller is None:
            return
        runner = ControllerRunner(
            controller,
            self._informers,
            self._client,
            self._clock,
            self._rng,
            workers=self._workers,
            backoff=self._backoff,
        )
        await runner.run()

    async def _discover(self) -> Kinds:
        while True:
            try:
                return await discover(self._client)
            except ClientError as error:
                logger.warning("kinds not discovered", extra={"error": str(error)})
            await self._clock.sleep(RETRY_S)


async def discover(client: Client) -> Kinds:
    """The kinds of a server, by its plain discovery documents. Raises ClientError."""
    lists = [("", "v1", await _get(client, "/api/v1"))]
    for group, version in group_versions(await _get(client, "/apis")):
        lists.append((group, version, await _get(client, f"/apis/{group}/{version}")))
    return kinds_of(lists)


async def _get(client: Client, path: str) -> Object:
    response = await client.transport.request("GET", path, headers={"Accept": "application/json"})
    return object_of(response)
