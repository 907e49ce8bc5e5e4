"""A transport to any API server over HTTP/1.1."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from typing import cast
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from muster.api.codec import Object, dumps, loads
from muster.client.kubeconfig import Connection
from muster.client.transport import (
    JSON_TYPE,
    ApiError,
    Body,
    Query,
    Response,
    TransportError,
    WatchEvent,
    WatchEvents,
)

READ_BUFFER_BYTES = 2**20
"""Watches of large clusters arrive in bursts; a small buffer stops and starts the connection all the time."""
REQUEST_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 64
_LARGE_BYTES = 2**20


class HttpTransport:
    """A `Transport` to the server of a connection. It opens connections as needed; `aclose` closes them."""

    def __init__(
        self,
        connection: Connection,
        *,
        max_connections: int = MAX_CONNECTIONS,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._connection = connection
        self._max_connections = max_connections
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_s, connect=CONNECT_TIMEOUT_S)
        self._watch_timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if self._requests is None:
            self._requests = self._session(self._max_connections)
        sent = dict(headers or {})
        data: bytes | io.BytesIO | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else dumps(body)
            if len(data) > _LARGE_BYTES:
                data = io.BytesIO(data)  # aiohttp sends it in pieces and lets the loop go on between them
            sent.setdefault("Content-Type", JSON_TYPE)
        try:
            async with self._requests.request(
                method,
                self._url(path, query),
                data=data,
                headers=sent,
                timeout=self._timeout,
                server_hostname=self._connection.tls_server_name or None,
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error) from error
        return Response(answer.status, _body(answer, content), answer.headers)

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        if self._watches is None:
            # Watches have connections of their own, so that they cannot use up those of requests.
            self._watches = self._session(0)
        url = self._url(path, (*query, ("watch", "true")))
        try:
            name = self._connection.tls_server_name or None
            async with self._watches.get(url, timeout=self._watch_timeout, server_hostname=name) as answer:
                if answer.status != 200:
                    raise ApiError(_failure(answer.status, _body(answer, await answer.read())))
                async for lines in _lines(answer.content):
                    yield [_event(line) for line in lines]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _broken(error) from error

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()
        self._requests = self._watches = None

    def _session(self, limit: int) -> aiohttp.ClientSession:
        headers = {"Accept": JSON_TYPE, "User-Agent": "muster"}
        if self._connection.token:
            headers["Authorization"] = f"Bearer {self._connection.token}"
        tls = self._connection.ssl_context()
        connector = aiohttp.TCPConnector(limit=limit, ssl=tls if tls is not None else True, keepalive_timeout=60)
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


def _event(line: bytes) -> WatchEvent:
    try:
        value = loads(line)
        return WatchEvent(value["type"], value["object"])
    except (ValueError, KeyError, TypeError) as error:
        raise TransportError("the watch sent something that is not an event") from error


def _body(answer: aiohttp.ClientResponse, content: bytes) -> Object | bytes:
    if answer.content_type != JSON_TYPE:
        return content
    try:
        return cast(Object, loads(content))  # answers of this type are objects
    except ValueError as error:
        raise TransportError("the answer is not JSON") from error


def _failure(code: int, body: Object | bytes) -> Object:
    if isinstance(body, dict) and body.get("kind") == "Status":
        return body
    return {"kind": "Status", "status": "Failure", "code": code, "message": str(body)[:500]}


def _broken(error: Exception) -> TransportError:
    text = str(error) or type(error).__name__
    return TransportError(f"no answer from the server: {text}")
