"""Who acts as somebody else, and whether that is allowed.

Since 1.36 the right to be somebody is joined by the right to do this one thing as somebody (constrained impersonation);
the older verb `impersonate` goes on to give both. Sources: apiserver `pkg/endpoints/filters/impersonation`, KEP-5284.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote

from msgspec import Struct

from muster.apiserver.authentication.users import (
    ACCOUNT_PREFIX,
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    account_user,
)
from muster.apiserver.authorization.attributes import Attributes, denied
from muster.apiserver.authorization.rules import Decision
from muster.apiserver.errors import StatusError, bad_request
from muster.apiserver.fields import domain_path_errors, subdomain_problems
from muster.apiserver.request import ApiRequest, User

Decide = Callable[[User, Attributes], Decision]
"""Whether a user may do something."""

_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_GROUP_NAME = "authentication.k8s.io"
_NODE = "system:node:"
LEGACY = "impersonate"


class Wanted(Struct, frozen=True):
    """As whom a request is to be done."""

    name: str
    groups: tuple[str, ...]
    uid: str
    extra: dict[str, tuple[str, ...]]


def wanted_of(request: ApiRequest) -> Wanted | None:
    """As whom a request is to be done; None if as who sends it. Raises StatusError (400)."""
    name = request.headers.get(_USER, "")
    groups, uid = tuple(request.header_values(_GROUP)), request.headers.get(_UID, "")
    extra: dict[str, tuple[str, ...]] = {}
    for header in request.header_names():
        if header.startswith(_EXTRA):
            key = _unescaped(header.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), *request.header_values(header))
    if name:
        return Wanted(name, groups, uid, extra)
    if groups or uid or extra:
        raise bad_request(f"requested {_go(groups, uid, extra)} without impersonating a user name")
    return None


def _unescaped(key: str) -> str:
    """The key of a header, percent-decoded if that is possible."""
    text = key.lower()
    parts = text.split("%")[1:]
    if any(len(part) < 2 or not all(mark in "0123456789abcdef" for mark in part[:2]) for part in parts):
        return text
    return unquote(text).lower()


def _go(groups: Sequence[str], uid: str, extra: dict[str, tuple[str, ...]]) -> str:
    def listed(values: Sequence[str]) -> str:
        return "[]string{" + ", ".join(f'"{value}"' for value in values) + "}" if values else "[]string(nil)"

    pairs = ", ".join(f'"{key}":{listed(values)}' for key, values in sorted(extra.items()))
    shown = f"map[string][]string{{{pairs}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:"{uid}", Groups:{listed(groups)}, Extra:{shown}}}'


def as_user(wanted: Wanted, *, is_node: bool = False) -> User:
    """The user that somebody becomes. `is_node`: as a node by its name alone."""
    groups = wanted.groups
    account = _account(wanted.name)
    if not groups and account is not None:
        groups = account_user(*account).groups
    if is_node:
        groups = ("system:nodes",)
    if wanted.name == ANONYMOUS.name:
        extra = () if UNAUTHENTICATED in groups else (UNAUTHENTICATED,)
    else:
        extra = () if {AUTHENTICATED, UNAUTHENTICATED} & set(groups) else (AUTHENTICATED,)
    return User(wanted.name, (*groups, *extra), wanted.uid, wanted.extra)


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    if not name.startswith(ACCOUNT_PREFIX):
        return None
    parts = name.removeprefix(ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or any(not part or subdomain_problems(part) for part in parts):
        return None
    return parts[0], parts[1]


class Impersonation:
    """Checks of one server; it remembers by which way each user was let through last, which is tried first."""

    def __init__(self, decide: Decide, *, is_constrained: bool) -> None:
        self._decide = decide
        self._is_constrained = is_constrained
        self._last: dict[tuple[str, str], str] = {}

    def user(self, who: User, wanted: Wanted, request: Attributes) -> User:
        """The user that `who` becomes for this request. Raises StatusError (403)."""
        first: StatusError | None = None
        key = (who.name, who.uid)
        ways = _ways(wanted) if self._is_constrained else [LEGACY]
        last = self._last.get(key, "")
        if last in ways:
            ways = [last, *(way for way in ways if way != last)]
        for way in ways:
            refusal = self._refusal(who, wanted, request, way)
            if refusal is None:
                if len(self._last) >= 1024:
                    self._last.clear()
                self._last[key] = way
                return as_user(wanted, is_node=way == "arbitrary-node")
            first = first or refusal
        assert first is not None
        raise first

    def _refusal(self, who: User, wanted: Wanted, request: Attributes, way: str) -> StatusError | None:
        for attributes, problem in _needed(wanted, request, way):
            decision = self._decide(who, attributes)
            if problem or not decision.is_allowed:
                return denied(who, attributes, problem or decision.reason)
        return None


def _ways(wanted: Wanted) -> list[str]:
    """The ways in which somebody may become this user, in upstream's order."""
    is_bare = not wanted.groups and not wanted.uid and not wanted.extra
    if wanted.name.startswith(_NODE):
        return ["arbitrary-node", LEGACY] if is_bare else [LEGACY]
    if _account(wanted.name) is not None:
        return ["serviceaccount", LEGACY] if is_bare else [LEGACY]
    return ["user-info", LEGACY]


