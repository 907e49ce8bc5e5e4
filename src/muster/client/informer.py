"""List and watch one resource into a local store, and tell handlers what changed.

Source of the pattern: client-go's reflector and shared informer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import key_of
from muster.api.resource import Resource
from muster.client.client import Client, ends_initial_events
from muster.client.transport import ApiError, ClientError, TransportError, WatchEvents
from muster.clock import Clock

logger = logging.getLogger(__name__)

RETRY_S = 1.0
PATIENCE = 60
"""So many tries until a 404 or 429 is worth a warning: as a rule the kind was taken away, which the server says with
both, and whoever watches it notices; or the server is busy."""


class Change(Struct, frozen=True):
    """One object that appeared (`old` None), changed, or went away (`new` None)."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """The newest form: `new`, or the last one seen of a deleted object."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None
        return obj


Handler = Callable[[list[Change]], None]


class Informer:
    """The objects of one resource by key (`namespace/name`), kept up to date by `run`.

    Handlers get changes in batches, in order, after `objects` shows them; they must be quick and must not raise.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        self.resource = resource
        self.objects: dict[str, Object] = {}
        self.version = ""
        """The newest resource version that `objects` shows."""
        self.synced = asyncio.Event()
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._handlers: list[Handler] = []
        self._streams = True
        self._failure, self._failed = "", 0

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` with every batch of changes from now on; objects already known come as ADDED at once."""
        self._handlers.append(handler)
        if self.objects:
            handler([Change("ADDED", None, obj) for obj in self.objects.values()])

    def remove_handler(self, handler: Handler) -> None:
        """Call `handler` no more."""
        self._handlers.remove(handler)

    async def run(self) -> None:
        """List, then watch; again and again until cancelled."""
        self._streams = self._client.streams_lists
        while True:
            is_permanent = False
            try:
                await (self._stream() if self._streams else self._list_and_watch())
            except ApiError as error:
                if error.reason in ("Expired", "Gone"):
                    await self._clock.sleep(0.0)
                    continue
                if self._streams and error.code in (400, 422):
                    self._streams = False  # a server that does not know the way: list as ever
                    continue
                is_permanent = error.code < 500
                self._say("list or watch refused", error, patience=PATIENCE if error.code in (404, 429) else 1)
            except ClientError as error:
                self._say("list or watch failed", error)
            # What a server refuses it may refuse for ever; only a failure that passes keeps a simulation going.
            await self._clock.sleep(RETRY_S, periodic=is_permanent)

    def clear(self) -> None:
        """Forget all objects, and tell that they are gone; not while `run` goes on."""
        self._replace({}, "")

    def _say(self, event: str, error: ClientError, patience: int = 1) -> None:
        """Warn of a failure once, until it is over or another one; if it comes so many times in a row."""
        text = str(error)
        self._failed = self._failed + 1 if text == self._failure else 1
        self._failure = text
        extra = {"resource": self.resource.plural, "group": self.resource.group, "error": text}
        logger.log(logging.WARNING if self._failed == patience else logging.DEBUG, event, extra=extra)

    async def _list_and_watch(self) -> None:
        version = await self._list()
        self.synced.set()
        await self._watch(version)

    async def _list(self) -> str:
        listing = await self._client.list(self.resource, self._namespace, **self._selectors)
        self._replace({key_of(obj): obj for obj in listing.items}, listing.resource_version)
        return listing.resource_version

    async def _stream(self) -> None:
        """The objects that exist as the beginning of a watch, then what happens to them."""
        fresh: dict[str, Object] = {}
        version = ""
        stream = self._client.watch_list(self.resource, self._namespace, **self._selectors)
        try:
            async for events in stream:
                if not version:
                    events, version = _gather(fresh, events)
                    if not version:
                        continue
                    self._replace(fresh, version)
                    self.synced.set()
                version = self._take(events, version)
        except TransportError:
            if not version:
                raise
        if not version:
            raise TransportError("the watch ended before all objects were sent")
        await self._watch(version)

    def _replace(self, fresh: dict[str, Object], version: str) -> None:
        """Take over a whole collection, and tell how it differs from what was known."""
        changes = [Change("DELETED", old, None) for key, old in self.objects.items() if key not in fresh]
        for key, new in fresh.items():
            old = self.objects.get(key)
            if old is None:
                changes.append(Change("ADDED", None, new))
            elif old["metadata"].get("uid") != new["metadata"].get("uid"):
                changes += [Change("DELETED", old, None), Change("ADDED", None, new)]
            elif old["metadata"].get("resourceVersion") != new["metadata"].get("resourceVersion"):
                changes.append(Change("MODIFIED", old, new))
        self._failure = ""
        self.objects.clear()
        self.objects.update(fresh)
        self.version = version
        self._tell(changes)

    async def _watch(self, version: str) -> None:
        """Watch from a version on, again from the last one seen whenever the server ends the watch."""
        while True:
            stream = self._client.watch(self.resource, self._namespace, resource_version=version, **self._selectors)
            began, is_empty = version, True
            try:
                async for events in stream:
                    is_empty = False
                    version = self._take(events, version)
            except TransportError:
                await self._clock.sleep(RETRY_S)
            else:
                if is_empty and version == began:
                    await self._clock.sleep(RETRY_S, periodic=True)  # it ended at once: not in a tight circle

    def _take(self, events: WatchEvents, version: str) -> str:
        """Take over a batch of events; the newest version. Raises `ApiError` for an error that the watch reports."""
        changes: list[Change] = []
        for event in events:
            if event.type == "ERROR":
                self._tell(changes)
                raise ApiError(event.object)
            version = event.object["metadata"].get("resourceVersion") or version
            if event.type != "BOOKMARK":
                changes += self._apply(event.type, event.object)
        self.version = version
        self._tell(changes)
        return version

    def _apply(self, type_: Literal["ADDED", "MODIFIED", "DELETED"], obj: Object) -> list[Change]:
        key = key_of(obj)
        old = self.objects.get(key)
        if type_ == "DELETED":
            if old is None:
                return []
            del self.objects[key]
            return [Change("DELETED", obj, None)]
        self.objects[key] = obj
        if old is None:
            return [Change("ADDED", None, obj)]
        if old["metadata"].get("uid") != obj["metadata"].get("uid"):
            return [Change("DELETED", old, None), Change("ADDED", None, obj)]
        return [Change("MODIFIED", old, obj)]

    def _tell(self, changes: list[Change]) -> None:
        if changes:
            for handler in tuple(self._handlers):
                handler(changes)


def _gather(fresh: dict[str, Object], events: WatchEvents) -> tuple[WatchEvents, str]:
    """Collect the objects that exist; the events after the last of them, and its version: "" if more are to come."""
    for at, event in enumerate(events):
        if event.type == "ERROR":
            raise ApiError(event.object)
        if ends_initial_events(event):
            return events[at + 1 :], event.object["metadata"]["resourceVersion"]
        if event.type == "DELETED":
            fresh.pop(key_of(event.object), None)
        elif event.type != "BOOKMARK":
            fresh[key_of(event.object)] = event.object
    return [], ""
