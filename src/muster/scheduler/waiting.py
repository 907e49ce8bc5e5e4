"""Pools of entities that were found unschedulable, indexed by what they wait for.

All entities of one pool asked the same question (the same signature: shapes, counts, minCount), so while one of them
is known not to fit, none of them fits. An event therefore costs a test a pool, not a test a pod, and only as many
entities are woken as the event could help; the queue wakes the next one when one of them got its room (`queue.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

ANY = "*"
"""Stands for every plugin: the entity waits for whatever may change."""

Order = tuple[int, float, int]
"""The order of entities in all queues: priority descending (negated), timestamp, sequence."""


@dataclass(slots=True)
class Pool:
    """Entities with one signature. `waits_for`: the plugins that rejected any of them."""

    signature: Hashable
    waits_for: set[str]
    since_s: float
    members: dict[str, Order] = field(default_factory=dict)
    heap: list[tuple[Order, str]] = field(default_factory=list)


class WaitingPools:
    """Parks entities and finds the pools that an event may concern. Every operation is O(log n) or better."""

    def __init__(self) -> None:
        self._pools: dict[Hashable, Pool] = {}
        self._of: dict[str, Pool] = {}
        self._by_plugin: dict[str, dict[Hashable, Pool]] = {}

    def __len__(self) -> int:
        return len(self._of)

    @property
    def pools(self) -> Iterable[Pool]:
        """All pools, oldest first."""
        return self._pools.values()

    def park(self, key: str, order: Order, signature: Hashable, waits_for: Iterable[str], now: float) -> None:
        """Put an entity to sleep. Without any plugin it waits for whatever may change."""
        pool = self._pools.get(signature)
        if pool is None:
            pool = self._pools[signature] = Pool(signature, set(), now)
        self.widen(pool, waits_for or (ANY,))
        pool.members[key] = order
        heapq.heappush(pool.heap, (order, key))
        self._of[key] = pool

    def unpark(self, key: str) -> None:
        """Take an entity out, wherever it sleeps; nothing happens if it does not."""
        pool = self._of.pop(key, None)
        if pool is None:
            return
        del pool.members[key]
        if not pool.members:
            self._drop(pool)

    def take(self, signature: Hashable, count: int) -> list[str]:
        """Take out the first `count` entities of a pool, in order."""
        pool = self._pools.get(signature)
        taken: list[str] = []
        while pool is not None and pool.members and len(taken) < count:
            order, key = heapq.heappop(pool.heap)
            if pool.members.get(key) == order:
                taken.append(key)
                self.unpark(key)
        return taken

    def waiting_for(self, plugins: Iterable[str]) -> list[Pool]:
        """The pools that a change in what these plugins look at may concern, oldest first in each plugin."""
        found: dict[Hashable, Pool] = {}
        for plugin in (ANY, *plugins):
            found.update(self._by_plugin.get(plugin, {}))
        return list(found.values())

    def waits_of(self, signature: Hashable) -> frozenset[str]:
        """What a pool waits for; nothing for one that is not there."""
        pool = self._pools.get(signature)
        return frozenset() if pool is None else frozenset(pool.waits_for)

    def widen(self, pool: Pool, plugins: Iterable[str]) -> None:
        """The pool waits for these plugins as well."""
        for plugin in plugins:
            if plugin not in pool.waits_for:
                pool.waits_for.add(plugin)
                self._by_plugin.setdefault(plugin, {})[pool.signature] = pool

    def _drop(self, pool: Pool) -> None:
        del self._pools[pool.signature]
        for plugin in pool.waits_for:
            del self._by_plugin[plugin][pool.signature]