def _needed(wanted: Wanted, request: Attributes, way: str) -> Iterator[tuple[Attributes, str]]:
    """What is needed for a way, and what is wrong with it in any case."""
    if way == LEGACY:
        yield from _legacy(wanted)
        return
    verb = f"impersonate:{way}"
    on = Attributes(
        f"impersonate-on:{way}:{request.verb}",
        request.is_resource,
        request.group,
        request.resource,
        request.subresource,
        request.namespace,
        request.name,
        request.path,
    )
    yield on, ""
    account = _account(wanted.name)
    if way == "arbitrary-node":
        yield Attributes(verb, True, _GROUP_NAME, "nodes", name=wanted.name.removeprefix(_NODE)), ""
    elif way == "serviceaccount" and account is not None:
        yield Attributes(verb, True, _GROUP_NAME, "serviceaccounts", namespace=account[0], name=account[1]), ""
    else:
        yield from _user_info(wanted, verb)


def _user_info(wanted: Wanted, verb: str) -> Iterator[tuple[Attributes, str]]:
    yield Attributes(verb, True, _GROUP_NAME, "users", name=wanted.name), ""
    if wanted.uid:
        yield Attributes(verb, True, _GROUP_NAME, "uids", name=wanted.uid), ""
    for group in wanted.groups:
        yield Attributes(verb, True, _GROUP_NAME, "groups", name=group), ""
    for key, values in wanted.extra.items():
        errors = domain_path_errors(key, "extra.key")
        if errors:
            text = f"{errors[0].field}: {errors[0].body}"
            why = f"impersonating an invalid key in extra is not allowed: {text}"
            yield Attributes(verb, True, _GROUP_NAME, "userextras"), why
        for value in values:
            yield Attributes(verb, True, _GROUP_NAME, "userextras", key, name=value), ""


def _legacy(wanted: Wanted) -> Iterator[tuple[Attributes, str]]:
    account = _account(wanted.name)
    if account is not None:
        yield Attributes(LEGACY, True, "", "serviceaccounts", namespace=account[0], name=account[1]), ""
    else:
        yield Attributes(LEGACY, True, "", "users", name=wanted.name), ""
    for group in wanted.groups:
        yield Attributes(LEGACY, True, "", "groups", name=group), ""
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(LEGACY, True, _GROUP_NAME, "userextras", key, name=value), ""
    if wanted.uid:
        yield Attributes(LEGACY, True, _GROUP_NAME, "uids", name=wanted.uid), ""
