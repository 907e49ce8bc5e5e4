"""The scheduling queue: what is tried next, and what sleeps until something changes. Pure; time is passed in.

Entities are groups (one entry for all pending members) and plain pods; the queue knows only their keys. Source of the
rules: filters-and-scores.md 13 (kube-scheduler 1.33 and later), workload-api.md 3.6.

            add ┌────────┐ pop  ┌───────────┐ finish
         ──────►│ ACTIVE ├─────►│ IN_FLIGHT ├────────► (gone)
                └─▲────▲─┘      └─┬───────┬─┘
    backoff over, │    │ wake     │ error │ unschedulable
    or idle       │    │          ▼       ▼
                ┌─┴────┴──┐ ◄─────┘   ┌─────────┐
                │ BACKOFF │◄──────────┤ WAITING │      hold: from any place to GATED, where nothing wakes it but `add`
                └─────────┘   wake    └─────────┘
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from msgspec import Struct

from muster.scheduler.waiting import Order, Pool, WaitingPools


class Place(Enum):
    """Where an entity is (see the drawing above)."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error_backoff"
    WAITING = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


@dataclass(slots=True)
class Entity:
    """One thing to schedule. `timestamp_s`: its last enqueue. `retry_at_s`: no attempt before, save when idle.

    `woken_from`: the pool that it slept in before it was woken. `waited_for`: what that pool waited for, where an event
    woke it that may help no more by the time that it is tried.
    """

    key: str
    priority: int
    sequence: int
    timestamp_s: float
    place: Place = Place.GATED
    unschedulable: int = 0
    errors: int = 0
    retry_at_s: float = -math.inf
    woken_from: Hashable = None
    waited_for: frozenset[str] = frozenset()

    @property
    def order(self) -> Order:
        """Priority descending, timestamp, sequence: total."""
        return (-self.priority, self.timestamp_s, self.sequence)


class Backoff(Struct, frozen=True):
    """1, 2, 4, 8, 10, 10 … seconds."""

    initial_s: float = 1.0
    max_s: float = 10.0

    def seconds(self, attempts: int) -> float:
        """How long to wait after `attempts` failures of one kind; 0 without any."""
        if attempts <= 0:
            return 0.0
        return float(min(self.max_s, self.initial_s * 2.0 ** min(attempts - 1, 62)))


