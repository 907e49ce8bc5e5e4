"""Faults by seed: requests that fail, nodes that die and come back.

A failing request raises `TransportError` before the server sees it, or after (then it took effect, and its caller does
not know), or is answered 500.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from muster.client.transport import Body, Query, Response, Transport, TransportError, WatchEvents
from muster.clock import VirtualClock
from muster.nodes.agent import NodeAgent


@dataclass(frozen=True, slots=True)
class RequestFaults:
    """`rate`: the share of requests of components that fail; `until_s`: after this moment none does."""

    rate: float = 0.05
    until_s: float = 60.0


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node that dies at `at_s` and comes back at `back_s` (None: never)."""

    node: str
    at_s: float
    back_s: float | None = None


class FaultyTransport:
    """Lets a share of requests fail, and watches break, as the seed draws it."""

    def __init__(self, inner: Transport, clock: VirtualClock, rng: random.Random, faults: RequestFaults) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._faults = faults

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if not self._fails():
            return await self._inner.request(method, path, query=query, headers=headers, body=body)
        kind = self._rng.randrange(3)
        if kind == 0:
            raise TransportError("simulated: the request was lost")
        if kind == 1:
            status = {"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500}
            return Response(500, {"apiVersion": "v1", **status, "message": "simulated: internal error"})
        await self._inner.request(method, path, query=query, headers=headers, body=body)
        raise TransportError("simulated: the answer was lost")

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        async for events in self._inner.watch(path, query=query):
            if self._fails():
                raise TransportError("simulated: the connection broke")
            yield events

    def _fails(self) -> bool:
        return self._clock.elapsed_s < self._faults.until_s and self._rng.random() < self._faults.rate


async def play(faults: Sequence[NodeFault], agent: NodeAgent, clock: VirtualClock) -> None:
    """Let nodes die and come back at their times; returns when all that was asked for has happened."""
    moments = [(fault.at_s, 0, fault.node) for fault in faults]
    moments += [(fault.back_s, 1, fault.node) for fault in faults if fault.back_s is not None]
    for at_s, comes_back, node in sorted(moments):
        if at_s > clock.elapsed_s:
            await clock.sleep(at_s - clock.elapsed_s)
        if comes_back:
            await agent.start_node(node)
        else:
            await agent.stop_node(node)
