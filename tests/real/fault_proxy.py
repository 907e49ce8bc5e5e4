"""A proxy between a scheduler and a server that slows requests down, loses them, and cuts watches."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from real_servers import TOKEN

from muster.api.codec import dumps, loads
from muster.client.http import Sockets

ANSWERED_S = 5.0
"""How long a server may take for an answer that nobody waits for any more."""
HOP_BY_HOP = ("connection", "transfer-encoding", "content-encoding", "content-length", "host", "keep-alive")


@dataclass
class Faults:
    """What the proxy does to writes. Rates are of 1; a lost answer is lost after the write took effect.

    `on_bind` is told the number of each binding (from 1) before it is passed on; False: it is not passed on. `passes`
    is told every request, and `answered` every one whose answer is not passed back yet; False: the connection breaks.
    `before_bind` is awaited with the pod and the node of each binding before it is passed on.
    """

    slow_s: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    throttled: float = 0.0
    conflicts: float = 0.0
    on_bind: Callable[[int], bool] = lambda number: True
    before_bind: Callable[[str, str], Awaitable[None]] | None = None
    passes: Callable[[web.Request], bool] = lambda request: True
    answered: Callable[[web.Request], bool] = lambda request: True
    rng: random.Random = field(default_factory=lambda: random.Random(1))


class FaultProxy:
    """Forwards to a server by plain HTTP. `binds`: how many bindings it passed on."""

    def __init__(self, port: int, faults: Faults) -> None:
        self.faults = faults
        self.binds = 0
        self.url = ""
        self._target = f"https://127.0.0.1:{port}"
        self._handlers: set[asyncio.Task[object]] = set()
        self._watches: dict[web.StreamResponse, asyncio.Task[object]] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        """The proxy, listening at `url`."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=sockets.make)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                self.cut_watches()
                await runner.cleanup()
                await self._ended()
        await sockets.aclose()

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def cut_watches(self) -> int:
        """Break all watches; how many there were."""
        cut = 0
        for response, handler in self._watches.items():
            request = getattr(response, "_req", None)
            if request is not None and request.transport is not None:
                request.transport.abort()
                cut += 1
            handler.cancel()  # a closed session does not wake who reads from it
        self._watches.clear()
        return cut

    async def _ended(self) -> None:
        """Wait until what was passed on is answered, though its client is gone; what takes long is given up.

        No handler outlives the session: nothing would wake it, and the collector would find it one day.
        """
        if self._handlers:
            _, late = await asyncio.wait(self._handlers, timeout=ANSWERED_S)
            for handler in late:
                handler.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def expire_watches(self) -> int:
        """End all watches with 410 Gone, as a server that has forgotten; how many there were."""
        open_ones = list(self._watches)
        status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
        for response in open_ones:
            with contextlib.suppress(ConnectionError):
                await response.write(dumps({"type": "ERROR", "object": status}) + b"\n")
        self.cut_watches()
        return len(open_ones)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        try:
            return await self._passed(request, handler)
        finally:
            self._handlers.discard(handler)

    async def _passed(self, request: web.Request, handler: asyncio.Task[object]) -> web.StreamResponse:
        if not self.faults.passes(request):
            return _broken(request)
        if request.method != "GET":
            fault = await self._fault(request)
            if fault is not None:
                return fault
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        try:
            content = await request.read()
        except ConnectionError:
            return _broken(request)
        headers["Authorization"] = f"Bearer {TOKEN}"
        try:
            answer = await self._session.request(
                request.method, f"{self._target}{request.raw_path}", headers=headers, data=content or None
            )
        except aiohttp.ClientError:
            return _broken(request)
        async with answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
            if "watch=true" in request.query_string:
                return await self._stream(request, answer, kept, handler)
            body = await answer.read()
            is_lost = request.method != "GET" and self.faults.rng.random() < self.faults.lost
            if is_lost or not self.faults.answered(request):
                return _broken(request)
            if "Content-Encoding" in answer.headers:
                kept["Content-Encoding"] = answer.headers["Content-Encoding"]
            return web.Response(status=answer.status, body=body, headers=kept)

    async def _fault(self, request: web.Request) -> web.StreamResponse | None:
        faults = self.faults
        if request.path.endswith("/binding"):
            self.binds += 1
            if not faults.on_bind(self.binds):
                return _broken(request)
            if faults.before_bind is not None:
                binding = loads(await request.read())
                await faults.before_bind(binding["metadata"]["name"], binding["target"]["name"])
        if faults.slow_s:
            await asyncio.sleep(faults.slow_s * faults.rng.random() * 2)
        drawn = faults.rng.random()
        if drawn < faults.refused:
            return _status(500, "InternalError")
        if drawn < faults.refused + faults.conflicts:
            return _status(409, "Conflict")
        if drawn < faults.refused + faults.conflicts + faults.throttled:
            return web.Response(status=429, headers={"Retry-After": "1"}, text="too many requests")
        return None

    async def _stream(
        self,
        request: web.Request,
        answer: aiohttp.ClientResponse,
        headers: dict[str, str],
        handler: asyncio.Task[object],
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        if "Content-Encoding" in answer.headers:
            response.headers["Content-Encoding"] = answer.headers["Content-Encoding"]
        await response.prepare(request)
        self._watches[response] = handler
        try:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
        finally:
            self._watches.pop(response, None)
        return response


def _status(code: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": code, "reason": reason}, status=code)


def _broken(request: web.Request) -> web.StreamResponse:
    """The connection breaks without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
