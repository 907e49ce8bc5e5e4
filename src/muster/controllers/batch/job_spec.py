"""What a Job asks for, read once into values."""

from __future__ import annotations

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition
from muster.clock import parse_rfc3339

CONTROLLER_NAME = "kubernetes.io/job-controller"
"""The value of `spec.managedBy` that means us."""

NO_LIMIT = 2**31 - 1


class JobSpec(Struct, frozen=True):
    """The parts of `spec` that decide, with defaults as the API server fills them; None where unset."""

    parallelism: int
    completions: int | None
    is_indexed: bool
    is_suspended: bool
    backoff_limit: int
    backoff_limit_per_index: int | None
    max_failed_indexes: int | None
    active_deadline_s: float | None
    replaces_only_failed: bool
    restarts_in_place: bool
    failure_rules: tuple[Object, ...] | None
    success_rules: tuple[Object, ...] | None

    @classmethod
    def of(cls, job: Object) -> JobSpec:
        """Read a stored Job."""
        spec = job["spec"]
        failure, success = spec.get("podFailurePolicy"), spec.get("successPolicy")
        per_index = spec.get("backoffLimitPerIndex")
        policy = spec.get("podReplacementPolicy") or ("Failed" if failure else "TerminatingOrFailed")
        return cls(
            parallelism=_number(spec, "parallelism", 1),
            completions=spec.get("completions"),
            is_indexed=spec.get("completionMode") == "Indexed",
            is_suspended=bool(spec.get("suspend")),
            backoff_limit=_number(spec, "backoffLimit", 6 if per_index is None else NO_LIMIT),
            backoff_limit_per_index=per_index,
            max_failed_indexes=spec.get("maxFailedIndexes"),
            active_deadline_s=spec.get("activeDeadlineSeconds"),
            replaces_only_failed=policy == "Failed",
            restarts_in_place=spec["template"]["spec"].get("restartPolicy") == "OnFailure",
            failure_rules=tuple(failure.get("rules") or ()) if failure else None,
            success_rules=tuple(success.get("rules") or ()) if success else None,
        )

    @property
    def index_count(self) -> int:
        """The number of completion indexes of an Indexed Job."""
        return self.completions or 0

    def is_valid_index(self, index: int | None) -> bool:
        """Whether a pod with that index counts: always in a Job without indexes."""
        return not self.is_indexed or (index is not None and index < self.index_count)

    @property
    def limits_by_index(self) -> bool:
        """Whether each index has its own limit of failures."""
        return self.is_indexed and self.backoff_limit_per_index is not None


def _number(spec: Object, name: str, default: int) -> int:
    value: int | None = spec.get(name)
    return default if value is None else value


def is_finished(job: Object) -> bool:
    """Whether the Job has ended, one way or the other."""
    return has_condition(job, "Complete") or has_condition(job, "Failed")


def is_ours(job: Object) -> bool:
    """Whether the Job is left to this controller (`spec.managedBy`)."""
    return job["spec"].get("managedBy") in (None, CONTROLLER_NAME)


def start_time_s(job: Object) -> float | None:
    """`status.startTime`, in seconds since the epoch."""
    text = (job.get("status") or {}).get("startTime")
    return parse_rfc3339(text) if text else None


def conditions_of(job: Object) -> Objects:
    """A new list of the conditions."""
    return list((job.get("status") or {}).get("conditions") or ())
