"""An API server asked synchronously, while no time passes: for questions about objects, without a cluster that runs."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import TypeVar

from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import Response
from muster.clock import SIMULATION_EPOCH_S

T = TypeVar("T")


class StandingClock:
    """A clock that stands still."""

    def now(self) -> float:
        return SIMULATION_EPOCH_S

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        raise AssertionError("no time passes here")


class StandingServer:
    """A server over a store in memory."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        self.store = MemoryStore()
        self._server = ApiServer(self.store, StandingClock(), random.Random(0), options)

    def handle(self, request: ApiRequest) -> Response:
        """The answer to one request that is not a watch."""
        return now(self._server.handle(request))


def now(coroutine: Coroutine[object, object, T]) -> T:
    """The result of a coroutine that never waits, as with a store in memory; works inside a running event loop too."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a server in memory never waits")
