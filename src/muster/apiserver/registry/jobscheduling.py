"""`spec.scheduling` of Jobs (1.37): which group a Job's pods form.

Source: the workload API's types of 1.37 (KEP-6089) and recordings.
"""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, immutable, invalid_value
from muster.apiserver.registry.workloads import (
    validate_claims,
    validate_constraints,
    validate_mode,
    validate_policy_update,
    validate_union,
)


def drop_disabled(spec: Object, old: Object | None, ctx: Context) -> None:
    """Without the rules of 1.37 the field is left out, unless the stored Job has it already."""
    if "scheduling" not in spec or ctx.options.job_group_rules == "1.37" or (old and "scheduling" in old):
        return
    del spec["scheduling"]
    ctx.warn("spec.scheduling is left out: it needs the group rules of 1.37 for Jobs")


def validate_scheduling(spec: Object, at: str) -> list[FieldError]:
    """The policy and what else holds for the group of a Job's pods."""
    scheduling = spec.get("scheduling")
    if scheduling is None:
        return []
    errors: list[FieldError] = []
    policy = scheduling.get("schedulingPolicy")
    if policy is not None:
        errors += validate_union(policy, ("basic", "gang"), f"{at}.schedulingPolicy")
        errors += _validate_count(policy, spec.get("parallelism"), f"{at}.schedulingPolicy.gang.minCount")
    errors += validate_constraints(scheduling.get("schedulingConstraints"), f"{at}.schedulingConstraints")
    errors += validate_claims(scheduling.get("resourceClaims"), f"{at}.resourceClaims")
    return errors + validate_mode(scheduling.get("disruptionMode"), f"{at}.disruptionMode", "")


def _validate_count(policy: Object, parallelism: JSON, at: str) -> list[FieldError]:
    count = (policy.get("gang") or {}).get("minCount")
    if count is None:
        return []
    if count < 1:
        return [invalid_value(at, count, "must be greater than or equal to 1")]
    if parallelism is not None and count > parallelism:
        return [invalid_value(at, count, f"must be less than or equal to parallelism ({parallelism})")]
    return []


def validate_scheduling_update(new: Object, old: Object, at: str) -> list[FieldError]:
    """Only a gang's minCount may change. `new` and `old` are specs of the Job."""
    after, before = new.get("scheduling"), old.get("scheduling")
    if after == before:
        return []
    if after is None or before is None:
        why = "field cannot be cleared once set" if after is None else "field cannot be set once created"
        return [invalid_value(at, None, why)]
    policy, earlier = after.get("schedulingPolicy"), before.get("schedulingPolicy")
    if (policy is None) != (earlier is None):
        return [immutable(f"{at}.schedulingPolicy")]
    errors = validate_policy_update(policy, earlier, f"{at}.schedulingPolicy")
    fixed = ("schedulingConstraints", "disruptionMode", "resourceClaims")
    return errors + [immutable(f"{at}.{name}") for name in fixed if after.get(name) != before.get(name)]
