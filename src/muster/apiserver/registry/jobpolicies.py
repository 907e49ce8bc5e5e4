"""Validation of a Job's failure and success policies. Source: upstream `pkg/apis/batch/validation`."""

from __future__ import annotations

import re
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_many,
)

Errors: TypeAlias = list[FieldError]

MOST_RULES = 20
MOST_EXIT_CODES = 255
MOST_CONDITIONS = 20
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_INTERVALS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def validate_failure_policy(spec: Object, field: str) -> Errors:
    """Rules with an action and exactly one of exit codes and pod conditions."""
    policy = spec.get("podFailurePolicy")
    if not policy:
        return []
    rules = policy.get("rules") or []
    if len(rules) > MOST_RULES:
        return [too_many(f"{field}.rules", len(rules), MOST_RULES)]
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    containers = {c.get("name") for c in [*(pod_spec.get("containers") or ()), *(pod_spec.get("initContainers") or ())]}
    errors: Errors = []
    for index, rule in enumerate(rules):
        errors += _validate_rule(rule, f"{field}.rules[{index}]", spec, containers)
    return errors


def _validate_rule(rule: Object, at: str, spec: Object, containers: set[str]) -> Errors:
    errors: Errors = []
    action = rule.get("action") or ""
    if not action:
        errors.append(required(f"{at}.action", f"valid values: {list(ACTIONS)}"))
    elif action not in ACTIONS:
        errors.append(not_supported(f"{at}.action", action, ACTIONS))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        errors.append(invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set"))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if codes is None and not conditions:
        errors.append(invalid_value(at, "", "specifying one of OnExitCodes and OnPodConditions is required"))
    if codes is not None and conditions:
        errors.append(invalid_value(at, "", "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is not None:
        errors += _validate_exit_codes(codes, f"{at}.onExitCodes", containers)
    if len(conditions) > MOST_CONDITIONS:
        errors.append(too_many(f"{at}.onPodConditions", len(conditions), MOST_CONDITIONS))
    for index, pattern in enumerate(conditions):
        if pattern.get("status") not in ("False", "True", "Unknown"):
            choices = ("False", "True", "Unknown")
            errors.append(not_supported(f"{at}.onPodConditions[{index}].status", pattern.get("status"), choices))
    return errors


def _validate_exit_codes(codes: Object, at: str, containers: set[str]) -> Errors:
    errors: Errors = []
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.append(not_supported(f"{at}.operator", operator, ("In", "NotIn")))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{at}.containerName", name, why))
    if not values:
        errors.append(invalid_value(f"{at}.values", values, "at least one value is required"))
    elif len(values) > MOST_EXIT_CODES:
        errors.append(too_many(f"{at}.values", len(values), MOST_EXIT_CODES))
    ordered = True
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid_value(f"{at}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(duplicate(f"{at}.values[{index}]", value))
        ordered = ordered and (index == 0 or values[index - 1] <= value)
    if not ordered:
        errors.append(invalid_value(f"{at}.values", values, "must be ordered"))
    return errors


def validate_success_policy(spec: Object, field: str) -> Errors:
    """Rules with indexes, a count, or both; only for Indexed Jobs."""
    policy = spec.get("successPolicy")
    if policy is None:
        return []
    if spec.get("completionMode") != "Indexed":
        return [invalid_value(field, policy, "requires indexed completion mode")]
    rules = policy.get("rules") or []
    if not rules:
        return [required(f"{field}.rules", "at least one rules must be specified when the successPolicy is specified")]
    if len(rules) > MOST_RULES:
        return [too_many(f"{field}.rules", len(rules), MOST_RULES)]
    errors: Errors = []
    for index, rule in enumerate(rules):
        errors += _validate_success_rule(rule, f"{field}.rules[{index}]", spec.get("completions") or 0)
    return errors


def _validate_success_rule(rule: Object, at: str, completions: int) -> Errors:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if indexes is None and count is None:
        why = "at least one of succeededCount or succeededIndexes must be specified"
        return [required(at, why)]
    errors: Errors = []
    total = completions
    if indexes is not None:
        found = _index_count(indexes, completions)
        if found is None:
            why = f"must be intervals of indexes below {completions}, in ascending order"
            errors.append(invalid_value(f"{at}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}"))
        else:
            total = found
    if count is not None:
        if count < 1:
            errors.append(invalid_value(f"{at}.succeededCount", count, "must be greater than zero"))
        elif count > total:
            what = (
                "the number of indexes in the specified succeededIndexes field"
                if indexes is not None
                else "completions"
            )
            errors.append(
                invalid_value(f"{at}.succeededCount", count, f"must be less than or equal to {total} ({what})")
            )
    return errors


def _index_count(text: str, completions: int) -> int | None:
    """How many indexes a text such as `0-2,5` names; None if it is no such text or leaves the range."""
    if not _INTERVALS.fullmatch(text):
        return None
    last, total = -1, 0
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, final = int(low), int(high or low)
        if first <= last or final < first or final >= completions:
            return None
        total += final - first + 1
        last = final
    return total
