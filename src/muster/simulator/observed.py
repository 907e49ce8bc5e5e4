"""A store that tells an observer of every write, at the moment of the write."""

from __future__ import annotations

from collections.abc import Callable

from muster.api.codec import Object
from muster.apiserver.store.protocol import Page, Store, StoreWatch

Observer = Callable[[str, Object | None, Object | None], None]
"""Called with the key, the new object (None: deleted) and the one before (None: created); must not change them."""


class ObservedStore:
    """A `Store` in front of another one."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.observers: list[Observer] = []

    @property
    def revision(self) -> int:
        return self._inner.revision

    def get(self, key: str) -> Object | None:
        return self._inner.get(key)

    def list(self, prefix: str, *, revision: int | None = None, limit: int = 0, start: str = "") -> Page:
        return self._inner.list(prefix, revision=revision, limit=limit, start=start)

    def put(self, key: str, value: Object, *, expected: int | None = None) -> Object:
        before = self._inner.get(key)
        stored = self._inner.put(key, value, expected=expected)
        for observer in self.observers:
            observer(key, stored, before)
        return stored

    def delete(self, key: str, *, expected: int | None = None) -> Object:
        before = self._inner.get(key)
        last = self._inner.delete(key, expected=expected)
        for observer in self.observers:
            observer(key, None, before)
        return last

    async def durable(self, revision: int) -> None:
        await self._inner.durable(revision)

    def watch(self, prefix: str, revision: int) -> StoreWatch:
        return self._inner.watch(prefix, revision)

    def compact(self, revision: int) -> None:
        self._inner.compact(revision)

    async def close(self) -> None:
        await self._inner.close()
