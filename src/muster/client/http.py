"""A transport to any API server over HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import urllib.request
import weakref
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeAlias, cast
from urllib.parse import urlencode

import aiohttp
from aiohttp.connector import AddrInfoType
from yarl import URL

from muster.api.codec import JSON, Object, dumps, loads
from muster.api.lean_pods import loads_lean
from muster.client.connection import Connection
from muster.client.credentials import credentials_of
from muster.client.transport import (
    JSON_TYPE,
    ApiError,
    Body,
    Query,
    Response,
    TransportError,
    UntrustedServer,
    WatchEvent,
    WatchEvents,
)
from muster.clock import Clock, RealClock

READ_BUFFER_BYTES = 2**20
"""Watches of large clusters arrive in bursts; a small buffer stops and starts the connection all the time."""
REQUEST_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
CLOSE_PAUSE_S = 0.005
MAX_CONNECTIONS = 64
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
_LARGE_BYTES = 2**20

Decoder: TypeAlias = Callable[[bytes], JSON]


class HttpTransport:
    """A `Transport` to the server of a connection. It opens connections as needed; `aclose` closes them.

    `trims`: drop what the server keeps about who wrote which field (`metadata.managedFields`), which is half of many
    objects, and of pods all that `muster.api.lean_pods` leaves out. `clock` says when credentials expire.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock | None = None,
        max_connections: int = MAX_CONNECTIONS,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        user_agent: str = "muster",
        trims: bool = False,
    ) -> None:
        self._connection = connection
        self._credentials = credentials_of(connection, clock if clock is not None else RealClock())
        self._user_agent = user_agent
        self._trims = trims
        self._max_connections = max_connections
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, connect=CONNECT_TIMEOUT_S)
        self._watch_timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        self._server_name = connection.tls_server_name or None
        self._proxy = _proxy_of(connection)
        self._certificate = ("", "")
        self._sockets = Sockets()
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        sent = dict(headers or {})
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else dumps(body)
            sent.setdefault("Content-Type", JSON_TYPE)
        url = self._url(path, query)
        response = await self._send(method, url, sent, data)
        if response.status == 401 and self._credentials.refused():
            response = await self._send(method, url, sent, data)
        return response

    async def _send(self, method: str, url: URL, headers: dict[str, str], data: bytes | None) -> Response:
        await self._identify(headers)
        if self._requests is None:
            self._requests = self._session(self._max_connections)
        # aiohttp sends what is large in pieces and lets the loop go on between them
        payload = io.BytesIO(data) if data is not None and len(data) > _LARGE_BYTES else data
        try:
            async with self._requests.request(
                method,
                url,
                data=payload,
                headers=headers,
                timeout=self._timeout,
                server_hostname=self._server_name,
                proxy=self._proxy,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error) from error
        decode = self._decoder(url.path) if method == "GET" else loads
        return Response(answer.status, self._trimmed(_body(answer, content, decode)), answer.headers)

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        headers: dict[str, str] = {}
        await self._identify(headers)
        if self._watches is None:
            # Watches have connections of their own, so that they cannot use up those of requests.
            self._watches = self._session(0)
        url = self._url(path, (*query, ("watch", "true"), ("timeoutSeconds", str(_watch_seconds(path)))))
        try:
            async with self._watches.get(
                url, headers=headers, timeout=self._watch_timeout, server_hostname=self._server_name, proxy=self._proxy
            ) as answer:
                if answer.status != 200:
                    if answer.status == 401:
                        self._credentials.refused()
                    raise ApiError(_failure(answer.status, _body(answer, await answer.read(), loads)))
                decode = self._decoder(path)
                async for lines in _lines(answer.content):
                    yield [self._event(line, decode) for line in lines]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error) from error

    async def aclose(self) -> None:
        """Close all connections, and return when that is done. Idempotent."""
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None
        await self._sockets.aclose()

    async def _identify(self, headers: dict[str, str]) -> None:
        """Put who we are into the headers; with another client certificate, connect anew."""
        identity = await self._credentials.identity()
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        if identity.certificate and (identity.certificate, identity.key) != self._certificate:
            self._certificate = (identity.certificate, identity.key)
            await self.aclose()

    def _session(self, limit: int) -> aiohttp.ClientSession:
        headers = {"Accept": JSON_TYPE, "User-Agent": self._user_agent}
        tls = self._connection.ssl_context(*self._certificate)
        connector = aiohttp.TCPConnector(
            limit=limit, ssl=tls if tls is not None else True, keepalive_timeout=60, socket_factory=self._sockets.make
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _url(self, path: str, query: Query) -> URL:
        text = f"{self._connection.server}{path}"
        return URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)

    def _decoder(self, path: str) -> Decoder:
        """Pods, of which there are most, are trimmed while they are decoded: that takes half the time."""
        return loads_lean if self._trims and path.endswith("/pods") else loads

    def _event(self, line: bytes, decode: Decoder) -> WatchEvent:
        try:
            value = decode(line)
            obj = value["object"]
            if self._trims:
                _trim(obj)
            return WatchEvent(value["type"], obj)
        except (ValueError, KeyError, TypeError) as error:
            raise TransportError("the watch sent something that is not an event") from error

    def _trimmed(self, body: Object | bytes) -> Object | bytes:
        if self._trims and isinstance(body, dict):
            for item in body.get("items") or ():
                _trim(item)
        return body


