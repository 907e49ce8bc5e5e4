"""What the API server needs of a store, whatever keeps the bytes.

Keys are paths (`/pods/namespace/name`); a prefix ends in `/`. Reads and writes are synchronous and happen in one event
loop, so each is atomic. A revision is a positive integer that grows by one with every write. Stored objects are shared
with every reader: nobody changes them after `put`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias

from msgspec import Struct

from muster.api.codec import Object


class StoreEvent(Struct, frozen=True):
    """One write. `value` is None for a deletion, `previous` None for a creation; both carry their resourceVersion.

    For a deletion, `previous` is the last state, with the resourceVersion of the deletion.
    """

    key: str
    revision: int
    value: Object | None
    previous: Object | None


class Page(Struct, frozen=True):
    """A part of a collection in key order. `next_key` is "" on the last page; `remaining` counts what follows."""

    items: list[Object]
    revision: int
    next_key: str
    remaining: int


Events: TypeAlias = list[StoreEvent]


class StoreError(Exception):
    """Root of what a store raises.

    StoreError
    ├── RevisionConflict  the expected revision is not the current one; retryable after reading again
    ├── Compacted         the revision lies before the window that the store still knows; retryable from the present
    ├── StoreFailed       the disk does not take writes any more; not retryable
    └── StoreCorrupt      the data directory is damaged, in use or belongs to something else; not retryable
    """


class RevisionConflict(StoreError):
    """The key is not at the expected revision; `current` is its revision, 0 if it does not exist."""

    def __init__(self, key: str, current: int) -> None:
        super().__init__(f"{key} is at revision {current}")
        self.key = key
        self.current = current


class Compacted(StoreError):
    """The revision asked for is older than the oldest one known (`oldest`)."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"the oldest revision known is {oldest}")
        self.oldest = oldest


class StoreFailed(StoreError):
    """A write could not be made durable (disk full, I/O error). The store takes no more writes."""


class StoreCorrupt(StoreError):
    """The data directory cannot be used; the message names the file and what is wrong. It is left untouched."""


class StoreWatch(Protocol):
    """The batches of one watch."""

    @property
    def progress(self) -> int:
        """The revision up to which every event of this watch has been taken: what a bookmark may say."""

    def __aiter__(self) -> AsyncIterator[Events]: ...

    async def __anext__(self) -> Events: ...

    async def aclose(self) -> None:
        """End the watch. Idempotent."""

    def end(self) -> None:
        """Deliver what is there, then stop. Idempotent."""


class Store(Protocol):
    """Versioned objects by key."""

    @property
    def revision(self) -> int:
        """The revision of the last write."""

    def get(self, key: str) -> Object | None:
        """The current object, or None."""

    def list(self, prefix: str, *, revision: int | None = None, limit: int = 0, start: str = "") -> Page:
        """Objects under `prefix` from key `start` on, at most `limit` (0: all), as they were at `revision`
        (None: now). Raises `Compacted`."""

    def put(self, key: str, value: Object, *, expected: int | None = None) -> Object:
        """Store `value`, which the store owns from now on, and set its `metadata.resourceVersion`.

        `expected`: the revision that the key must have, 0 if it must not exist, None if it does not matter.
        Raises `RevisionConflict`.
        """

    def delete(self, key: str, *, expected: int | None = None) -> Object:
        """Remove the key; the last state with the resourceVersion of the deletion. Raises `RevisionConflict`
        (also when the key does not exist)."""

    async def durable(self, revision: int) -> None:
        """Return once all writes up to `revision` survive a crash. Watchers see a write only after that."""

    def watch(self, prefix: str, revision: int) -> StoreWatch:
        """The writes under `prefix` after `revision`, in order, in batches. Raises `Compacted` at once if `revision`
        is before the window, and later if this watcher falls too far behind (its queue is bounded)."""

    def compact(self, revision: int) -> None:
        """Forget history before `revision`; the current objects stay."""

    async def close(self) -> None:
        """End all watches, write what is left, release the files. Idempotent."""
