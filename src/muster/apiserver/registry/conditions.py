"""Validation of `metav1.Condition` lists. Source: apimachinery `pkg/apis/meta/v1/validation`."""

from __future__ import annotations

import re

from muster.api.codec import Object, Objects
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
)

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
REASON_BYTES = 1024
MESSAGE_BYTES = 32768


def validate_conditions(conditions: Objects, field: str) -> list[FieldError]:
    """Every condition is complete, and types are unique."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at = f"{field}[{index}]"
        type_ = condition.get("type") or ""
        if type_ in seen:
            errors.append(duplicate(f"{at}.type", type_))
        seen.add(type_)
        errors += _validate(condition, at, type_)
    return errors


def _validate(condition: Object, at: str, type_: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not type_:
        errors.append(required(f"{at}.type"))
    else:
        errors += [invalid_value(f"{at}.type", type_, problem) for problem in qualified_name_problems(type_)]
    status = condition.get("status") or ""
    if status not in ("True", "False", "Unknown"):
        errors.append(not_supported(f"{at}.status", status, ("False", "True", "Unknown")))
    if (condition.get("observedGeneration") or 0) < 0:
        why = "must be greater than or equal to zero"
        errors.append(invalid_value(f"{at}.observedGeneration", condition["observedGeneration"], why))
    if not condition.get("lastTransitionTime"):
        errors.append(required(f"{at}.lastTransitionTime"))
    reason = condition.get("reason") or ""
    if not reason:
        errors.append(required(f"{at}.reason"))
    else:
        if not _REASON.fullmatch(reason):
            errors.append(invalid_value(f"{at}.reason", reason, _REASON_TEXT))
        if len(reason) > REASON_BYTES:
            body = f"Too long: may not be more than {REASON_BYTES} bytes"
            errors.append(FieldError("FieldValueTooLong", f"{at}.reason", body))
    if len(condition.get("message") or "") > MESSAGE_BYTES:
        body = f"Too long: may not be more than {MESSAGE_BYTES} bytes"
        errors.append(FieldError("FieldValueTooLong", f"{at}.message", body))
    return errors
