"""The one protocol through which everybody talks to an API server, and the errors that come back.

Transports: `muster.client.http` (any server, by HTTP) and `muster.apiserver.inprocess` (the embedded server, no bytes).
Objects that come out of a transport are shared and must never be changed: copy first (`api.codec.copy_object`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from muster.api.codec import Object

Query: TypeAlias = Sequence[tuple[str, str]]
Body: TypeAlias = Object | list[Object] | bytes | None

JSON_TYPE = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Response(Struct, frozen=True):
    """What a server answered. `body` is an object (also a Status, a list or a Table), or bytes of another type."""

    status: int
    body: Object | bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class WatchEvent(Struct, frozen=True):
    """One event of a watch; for BOOKMARK the object has only a resourceVersion, for ERROR it is a Status."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: Object


WatchEvents: TypeAlias = list[WatchEvent]


class Transport(Protocol):
    """Sends requests to one API server."""

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: Body = None
    ) -> Response:
        """Send one request and return whatever the server answers.

        `body`: an object is sent as JSON; `Content-Type` in `headers` may say more exactly what it is (a patch type).
        Raises `TransportError` if no answer comes.
        """

    def watch(self, path: str, *, query: Query = ()) -> AsyncIterator[WatchEvents]:
        """Stream the events of a watch in batches of at least one (`watch=true` is added by the transport).

        Ends when the server ends it. Raises `ApiError` when the server refuses (410 `Expired`: list again) and
        `TransportError` when the connection breaks (retryable).
        """


class ClientError(Exception):
    """Root of what a client can raise.

    ClientError
    ├── ApiError        the server answered with a Status; retryable as its reason says
    └── TransportError  no answer came; retryable
    """


class TransportError(ClientError):
    """No answer came; whether the request took effect is unknown. Retryable after reading again."""


class UntrustedServer(TransportError):
    """The certificate of the server is not one that is trusted for its name. Not retryable, unless it is changed."""


class ApiError(ClientError):
    """The server answered with a failure. `status` is the Status object."""

    def __init__(self, status: Object) -> None:
        super().__init__(str(status.get("message") or status.get("reason") or status.get("code")))
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP code."""
        return int(self.status.get("code") or 500)

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as `NotFound`, `AlreadyExists`, `Conflict`, `Invalid`, `Expired`."""
        return str(self.status.get("reason") or "")

    @property
    def is_not_found(self) -> bool:
        return self.reason == "NotFound"

    @property
    def is_conflict(self) -> bool:
        return self.reason == "Conflict"

    @property
    def is_temporary(self) -> bool:
        """Whether the very same request may succeed later: 429 and 5xx."""
        return self.code == 429 or self.code >= 500

    @property
    def may_pass(self) -> bool:
        """Whether the same request, made anew from what is there then, may succeed later: 409, too."""
        return self.code == 409 or self.is_temporary

    @property
    def is_already_exists(self) -> bool:
        return self.reason == "AlreadyExists"
