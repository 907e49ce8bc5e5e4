"""LimitRange as a stored kind: canonical quantities, defaults, validation.

Sources: kubernetes `pkg/apis/core/validation` (ValidateLimitRange) and `v1/defaults.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object
from muster.api.quantity import Quantity, parse_quantity
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    qualified_name_problems,
    required,
)
from muster.apiserver.registry.quotas import canonical_amounts
from muster.apiserver.registry.strategy import Strategy

_AMOUNTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_ONE = 1_000_000_000

_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)
"""What may not be greater than what, the field that is blamed for it, and the field whose value is shown."""


class LimitRangeStrategy(Strategy):
    """v1 LimitRange."""

    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        # Upstream writes the list even if there is none.
        for limit in spec.setdefault("limits", None) or ():
            for field in _AMOUNTS:
                canonical_amounts(limit, field)
            if limit.get("type") == "Container":
                _default_limit(limit)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
            at, type_ = f"spec.limits[{index}]", limit.get("type") or ""
            errors += _validate_type(type_, f"{at}.type")
            if type_ in seen:
                errors.append(duplicate(f"{at}.type", type_))
            seen.add(type_)
            errors += _validate_limit(limit, at)
        return errors


def _default_limit(limit: Object) -> None:
    """Missing `default` come from `max`; missing `defaultRequest` from `default`, then `min`."""
    default = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    request = {**(limit.get("min") or {}), **default, **(limit.get("defaultRequest") or {})}
    if default:
        limit["default"] = default
    if request:
        limit["defaultRequest"] = request


def _validate_type(type_: str, at: str) -> list[FieldError]:
    problems = qualified_name_problems(type_)
    if not problems and "/" not in type_ and type_ not in _TYPES:
        problems = ["must be a standard limit type or fully qualified"]
    return [invalid_value(at, type_, problem) for problem in problems]


def _validate_limit(limit: Object, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if limit.get("type") == "Pod":
        why = "may not be specified when `type` is 'Pod'"
        errors += [forbidden_field(f"{at}.{field}", why) for field in ("default", "defaultRequest") if limit.get(field)]
    if limit.get("type") == "PersistentVolumeClaim" and not any(
        "storage" in (limit.get(f) or {}) for f in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(required(f"{at}.limits", why))
    for name in sorted({name for field in _AMOUNTS for name in limit.get(field) or {}}):
        amounts = {field: parse_quantity(limit[field][name]) for field in _AMOUNTS if name in (limit.get(field) or {})}
        errors += _validate_order(name, amounts, at) + _validate_ratio(name, amounts, at)
    return errors


def _words(field: str, above: str) -> str:
    """How a message names an amount; a request is compared with the "default limit"."""
    if field == "default" and above == "defaultRequest":
        return "default limit"
    return "default request" if field == "defaultRequest" else field


def _validate_order(name: str, amounts: Mapping[str, Quantity], at: str) -> list[FieldError]:
    """Of an amount's bounds and defaults, none is greater than what is above it."""
    errors: list[FieldError] = []
    for lower, upper, blamed, value in _ORDER:
        if lower in amounts and upper in amounts and amounts[lower].nano > amounts[upper].nano:
            least, most = (
                f"{_words(lower, '')} value {amounts[lower]}",
                f"{_words(upper, lower)} value {amounts[upper]}",
            )
            why = f"{least} is greater than {most}"
            errors.append(invalid_value(f"{at}.{blamed}[{name}]", str(amounts[value]), why))
    return errors


def _validate_ratio(name: str, amounts: Mapping[str, Quantity], at: str) -> list[FieldError]:
    """A ratio is at least 1, and no more than what the bounds allow."""
    ratio, least, most = (amounts.get(field) for field in ("maxLimitRequestRatio", "min", "max"))
    errors: list[FieldError] = []
    if ratio is None:
        return errors
    here = f"{at}.maxLimitRequestRatio[{name}]"
    if ratio.nano < _ONE:
        errors.append(invalid_value(here, str(ratio), f"ratio {ratio} is less than 1"))
    if least is not None and most is not None and least.nano > 0 and ratio.nano * least.nano > most.nano * _ONE:
        why = f"ratio {ratio} is greater than max/min = {most.nano / least.nano:f}"
        errors.append(invalid_value(here, str(ratio), why))
    return errors
