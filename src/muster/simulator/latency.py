"""A transport that takes time: each request, and each batch of a watch, waits for 1 to 20 ms of virtual time.

So the seed draws in which order simultaneous requests arrive and which component sees a change first. Events are
written at once: nobody waits for them, and their times should tell when something happened.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping

from muster.client.transport import Body, Query, Response, Transport, WatchEvents
from muster.clock import Clock

LEAST_S = 0.001
MOST_S = 0.020


class LatencyTransport:
    """Delays what goes through another transport by times drawn from `rng`; the order within a watch stays."""

    def __init__(self, inner: Transport, clock: Clock, rng: random.Random) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if not path.endswith("/events"):
            await self._clock.sleep(self._draw())
        return await self._inner.request(method, path, query=query, headers=headers, body=body)

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        async for events in self._inner.watch(path, query=query):
            await self._clock.sleep(self._draw())
            yield events

    def _draw(self) -> float:
        return LEAST_S + (MOST_S - LEAST_S) * self._rng.random()
