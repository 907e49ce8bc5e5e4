"""A transport that calls the embedded server directly: no bytes, no sockets, objects shared.

Bodies are copied by the server; objects in answers and events are the stored ones, which nobody may change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from muster.apiserver.discovery import Discovery
from muster.apiserver.errors import StatusError
from muster.apiserver.request import ApiRequest, User
from muster.apiserver.server import ApiServer
from muster.client.transport import ApiError, Body, Query, Response, WatchEvents

DISCOVERY_DEPTH = 3
"""How many parts the longest path of a discovery document has (`/apis/GROUP/VERSION`)."""


class InProcessTransport:
    """A `Transport` to one `ApiServer` in this event loop, as one user."""

    def __init__(self, server: ApiServer, *, user: User | None = None) -> None:
        self._server = server
        self._user = user or User()
        self._discovery = Discovery(server.resources, server.options)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        request = ApiRequest(method, path, query, headers or {}, body, self._user, typed_items=True)
        if method == "GET" and path.count("/") <= DISCOVERY_DEPTH:
            found = self._discovery.answer(request)
            if found is not None:
                return found
        return await self._server.handle(request)

    async def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        request = ApiRequest("GET", path, (*query, ("watch", "true")), {}, None, self._user)
        try:
            stream = self._server.watch(request, bookmarks_by_time=False)
        except StatusError as error:
            raise ApiError(error.status) from error
        async for events in stream:
            yield events
