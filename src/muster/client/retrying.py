"""A transport that does what an overloaded server asks for: come back later.

Source of the rules: client-go `rest/with_retry.go` (429 and 5xx with `Retry-After` are repeated, at most ten times; a
read whose connection broke is repeated too). What the server did not ask to repeat and what may have taken effect
(writes) is left to whoever knows what it means.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping

from muster.client.transport import Body, Query, Response, Transport, TransportError, UntrustedServer, WatchEvents
from muster.clock import Clock

MAX_RETRIES = 10
MAX_WAIT_S = 30.0
READ_RETRIES = 3
READ_PAUSE_S = 0.2


class RetryingTransport:
    """Passes requests on; sleeps and repeats where that is right. `rng` spreads the repetitions of many clients."""

    def __init__(self, transport: Transport, clock: Clock, rng: random.Random) -> None:
        self.retried = 0
        """How many requests were sent again."""
        self._transport = transport
        self._clock = clock
        self._rng = rng

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        failures = 0
        for attempt in range(MAX_RETRIES + 1):
            is_last = attempt == MAX_RETRIES
            try:
                response = await self._transport.request(method, path, query=query, headers=headers, body=body)
                wait_s = asked_wait_s(response)
            except UntrustedServer:
                raise
            except TransportError:
                failures += 1
                if method != "GET" or failures > READ_RETRIES or is_last:
                    raise
                wait_s = READ_PAUSE_S * 2.0**failures
            else:
                if wait_s is None or is_last:
                    return response
            self.retried += 1
            await self._clock.sleep(wait_s * self._rng.uniform(1.0, 1.25))
        raise AssertionError("the last attempt returns or raises")

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        """Watches are begun anew by whoever reads them."""
        return self._transport.watch(path, query=query)


def asked_wait_s(response: Response) -> float | None:
    """How many seconds the server asks to wait before the same request; None if it does not."""
    if response.status != 429 and response.status < 500:
        return None
    said = next((value for key, value in response.headers.items() if key.lower() == "retry-after"), "")
    return min(MAX_WAIT_S, float(said)) if said.isdecimal() else None
