"""How long a Job waits before it replaces failed pods.

Source of the rules: kube-controller-manager `pkg/controller/job/backoff_utils.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.controllers.batch.job_pods import finish_time_s

FIRST_DELAY_S = 10.0
LONGEST_DELAY_S = 600.0


class BackoffRecord(Struct, frozen=True):
    """Failures since the last success, and when the latest of them was."""

    failures: int = 0
    last_failure_s: float = 0.0

    def after(self, succeeded: Sequence[Object], failed: Sequence[Object]) -> BackoffRecord:
        """The record once these pods have ended; a success forgets failures that were not later."""
        ends = sorted(finish_time_s(pod) for pod in failed)
        if not succeeded:
            return BackoffRecord(self.failures + len(ends), ends[-1]) if ends else self
        last_success = max(finish_time_s(pod) for pod in succeeded)
        later = [end for end in ends if end > last_success]
        return BackoffRecord(len(later), later[-1]) if later else BackoffRecord()

    def remaining_s(self, now: float) -> float:
        """Seconds until a pod may be replaced; 0 if it may now."""
        if self.failures == 0:
            return 0.0
        return max(0.0, self.last_failure_s + delay_s(self.failures) - now)


def delay_s(failures: int) -> float:
    """Seconds to wait after so many failures: 10, 20, 40, … at most ten minutes."""
    return min(FIRST_DELAY_S * 2.0 ** min(failures - 1, 30), LONGEST_DELAY_S)
