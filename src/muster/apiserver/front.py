"""What stands before the API server when bytes are wanted: discovery, OpenAPI, and the form of answers (tables, YAML).

No sockets here: `muster.apiserver.http` brings the requests, and tests may call it directly.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

import yaml
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object, dumps
from muster.apiserver import protobuf
from muster.apiserver.authentication.metadata import CONFIGURATION_PATH, KEYS_PATH, key_set, provider
from muster.apiserver.columns import Column
from muster.apiserver.discovery import NEWEST_RELEASE, Discovery
from muster.apiserver.errors import StatusError, bad_request
from muster.apiserver.metrics import CONTENT_TYPE, RequestMetrics
from muster.apiserver.negotiation import OBJECT_FORMS, PLAIN, Form, choose, not_acceptable
from muster.apiserver.openapi import OpenApi
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.tables import IncludeObject, columns_of, described, partial, partial_list, table
from muster.client.transport import Response, WatchEvent, WatchEvents
from muster.clock import Clock

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from muster.apiserver.access import Access

_INCLUDES = ("None", "Metadata", "Object")


class Streamed(Struct, frozen=True):
    """An accepted watch: the events in the form that was asked for. The receiver ends it with `events.aclose()`."""

    events: AsyncGenerator[WatchEvents, None]


class Front:
    """Answers any request to an API server, whatever form the client wants."""

    def __init__(self, server: ApiServer, clock: Clock, access: Access | None = None) -> None:
        """`access`: the gate that requests pass; None: everybody is an administrator."""
        self._access = access
        self.more_metrics: Callable[[], Iterable[Metric]] = tuple
        """What else is measured beside requests and objects."""
        self._server = server
        self._clock = clock
        self._discovery = Discovery(server.resources, server.options)
        self._openapi = OpenApi(server.resources, server.options)
        self._metrics = RequestMetrics()

    async def answer(self, request: ApiRequest) -> Response | Streamed:
        """The answer to one request. Never raises for what a client did."""
        try:
            if self._access is not None:
                request = await self._access.admit(request)
            return await self._answer(request)
        except StatusError as error:
            return Response(error.code, error.status)

    async def _answer(self, request: ApiRequest) -> Response | Streamed:
        request = _as_json(request)
        if request.method in ("GET", "HEAD"):
            found = self._discovery.answer(request) or self._openapi.answer(request) or self._keys(request)
            if found is not None:
                return found
            if request.path == "/metrics":
                text = self._metrics.text(self._server.stored_objects(), self.more_metrics())
                return Response(200, text, {"Content-Type": CONTENT_TYPE})
        accept = request.headers.get("accept", "")
        form = choose(accept, OBJECT_FORMS) if accept not in ("", "*/*", "application/json") else PLAIN
        if form is None:
            if _is_raw(request):
                return await self._server.handle(request)
            raise cast(StatusError, not_acceptable())
        route = self._server.resources.route(request.path)
        if self._server.is_watch(request):
            shape = self._shape(request, form)
            stream = self._server.watch(request)
            return Streamed(self._shaped(shape, form, stream, self._metrics.watching(request, route)))
        began_s = self._clock.now()
        response = await self._server.handle(request)
        self._metrics.answered(request, route, response, self._clock.now() - began_s)
        if form == PLAIN or response.status >= 400 or not isinstance(response.body, dict):
            return response
        return self._formed(request, form, response, response.body)

    def _keys(self, request: ApiRequest) -> Response | None:
        """What others need to check the tokens of service accounts. Source: upstream's `openidmetadata.go`."""
        accounts = self._server.accounts
        if accounts is None or request.path not in (CONFIGURATION_PATH, KEYS_PATH):
            return None
        cached = {"Cache-Control": "public, max-age=3600"}
        if request.path == KEYS_PATH:
            return Response(200, key_set(accounts), {**cached, "Content-Type": "application/jwk-set+json"})
        return Response(200, provider(accounts, request.headers.get("host", "")), cached)

    def _formed(self, request: ApiRequest, form: Form, response: Response, body: Object) -> Response:
        if form.media == "application/yaml":
            text = yaml.dump(body, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True).encode()
            return Response(response.status, text, {**response.headers, "Content-Type": "application/yaml"})
        if body.get("kind") == "Status" or request.method not in ("GET", "HEAD"):
            return response
        return Response(response.status, self._shape(request, form)(body), response.headers)

    def _shape(self, request: ApiRequest, form: Form) -> Callable[[Object], Object]:
        """The function that gives an object, or a list, its form."""
        if form.kind == "PartialObjectMetadata":
            return lambda body: partial(body, form.version)
        if form.kind == "PartialObjectMetadataList":
            return lambda body: partial_list(body, form.version) if "items" in body else partial(body, form.version)
        if form.kind == "Table":
            columns, include = self._columns(request), _include(request)
            return lambda body: table(body, columns, now=self._clock.now(), include=include, version=form.version)
        return lambda body: body

    async def _shaped(
        self,
        shape: Callable[[Object], Object],
        form: Form,
        stream: AsyncIterator[WatchEvents],
        ended: Callable[[], None],
    ) -> AsyncGenerator[WatchEvents, None]:
        is_first = True
        try:
            async for events in stream:
                if form == PLAIN:
                    yield events
                    continue
                shaped: WatchEvents = []
                for event in events:
                    obj = event.object
                    if event.type != "ERROR":
                        obj = shape(obj)
                        if form.kind == "Table" and not is_first:
                            obj["columnDefinitions"] = None
                        is_first = False
                    shaped.append(WatchEvent(event.type, obj))
                yield shaped
        finally:
            ended()
            await _close(stream)

    def _columns(self, request: ApiRequest) -> Sequence[Column]:
        served = self._server.resources.route(request.path).served
        assert served is not None
        kind = served.resource.kind
        columns = served.columns if served.columns is not None else columns_of(served.resource.group, kind)
        return described(tuple(columns), kind, self._server.options.emulate or NEWEST_RELEASE)


def _as_json(request: ApiRequest) -> ApiRequest:
    """The request with its protobuf body, if it has one, as JSON. Raises StatusError (400)."""
    body = request.body
    if not isinstance(body, bytes) or not request.headers.get("content-type", "").startswith(protobuf.MEDIA_TYPE):
        return request
    try:
        decoded = dumps(protobuf.decode_body(body)) if body else b""
    except protobuf.ProtobufError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    return replace(request, body=decoded, headers={**request.headers, "content-type": "application/json"})


async def _close(stream: AsyncIterator[WatchEvents]) -> None:
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


def _is_raw(request: ApiRequest) -> bool:
    """Whether the answer may be something else than an object (logs), so that any Accept header will do."""
    return request.path.endswith("/log")


def _include(request: ApiRequest) -> IncludeObject:
    text = request.parameter("includeObject") or "Metadata"
    if text not in _INCLUDES:
        raise bad_request(f'unrecognized includeObject value: "{text}"')
    return cast(IncludeObject, text)
