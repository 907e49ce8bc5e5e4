from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.scheduler.queue import Backoff, Place, SchedulingQueue

FIT = frozenset({"NodeResourcesFit"})


def test_active_entities_leave_by_priority_then_time_then_sequence() -> None:
    queue = SchedulingQueue()
    for key, priority, now in (("late", 0, 2.0), ("early", 0, 1.0), ("twin", 0, 2.0), ("urgent", 9, 3.0)):
        queue.add(key, priority, now)
    assert queue.pop(5.0, 10) == ["urgent", "early", "late", "twin"]


@pytest.mark.parametrize(("attempts", "want_s"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (99, 10)])
def test_backoff_doubles_up_to_ten_seconds(attempts: int, want_s: float) -> None:
    assert Backoff().seconds(attempts) == want_s


def test_unschedulable_entity_sleeps_until_woken_and_comes_early_when_nothing_is_active() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    queue.pop(0.0)
    queue.reject("a", "shape", FIT, 0.0)
    assert queue.pop(1000.0) == []
    assert [pool.signature for pool in queue.waiting_for(["NodeResourcesFit"])] == ["shape"]
    assert queue.waiting_for(["NodeAffinity"]) == []
    assert queue.wake("shape", 1, 0.5, "NodeAdd") == 1
    assert queue.count(Place.BACKOFF) == 1
    assert queue.next_retry_s() is None
    assert queue.pop(0.5) == ["a"]


def test_backoff_after_unschedulable_counts_while_others_are_active() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    queue.pop(0.0)
    queue.reject("a", "shape", FIT, 0.0)
    queue.wake("shape", 1, 0.5, "NodeAdd")
    queue.add("b", 0, 0.5)
    assert queue.pop(0.5, 10) == ["b"]
    queue.add("c", 0, 2.0)
    assert queue.pop(2.0, 10) == ["a", "c"]


def test_errors_back_off_by_their_own_count_and_are_not_cut_short() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    retries = []
    now = 0.0
    for _ in range(6):
        assert queue.pop(now) == ["a"]
        queue.fail("a", 0, now)
        assert queue.pop(now) == []
        retry = queue.next_retry_s()
        assert retry is not None
        retries.append(retry - now)
        now = retry
    assert retries == [1, 2, 4, 8, 10, 10]
    queue.pop(now)
    queue.reject("a", "shape", FIT, now)
    queue.add("a", 0, now + 100)
    queue.pop(now + 100)
    queue.fail("a", 0, now + 100)
    assert queue.next_retry_s() == now + 101


def test_equal_entities_are_woken_one_after_the_other_as_they_succeed() -> None:
    queue = SchedulingQueue()
    for key in "abc":
        queue.add(key, 0, 0.0)
    for key in queue.pop(0.0, 3):
        queue.reject(key, "shape", FIT, 0.0)
    queue.wake("shape", 1, 100.0, "AssignedPodDelete")
    assert queue.pop(100.0, 9) == ["a"]
    queue.finish("a", 100.0)
    assert queue.pop(100.0, 9) == ["b"]
    queue.reject("b", "shape", FIT, 100.0)
    assert queue.pop(100.0, 9) == []
    assert queue.count(Place.WAITING) == 2


def test_a_woken_entity_that_goes_away_or_is_held_wakes_the_next() -> None:
    queue = SchedulingQueue()
    for key in "abc":
        queue.add(key, 0, 0.0)
    for key in queue.pop(0.0, 3):
        queue.reject(key, "shape", FIT, 0.0)
    queue.wake("shape", 1, 100.0, "AssignedPodDelete")
    queue.remove("a", 100.0)
    assert queue.count(Place.ACTIVE) == 1
    queue.hold("b", 0, 100.0)
    assert queue.pop(100.0, 9) == ["c"]


def test_leftovers_are_active_at_once_with_their_old_timestamp() -> None:
    queue = SchedulingQueue()
    queue.add("group", 0, 1.0)
    queue.add("other", 0, 2.0)
    assert queue.pop(3.0) == ["group"]
    queue.again("group", 3.0)
    assert queue.pop(3.0, 9) == ["group", "other"]


def test_gated_entities_are_woken_by_add_only() -> None:
    queue = SchedulingQueue(flush_after_s=10.0)
    queue.hold("a", 0, 0.0)
    queue.flush(1000.0)
    assert queue.pop(1000.0) == []
    queue.add("a", 0, 1000.0)
    assert queue.pop(1000.0) == ["a"]


def test_flush_wakes_pools_that_have_slept_for_five_minutes() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    queue.pop(0.0)
    queue.reject("a", "shape", FIT, 0.0)
    assert queue.flush(299.0) == 0
    assert queue.flush(300.0) == 1
    assert queue.pop(300.0) == ["a"]


def test_a_changed_priority_moves_an_active_entity() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    queue.add("b", 1, 0.0)
    queue.add("a", 2, 0.0)
    assert queue.pop(0.0, 9) == ["a", "b"]