def _trim(obj: Object) -> None:
    # The object has just been decoded: nobody else has seen it.
    obj.get("metadata", {}).pop("managedFields", None)


class Sockets:
    """The sockets of an aiohttp connector (`socket_factory`).

    A TLS connection that aiohttp closes between two requests (a watch that ended, a broken answer) waits for the
    server's goodbye, and its session does not wait for it: a loop that ends meanwhile leaves it open.
    """

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, info: AddrInfoType) -> socket.socket:
        """A socket that notices within a minute that nobody is there any more: a watch may be silent for long."""
        family, type_, protocol = info[:3]
        made = socket.socket(family, type_, protocol)
        if family in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEP_ALIVE.items():
                if hasattr(socket, name):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._made.add(made)
        return made

    async def aclose(self) -> None:
        """End the connections that still wait for a goodbye; their session must be closed already."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CLOSE_TIMEOUT_S
        for each in self._open():
            with contextlib.suppress(OSError):  # the server was quicker
                each.shutdown(socket.SHUT_RDWR)
        while self._open() and loop.time() < end_s:
            await asyncio.sleep(CLOSE_PAUSE_S)

    def _open(self) -> list[socket.socket]:
        return [each for each in self._made if each.fileno() != -1]


def _watch_seconds(path: str) -> int:
    """How long a watch may last: between five and ten minutes, so that not all end at once (as client-go's)."""
    return 300 + zlib.crc32(path.encode()) % 300


def _proxy_of(connection: Connection) -> str | None:
    """The proxy that the connection names, else that of the environment (HTTPS_PROXY, NO_PROXY), else none."""
    if connection.proxy:
        return connection.proxy
    target = URL(connection.server)
    found = urllib.request.getproxies_environment().get(target.scheme, "")
    if not found or target.host is None or target.host in ("localhost", "127.0.0.1", "::1"):
        return None
    is_bypassed = bool(urllib.request.proxy_bypass(f"{target.host}:{target.port}"))
    return None if is_bypassed or not found.startswith(("http://", "https://")) else found


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """The complete lines of every chunk that arrives, together."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        lines = [line for line in lines if line]
        if lines:
            yield lines
    if rest.strip():
        yield [rest]


def _body(answer: aiohttp.ClientResponse, content: bytes, decode: Decoder) -> Object | bytes:
    if answer.content_type != JSON_TYPE:
        return content
    try:
        return cast(Object, decode(content))  # answers of this type are objects
    except ValueError as error:
        raise TransportError("the answer is not JSON") from error


def _failure(code: int, body: Object | bytes) -> Object:
    if isinstance(body, dict) and body.get("kind") == "Status":
        return body
    return {"kind": "Status", "status": "Failure", "code": code, "message": str(body)[:500]}


def _broken(error: Exception) -> TransportError:
    text = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return UntrustedServer(f"the certificate of the server is not trusted: {why}")
    return TransportError(f"no answer from the server: {text}")
