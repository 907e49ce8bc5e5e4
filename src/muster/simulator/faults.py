"""Faults by seed: requests that fail, nodes that die and come back, components that are restarted.

A failing request raises `TransportError` before the server sees it, or after (then it took effect, and its caller does
not know), or is answered 500.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from msgspec import Struct

from muster.client.transport import Body, Query, Response, Transport, TransportError, WatchEvents
from muster.clock import VirtualClock
from muster.simulator.embedded import EmbeddedCluster


class RequestFaults(Struct, frozen=True):
    """`rate`: the share of requests of components that fail; `until_s`: after this moment none does."""

    rate: float = 0.05
    until_s: float = 60.0


class NodeFault(Struct, frozen=True):
    """A node that dies at `at_s` and comes back at `back_s` (None: never)."""

    node: str
    at_s: float
    back_s: float | None = None


class ComponentFault(Struct, frozen=True):
    """A component (`scheduler`, `controllers`, `nodes`) that is killed at `at_s` and started anew at once."""

    component: str
    at_s: float


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


async def play(
    nodes: Sequence[NodeFault], components: Sequence[ComponentFault], cluster: EmbeddedCluster, clock: VirtualClock
) -> None:
    """Let nodes die and come back and components restart at their times; returns when all of it has happened."""
    for at_s, act, name in sorted(_moments(nodes, components)):
        if at_s > clock.elapsed_s:
            await clock.sleep(at_s - clock.elapsed_s)
        if act == _RESTART:
            cluster.restart(name)
        elif cluster.agent is not None:
            await (cluster.agent.start_node(name) if act == _START else cluster.agent.stop_node(name))


_STOP, _START, _RESTART = range(3)


def _moments(nodes: Sequence[NodeFault], components: Sequence[ComponentFault]) -> Iterator[tuple[float, int, str]]:
    for node in nodes:
        yield node.at_s, _STOP, node.node
        if node.back_s is not None:
            yield node.back_s, _START, node.node
    for component in components:
        yield component.at_s, _RESTART, component.component
