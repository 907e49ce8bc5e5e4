"""CronJobs: stored with their defaults and checks.

Sources: upstream `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation`, recordings.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.cron import ScheduleError, parse_schedule, parse_zone
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    invalid_value,
    not_supported,
    required,
)
from muster.apiserver.registry.jobs import default_conditions, validate_job_template
from muster.apiserver.registry.poddefaults import default_pod_spec
from muster.apiserver.registry.strategy import Strategy


class CronJobStrategy(Strategy):
    """batch/v1 CronJob."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        defaults = (
            ("concurrencyPolicy", "Allow"),
            ("suspend", False),
            ("successfulJobsHistoryLimit", 3),
            ("failedJobsHistoryLimit", 1),
        )
        for field, value in defaults:
            if spec.get(field) is None:
                spec[field] = value
        job: Object = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        default_conditions(job)
        default_pod_spec(job.setdefault("template", {}).setdefault("spec", {}))

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        errors = _validate_schedule(spec.get("schedule") or "", spec.get("timeZone"))
        for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            if (spec.get(field) or 0) < 0:
                why = "must be greater than or equal to 0"
                errors.append(invalid_value(f"spec.{field}", spec[field], why))
        policies = ("Allow", "Forbid", "Replace")
        if spec.get("concurrencyPolicy") not in policies:
            errors.append(not_supported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies))
        return errors + validate_job_template(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _validate_schedule(schedule: str, zone: str | None) -> list[FieldError]:
    if not schedule:
        return [required("spec.schedule")]
    errors: list[FieldError] = []
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid_value("spec.schedule", schedule, why))
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        errors.append(invalid_value("spec.schedule", schedule, str(error)))
    if zone is not None:
        try:
            parse_zone(zone)
        except ScheduleError as error:
            errors.append(invalid_value("spec.timeZone", zone, str(error)))
    return errors
