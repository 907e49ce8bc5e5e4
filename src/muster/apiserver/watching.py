"""Watches: from the store's writes to the events that one request asked for.

An object that begins to match the selectors is ADDED, one that ceases to is DELETED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from muster.api.codec import Object
from muster.apiserver.bodies import go_bool
from muster.apiserver.errors import bad_request, expired, failure
from muster.apiserver.listing import check_options, predicates
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Route, Served
from muster.apiserver.selecting import Predicate
from muster.apiserver.store.protocol import Compacted, Events, Store, StoreEvent, StoreWatch
from muster.client.transport import WatchEvent, WatchEvents
from muster.clock import Clock

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
LAST_BOOKMARK_S = 2.0


class Watcher:
    """One watch request; made synchronously so that nothing is missed between a list and its watch."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: ServerOptions,
        route: Route,
        request: ApiRequest,
        *,
        by_time: bool,
    ) -> None:
        assert route.served is not None
        self._store = store
        self._clock = clock
        self._served: Served = route.served
        self._convert = route.served.conversion.from_stored if route.served.conversion else None
        check_options(request, is_watch=True)
        self._tests = [*predicates(route.served, request), *_by_name(route.name)]
        self._prefix = route.served.prefix(route.namespace)
        self._bookmarks = go_bool(request.parameter("allowWatchBookmarks"))
        self._interval_s = options.bookmark_interval_s if self._bookmarks and by_time else 0.0
        self._timeout_s = _timeout(request)
        self._initial = _wants_initial(request)
        self._end_mark = go_bool(request.parameter("sendInitialEvents")) and self._bookmarks
        self._version = _version(request)
        self._stream_of_store: StoreWatch | None = None

    @property
    def storage(self) -> str:
        """Where the watched objects are stored."""
        return self._served.storage

    def stop(self) -> None:
        """End the watch after what it has not sent yet: its kind is not served any more."""
        if self._stream_of_store is not None:
            self._stream_of_store.end()

    def events(self) -> AsyncIterator[WatchEvents]:
        """The events. Raises StatusError (410) at once if the resource version is too old."""
        if self._initial:
            page = self._store.list(self._prefix)
            first = [event for event in (self._added(obj) for obj in page.items) if event is not None]
            revision = page.revision
            if self._end_mark:
                first.append(self._bookmark(revision, {INITIAL_EVENTS_END: "true"}))
        else:
            first, revision = [], self._version
        try:
            stream = self._store.watch(self._prefix, revision)
        except Compacted as error:
            raise expired(f"too old resource version: {revision} ({error.oldest})") from error
        self._stream_of_store = stream
        return self._stream(first, stream, revision)

    async def _stream(self, first: WatchEvents, stream: StoreWatch, revision: int) -> AsyncIterator[WatchEvents]:
        try:
            if first:
                await self._store.durable(revision)
                yield first
            batches = stream if not (self._interval_s or self._timeout_s) else self._timed(stream)
            async for batch in batches:
                if batch:
                    revision = batch[-1].revision
                    events = [event for event in map(self._event, batch) if event is not None]
                else:
                    events = [self._bookmark(max(revision, stream.progress))]
                if events:
                    yield events
        except Compacted as error:
            gone = expired(f"too old resource version: {revision} ({error.oldest})")
            yield [WatchEvent("ERROR", gone.status)]
        finally:
            await stream.aclose()

    async def _timed(self, stream: StoreWatch) -> AsyncIterator[Events]:
        """The batches, an empty one whenever a bookmark is due, until the watch's time is over."""
        loop = asyncio.get_running_loop()
        end_s = self._clock.now() + self._timeout_s if self._timeout_s else None
        last_s = _last_mark(end_s)
        mark_s = _next_mark(self._clock.now(), self._interval_s, last_s)
        reading: asyncio.Task[Events] | None = None
        timer: asyncio.Task[None] | None = None
        try:
            while True:
                now = self._clock.now()
                due = [moment for moment in (end_s, mark_s) if moment is not None]
                if end_s is not None and now >= end_s:
                    return
                # A batch that has been taken but not sent must go out before a bookmark that covers it.
                if mark_s is not None and now >= mark_s and not (reading is not None and reading.done()):
                    mark_s = _next_mark(now, self._interval_s, last_s)
                    yield []
                    continue
                if reading is None:
                    reading = loop.create_task(_next(stream))
                if timer is None or timer.done():
                    timer = loop.create_task(self._clock.sleep(min(due) - now, periodic=True))
                await asyncio.wait((reading, timer), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    task, reading = reading, None
                    try:
                        batch = task.result()
                    except _Ended:
                        return
                    yield batch
        finally:
            left = [pending for pending in (reading, timer) if pending is not None]
            for pending in left:
                pending.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    def _added(self, stored: Object) -> WatchEvent | None:
        obj = self._convert(stored) if self._convert else stored
        return WatchEvent("ADDED", obj) if self._passes(obj) else None

    def _event(self, event: StoreEvent) -> WatchEvent | None:
        new, old = event.value, event.previous
        if self._convert is not None:
            new = self._convert(new) if new is not None else None
            old = self._convert(old) if old is not None else None
        if not self._tests:
            if new is None:
                assert old is not None
                return WatchEvent("DELETED", old)
            return WatchEvent("ADDED" if old is None else "MODIFIED", new)
        passed = old is not None and self._passes(old)
        if new is not None and self._passes(new):
            return WatchEvent("MODIFIED" if passed else "ADDED", new)
        if not passed:
            return None
        assert old is not None
        return WatchEvent("DELETED", _at_revision(old, event.revision))

    def _passes(self, obj: Object) -> bool:
        return all(test(obj) for test in self._tests)

    def _bookmark(self, revision: int, annotations: Object | None = None) -> WatchEvent:
        resource = self._served.resource
        metadata: Object = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        return WatchEvent("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})


def _next_mark(now: float, interval_s: float, last_s: float | None) -> float | None:
    """When the next bookmark is due: after the interval, or at the last moment for one."""
    if not interval_s:
        return None
    if last_s is None or now + interval_s < last_s:
        return now + interval_s
    return last_s if now < last_s else None


def _last_mark(end_s: float | None) -> float | None:
    """The moment of the last bookmark: shortly before the watch ends. (A very short watch gets none.)"""
    return end_s - LAST_BOOKMARK_S if end_s is not None else None


class _Ended(Exception):
    """The store's stream has ended."""


async def _next(stream: StoreWatch) -> Events:
    # StopAsyncIteration cannot pass through a task.
    try:
        return await anext(stream)
    except StopAsyncIteration:
        raise _Ended from None


def _at_revision(obj: Object, revision: int) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def _by_name(name: str) -> list[Predicate]:
    """The old path of a watch may name one object."""
    return [lambda obj: obj["metadata"]["name"] == name] if name else []


def _timeout(request: ApiRequest) -> float:
    text = request.parameter("timeoutSeconds")
    if not text:
        return 0.0
    try:
        return float(int(text))
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def _version(request: ApiRequest) -> int:
    text = request.parameter("resourceVersion")
    try:
        return int(text) if text else 0
    except ValueError as error:
        problem = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise failure(500, "", f"resourceVersion: {problem}") from error


def _wants_initial(request: ApiRequest) -> bool:
    asked = request.parameter("sendInitialEvents")
    if asked:
        return go_bool(asked)
    return request.parameter("resourceVersion") in ("", "0")
