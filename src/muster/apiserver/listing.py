"""Lists: selectors, pages with continue tokens, lists at an older revision.

Source: apiserver `pkg/registry/generic/registry/store.go` and `pkg/storage/continue.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from muster.api.codec import Object, Objects, dumps, loads
from muster.apiserver.errors import StatusError, bad_request, expired
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Served
from muster.apiserver.selecting import Predicate, field_predicate, field_terms, label_predicate
from muster.apiserver.store.protocol import Compacted, Page, Store


def predicates(served: Served, request: ApiRequest) -> Sequence[Predicate]:
    """What the request's selectors ask of an object in the version of `served`. Raises StatusError (400)."""
    found: list[Predicate] = []
    labels = request.parameter("labelSelector")
    if labels:
        found.append(label_predicate(labels))
    fields = request.parameter("fieldSelector")
    if fields:
        terms = list(dict.fromkeys(field_terms(fields)))
        if terms:
            found.append(field_predicate(terms, served.selectable(), served.selectable_names()))
    return found


def list_objects(store: Store, served: Served, namespace: str, request: ApiRequest) -> Object:
    """The list object that answers a list request. Raises StatusError (400, 410)."""
    tests = predicates(served, request)
    limit = _integer(request, "limit")
    token = request.parameter("continue")
    revision: int | None = None
    start = ""
    if token:
        revision, start = _read_token(token, served.prefix(namespace))
    elif request.parameter("resourceVersionMatch") == "Exact":
        revision = _integer(request, "resourceVersion")
    try:
        page, items = _collect(store, served, namespace, revision, limit, start, tests)
    except Compacted as error:
        raise _expired(token, revision or 0) from error
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.next_key:
        metadata["continue"] = _make_token(page.revision, page.next_key.removeprefix(served.prefix(namespace)))
        if not tests:
            metadata["remainingItemCount"] = page.remaining
    return {
        "kind": f"{served.resource.kind}List",
        "apiVersion": served.resource.api_version,
        "metadata": metadata,
        "items": items,
    }


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
        raise bad_request(f"continue key is not valid: {error}") from error


def _expired(token: str, revision: int) -> StatusError:
    if token:
        return expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results. Continuing with the provided token results in an inconsistent list - objects that were "
            "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
            "list."
        )
    return expired("The resourceVersion for the provided list is too old.")
