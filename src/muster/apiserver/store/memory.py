"""A store that keeps everything in memory: for simulations, tests and clusters without a data directory."""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.store.index import WINDOW_EVENTS, Index
from muster.apiserver.store.protocol import Page, StoreWatch


class MemoryStore:
    """A `Store` that is as durable as the process. `window` is the history kept for each collection, in writes."""

    def __init__(self, *, window: int = WINDOW_EVENTS) -> None:
        self._index = Index(window=window)

    @property
    def revision(self) -> int:
        return self._index.revision

    def get(self, key: str) -> Object | None:
        return self._index.get(key)

    def list(self, prefix: str, *, revision: int | None = None, limit: int = 0, start: str = "") -> Page:
        return self._index.page(prefix, revision, limit, start)

    def put(self, key: str, value: Object, *, expected: int | None = None) -> Object:
        event = self._index.put(key, value, expected)
        self._index.publish(event.revision)
        return value

    def delete(self, key: str, *, expected: int | None = None) -> Object:
        event = self._index.delete(key, expected)
        self._index.publish(event.revision)
        assert event.previous is not None
        return event.previous

    async def durable(self, revision: int) -> None:
        return None

    def watch(self, prefix: str, revision: int) -> StoreWatch:
        return self._index.watch(prefix, revision)

    def compact(self, revision: int) -> None:
        self._index.compact(revision)

    async def close(self) -> None:
        self._index.end_watches()
