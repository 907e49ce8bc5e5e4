"""The directory of a durable store: who may use it, and whether what lies in it is ours and whole.

A directory is used if it is empty, missing, or holds a database that this program made. Anything else is refused with
`StoreCorrupt`, and nothing in it is changed. A lock makes sure that one process at a time uses it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from muster.apiserver.store.protocol import StoreCorrupt

DATABASE = "state.db"
LOCK = "lock"
APPLICATION_ID = 0x4D757374
"""Marks our databases (`Must` in ASCII); SQLite keeps it in the header."""
SCHEMA_VERSION = 1

_NEW = "state.db.new"
_OURS = frozenset({LOCK, _NEW, f"{_NEW}-journal", f"{_NEW}-wal", f"{_NEW}-shm"})
_SCHEMA = f"""
PRAGMA page_size = 8192;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE writes (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, checksum INTEGER NOT NULL) STRICT;
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""


class DataDirectory:
    """A locked data directory with a database in it; made by `lock_directory`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.database = path / DATABASE
        self._lock: int | None = lock

    def release(self) -> None:
        """Let others use the directory. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def lock_directory(path: Path) -> DataDirectory:
    """Check and lock a directory, and make a database in it if it is new.

    Raises `StoreCorrupt` if it is not ours, damaged beyond its header, made by a newer version or in use.
    """
    database = path / DATABASE
    if database.exists():
        _check_header(database)
    else:
        _check_foreign(path)
        path.mkdir(parents=True, exist_ok=True)
    lock = _lock(path)
    try:
        if not database.exists():
            _create(path)
    except BaseException:
        os.close(lock)
        raise
    return DataDirectory(path, lock)


def _check_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StoreCorrupt(f"{path} is not a directory")
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in _OURS) if path.exists() else []
    if others:
        raise StoreCorrupt(f"{path} is not empty and is no data directory of ours: it contains {others[0]}")


def _check_header(database: Path) -> None:
    """Source: the SQLite file format, section 1.3: the magic text, user version at 60, application id at 68."""
    try:
        with database.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise StoreCorrupt(f"{database} cannot be read: {error}") from error
    if len(header) < 100 or not header.startswith(b"SQLite format 3\x00"):
        raise StoreCorrupt(f"{database} is not a database")
    application, version = (int.from_bytes(header[start : start + 4], "big") for start in (68, 60))
    if application != APPLICATION_ID:
        raise StoreCorrupt(f"{database} is the database of another program")
    if version != SCHEMA_VERSION:
        raise StoreCorrupt(f"{database} has format {version}, this version of Muster knows format {SCHEMA_VERSION}")


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreCorrupt(f"{path} is in use by another process") from error
    return descriptor


def _create(path: Path) -> None:
    """Make an empty database under another name and rename it, so that there is never half a database."""
    for name in sorted(_OURS - {LOCK}):
        (path / name).unlink(missing_ok=True)
    with closing(sqlite3.connect(path / _NEW)) as connection:
        connection.executescript(_SCHEMA)
    descriptor = os.open(path / _NEW, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    (path / _NEW).replace(path / DATABASE)
    _sync_directory(path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
