"""Validation of a Job's failure and success policies. Source: upstream `pkg/apis/batch/validation`."""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
    too_many,
)

Errors: TypeAlias = list[FieldError]

MOST_RULES = 20
MOST_EXIT_CODES = 255
MOST_CONDITIONS = 20
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


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
        errors.append(required(f"{at}.action", _choices(ACTIONS)))
    elif action not in ACTIONS:
        errors.append(not_supported(f"{at}.action", action, ACTIONS))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        errors.append(invalid_value(f"{at}.action", action, "requires the backoffLimitPerIndex to be set"))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if codes is not None:
        errors += _validate_exit_codes(codes, f"{at}.onExitCodes", containers)
    if len(conditions) > MOST_CONDITIONS:
        errors.append(too_many(f"{at}.onPodConditions", len(conditions), MOST_CONDITIONS))
    for index, pattern in enumerate(conditions):
        type_ = pattern.get("type") or ""
        here = f"{at}.onPodConditions[{index}].type"
        errors += [invalid_value(here, type_, problem) for problem in qualified_name_problems(type_)]
        if pattern.get("status") not in ("False", "True", "Unknown"):
            choices = ("False", "True", "Unknown")
            errors.append(not_supported(f"{at}.onPodConditions[{index}].status", pattern.get("status"), choices))
    if codes is None and not conditions:
        errors.append(_invalid(at, "specifying one of OnExitCodes and OnPodConditions is required"))
    if codes is not None and conditions:
        errors.append(_invalid(at, "specifying both OnExitCodes and OnPodConditions is not supported"))
    return errors


def _choices(values: tuple[str, ...]) -> str:
    return f"valid values: [{' '.join(f'{chr(34)}{value}{chr(34)}' for value in values)}]"


def _invalid(at: str, why: str) -> FieldError:
    """Invalid as a whole: the value is not shown."""
    return FieldError("FieldValueInvalid", at, f"Invalid value: {why}")


def _validate_exit_codes(codes: Object, at: str, containers: set[str]) -> Errors:
    errors: Errors = []
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if not operator:
        errors.append(required(f"{at}.operator", _choices(("In", "NotIn"))))
    elif operator not in ("In", "NotIn"):
        errors.append(not_supported(f"{at}.operator", operator, ("In", "NotIn")))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid_value(f"{at}.containerName", name, why))
    if not values:
        errors.append(invalid_value(f"{at}.values", codes.get("values"), "at least one value is required"))
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
        found, problem = _index_count(indexes, completions)
        if problem:
            why = f"error parsing succeededIndexes: {problem}"
            errors.append(invalid_value(f"{at}.succeededIndexes", indexes, why))
        else:
            total = found
    if count is not None:
        here, most = f"{at}.succeededCount", "must be less than or equal to"
        if count < 0:
            errors.append(invalid_value(here, count, "must be greater than or equal to 0"))
        if count > completions:
            errors.append(invalid_value(here, count, f"{most} {completions} (the number of specified completions)"))
        if indexes is not None and count > total:
            what = "the number of indexes in the specified succeededIndexes field"
            errors.append(invalid_value(here, count, f"{most} {total} ({what})"))
    return errors


def _index_count(text: str, completions: int) -> tuple[int, str]:
    """How many indexes a text such as `0-2,5` names, and what is wrong with it ("" if nothing is)."""
    last, total = -1, 0
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f'the fragment "{part}" {rule}'
        first = last
        for place, limit in enumerate(limits):
            if not (limit.isascii() and limit.isdecimal()):
                return 0, f'cannot convert string to integer for index: "{limit}"'
            number = int(limit)
            if number >= completions:
                return 0, f'too large index: "{limit}"'
            if last >= number:
                return 0, f"non-increasing order, previous: {last}, current: {number}"
            if place == 0:
                first = number
            last = number
        total += last - first + 1
    return total, ""
