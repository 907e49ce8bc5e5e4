from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import NOW, pod_of, stored_job

from muster.controllers.batch.job_backoff import BackoffRecord, delay_s

JOB = stored_job()


def test_delay_doubles_up_to_ten_minutes() -> None:
    assert [delay_s(n) for n in (1, 2, 3, 6, 7, 100)] == [10, 20, 40, 320, 600, 600]


def test_every_failure_counts_also_of_one_moment() -> None:
    failed = [pod_of(JOB, f"p{n}", "Failed", ended_s=5) for n in range(4)]
    record = BackoffRecord().after([], failed)
    assert record.remaining_s(NOW + 5) == 80


@pytest.mark.parametrize(
    ("success_s", "want_failures"), [(3, 1), (7, 0), (7.5, 0)], ids=["before", "after", "in the same second"]
)
def test_success_forgets_failures_that_were_not_later(success_s: float, want_failures: int) -> None:
    succeeded = [pod_of(JOB, "good", "Succeeded", ended_s=success_s)]
    record = BackoffRecord(3, NOW).after(succeeded, [pod_of(JOB, "bad", "Failed", ended_s=7 if success_s > 3 else 5)])
    assert record.failures == want_failures


def test_deleted_pod_backs_off_from_its_deletion() -> None:
    record = BackoffRecord().after([], [pod_of(JOB, "p", deleted_s=4)])
    assert record.remaining_s(NOW + 4) == 10


@given(st.lists(st.integers(0, 100), min_size=1), st.lists(st.integers(0, 100)))
def test_order_of_pods_does_not_matter(failures: list[int], successes: list[int]) -> None:
    failed = [pod_of(JOB, f"f{n}", "Failed", ended_s=end) for n, end in enumerate(failures)]
    succeeded = [pod_of(JOB, f"s{n}", "Succeeded", ended_s=end) for n, end in enumerate(successes)]
    before = BackoffRecord().after(succeeded, failed)
    assert before == BackoffRecord().after(succeeded[::-1], failed[::-1])
    assert before.remaining_s(NOW + 10_000) == 0
