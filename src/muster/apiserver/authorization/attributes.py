"""What a request asks for, as authorizers see it. Source: apiserver `pkg/endpoints/request/requestinfo.go`."""

from __future__ import annotations

from msgspec import Struct

from muster.api.selectors import SelectorError, parse_field_selector
from muster.apiserver.bodies import go_bool
from muster.apiserver.errors import Qualified, StatusError, failure
from muster.apiserver.request import ApiRequest, User

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Attributes(Struct, frozen=True):
    """A verb on a resource, or on a path that is none (`is_resource` false)."""

    verb: str
    is_resource: bool = True
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """What fields must be by the field selector, as far as it says so."""

    @property
    def full_resource(self) -> str:
        """The resource with its sub-resource, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(request: ApiRequest) -> Attributes:
    """What a request asks for."""
    method, path = request.method, request.path
    parts = path.strip("/").split("/")
    other = Attributes(method.lower(), is_resource=False, path=path)
    if parts[0] == "api":
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, rest = parts[1], parts[2:]
    else:
        return other
    if len(rest) < 2:
        return other
    rest = rest[1:]
    verb = _VERBS.get(method, "")
    if rest[0] in ("watch", "proxy"):
        if len(rest) < 2:
            return other
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if not name and verb == "get":
        verb = "watch" if go_bool(request.parameter("watch")) else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    fields = _selected(request.parameter("fieldSelector")) if verb in ("list", "watch") else ()
    if not name:
        name = dict(fields).get("metadata.name", "")
    return Attributes(verb, True, group, rest[0], subresource, namespace, name, path, fields)


def _selected(selector: str) -> tuple[tuple[str, str], ...]:
    """What fields must be equal to by a field selector; nothing if it cannot be read."""
    try:
        terms = parse_field_selector(selector) if selector else []
    except SelectorError:
        return ()
    return tuple((key, value) for key, operator, value in terms if operator in ("=", "=="))


def denied(user: User, attributes: Attributes, reason: str) -> StatusError:
    """The refusal of a request. Source: apiserver `responsewriters.Forbidden`."""
    why = f": {reason}" if reason else ""
    who = f'User "{user.name}" cannot {attributes.verb}'
    if not attributes.is_resource:
        return failure(403, "Forbidden", f'forbidden: {who} path "{attributes.path}"{why}', {})
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    what = Qualified(attributes.group, attributes.resource)
    subject = f'{what} "{attributes.name}"' if attributes.name else str(what)
    resource = f'resource "{attributes.full_resource}" in API group "{attributes.group}"'
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    shown = {key: value for key, value in details.items() if value}
    return failure(403, "Forbidden", f"{subject} is forbidden: {who} {resource} {where}{why}", shown)
