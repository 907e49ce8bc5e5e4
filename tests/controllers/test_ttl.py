from __future__ import annotations

import pytest
from job_objects import NOW, stored_job

from muster.api.codec import Object
from muster.clock import rfc3339
from muster.controllers.batch.ttl import expiry_s


def ended(type_: str, at_s: float) -> Object:
    entry = {"type": type_, "status": "True", "lastTransitionTime": rfc3339(NOW + at_s)}
    return {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, entry]}


@pytest.mark.parametrize(
    ("job", "want"),
    [
        (stored_job(ttlSecondsAfterFinished=30, status=ended("Complete", 10)), NOW + 40),
        (stored_job(ttlSecondsAfterFinished=0, status=ended("Failed", 10)), NOW + 10),
        (stored_job(ttlSecondsAfterFinished=30), None),
        (stored_job(status=ended("Complete", 10)), None),
    ],
    ids=["complete", "failed", "running", "no time to live"],
)
def test_finished_job_expires_after_its_time_to_live(job: Object, want: float | None) -> None:
    assert expiry_s(job) == want
