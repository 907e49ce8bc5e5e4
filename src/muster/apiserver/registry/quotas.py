"""ResourceQuota and LimitRange as stored kinds: canonical quantities, defaults, validation.

Sources: kubernetes `pkg/apis/core/validation` (ValidateResourceQuota, ValidateLimitRange) and `v1/defaults.go`.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.quantity import QuantityError, canonical_quantity, parse_quantity
from muster.api.quotas import SCOPES, scope_allows
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, invalid_value, required
from muster.apiserver.registry.strategy import Strategy


class ResourceQuotaStrategy(Strategy):
    """v1 ResourceQuota."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        _canonical(obj.get("spec") or {}, "hard")
        for field in ("hard", "used"):
            _canonical(obj.get("status") or {}, field)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        for field in ("hard", "used"):
            _canonical(new.get("status") or {}, field)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return _negative(spec.get("hard") or {}, "spec.hard") + _validate_scopes(spec)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = self.validate(new, ctx)
        scopes = sorted((new.get("spec") or {}).get("scopes") or ())
        if scopes != sorted((old.get("spec") or {}).get("scopes") or ()):
            errors.append(invalid_value("spec.scopes", scopes, "field is immutable"))
        return errors


def _canonical(holder: Object, field: str) -> None:
    amounts = holder.get(field)
    if amounts:
        holder[field] = {name: _canonical_text(value) for name, value in amounts.items()}


def _canonical_text(value: object) -> object:
    try:
        return canonical_quantity(value)
    except QuantityError:
        return value


def _negative(amounts: Object, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in sorted(amounts):
        try:
            below = parse_quantity(amounts[name]).nano < 0
        except QuantityError as error:
            errors.append(invalid_value(f"{at}[{name}]", amounts[name], str(error)))
            continue
        if below:
            why = "must be greater than or equal to 0"
            errors.append(invalid_value(f"{at}[{name}]", str(amounts[name]), why))
    return errors


def _validate_scopes(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    scopes = spec.get("scopes") or []
    hard = spec.get("hard") or {}
    for scope in scopes:
        if scope not in SCOPES:
            errors.append(invalid_value("spec.scopes", scopes, "unsupported scope"))
        elif any(not scope_allows(scope, name) for name in hard):
            errors.append(invalid_value("spec.scopes", scopes, "unsupported scope applied to resource"))
    for pair in (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")):
        if set(pair) <= set(scopes):
            errors.append(invalid_value("spec.scopes", scopes, "conflicting scopes"))
    return errors


class LimitRangeStrategy(Strategy):
    """v1 LimitRange."""

    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        for limit in (obj.get("spec") or {}).get("limits") or ():
            for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
                _canonical(limit, field)
            if limit.get("type") == "Container":
                _default_limit(limit)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
            at, type_ = f"spec.limits[{index}]", limit.get("type") or ""
            if not type_:
                errors.append(required(f"{at}.type"))
            elif "/" not in type_ and type_ not in ("Pod", "Container", "PersistentVolumeClaim"):
                why = "must be a standard limit type or fully qualified"
                errors.append(invalid_value(f"{at}.type", type_, why))
            if type_ in seen:
                errors.append(FieldError("FieldValueDuplicate", f"{at}.type", f'Duplicate value: "{type_}"'))
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


def _validate_limit(limit: Object, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if limit.get("type") == "Pod":
        for field in ("default", "defaultRequest"):
            if limit.get(field):
                why = "Forbidden: may not be specified when `type` is 'Pod'"
                errors.append(FieldError("FieldValueForbidden", f"{at}.{field}", why))
    names = sorted({name for field in _ORDER for name in limit.get(field) or {}})
    for name in names:
        amounts = [(field, parse_quantity(limit[field][name])) for field in _ORDER if name in (limit.get(field) or {})]
        for position, (lower_field, lower) in enumerate(amounts):
            for upper_field, upper in amounts[position + 1 :]:
                if lower.nano > upper.nano:
                    words = (_WORDS[lower_field], lower, _WORDS[upper_field], upper)
                    why = "{} value {} is greater than {} value {}".format(*words)
                    errors.append(invalid_value(f"{at}.{lower_field}[{name}]", str(lower), why))
        ratio = (limit.get("maxLimitRequestRatio") or {}).get(name)
        if ratio is not None and parse_quantity(ratio).nano < 1_000_000_000:
            why = f"ratio {ratio} is less than 1"
            errors.append(invalid_value(f"{at}.maxLimitRequestRatio[{name}]", ratio, why))
    return errors


_ORDER = ("min", "defaultRequest", "default", "max")
_WORDS = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
