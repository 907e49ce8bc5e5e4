"""A small client: the verbs of the Kubernetes API over a transport."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import cast

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.resource import Resource
from muster.client.transport import MERGE_PATCH, ApiError, Body, Query, Response, Transport, WatchEvent, WatchEvents


class Listing(Struct, frozen=True):
    """A whole collection at one resource version."""

    items: Objects
    resource_version: str


class Client:
    """Verbs over one transport. All raise `ApiError` and `TransportError`; objects returned must not be changed."""

    def __init__(
        self, transport: Transport, *, user_agent: str = "muster", page_size: int = 0, streams_lists: bool = False
    ) -> None:
        """`streams_lists`: informers ask for the first objects as a watch (KEP-3157) where the server can do that."""
        self.transport = transport
        self.streams_lists = streams_lists
        self._headers = {"User-Agent": user_agent}
        self._page_size = page_size

    async def get(self, resource: Resource, namespace: str | None, name: str, subresource: str = "") -> Object:
        return await self._object("GET", resource.path(namespace, name, subresource))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """The whole collection, page by page if the client was made with a `page_size`."""
        query = _selectors(label_selector, field_selector)
        if self._page_size:
            query.append(("limit", str(self._page_size)))
        items: Objects = []
        token = ""
        while True:
            page_query = [*query, ("continue", token)] if token else query
            page = await self._object("GET", resource.path(namespace), query=page_query)
            items += page.get("items") or []
            token = page["metadata"].get("continue") or ""
            if not token:
                return Listing(items, page["metadata"].get("resourceVersion", ""))

    async def create(
        self, resource: Resource, namespace: str | None, obj: Object, *, name: str = "", subresource: str = ""
    ) -> Object:
        """POST the object to the collection, or to the subresource of `name` (binding, eviction)."""
        return await self._object("POST", resource.path(namespace, name, subresource), body=obj)

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """PUT the object; its resourceVersion, if it has one, must be the current one (else `Conflict`)."""
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return await self._object("PUT", path, body=obj)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Object | Objects,
        *,
        type_: str = MERGE_PATCH,
        subresource: str = "",
        query: Query = (),
    ) -> Object:
        """PATCH the object; `type_` is the media type of the patch."""
        path = resource.path(namespace, name, subresource)
        return await self._object("PATCH", path, query=query, body=patch, content_type=type_)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, options: Object | None = None
    ) -> Object:
        """DELETE the object; `options` are DeleteOptions (propagationPolicy, gracePeriodSeconds, preconditions)."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
        return await self._object("DELETE", resource.path(namespace, name), body=body)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvents]:
        """Watch the collection from a version on, bookmarks included; see `Transport.watch`."""
        query = [
            *_selectors(label_selector, field_selector),
            ("resourceVersion", resource_version),
            ("allowWatchBookmarks", "true"),
        ]
        return self.transport.watch(resource.path(namespace), query=query)

    def watch_list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvents]:
        """Watch the collection from its present state on: every object as ADDED, then a bookmark that says so.

        Source: KEP-3157 and `ends_initial_events`. Servers before 1.32 refuse it with 422.
        """
        query = [
            *_selectors(label_selector, field_selector),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
        ]
        return self.transport.watch(resource.path(namespace), query=query)

    async def _object(
        self, method: str, path: str, *, query: Query = (), body: Body = None, content_type: str = ""
    ) -> Object:
        headers = {**self._headers, "Content-Type": content_type} if content_type else self._headers
        response = await self.transport.request(method, path, query=query, headers=headers, body=body)
        return object_of(response)


def ends_initial_events(event: WatchEvent) -> bool:
    """Whether a bookmark says that all objects that existed at the start of a `watch_list` have been sent."""
    annotations = event.object["metadata"].get("annotations") or {} if event.type == "BOOKMARK" else {}
    return annotations.get("k8s.io/initial-events-end") == "true"


def object_of(response: Response) -> Object:
    """The object in a response. Raises `ApiError` if the response is a failure."""
    body = response.body
    if response.status >= 400:
        if isinstance(body, dict) and body.get("kind") == "Status":
            raise ApiError(body)
        text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
        raise ApiError({"kind": "Status", "status": "Failure", "code": response.status, "message": text[:500]})
    return cast(Object, body)  # successful answers to these verbs are JSON objects


_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def warnings_of(response: Response) -> list[str]:
    """What a server warns of (`Warning` header, RFC 7234 5.5, code 299), as kubectl prints it."""
    header = next((value for name, value in response.headers.items() if name.lower() == "warning"), "")
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header)]


def _selectors(label_selector: str, field_selector: str) -> list[tuple[str, str]]:
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(key, value) for key, value in pairs if value]
