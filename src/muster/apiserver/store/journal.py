"""Writes on disk: reading them back at the start, and one thread that commits new ones in groups.

Every write is a row (`revision`, `key`, `value` or NULL for a deletion, `checksum`). A row is superseded by the next
one of its key; superseded rows and deletions are removed, in slices, once they are older than `floor`, so what is left
are the current objects and the history since `floor`.
"""

from __future__ import annotations

import gc
import sqlite3
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.store.protocol import StoreCorrupt

KEPT_WRITES = 2_000
"""How many of the last revisions can be watched again after a restart."""
SLICE_ROWS = 512
"""At most how many old rows one commit removes."""

_ROWS_PER_STATEMENT = (256, 64, 16, 4, 1)
"""The sqlite3 module gives up the interpreter lock for each statement, and a busy event loop returns it late; so a
group of rows goes in as few statements as possible, of a few sizes only, so that they stay prepared."""
_INSERTS = {
    size: f"INSERT INTO writes (revision, key, value, checksum) VALUES {', '.join(['(?, ?, ?, ?)'] * size)}"
    for size in _ROWS_PER_STATEMENT
}
_DELETE = "DELETE FROM writes WHERE revision IN (SELECT value FROM json_each(?))"
_FLOOR = "INSERT INTO facts VALUES ('floor', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Row(Struct, frozen=True):
    """One write as it is stored."""

    revision: int
    key: str
    value: bytes | None

    @property
    def columns(self) -> tuple[int, str, bytes | None, int]:
        return self.revision, self.key, self.value, checksum(self.key, self.value)


class Recovered(Struct, frozen=True):
    """What was on disk: the writes in order, decoded (None: a deletion), and the oldest revision with full history."""

    writes: list[tuple[int, str, Object | None]]
    floor: int


def checksum(key: str, value: bytes | None) -> int:
    """Of one row; SQLite itself does not notice changed bytes inside a value."""
    return zlib.crc32(value or b"", zlib.crc32(key.encode()))


def recover(database: Path) -> Recovered:
    """Read a database without changing it. Raises `StoreCorrupt` if anything is wrong with it."""
    # Even a reader of a write-ahead log makes these files; where we refuse, they must not stay.
    beside = [database.with_name(f"{database.name}{suffix}") for suffix in ("-wal", "-shm")]
    made = [path for path in beside if not path.exists()]
    try:
        with closing(sqlite3.connect(f"file:{_quoted(database)}?mode=ro", uri=True)) as connection:
            return _read(connection, database)
    except (StoreCorrupt, sqlite3.Error, ValueError) as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, StoreCorrupt):
            raise
        raise StoreCorrupt(f"{database} is damaged: {error}") from error


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _read(connection: sqlite3.Connection, database: Path) -> Recovered:
    problems = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problems != "ok":
        raise StoreCorrupt(f"{database} is damaged: {problems}")
    floor = connection.execute("SELECT value FROM facts WHERE name = 'floor'").fetchone()
    writes: list[tuple[int, str, Object | None]] = []
    for revision, key, value, sum_ in connection.execute("SELECT * FROM writes ORDER BY revision"):
        if checksum(key, value) != sum_:
            raise StoreCorrupt(f"{database} is damaged: the checksum of {key} at revision {revision} is wrong")
        writes.append((revision, key, loads(value) if value is not None else None))
    return Recovered(writes, floor[0] if floor else 0)


@contextmanager
def without_collector() -> Iterator[None]:
    """Let no garbage be looked for inside, nor ever among the objects made inside.

    Decoding many objects makes no garbage, but the collector would look at each of them again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


class Journal:
    """Commits rows in a thread of its own; all that wait when a commit begins are in it.

    `on_commit(revision, error)` is called in that thread after each commit, with the last revision that is on disk;
    after an error nothing more is written.
    """

    def __init__(self, database: Path, floor: int, on_commit: Callable[[int, Exception | None], None]) -> None:
        self._database = database
        self._on_commit = on_commit
        self._waiting: list[Row] = []
        self._superseded: deque[tuple[int, int]] = deque()
        self._floor = floor
        self._target = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def start(self) -> None:
        """Begin to write. Raises `StoreCorrupt` if the database cannot be opened."""
        self._thread.start()

    def append(self, row: Row, superseded: int | None) -> None:
        """Queue a row; `superseded` is the revision of the key's last row."""
        with self._changed:
            self._waiting.append(row)
            self.supersede(row.revision, superseded, is_deletion=row.value is None)
            self._changed.notify()

    def supersede(self, revision: int, superseded: int | None, *, is_deletion: bool) -> None:
        """Remember which rows a write makes superfluous."""
        if superseded is not None:
            self._superseded.append((revision, superseded))
        if is_deletion:
            self._superseded.append((revision, revision))

    def compact(self, revision: int) -> None:
        """Let go of history before a revision, bit by bit."""
        with self._changed:
            self._target = max(self._target, revision)
            self._changed.notify()

    def close(self) -> None:
        """Write what is left and close the database. Blocks; idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        last = 0
        try:
            with closing(_connect(self._database)) as connection:
                while True:
                    rows = self._next()
                    if rows is None:
                        break
                    removed = self._slice(rows[-1].revision if rows else last)
                    last = _commit(connection, rows, removed, self._floor) or last
                    if rows:
                        self._on_commit(last, None)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except Exception as error:  # whoever waits for a commit must hear of it, whatever it was
            self._on_commit(last, error)

    def _next(self) -> list[Row] | None:
        """The rows that wait, none if there are only old ones to remove; None at the end."""
        with self._changed:
            while not self._waiting and not self._closing and not self._is_compacting():
                self._changed.wait()
            rows, self._waiting = self._waiting, []
            return None if self._closing and not rows else rows

    def _is_compacting(self) -> bool:
        return bool(self._superseded) and self._superseded[0][0] <= self._target

    def _slice(self, revision: int) -> list[int]:
        """Some rows that nobody needs any more; moves the floor past them."""
        with self._changed:
            limit = max(self._target, revision - KEPT_WRITES)
            removed: list[int] = []
            while self._superseded and self._superseded[0][0] <= limit and len(removed) < SLICE_ROWS:
                self._floor, old = self._superseded.popleft()
                removed.append(old)
            return removed


def _connect(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None, cached_statements=16)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _commit(connection: sqlite3.Connection, rows: list[Row], removed: list[int], floor: int) -> int:
    """Write a group; the revision of its last row, 0 if there is none."""
    statements = list(_inserts(rows))
    if removed:
        statements += [(_DELETE, [dumps(removed).decode()]), (_FLOOR, [floor])]
    if len(statements) == 1:
        connection.execute(*statements[0])
    elif statements:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(*statement)
        connection.execute("COMMIT")
    return rows[-1].revision if rows else 0


def _inserts(rows: list[Row]) -> Iterator[tuple[str, list[JSON]]]:
    start = 0
    for size in _ROWS_PER_STATEMENT:
        while len(rows) - start >= size:
            group = rows[start : start + size]
            start += size
            yield _INSERTS[size], [column for row in group for column in row.columns]
