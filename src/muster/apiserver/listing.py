"""Lists: selectors, pages with continue tokens, lists at an older revision.

Source: apiserver `pkg/registry/generic/registry/store.go` and `pkg/storage/continue.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from muster.api.codec import Object, Objects, dumps, loads
from muster.apiserver.errors import Qualified, StatusError, bad_request, expired, invalid, too_large
from muster.apiserver.fields import FieldError, forbidden_field, not_supported
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Served
from muster.apiserver.selecting import Predicate, field_predicate, field_terms, label_predicate
from muster.apiserver.store.protocol import Compacted, Page, Store

INCONSISTENT = -1
"""In a continue token instead of a revision: go on with what is there now."""


def predicates(served: Served, request: ApiRequest) -> Sequence[Predicate]:
    """What the request's selectors ask of an object in the version of `served`. Raises StatusError (400)."""
    found: list[Predicate] = []
    labels = request.parameter("labelSelector")
    if labels:
        found.append(label_predicate(labels))
    fields = request.parameter("fieldSelector")
    if fields:
        terms = field_terms(fields)
        for field, _, _ in terms:
            if field not in served.selectable_names():
                raise bad_request(served.unknown_field(field))
        if terms:
            found.append(field_predicate(terms, served.selectable()))
    return found


def list_objects(store: Store, served: Served, namespace: str, request: ApiRequest) -> Object:
    """The list object that answers a list request. Raises StatusError (400, 410)."""
    check_options(request, is_watch=False)
    _check_version(store, request)
    tests = predicates(served, request)
    limit = max(_integer(request, "limit"), 0)
    token = request.parameter("continue")
    revision: int | None = None
    start = ""
    if token:
        revision, start = _read_token(token, served.prefix(namespace))
        revision = None if revision == INCONSISTENT else revision
    elif request.parameter("resourceVersionMatch") == "Exact":
        revision = _integer(request, "resourceVersion")
    try:
        page, items = _collect(store, served, namespace, revision, limit, start, tests)
    except Compacted as error:
        raise _expired(start.removeprefix(served.prefix(namespace)) if token else "") from error
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.next_key:
        metadata["continue"] = _make_token(page.revision, page.next_key.removeprefix(served.prefix(namespace)))
        if not tests:
            metadata["remainingItemCount"] = page.remaining
    return {
        "kind": f"{served.resource.kind}List",
        "apiVersion": served.resource.api_version,
        "metadata": metadata,
        "items": items if request.typed_items else [_untyped(item) for item in items],
    }


def list_computed(store: Store, served: Served, computed: Objects, request: ApiRequest) -> Object:
    """The list object of objects that nobody stores. Raises StatusError (400)."""
    tests = predicates(served, request)
    return {
        "kind": f"{served.resource.kind}List",
        "apiVersion": served.resource.api_version,
        "metadata": {"resourceVersion": str(store.revision)},
        "items": [obj for obj in computed if all(test(obj) for test in tests)],
    }


def _untyped(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def check_options(request: ApiRequest, *, is_watch: bool) -> None:
    """The resource version options of a list or watch must make sense together. Raises StatusError (422)."""
    version, match = request.parameter("resourceVersion"), request.parameter("resourceVersionMatch")
    initial = request.parameter("sendInitialEvents")
    if not match and not initial:
        return
    found: list[FieldError] = []
    field = "resourceVersionMatch"
    if initial:
        if not is_watch:
            found.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        elif match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            found.append(forbidden_field(field, why))
    elif is_watch:
        found.append(forbidden_field(field, "resourceVersionMatch is forbidden for watch"))
    elif not version:
        found.append(forbidden_field(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    elif match not in ("Exact", "NotOlderThan"):
        found.append(not_supported(field, match, ("Exact", "NotOlderThan", "")))
    elif match == "Exact" and version == "0":
        found.append(forbidden_field(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if found:
        raise invalid(Qualified("meta.k8s.io", "ListOptions"), "", found)


def _check_version(store: Store, request: ApiRequest) -> None:
    text = request.parameter("resourceVersion")
    if not text:
        return
    if not (text.isascii() and text.isdigit()):
        problem = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {problem}")
    if int(text) > store.revision:
        raise too_large(int(text), store.revision)


def _collect(
    store: Store,
    served: Served,
    namespace: str,
    revision: int | None,
    limit: int,
    start: str,
    tests: Sequence[Predicate],
) -> tuple[Page, Objects]:
    """Pages until `limit` objects pass the tests or none is left; the last page and the objects."""
    items: Objects = []
    convert = served.conversion.from_stored if served.conversion else None
    while True:
        wanted = limit - len(items) if limit else 0
        page = store.list(served.prefix(namespace), revision=revision, limit=wanted, start=start)
        found = page.items if convert is None else [convert(obj) for obj in page.items]
        items += [obj for obj in found if all(test(obj) for test in tests)] if tests else found
        if not page.next_key or (limit and len(items) >= limit):
            return page, items
        revision, start = page.revision, page.next_key


def _integer(request: ApiRequest, name: str) -> int:
    text = request.parameter(name)
    if not text:
        return 0
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def _make_token(revision: int, key: str) -> str:
    return base64.urlsafe_b64encode(dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": key})).decode().rstrip("=")


def _read_token(token: str, prefix: str) -> tuple[int, str]:
    try:
        value = loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(value["rv"]), prefix + value["start"]
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {_why(token)}") from error


def _why(token: str) -> str:
    """What is wrong with a continue token."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    wrong = next((place for place, mark in enumerate(token) if mark not in alphabet), None)
    if wrong is None and len(token) % 4 == 1:
        wrong = len(token) - 1
    return f"illegal base64 data at input byte {wrong}" if wrong is not None else "encoded start key is not valid"


def _expired(start: str) -> StatusError:
    """The answer where a revision is no longer kept; `start`: where the list was to go on, "" if at its beginning.

    A token comes along with which the rest can be had as it is now.
    """
    if start:
        error = expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list."
        )
        error.status["metadata"] = {"continue": _make_token(INCONSISTENT, start)}
        return error
    return expired("The resourceVersion for the provided list is too old.")
