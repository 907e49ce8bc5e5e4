"""Laws of every store, and a model that stores are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object, copy_object
from muster.apiserver.store.memory import MemoryStore
from muster.apiserver.store.protocol import Compacted, RevisionConflict, Store, StoreEvent
from muster.apiserver.store.sqlite import SqliteStore

KEYS = ["/pods/a/x", "/pods/a/y", "/pods/a-b/x", "/pods/b/x", "/podgroups/a/x", "/nodes/n1"]
PREFIXES = ["/pods/", "/pods/a/", "/pods/b/", "/podgroups/", "/nodes/", "/"]


def make(value: int) -> Object:
    return {"metadata": {"name": "x"}, "value": value}


async def take(store: Store, prefix: str, revision: int, count: int) -> list[StoreEvent]:
    """`count` events of a watch; fewer if it takes too long."""
    events: list[StoreEvent] = []
    stream = store.watch(prefix, revision)
    try:
        async with asyncio.timeout(2):
            async for batch in stream:
                events += batch
                if len(events) >= count:
                    break
    except TimeoutError:
        pass
    return events


@dataclass
class Model:
    """Every state that ever was, as a plain dict a revision."""

    states: dict[int, dict[str, Object]] = field(default_factory=dict)
    events: list[StoreEvent] = field(default_factory=list)

    def record(self, store: Store, key: str, value: Object | None, previous: Object | None) -> None:
        state = dict(self.states[max(self.states)])
        if value is None:
            del state[key]
        else:
            state[key] = copy_object(value)
        self.states[store.revision] = state
        self.events.append(StoreEvent(key, store.revision, value, previous))


commands = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete", "conflict"]), st.sampled_from(KEYS), st.integers(0, 9)),
    max_size=40,
)


def play(store: Store, script: list[tuple[str, str, int]], model: Model | None = None) -> Model:
    """Run commands on a store and record what should be."""
    model = model or Model({store.revision: {}})
    for verb, key, number in script:
        current = store.get(key)
        version = int(current["metadata"]["resourceVersion"]) if current else 0
        if verb == "conflict" or (verb == "delete" and current is None):
            with pytest.raises(RevisionConflict) as caught:
                store.delete(key, expected=version + 1)
            assert caught.value.current == version
        elif verb == "put":
            before = store.revision
            stored = store.put(key, make(number), expected=version)
            assert stored["metadata"]["resourceVersion"] == str(before + 1) == str(store.revision)
            model.record(store, key, stored, current)
        else:
            last = store.delete(key, expected=version)
            assert last["metadata"]["resourceVersion"] == str(store.revision)
            model.record(store, key, None, last)
    return model


def check_lists(store: Store, model: Model) -> None:
    """Every list at every revision, in one page and in pages of two, shows the state of that time."""
    for revision, state in model.states.items():
        for prefix in PREFIXES:
            want = [state[key] for key in sorted(state) if key.startswith(prefix)]
            page = store.list(prefix, revision=revision)
            assert (page.items, page.revision, page.next_key, page.remaining) == (want, revision, "", 0)
            items, start = [], ""
            while True:
                page = store.list(prefix, revision=revision, limit=2, start=start)
                items += page.items
                assert page.remaining == len(want) - len(items)
                start = page.next_key
                if not start:
                    break
            assert items == want


async def check_watches(store: Store, model: Model) -> None:
    """A watch from any revision gives exactly the later events under its prefix."""
    await store.durable(store.revision)
    for revision in model.states:
        for prefix in PREFIXES:
            want = [event for event in model.events if event.revision > revision and event.key.startswith(prefix)]
            if want:
                assert await take(store, prefix, revision, len(want)) == want


@settings(deadline=None, max_examples=60)
@given(commands)
def test_memory_store_agrees_with_the_model(script: list[tuple[str, str, int]]) -> None:
    store = MemoryStore()
    model = play(store, script)
    check_lists(store, model)
    asyncio.run(check_watches(store, model))


@settings(deadline=None, max_examples=15)
@given(commands, commands)
def test_sqlite_store_agrees_with_the_model_across_a_restart(
    script: list[tuple[str, str, int]], later: list[tuple[str, str, int]]
) -> None:
    async def main(path: Path) -> None:
        store = SqliteStore.open(path)
        model = play(store, script)
        check_lists(store, model)
        await check_watches(store, model)
        await store.close()
        store = SqliteStore.open(path)
        assert store.revision == max(model.states)
        check_lists(store, model)
        await check_watches(store, model)
        play(store, later, model)
        check_lists(store, model)
        await check_watches(store, model)
        await store.close()

    with TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Store]:
    def make(window: int = 100) -> Store:
        if request.param == "memory":
            return MemoryStore(window=window)
        return SqliteStore.open(tmp_path / "data", window=window)

    return make


def test_watcher_gets_all_queued_writes_in_one_batch(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store()
        stream = store.watch("/pods/", store.revision)
        for number in range(5):
            store.put("/pods/a/x", make(number))
        await store.durable(store.revision)
        batch = await anext(aiter(stream))
        assert [event.value["value"] for event in batch if event.value] == [0, 1, 2, 3, 4]
        await store.close()

    asyncio.run(main())


def test_watcher_that_falls_behind_the_window_is_told(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store(window=3)
        stream = store.watch("/pods/", store.revision)
        for number in range(4):
            store.put("/pods/a/x", make(number))
        await store.durable(store.revision)
        with pytest.raises(Compacted):
            await anext(aiter(stream))
        await store.close()

    asyncio.run(main())


def test_writes_elsewhere_do_not_push_out_a_collections_history(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store(window=3)
        start = store.revision
        store.put("/pods/a/x", make(1))
        for number in range(10):
            store.put("/leases/a/x", make(number))
        assert [event.key for event in await take(store, "/pods/", start, 1)] == ["/pods/a/x"]
        await store.close()

    asyncio.run(main())


def test_compaction_forgets_older_revisions_only(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store()
        start = store.revision
        store.put("/pods/a/x", make(1))
        kept = store.revision
        store.put("/pods/a/x", make(2))
        await store.durable(store.revision)
        store.compact(kept)
        for call in (lambda: store.list("/pods/", revision=start), lambda: store.watch("/pods/", start)):
            with pytest.raises(Compacted) as caught:
                call()
            assert caught.value.oldest == kept
        assert store.list("/pods/", revision=kept).items[0]["value"] == 1
        assert len(await take(store, "/pods/", kept, 1)) == 1
        await store.close()

    asyncio.run(main())


def test_close_ends_watches_after_what_they_have_not_read(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store()
        stream = store.watch("/pods/", store.revision)
        store.put("/pods/a/x", make(1))
        await store.durable(store.revision)
        await store.close()
        await store.close()
        assert [len(batch) async for batch in stream] == [1]

    asyncio.run(main())


def test_watcher_wakes_up_for_a_later_write(make_store: Callable[..., Store]) -> None:
    async def main() -> None:
        store = make_store()
        reader = asyncio.create_task(take(store, "/pods/a/", store.revision, 1))
        await asyncio.sleep(0)
        store.put("/pods/b/x", make(1))
        store.put("/pods/a/x", make(2))
        assert [event.key for event in await reader] == ["/pods/a/x"]
        await store.close()

    asyncio.run(main())