class SchedulingQueue:
    """Entities by place. `moves` counts them by (place, event): kube-scheduler's queue_incoming_pods_total.

    An entity that sleeps with others of its signature is represented by those that were woken before it: when one of
    them was placed, failed by an error or went away, the next one is woken; when it is again unschedulable, they are.
    """

    def __init__(self, backoff: Backoff | None = None, *, flush_after_s: float = 300.0) -> None:
        self.moves: Counter[tuple[str, str]] = Counter()
        self._backoff = backoff or Backoff()
        self._flush_after_s = flush_after_s
        self._entities: dict[str, Entity] = {}
        self._waiting = WaitingPools()
        self._active: list[tuple[Order, str]] = []
        self._backing_off: list[tuple[float, Order, str]] = []
        self._error_backoff: list[tuple[float, Order, str]] = []
        self._sequence = 0
        self._counts: Counter[Place] = Counter()

    def __contains__(self, key: str) -> bool:
        return key in self._entities

    def entity(self, key: str) -> Entity | None:
        """The entity as it stands; not to be changed."""
        return self._entities.get(key)

    def places(self) -> Iterator[tuple[str, Place]]:
        """Every entity and where it is."""
        return ((key, entity.place) for key, entity in self._entities.items())

    def count(self, place: Place) -> int:
        """How many entities are there."""
        return self._counts[place]

    def add(self, key: str, priority: int, now: float, event: str = "PodAdd") -> None:
        """Make an entity a candidate: a new or a gated one, or a waiting one of which more is known.

        One that waits out its backoff goes on doing so; one that is active or in flight stays where it is.
        """
        entity = self._entities.get(key)
        if entity is None:
            entity = self._new(key, priority, now)
        if entity.place is Place.IN_FLIGHT:
            entity.priority = priority
            return
        if entity.priority != priority:
            self._take_out(entity)
            entity.priority = priority
        elif entity.place not in (Place.GATED, Place.WAITING):
            return
        if entity.place is Place.GATED:
            entity.timestamp_s = now
        self._enqueue(entity, now, event)

    def hold(self, key: str, priority: int, now: float) -> None:
        """Gate an entity: PreEnqueue says no. It keeps its counters."""
        entity = self._entities.get(key)
        if entity is None:
            entity = self._new(key, priority, now)
        entity.priority = priority
        if entity.place is not Place.GATED:
            self._wake_successor(entity, now)
            self._place(entity, Place.GATED, "PreEnqueue")

    def remove(self, key: str, now: float) -> None:
        """Forget an entity, wherever it is; nothing happens if it is unknown."""
        entity = self._entities.get(key)
        if entity is None:
            return
        self._take_out(entity)
        del self._entities[key]
        self._counts[entity.place] -= 1
        self._wake_successor(entity, now)

    def pop(self, now: float, limit: int = 1) -> list[str]:
        """The next entities to try, at most `limit`, in order; they are in flight until told otherwise.

        When nothing is active, those that back off after being unschedulable come early (not those after an error).
        """
        self._end_backoffs(now)
        popped: list[str] = []
        while self._active and len(popped) < limit:
            order, key = heapq.heappop(self._active)
            self._pop_if(key, Place.ACTIVE, order, popped)
        while not popped and self._backing_off:
            _, order, key = heapq.heappop(self._backing_off)
            self._pop_if(key, Place.BACKOFF, order, popped)
        return popped

    def activate(self, key: str, now: float, event: str) -> None:
        """What the entity waited for has happened: it is a candidate at once, without backoff."""
        entity = self._entities.get(key)
        if entity is None or entity.place in (Place.GATED, Place.ACTIVE, Place.IN_FLIGHT):
            return
        entity.retry_at_s = -math.inf
        self._enqueue(entity, now, event)

    def finish(self, key: str, now: float) -> None:
        """An attempt placed all there was to place: the entity leaves."""
        self.remove(key, now)

    def again(self, key: str, now: float) -> None:
        """An attempt placed a part: the rest is active again, with its old timestamp and no backoff."""
        entity = self._in_flight(key)
        if entity is None:
            return
        self._wake_successor(entity, now)
        entity.unschedulable = entity.errors = 0
        entity.retry_at_s = -math.inf
        self._enqueue(entity, now, "ScheduleAttemptPartial")

    def put_back(self, key: str, now: float) -> None:
        """There was no attempt after all: an entity in flight is active again, as if it had not been popped."""
        entity = self._in_flight(key)
        if entity is not None:
            self._place(entity, Place.ACTIVE, "PutBack")
            heapq.heappush(self._active, (entity.order, key))

    def reject(self, key: str, signature: Hashable, waits_for: Iterable[str], now: float) -> None:
        """An attempt found the entity unschedulable: it sleeps until what it waits for changes."""
        entity = self._in_flight(key)
        if entity is None:
            return
        if entity.woken_from != signature:
            self._wake_successor(entity, now)
        entity.woken_from = None
        entity.unschedulable += 1
        entity.errors = 0
        entity.timestamp_s = now
        # Aligned to windows of a second, inside which priority decides, as upstream does.
        entity.retry_at_s = math.floor(now + self._backoff.seconds(entity.unschedulable)) + 1.0
        self._place(entity, Place.WAITING, "ScheduleAttemptFailure")
        self._waiting.park(key, entity.order, signature, waits_for, now)

    def sleep_again(self, key: str, now: float) -> None:
        """What woke an entity in flight cannot help it any more: it sleeps as before, as if it had not been woken."""
        entity = self._in_flight(key)
        if entity is None or entity.woken_from is None:
            return
        signature, entity.woken_from = entity.woken_from, None
        self._place(entity, Place.WAITING, "NothingToTry")
        self._waiting.park(key, entity.order, signature, entity.waited_for, now)

    def fail(self, key: str, priority: int, now: float, *, errors: int = 0) -> None:
        """An attempt, or the binding after it, ended in an error: backoff by the count of errors in a row.

        An entity that had left the queue comes back, with the `errors` it had before this one.
        """
        entity = self._entities.get(key)
        if entity is None:
            entity = self._new(key, priority, now)
            entity.errors = errors
        elif entity.place is not Place.IN_FLIGHT:
            return
        self._wake_successor(entity, now)
        entity.errors += 1
        entity.timestamp_s = now
        entity.retry_at_s = now + self._backoff.seconds(entity.errors)
        self._place(entity, Place.ERROR_BACKOFF, "ScheduleAttemptFailure")
        heapq.heappush(self._error_backoff, (entity.retry_at_s, entity.order, key))

    def wake(self, signature: Hashable, count: int, now: float, event: str, *, anyway: bool = False) -> int:
        """Move the first `count` entities of a pool to active, or to backoff; how many there were.

        `anyway`: they are to be tried even if nothing seems to help them.
        """
        waited_for = frozenset[str]() if anyway else self._waiting.waits_of(signature)
        keys = self._waiting.take(signature, count)
        for key in keys:
            entity = self._entities[key]
            self._enqueue(entity, now, event)
            entity.woken_from, entity.waited_for = signature, waited_for
        return len(keys)

    def waiting_for(self, plugins: Iterable[str]) -> list[Pool]:
        """The pools that a change in what these plugins look at may concern."""
        return self._waiting.waiting_for(plugins)

    def widen(self, pool: Pool, plugins: Iterable[str]) -> None:
        """A pool waits for these plugins as well: a relevant event did not help, so more than one thing is missing."""
        self._waiting.widen(pool, plugins)

    def flush(self, now: float) -> int:
        """Wake the first of each pool that has slept for too long (5 minutes): hints may be wrong."""
        stale = [pool for pool in self._waiting.pools if now - pool.since_s >= self._flush_after_s]
        for pool in stale:
            pool.since_s = now
        return sum(self.wake(pool.signature, 1, now, "UnschedulableTimeout", anyway=True) for pool in stale)

    def next_retry_s(self) -> float | None:
        """When the next backoff that is not cut short by idleness ends; None without any."""
        self._skip_stale(self._error_backoff)
        return self._error_backoff[0][0] if self._error_backoff else None

    @property
    def has_ready(self) -> bool:
        """Whether `pop` would give something now, expired backoffs aside."""
        return self._counts[Place.ACTIVE] > 0 or self._counts[Place.BACKOFF] > 0

    def _new(self, key: str, priority: int, now: float) -> Entity:
        self._sequence += 1
        entity = self._entities[key] = Entity(key, priority, self._sequence, now)
        self._counts[entity.place] += 1
        return entity

    def _enqueue(self, entity: Entity, now: float, event: str) -> None:
        if entity.retry_at_s <= now:
            self._place(entity, Place.ACTIVE, event)
            heapq.heappush(self._active, (entity.order, entity.key))
        elif entity.errors:
            self._place(entity, Place.ERROR_BACKOFF, event)
            heapq.heappush(self._error_backoff, (entity.retry_at_s, entity.order, entity.key))
        else:
            self._place(entity, Place.BACKOFF, event)
            heapq.heappush(self._backing_off, (entity.retry_at_s, entity.order, entity.key))

    def _place(self, entity: Entity, place: Place, event: str) -> None:
        self._take_out(entity)
        self._counts[entity.place] -= 1
        self._counts[place] += 1
        entity.place = place
        self.moves[place.value, event] += 1

    def _take_out(self, entity: Entity) -> None:
        """Heaps drop entries lazily: one that does not agree with its entity any more is stale."""
        if entity.place is Place.WAITING:
            self._waiting.unpark(entity.key)

    def _pop_if(self, key: str, place: Place, order: Order, popped: list[str]) -> None:
        entity = self._entities.get(key)
        if entity is not None and entity.place is place and entity.order == order:
            self._place(entity, Place.IN_FLIGHT, "Pop")
            popped.append(key)

    def _in_flight(self, key: str) -> Entity | None:
        entity = self._entities.get(key)
        return entity if entity is not None and entity.place is Place.IN_FLIGHT else None

    def _end_backoffs(self, now: float) -> None:
        for heap, place in ((self._error_backoff, Place.ERROR_BACKOFF), (self._backing_off, Place.BACKOFF)):
            while heap and heap[0][0] <= now:
                retry_at_s, order, key = heapq.heappop(heap)
                entity = self._entities.get(key)
                if (
                    entity is not None
                    and entity.place is place
                    and (entity.retry_at_s, entity.order)
                    == (
                        retry_at_s,
                        order,
                    )
                ):
                    self._enqueue(entity, now, "BackoffComplete")

    def _skip_stale(self, heap: list[tuple[float, Order, str]]) -> None:
        while heap:
            retry_at_s, order, key = heap[0]
            entity = self._entities.get(key)
            fresh = entity is not None and entity.place is Place.ERROR_BACKOFF and entity.order == order
            if fresh and entity is not None and entity.retry_at_s == retry_at_s:
                return
            heapq.heappop(heap)

    def _wake_successor(self, entity: Entity, now: float) -> None:
        signature, entity.woken_from = entity.woken_from, None
        if signature is not None:
            self.wake(signature, 1, now, "Successor")
