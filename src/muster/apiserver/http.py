"""The embedded API server over HTTP/1.1: aiohttp's low-level server, one handler, no router.

Answers are JSON except where the front says otherwise; failures are Status objects, whatever went wrong.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestPayloadError

from muster.api.codec import Object, dumps
from muster.apiserver.errors import failure
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.apiserver.store.protocol import StoreFailed
from muster.client.transport import Response, WatchEvents

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 1024 * 1024
"""Source: apiserver `MaxRequestBodyBytes`."""
MAX_HEADER_BYTES = 1024 * 1024
"""Of one header or the request line: selectors and tokens can be long. Source: Go's `http.DefaultMaxHeaderBytes`."""
ENCODED_OBJECTS = 4096
"""How many objects' bytes are kept, so that all watchers of an object share one encoding."""


class HttpServer:
    """Serves a `Front`. `start` and `stop` once each; `url` is known after `start`."""

    def __init__(
        self,
        front: Front,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = ""
        self._front = front
        self._host = host
        self._port = port
        self._token = token
        self._ssl_context = ssl_context
        self._encoder = Encoder()
        self._streams: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError if the address is in use."""
        server = _Server(self._handle, request_factory=_request, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._ssl_context, backlog=1024)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        scheme = "https" if self._ssl_context else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def stop(self) -> None:
        """End the watches, then stop listening. Idempotent."""
        self._stopping = True
        for stream in tuple(self._streams):
            stream.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await self._answer(raw)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            answer = _failed(413, "RequestEntityTooLarge", message)
        except (HttpProcessingError, RequestPayloadError, web.HTTPException, ValueError) as error:
            answer = _failed(400, "BadRequest", f"the request could not be read: {error}")
        except StoreFailed as error:
            answer = _failed(500, "InternalError", f"Internal error occurred: the data cannot be written: {error}")
        except Exception:
            logger.exception("request failed", extra={"method": raw.method, "path": raw.path})
            answer = _failed(500, "InternalError", "Internal error occurred: the request could not be handled")
        if isinstance(answer, Streamed):
            return await self._stream(raw, answer)
        return self._whole(answer)

    async def _answer(self, raw: web.BaseRequest) -> Response | Streamed:
        headers = {name.lower(): value for name, value in raw.headers.items()}
        if self._token and headers.get("authorization") != f"Bearer {self._token}":
            return _failed(401, "Unauthorized", "Unauthorized")
        certificate = self._certificate(raw)
        many = bool(certificate) or _is_impersonating(headers)
        repeated = tuple((name.lower(), value) for name, value in raw.headers.items()) if many else ()
        path, _, query = raw.raw_path.partition("?")
        body = await raw.read() if raw.body_exists else None
        pairs = parse_qsl(query, keep_blank_values=True) if query else ()
        path = unquote(path) if "%" in path else path
        request = ApiRequest(raw.method, path, pairs, headers, body, header_pairs=repeated, certificate=certificate)
        return await self._front.answer(request)

    def _certificate(self, raw: web.BaseRequest) -> bytes:
        """The certificate that the client showed, if it was asked for one."""
        if self._ssl_context is None or self._ssl_context.verify_mode == ssl.CERT_NONE or raw.transport is None:
            return b""
        connection = raw.transport.get_extra_info("ssl_object")
        return connection.getpeercert(binary_form=True) or b"" if connection is not None else b""

    def _whole(self, answer: Response) -> web.Response:
        headers = dict(answer.headers)
        if isinstance(answer.body, bytes):
            body = answer.body
            headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        else:
            body = self._encoder.encode(answer.body) + b"\n"
            headers.setdefault("Content-Type", "application/json")
        headers.setdefault("Cache-Control", "no-cache, private")
        return web.Response(body=body, status=answer.status, headers=headers)

    async def _stream(self, raw: web.BaseRequest, answer: Streamed) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        if self._stopping:
            await answer.events.aclose()
            return response
        await response.prepare(raw)
        pump = asyncio.get_running_loop().create_task(self._pump(response, answer))
        self._streams.add(pump)
        try:
            await asyncio.wait((pump,))
        finally:
            self._streams.discard(pump)
            pump.cancel()
        if not pump.cancelled() and pump.exception() is not None:
            logger.debug("watch broke off", extra={"path": raw.path, "error": str(pump.exception())})
        return response

    async def _pump(self, response: web.StreamResponse, answer: Streamed) -> None:
        """Write batches until the watch ends, the client goes or the server stops."""
        try:
            async for events in answer.events:
                await response.write(self._lines(events))
        finally:
            await answer.events.aclose()

    def _lines(self, events: WatchEvents) -> bytes:
        encode = self._encoder.encode
        parts: list[bytes] = []
        for event in events:
            parts += (_PREFIXES[event.type], encode(event.object), b"}\n")
        return b"".join(parts)


_PREFIXES = {
    type_: f'{{"type":"{type_}","object":'.encode() for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


class Encoder:
    """Objects as JSON bytes; an object that is stored is encoded once, since it never changes."""

    def __init__(self, size: int = ENCODED_OBJECTS) -> None:
        self._size = size
        self._known: dict[int, tuple[Object, bytes]] = {}

    def encode(self, obj: Object) -> bytes:
        """The object's bytes. Lists and tables are encoded anew."""
        if "items" in obj or "rows" in obj:
            return dumps(obj)
        key = id(obj)
        known = self._known.get(key)
        # An id is unique among living objects only; the entry keeps its object alive, so an equal id is the object.
        if known is not None:
            return known[1]
        data = dumps(obj)
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        self._known[key] = (obj, data)
        return data


def _is_impersonating(headers: Mapping[str, str]) -> bool:
    """Whether headers may be there several times that mean something each."""
    return any(name.startswith("impersonate-") for name in headers)


def _failed(code: int, reason: str, message: str) -> Response:
    return Response(code, failure(code, reason, message, {}).status)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)


class _Handler(web.RequestHandler):
    """Answers what is not even HTTP with a Status as well."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, LineTooLong):
            response = web.Response(status=431, text="431 Request Header Fields Too Large")
            response.force_close()
            return response
        reason = "BadRequest" if status < 500 else "InternalError"
        body = failure(status, reason, message or "the request could not be read", {}).status
        response = web.Response(status=status, body=dumps(body), content_type="application/json")
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        loop = asyncio.get_running_loop()
        return _Handler(
            self,
            loop=loop,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            access_log=None,  # type: ignore[arg-type]  # None is how to have no access log
        )
