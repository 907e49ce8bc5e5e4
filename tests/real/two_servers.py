"""The same request to a real API server and to ours, and what their answers differ in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

import aiohttp
from answers import compare
from conversation import _WARNING, read_answer, read_events
from outcome import Difference

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.front import Front, Streamed
from muster.apiserver.options import Release
from muster.apiserver.request import ApiRequest
from muster.apiserver.store.memory import MemoryStore
from muster.client.http import Sockets
from muster.client.kubeconfig import read_kubeconfig
from muster.clock import RealClock
from muster.simulator.embedded import EmbeddedCluster
from muster.simulator.options import ClusterOptions

AT_ONCE = 8
"""How many requests the real server gets at once, where their order is free."""


@dataclass(frozen=True)
class Case:
    """One request. `note` says what is tried."""

    method: str
    path: str
    body: JSON = None
    note: str = ""
    accept: str = "application/json"
    content_type: str = "application/json"
    tried: JSON = None

    @property
    def group(self) -> str:
        """What kind of request it is, for reports."""
        return f"{self.method} {self.path.partition('?')[0]}"


@dataclass(frozen=True)
class Answer:
    """What a client sees of an answer."""

    code: int
    warnings: tuple[str, ...]
    body: JSON


@dataclass(frozen=True)
class Found:
    """A request that was answered differently."""

    case: Case
    real: Answer
    ours: Answer
    differences: tuple[Difference, ...]


class TwoServers:
    """A real server and an embedded one that behaves as its release, both open to the same requests."""

    def __init__(self, session: aiohttp.ClientSession, url: str, front: Front) -> None:
        self._session = session
        self._url = url
        self._front = front

    async def ask(self, cases: Sequence[Case], *, at_once: int = AT_ONCE) -> list[Found]:
        """Send all cases to both; those with different answers. With `at_once` 1 in order."""
        found: list[Found] = []
        for start in range(0, len(cases), at_once):
            batch = cases[start : start + at_once]
            reals = await asyncio.gather(*(self._real(case) for case in batch))
            for case, real in zip(batch, reals, strict=True):
                ours = await self._ours(case)
                differences = different(case, real, ours)
                if differences:
                    found.append(Found(case, real, ours, differences))
        return found

    async def _real(self, case: Case) -> Answer:
        try:
            return await self._send(case)
        except aiohttp.ServerDisconnectedError:
            pass  # a connection that was kept open was closed just now
        try:
            return await self._send(case)
        except aiohttp.ServerDisconnectedError:
            return Answer(500, (), "the real server gave up")

    async def _send(self, case: Case) -> Answer:
        headers = {"Accept": case.accept, "User-Agent": "muster-tests"}
        data = None
        if case.body is not None:
            data = _data(case)
            headers["Content-Type"] = case.content_type
        async with self._session.request(case.method, self._url + case.path, data=data, headers=headers) as answer:
            warnings = _WARNING.findall(", ".join(answer.headers.getall("Warning", ())))
            return Answer(answer.status, tuple(warnings), _value(await answer.read(), case))

    async def _ours(self, case: Case) -> Answer:
        path, _, query = case.path.partition("?")
        headers = {"accept": case.accept, "user-agent": "muster-tests"}
        body: bytes | None = None
        if case.body is not None:
            body = _data(case)
            headers["content-type"] = case.content_type
        request = ApiRequest(case.method, path, tuple(parse_qsl(query, keep_blank_values=True)), headers, body)
        answer = await self._front.answer(request)
        if isinstance(answer, Streamed):
            return Answer(200, (), await read_events(answer))
        return Answer(answer.status, tuple(_WARNING.findall(answer.headers.get("Warning", ""))), read_answer(answer))


def _data(case: Case) -> bytes:
    data: bytes = case.body if isinstance(case.body, bytes) else dumps(case.body)
    return data


def _value(data: bytes, case: Case) -> JSON:
    if "watch=" in case.path:
        return [loads(line) for line in data.splitlines()]
    try:
        return loads(data)
    except ValueError:
        return data.decode()


def different(case: Case, real: Answer, ours: Answer) -> tuple[Difference, ...]:
    """What the answers differ in, as for recordings."""
    response: Object = {"code": real.code, "warnings": list(real.warnings), "body": real.body}
    recorded = {"scenario": "server_side_apply" if "apply" in case.content_type else "", "response": response}
    return tuple(compare(recorded, ours.code, list(ours.warnings), ours.body))


@asynccontextmanager
async def two_servers(kubeconfig: Path, release: Release = "1.36") -> AsyncIterator[TwoServers]:
    """A running real server by its kubeconfig, and one of ours without controllers, scheduler and nodes."""
    connection = read_kubeconfig(kubeconfig)
    options = ClusterOptions(without=frozenset({"nodes", "scheduler", "controllers"}), emulate=release)
    cluster = EmbeddedCluster(MemoryStore(), RealClock(), random.Random(0), options)
    sockets = Sockets()
    connector = aiohttp.TCPConnector(ssl=connection.ssl_context() or False, socket_factory=sockets.make)
    headers = {"Authorization": f"Bearer {connection.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield TwoServers(session, connection.server, Front(cluster.server, RealClock()))
    await sockets.aclose()
