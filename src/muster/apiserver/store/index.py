"""Objects by key in memory, with their recent history: what every store of Muster reads from.

A key's first part (`/pods/`) names its *collection*. Each collection keeps its keys sorted, the last writes (its
window), and its watchers; so lease renewals never push the history of pods out. Watchers have no queues of their own:
they remember the first revision they have not read and take everything since then from the window in one batch. A
watcher whose next event has left the window is told `Compacted`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from operator import attrgetter

from msgspec import Struct

from muster.api.codec import Object
from muster.apiserver.store.protocol import Compacted, Events, Page, RevisionConflict, StoreEvent

FIRST_REVISION = 1
"""The revision of an empty store: never 0, because clients give version "0" a meaning of its own."""

WINDOW_EVENTS = 10_000
"""How many writes of a collection can be watched again, and at most how far a watcher may fall behind."""


class Write(Struct, frozen=True):
    """An event, and the object as it was before (the event of a deletion shows that with another version)."""

    event: StoreEvent
    before: Object | None


class Watcher:
    """The writes under a prefix after a revision, in batches. An async iterator; `aclose` is idempotent."""

    def __init__(self, collections: list[Collection], index: Index, prefix: str, after: int) -> None:
        self.prefix = prefix
        self.after = after
        self.unread: int | None = after + 1 if after < index.visible else None
        self._index = index
        self._collections = collections
        self._wake: asyncio.Future[None] | None = None
        self._closed = False

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Events:
        """The next batch. Raises `Compacted` when this watcher has fallen too far behind."""
        while True:
            batch = self._take()
            if batch:
                return batch
            if self._closed:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    async def aclose(self) -> None:
        self.end()

    @property
    def progress(self) -> int:
        """The revision up to which every event of this watch has been taken: what a bookmark may say."""
        return self._index.visible if self.unread is None else self.unread - 1

    def end(self) -> None:
        """Deliver what is there, then stop."""
        self._closed = True
        for collection in self._collections:
            collection.watchers.pop(self, None)
        self._index.root_watchers.pop(self, None)
        self._rouse()

    def notice(self, event: StoreEvent) -> None:
        """A write was published; wake up if it lies under the prefix."""
        if event.revision > self.after and event.key.startswith(self.prefix):
            if self.unread is None:
                self.unread = event.revision
            self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _take(self) -> Events:
        first = self.unread
        if first is None:
            return []
        collections = self._collections or self._index.all_collections()
        for collection in collections:
            if first <= collection.floor:
                self.end()
                raise Compacted(collection.floor)
        self.unread = None
        batch = [
            write.event
            for collection in collections
            for write in collection.since(first)
            if write.event.revision <= self._index.visible and write.event.key.startswith(self.prefix)
        ]
        if not self._collections:
            batch.sort(key=attrgetter("revision"))
        return batch


class Collection:
    """The objects with one first key part. `floor` is the oldest revision that it can still be seen at."""

    def __init__(self, floor: int, window: int) -> None:
        self.objects: dict[str, Object] = {}
        self.keys: list[str] = []
        self.writes: deque[Write] = deque()
        self.watchers: dict[Watcher, None] = {}
        self.floor = floor
        self._window = window

    def apply(self, event: StoreEvent, before: Object | None) -> None:
        """Make a write take effect and remember it."""
        if event.value is None:
            del self.objects[event.key]
            del self.keys[bisect_left(self.keys, event.key)]
        else:
            if event.key not in self.objects:
                insort(self.keys, event.key)
            self.objects[event.key] = event.value
        self.remember(Write(event, before))

    def remember(self, write: Write) -> None:
        """Add a write to the window, and drop the oldest one if the window is full."""
        self.writes.append(write)
        if len(self.writes) > self._window:
            self.floor = self.writes.popleft().event.revision

    def forget(self, revision: int) -> None:
        """Drop the writes up to a revision."""
        while self.writes and self.writes[0].event.revision <= revision:
            self.writes.popleft()
        self.floor = max(self.floor, revision)

    def since(self, revision: int) -> list[Write]:
        """The writes from a revision on, oldest first; the cost is theirs alone."""
        found = []
        for write in reversed(self.writes):
            if write.event.revision < revision:
                break
            found.append(write)
        found.reverse()
        return found

    def now(self, prefix: str, start: str) -> list[str]:
        """The current keys under a prefix, from `start` on."""
        if not self.keys:
            return []
        first = bisect_left(self.keys, max(prefix, start))
        return self.keys[first : bisect_left(self.keys, _after(prefix), lo=first)]

    def at(self, prefix: str, start: str, revision: int) -> tuple[list[str], dict[str, Object]]:
        """The keys under a prefix as they were at a revision, and the objects that differ from now."""
        changed: dict[str, Object | None] = {}
        for write in reversed(self.writes):
            if write.event.revision <= revision:
                break
            if write.event.key.startswith(prefix) and write.event.key >= start:
                changed[write.event.key] = write.before
        if not changed:
            return self.now(prefix, start), {}
        old = {key: obj for key, obj in changed.items() if obj is not None}
        keys = [key for key in self.now(prefix, start) if key not in changed]
        return sorted([*keys, *old]), old


class Index:
    """All collections, the revision, and which writes watchers may see (`visible`)."""

    def __init__(self, revision: int = FIRST_REVISION, floor: int = 0, window: int = WINDOW_EVENTS) -> None:
        self.revision = revision
        self.visible = revision
        self.floor = floor
        self.root_watchers: dict[Watcher, None] = {}
        self._window = window
        self._collections: dict[str, Collection] = {}
        self._unpublished: deque[StoreEvent] = deque()

    def all_collections(self) -> list[Collection]:
        """All collections in key order."""
        return [self._collections[name] for name in sorted(self._collections)]

    def collection(self, key: str) -> Collection:
        """The collection of a key or prefix, made if there is none yet."""
        name = key[: key.find("/", 1) + 1]
        found = self._collections.get(name)
        if found is None:
            assert name, f"{key!r} has no collection part"
            found = self._collections[name] = Collection(self.floor, self._window)
        return found

    def get(self, key: str) -> Object | None:
        return self.collection(key).objects.get(key)

    def page(self, prefix: str, revision: int | None, limit: int, start: str) -> Page:
        """See `Store.list`."""
        at = self.revision if revision is None or revision >= self.revision else revision
        keys: list[str] = []
        objects: list[Object] = []
        for collection in self._under(prefix):
            if at < collection.floor:
                raise Compacted(collection.floor)
            found, old = collection.at(prefix, start, at)
            wanted = found if not limit else found[: max(0, limit - len(objects))]
            current = collection.objects
            objects += [old.get(key) or current[key] for key in wanted] if old else map(current.__getitem__, wanted)
            keys += found
        rest = keys[len(objects) :]
        return Page(objects, at, rest[0] if rest else "", len(rest))

    def put(self, key: str, value: Object, expected: int | None) -> StoreEvent:
        """Store a value, which gets its version here; the write is not published yet."""
        collection = self.collection(key)
        before = collection.objects.get(key)
        _check(key, before, expected)
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        return self._apply(collection, StoreEvent(key, self.revision, value, before), before)

    def delete(self, key: str, expected: int | None) -> StoreEvent:
        """Remove a key; the write is not published yet."""
        collection = self.collection(key)
        before = collection.objects.get(key)
        _check(key, before, expected)
        if before is None:
            raise RevisionConflict(key, 0)
        self.revision += 1
        event = StoreEvent(key, self.revision, None, _at_version(before, self.revision))
        return self._apply(collection, event, before)

    def publish(self, revision: int) -> None:
        """Let watchers see the writes up to a revision."""
        self.visible = revision
        while self._unpublished and self._unpublished[0].revision <= revision:
            event = self._unpublished.popleft()
            for watcher in (*self.collection(event.key).watchers, *self.root_watchers):
                watcher.notice(event)

    def watch(self, prefix: str, revision: int) -> Watcher:
        """See `Store.watch`. Raises `Compacted` here, not at the first step."""
        for collection in self._under(prefix):
            if revision < collection.floor:
                raise Compacted(collection.floor)
        is_root = prefix in ("", "/")
        watcher = Watcher([] if is_root else self._under(prefix), self, prefix, revision)
        (self.root_watchers if is_root else self.collection(prefix).watchers)[watcher] = None
        return watcher

    def compact(self, revision: int) -> None:
        """See `Store.compact`."""
        self.floor = max(self.floor, min(revision, self.visible))
        for collection in self._collections.values():
            collection.forget(self.floor)

    def end_watches(self) -> None:
        """End every watch after what it has not read yet."""
        for watcher in tuple(self._watchers()):
            watcher.end()

    def _watchers(self) -> Iterator[Watcher]:
        yield from self.root_watchers
        for collection in self.all_collections():
            yield from collection.watchers

    def _under(self, prefix: str) -> list[Collection]:
        return self.all_collections() if prefix in ("", "/") else [self.collection(prefix)]

    def _apply(self, collection: Collection, event: StoreEvent, before: Object | None) -> StoreEvent:
        collection.apply(event, before)
        self._unpublished.append(event)
        return event

    def replay(self, revision: int, key: str, value: Object | None) -> None:
        """Make a write of an earlier run take effect; it is visible at once. Calls come in order of revision."""
        collection = self.collection(key)
        before = collection.objects.get(key)
        self.revision = self.visible = revision
        if value is None and before is None:
            return  # what was deleted lies before the floor
        last = before
        if value is None and before is not None:
            last = _at_version(before, revision)
        event = StoreEvent(key, revision, value, last)
        collection.apply(event, before)


def _at_version(obj: Object, revision: int) -> Object:
    """The object with another resourceVersion; the rest is shared."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


def _check(key: str, before: Object | None, expected: int | None) -> None:
    if expected is None:
        return
    current = int(before["metadata"]["resourceVersion"]) if before is not None else 0
    if current != expected:
        raise RevisionConflict(key, current)


def _after(prefix: str) -> str:
    """The first string after all that begin with the prefix (every key begins with `/`)."""
    prefix = prefix or "/"
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
