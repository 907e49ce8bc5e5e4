"""A request as the API server sees it, whichever transport brought it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.client.transport import Body, Query


class User(Struct, frozen=True):
    """Who asks."""

    name: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    uid: str = ""


class ApiRequest(Struct, frozen=True):
    """Method, path, query, headers (names in lower case) and body of one request.

    `typed_items`: items of lists carry their apiVersion and kind (real servers leave them out; inside the process they
    stay, so that lists share the stored objects).
    """

    method: str
    path: str
    query: Query = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = None
    user: User = User()
    typed_items: bool = False

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return next((value for key, value in self.query if key == name), default)
