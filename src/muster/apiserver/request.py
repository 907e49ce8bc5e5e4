"""A request as the API server sees it, whichever transport brought it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.api.codec import Object
from muster.client.transport import Body, Query


class User(Struct, frozen=True):
    """Who asks."""

    name: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def info(self) -> Object:
        """The user as reviews show it (`UserInfo`)."""
        shown: Object = {}
        if self.name:
            shown["username"] = self.name
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in sorted(self.extra.items())}
        return shown


class ApiRequest(Struct, frozen=True):
    """Method, path, query, headers (names in lower case) and body of one request.

    `header_pairs`: all headers in their order, where one may be there several times.
    `certificate`: that of the client's end of the connection, in DER.
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
    header_pairs: tuple[tuple[str, str], ...] = ()
    certificate: bytes = b""

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return next((value for key, value in self.query if key == name), default)

    def header_values(self, name: str) -> list[str]:
        """All values of a header (its name in lower case), in their order."""
        if self.header_pairs:
            return [value for key, value in self.header_pairs if key == name]
        return [self.headers[name]] if name in self.headers else []

    def header_names(self) -> list[str]:
        """The names of all headers, each once."""
        return list(dict.fromkeys((*(key for key, _ in self.header_pairs), *self.headers)))
