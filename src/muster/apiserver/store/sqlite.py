"""A durable store: everything in memory for reading, every write in SQLite before anybody is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from pathlib import Path

from muster.api.codec import Object, dumps
from muster.apiserver.store.datadir import DataDirectory, lock_directory
from muster.apiserver.store.index import WINDOW_EVENTS, Index
from muster.apiserver.store.journal import Journal, Recovered, Row, recover, without_collector
from muster.apiserver.store.protocol import Page, StoreEvent, StoreFailed, StoreWatch


class SqliteStore:
    """A `Store` in a directory; made by `open`.

    Reads see every write at once, so answers must wait for `durable` as well as writers: then nobody sees what a crash
    could take back.
    """

    def __init__(self, directory: DataDirectory, index: Index, journal: Journal) -> None:
        self._directory = directory
        self._index = index
        self._journal = journal
        self._durable = index.revision
        self._failure: Exception | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    @classmethod
    def open(cls, path: Path | str, *, window: int = WINDOW_EVENTS) -> SqliteStore:
        """Use a directory, made if there is none.

        Raises `StoreCorrupt` if it is damaged, belongs to something else or is in use; it is left untouched then.
        """
        directory = lock_directory(Path(path))
        try:
            stores: list[SqliteStore] = []
            with without_collector():
                recovered = recover(directory.database)
                journal = Journal(directory.database, recovered.floor, lambda *args: stores[0].committed(*args))
                index = _index(recovered, journal, window)
            stores.append(cls(directory, index, journal))
            journal.start()
        except BaseException:
            directory.release()
            raise
        return stores[0]

    @property
    def revision(self) -> int:
        return self._index.revision

    def get(self, key: str) -> Object | None:
        return self._index.get(key)

    def list(self, prefix: str, *, revision: int | None = None, limit: int = 0, start: str = "") -> Page:
        return self._index.page(prefix, revision, limit, start)

    def put(self, key: str, value: Object, *, expected: int | None = None) -> Object:
        self._check()
        event = self._index.put(key, value, expected)
        self._append(event, event.previous)
        return value

    def delete(self, key: str, *, expected: int | None = None) -> Object:
        self._check()
        old = self._index.get(key)
        event = self._index.delete(key, expected)
        self._append(event, old)
        assert event.previous is not None
        return event.previous

    async def durable(self, revision: int) -> None:
        """See `Store.durable`. Raises `StoreFailed` if the disk does not take the writes."""
        if revision <= self._index.visible:
            return
        self._loop = asyncio.get_running_loop()
        self._advance()
        if revision <= self._index.visible:
            return
        self._check()
        waiter = self._loop.create_future()
        self._waiters.append((revision, waiter))
        await waiter

    def watch(self, prefix: str, revision: int) -> StoreWatch:
        self._loop = asyncio.get_running_loop()
        return self._index.watch(prefix, revision)

    def compact(self, revision: int) -> None:
        self._index.compact(revision)
        self._journal.compact(self._index.floor)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.to_thread(self._journal.close)
        self._advance()
        self._index.end_watches()
        self._directory.release()

    def committed(self, revision: int, failure: Exception | None) -> None:
        """Called by the journal's thread: writes up to a revision are on disk, or cannot be written."""
        with self._lock:
            self._durable = max(self._durable, revision)
            self._failure = failure
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: whoever asks next will see
                loop.call_soon_threadsafe(self._advance)

    def _advance(self) -> None:
        """Show what is durable to watchers, and wake those who wait for it."""
        with self._lock:
            durable, failure = self._durable, self._failure
        if durable > self._index.visible:
            self._index.publish(durable)
        while self._waiters and (failure is not None or self._waiters[0][0] <= durable):
            _, waiter = self._waiters.popleft()
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(StoreFailed(str(failure)))

    def _append(self, event: StoreEvent, old: Object | None) -> None:
        if self._loop is None:
            self._loop = _running_loop()
        value = dumps(event.value) if event.value is not None else None
        self._journal.append(Row(event.revision, event.key, value), _revision_of(old))

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure))


def _index(recovered: Recovered, journal: Journal, window: int) -> Index:
    """Replay the writes; those after the floor become history again."""
    index = Index(floor=recovered.floor, window=window)
    for revision, key, value in recovered.writes:
        old = index.get(key)
        journal.supersede(revision, _revision_of(old), is_deletion=value is None)
        index.replay(revision, key, value)
    # If the very last write was a deletion and is compacted away, only the floor still tells the revision.
    index.revision = index.visible = max(index.revision, recovered.floor)
    index.compact(recovered.floor)
    return index


def _revision_of(obj: Object | None) -> int | None:
    return int(obj["metadata"]["resourceVersion"]) if obj is not None else None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