# -- against a model --------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The rules as plain loops over all entities. An entity: [priority, timestamp, sequence, place, retry_at, …]."""

    places: dict[str, str] = field(default_factory=dict)
    order: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    sequence: int = 0

    def add(self, key: str, priority: int, now: float) -> None:
        if key not in self.places:
            self.sequence += 1
            self.order[key] = (-priority, now, self.sequence)
            self.places[key], self.retry_at[key] = "gated", -math.inf
            self.rejected[key] = self.errors[key] = 0
        if self.places[key] in ("gated", "waiting"):
            if self.places[key] == "gated":
                self.order[key] = (-priority, now, self.order[key][2])
            self._enqueue(key, now)

    def hold(self, key: str, priority: int, now: float) -> None:
        if key not in self.places:
            self.add(key, priority, now)
        self.places[key] = "gated"

    def pop(self, now: float) -> str | None:
        for key, place in list(self.places.items()):
            if place in ("backoff", "errors") and self.retry_at[key] <= now:
                self.places[key] = "active"
        active = [key for key, place in self.places.items() if place == "active"]
        backing_off = [key for key, place in self.places.items() if place == "backoff"]
        first = min(active, key=lambda key: self.order[key], default=None)
        if first is None:
            first = min(backing_off, key=lambda key: (self.retry_at[key], self.order[key]), default=None)
        if first is not None:
            self.places[first] = "in flight"
        return first

    def reject(self, key: str, now: float) -> None:
        self.rejected[key] += 1
        self.errors[key] = 0
        self.order[key] = (self.order[key][0], now, self.order[key][2])
        self.retry_at[key] = math.floor(now + min(10.0, 2.0 ** (self.rejected[key] - 1))) + 1
        self.places[key] = "waiting"

    def fail(self, key: str, now: float) -> None:
        self.errors[key] += 1
        self.order[key] = (self.order[key][0], now, self.order[key][2])
        self.retry_at[key] = now + min(10.0, 2.0 ** (self.errors[key] - 1))
        self.places[key] = "errors"

    def wake(self, key: str, now: float) -> None:
        if self.places.get(key) == "waiting":
            self._enqueue(key, now)

    def remove(self, key: str) -> None:
        self.places.pop(key, None)

    def _enqueue(self, key: str, now: float) -> None:
        elapsed = self.retry_at[key] <= now
        self.places[key] = "active" if elapsed else "errors" if self.errors[key] else "backoff"


STEP = st.tuples(
    st.sampled_from(["add", "hold", "pop", "pop", "reject", "fail", "wake", "remove", "time"]),
    st.sampled_from("abcde"),
    st.integers(0, 1),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_queue_agrees_with_a_plain_model(steps: list[tuple[str, str, int, float]]) -> None:
    queue, model, now, flying = SchedulingQueue(), Model(), 0.0, ""
    priorities: dict[str, int] = {}
    for action, key, wanted, seconds in steps:
        priority = priorities.setdefault(key, wanted)
        if action == "time":
            now += seconds
        elif action == "add":
            queue.add(key, priority, now)
            model.add(key, priority, now)
        elif action == "hold" and key != flying:
            queue.hold(key, priority, now)
            model.hold(key, priority, now)
        elif action == "pop" and not flying:
            popped = queue.pop(now)
            assert popped == [each for each in [model.pop(now)] if each]
            flying = popped[0] if popped else ""
        elif action == "reject" and flying:
            queue.reject(flying, f"only {flying}", FIT, now)
            model.reject(flying, now)
            flying = ""
        elif action == "fail" and flying:
            queue.fail(flying, priorities[flying], now)
            model.fail(flying, now)
            flying = ""
        elif action == "wake":
            queue.wake(f"only {key}", 1, now, "test")
            model.wake(key, now)
        elif action == "remove" and key != flying:
            queue.remove(key, now)
            model.remove(key)
        assert {each for each in "abcde" if each in queue} == set(model.places)


def test_who_was_woken_in_vain_sleeps_as_before_and_wakes_nobody() -> None:
    queue = SchedulingQueue()
    for key in ("a", "b"):
        queue.add(key, 0, 0.0)
    queue.pop(0.0, 2)
    queue.reject("a", "shape", FIT, 0.0)
    queue.reject("b", "shape", FIT, 0.0)
    assert queue.wake("shape", 1, 5.0, "AssignedPodDelete") == 1
    before = queue.entity("a")
    assert before is not None
    attempts, order = before.unschedulable, before.order
    assert queue.pop(5.0, 10) == ["a"]
    queue.sleep_again("a", 5.0)
    assert queue.pop(5.0, 10) == []
    after = queue.entity("a")
    assert after is not None and (after.place, after.unschedulable, after.order) == (Place.WAITING, attempts, order)
    assert [pool.signature for pool in queue.waiting_for(FIT)] == ["shape"]
    assert queue.wake("shape", 2, 9.0, "AssignedPodDelete") == 2


def test_the_last_of_a_pool_that_was_woken_in_vain_waits_for_all_that_the_pool_did() -> None:
    queue = SchedulingQueue()
    queue.add("a", 0, 0.0)
    queue.pop(0.0)
    queue.reject("a", "shape", FIT, 0.0)
    queue.widen(queue.waiting_for(FIT)[0], {"NodeAffinity"})
    queue.wake("shape", 1, 5.0, "NodeAdd")
    assert queue.pop(5.0) == ["a"]
    queue.sleep_again("a", 5.0)
    assert len(queue.waiting_for(["NodeAffinity"])) == 1
