"""What only a durable store must do: survive kills, refuse what is not its own, stay out of others' way."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from muster.api.codec import Object
from muster.apiserver.store import journal
from muster.apiserver.store.protocol import Compacted, StoreCorrupt, StoreFailed
from muster.apiserver.store.sqlite import SqliteStore

WRITER = """
import asyncio, sys
from muster.apiserver.store.sqlite import SqliteStore

async def main():
    store = SqliteStore.open(sys.argv[1])
    async def client(name):
        number = 0
        while True:
            key = f"/pods/{name}/{number % 50}"
            stored = store.put(key, {"metadata": {}, "number": number, "padding": "x" * 500})
            await store.durable(store.revision)
            print(key, stored["metadata"]["resourceVersion"], number, flush=True)
            number += 1
    await asyncio.gather(*(client(name) for name in "abcd"))

asyncio.run(main())
"""


def make(number: int) -> Object:
    return {"metadata": {"name": "x"}, "number": number}


def fill(path: Path, count: int = 3) -> None:
    """A data directory with some objects, closed in order."""

    async def main() -> None:
        store = SqliteStore.open(path)
        for number in range(count):
            store.put(f"/pods/a/{number}", make(number))
        await store.close()

    asyncio.run(main())


def content(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in sorted(path.iterdir())}


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(main())


def killed_writer(path: Path, after_s: float) -> dict[str, tuple[int, int]]:
    """Let a process write until it is killed; key → revision and number of the last acknowledged write."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    lines = process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    acknowledged = {}
    for line in lines:
        if line.endswith("\n"):
            key, revision, number = line.split()
            acknowledged[key] = (int(revision), int(number))
    return acknowledged


def test_kills_lose_no_acknowledged_write(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(4):
        acknowledged = killed_writer(tmp_path / "data", rng.uniform(0.02, 0.15))

        async def check(acknowledged: dict[str, tuple[int, int]] = acknowledged) -> None:
            store = SqliteStore.open(tmp_path / "data")
            for key, (revision, number) in acknowledged.items():
                found = store.get(key)
                assert found is not None
                assert int(found["metadata"]["resourceVersion"]) >= revision
                assert found["number"] >= number
                assert store.revision >= revision
            await store.close()

        asyncio.run(check())


def test_revisions_go_on_after_a_restart(tmp_path: Path) -> None:
    fill(tmp_path / "data")

    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        before = store.revision
        assert store.put("/pods/a/new", make(9))["metadata"]["resourceVersion"] == str(before + 1)
        await store.close()

    run(main)


def test_revision_survives_though_the_last_write_was_a_compacted_deletion(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        store.put("/pods/a/x", make(1))
        store.delete("/pods/a/x")
        revision = store.revision
        await store.durable(revision)
        store.compact(revision)
        while store._journal._is_compacting():
            await asyncio.sleep(0.01)
        await store.close()
        store = SqliteStore.open(tmp_path / "data")
        assert store.revision == revision
        with pytest.raises(Compacted):
            store.watch("/pods/", revision - 1)
        await store.close()

    run(main)


def test_old_rows_are_removed_and_recent_history_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_WRITES", 20)

    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        for number in range(300):
            store.put("/pods/a/x", make(number))
            await store.durable(store.revision)
        last = store.revision
        await store.close()
        with sqlite3.connect(tmp_path / "data" / "state.db") as connection:
            assert connection.execute("SELECT count(*) FROM writes").fetchone()[0] < 30
        connection.close()
        store = SqliteStore.open(tmp_path / "data")
        found = await anext(aiter(store.watch("/pods/", last - 10)))
        assert [event.revision for event in found] == list(range(last - 9, last + 1))
        with pytest.raises(Compacted):
            store.watch("/pods/", last - 50)
        await store.close()

    run(main)


def test_watchers_see_only_durable_writes(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        reader = asyncio.ensure_future(anext(aiter(store.watch("/pods/", store.revision))))
        store.put("/pods/a/x", make(1))
        await asyncio.sleep(0)
        assert not reader.done()
        await store.durable(store.revision)
        assert len(await reader) == 1
        await store.close()

    run(main)


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        with pytest.raises(StoreCorrupt, match="in use"):
            SqliteStore.open(tmp_path / "data")
        await store.close()
        await SqliteStore.open(tmp_path / "data").close()

    run(main)


def foreign_file(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("dear data")


def other_database(path: Path) -> None:
    path.mkdir()
    with sqlite3.connect(path / "state.db") as connection:
        connection.execute("CREATE TABLE music (title)")
    connection.close()


def garbage(path: Path) -> None:
    fill(path)
    (path / "state.db").write_bytes(os.urandom(5000))


def empty_file(path: Path) -> None:
    fill(path)
    (path / "state.db").write_bytes(b"")


def cut_off(path: Path) -> None:
    fill(path, 200)
    data = (path / "state.db").read_bytes()
    (path / "state.db").write_bytes(data[: len(data) // 2])


def changed_byte(path: Path) -> None:
    fill(path)
    data = bytearray((path / "state.db").read_bytes())
    position = data.index(b'"number":1')
    data[position + 9] = ord("7")
    (path / "state.db").write_bytes(data)


def newer_format(path: Path) -> None:
    fill(path)
    with sqlite3.connect(path / "state.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    "damage", [foreign_file, other_database, garbage, empty_file, cut_off, changed_byte, newer_format]
)
def test_what_is_not_a_whole_directory_of_ours_is_refused_and_left_untouched(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "data"
    damage(path)
    before = content(path)
    with pytest.raises(StoreCorrupt, match=str(path)):
        SqliteStore.open(path)
    assert content(path) == before


def test_creation_that_was_cut_short_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "state.db.new").write_bytes(b"half")
    fill(path)
    assert sorted(entry.name for entry in path.iterdir()) == ["lock", "state.db"]


def test_disk_that_takes_no_writes_fails_those_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise sqlite3.OperationalError("disk full")

    async def main() -> None:
        store = SqliteStore.open(tmp_path / "data")
        monkeypatch.setattr(journal, "_commit", refuse)
        store.put("/pods/a/x", make(1))
        with pytest.raises(StoreFailed, match="disk full"):
            await store.durable(store.revision)
        with pytest.raises(StoreFailed):
            store.put("/pods/a/y", make(2))
        await store.close()

    run(main)
