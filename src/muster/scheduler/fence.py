"""Transports that keep a scheduler from writing: one that does not lead, and one that only says what it would do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from muster.api.codec import Object
from muster.client.transport import Body, Query, Response, Transport, TransportError, WatchEvents

Action: TypeAlias = Literal["bind", "delete", "condition", "nominate", "event", "other"]


class FencedTransport:
    """Passes reads on always, writes only while `may_write` says so; else they fail as if the server were away.

    The check is before a request is sent: one that is under way when the right to write ends may still take effect,
    for as long as the server takes to answer it.
    """

    def __init__(self, transport: Transport, may_write: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_write = may_write

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if method != "GET" and not self._may_write():
            raise TransportError("not sent: this scheduler does not lead")
        return await self._transport.request(method, path, query=query, headers=headers, body=body)

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        """Watches are reads."""
        return self._transport.watch(path, query=query)


class Deed(Struct, frozen=True):
    """A write that was not sent. `object`: `resource namespace/name`; `details`: what matters of the body."""

    action: Action
    object: str
    details: Mapping[str, str]


class DryTransport:
    """Sends reads only. Writes are told to `note` and answered as if they had been done."""

    def __init__(self, transport: Transport, note: Callable[[Deed], None]) -> None:
        self._transport = transport
        self._note = note

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        if method == "GET":
            return await self._transport.request(method, path, query=query, headers=headers, body=body)
        self._note(deed_of(method, path, body if isinstance(body, dict) else {}))
        answer = body if method in ("POST", "PUT") and isinstance(body, dict) else {}
        return Response(200, {"metadata": {}, **answer})

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        """Watches are reads."""
        return self._transport.watch(path, query=query)


_PATH = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?")


def deed_of(method: str, path: str, body: Object) -> Deed:
    """What a write would do, in the scheduler's words."""
    match = _PATH.match(path)
    parts = match.groupdict("") if match else {"namespace": "", "plural": path, "name": ""}
    target = f"{parts['plural']} {parts['namespace']}/{parts['name']}".rstrip("/")
    if path.endswith("/binding"):
        return Deed("bind", target, {"node": (body.get("target") or {}).get("name", "")})
    if method == "DELETE":
        return Deed("delete", target, {})
    if parts["plural"] == "events":
        about = body.get("involvedObject") or {}
        said = {"reason": body.get("reason", ""), "message": body.get("message", "")}
        return Deed("event", f"{about.get('kind', '')} {about.get('namespace', '')}/{about.get('name', '')}", said)
    status = body.get("status") or {}
    for entry in status.get("conditions") or ():
        return Deed("condition", target, {key: entry.get(key, "") for key in ("type", "status", "reason", "message")})
    if "nominatedNodeName" in status:
        return Deed("nominate", target, {"node": status["nominatedNodeName"] or ""})
    return Deed("other", f"{method} {target}", {})
