"""ResourceQuota as a stored kind: canonical quantities, validation.

Source: kubernetes `pkg/apis/core/validation` (ValidateResourceQuota).
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.quantity import QuantityError, canonical_quantity, parse_quantity
from muster.api.quotas import BY_NAME, SCOPES, scope_allows
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, invalid_value, required
from muster.apiserver.registry.strategy import Strategy


class ResourceQuotaStrategy(Strategy):
    """v1 ResourceQuota."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        canonical_amounts(obj.get("spec") or {}, "hard")
        for field in ("hard", "used"):
            canonical_amounts(obj.get("status") or {}, field)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        for field in ("hard", "used"):
            canonical_amounts(new.get("status") or {}, field)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return _validate_hard(spec.get("hard") or {}, "spec.hard") + _validate_scopes(spec) + _validate_selector(spec)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = self.validate(new, ctx)
        scopes = (new.get("spec") or {}).get("scopes")
        if set(scopes or ()) != set((old.get("spec") or {}).get("scopes") or ()):
            errors.append(invalid_value("spec.scopes", scopes, "field is immutable"))
        return errors


def canonical_amounts(holder: Object, field: str) -> None:
    """Write the quantities of a map as the server keeps them; what is none stays for the validation."""
    amounts = holder.get(field)
    if amounts:
        holder[field] = {name: _canonical_text(value) for name, value in amounts.items()}


def _canonical_text(value: object) -> object:
    try:
        return canonical_quantity(value)
    except QuantityError:
        return value


def _validate_hard(amounts: Object, at: str) -> list[FieldError]:
    """Quantities are not negative; what is counted is counted in whole numbers."""
    errors: list[FieldError] = []
    for name in sorted(amounts):
        here = f"{at}[{name}]"
        try:
            quantity = parse_quantity(amounts[name])
        except QuantityError as error:
            errors.append(invalid_value(here, amounts[name], str(error)))
            continue
        if quantity.nano < 0:
            errors.append(invalid_value(here, str(amounts[name]), "must be greater than or equal to 0"))
        if name in _COUNTED and quantity.nano % _ONE:
            errors.append(invalid_value(here, str(amounts[name]), "must be an integer"))
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
    if _conflict(set(scopes)):
        errors.append(invalid_value("spec.scopes", scopes, "conflicting scopes"))
    return errors


def _conflict(scopes: set[str]) -> bool:
    return any(pair <= scopes for pair in _EXCLUSIVE)


def _validate_selector(spec: Object) -> list[FieldError]:
    """The scopes of a scope selector. Source: `validateScopedResourceSelectorRequirement`; its paths have no index."""
    selector = spec.get("scopeSelector")
    if selector is None:
        return []
    at, errors = "spec.scopeSelector.matchExpressions", list[FieldError]()
    expressions = selector.get("matchExpressions") or []
    for expression in expressions:
        scope = expression.get("scopeName") or ""
        if scope not in SCOPES:
            errors.append(invalid_value(f"{at}.scopeName", scope, "unsupported scope"))
        unfit = [name for name in spec.get("hard") or {} if scope in SCOPES and not scope_allows(scope, name)]
        why = "unsupported scope applied to resource"
        errors += [invalid_value(at, _shown_selector(selector), why) for _ in unfit]
        errors += _validate_scope_operator(scope, expression, at)
    if _conflict({expression.get("scopeName") or "" for expression in expressions}):
        errors.append(invalid_value(at, spec.get("scopes"), "conflicting scopes"))
    return errors


def _validate_scope_operator(scope: str, expression: Object, at: str) -> list[FieldError]:
    """Only priority classes have values to choose from."""
    operator, values, errors = expression.get("operator") or "", expression.get("values"), list[FieldError]()
    if scope in SCOPES and scope != "PriorityClass" and operator != "Exists":
        errors.append(invalid_value(f"{at}.operator", operator, _ONLY_EXISTS))
    match operator:
        case "In" | "NotIn":
            if not values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(required(f"{at}.values", why))
        case "Exists" | "DoesNotExist":
            if values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(invalid_value(f"{at}.values", values, why))
        case _:
            errors.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
    return errors


def _shown_selector(selector: Object) -> Object:
    return {
        "MatchExpressions": [
            {
                "ScopeName": expression.get("scopeName") or "",
                "Operator": expression.get("operator") or "",
                "Values": expression.get("values"),
            }
            for expression in selector.get("matchExpressions") or ()
        ]
    }


_ONE = 1_000_000_000
_EXCLUSIVE = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_COUNTED = frozenset({"pods", "services.nodeports", "services.loadbalancers", *BY_NAME})
_ONLY_EXISTS = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
