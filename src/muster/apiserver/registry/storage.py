"""StorageClasses: defaults, what may not change, validation.

Sources: upstream `pkg/apis/storage/v1/defaults.go`, `pkg/apis/storage/validation`, `pkg/apis/core/validation`
(ValidateTopologySelectorTerm).
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    qualified_name_problems,
    required,
    too_long,
)
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

MOST_PARAMETERS = 512
LONGEST_PARAMETERS = 256 * 1024
RECLAIM_POLICIES = ("Delete", "Retain")
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_FIXED = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


class StorageClassStrategy(Strategy):
    """v1 StorageClass."""

    def default(self, obj: Object, ctx: Context) -> None:
        for key, value in (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")):
            if obj.get(key) is None:
                obj[key] = value

    def validate(self, obj: Object, ctx: Context) -> Errors:
        errors = _validate_provisioner(obj.get("provisioner") or "", "provisioner")
        errors += _validate_parameters(obj.get("parameters") or {}, "parameters")
        policy, mode = obj.get("reclaimPolicy"), obj.get("volumeBindingMode")
        if policy and policy not in RECLAIM_POLICIES:
            errors.append(not_supported("reclaimPolicy", policy, RECLAIM_POLICIES))
        if mode not in BINDING_MODES:
            errors.append(not_supported("volumeBindingMode", mode, BINDING_MODES))
        return errors + _validate_topologies(obj.get("allowedTopologies") or [], "allowedTopologies")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        errors = self.validate(new, ctx)
        for field in _FIXED:
            value = new.get(field)
            if (value or None) != (old.get(field) or None):
                shown = value or "" if field != "parameters" else value and dict(sorted(value.items()))
                errors.append(invalid_value(field, shown, "field is immutable"))
        return errors


def _validate_provisioner(name: str, at: str) -> Errors:
    if not name:
        return [required(at)]
    return [invalid_value(at, name.lower(), problem) for problem in qualified_name_problems(name.lower())]


def _validate_parameters(parameters: Object, at: str) -> Errors:
    """Not too many, none without a name, not too long altogether."""
    errors: Errors = []
    if len(parameters) > MOST_PARAMETERS:
        errors.append(too_long(at, MOST_PARAMETERS))
    if "" in parameters:
        errors.append(invalid_value(at, "", "field can not be empty."))
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > LONGEST_PARAMETERS:
        errors.append(too_long(at, LONGEST_PARAMETERS))
    return errors


def _validate_topologies(terms: Objects, at: str) -> Errors:
    """No two terms say the same.

    Upstream compares each term with a list that begins with an empty entry per term, so that it finds one that is
    empty that many times, and in addition each empty one before it.
    """
    errors: Errors = []
    before: list[dict[str, frozenset[str]]] = [{} for _ in terms]
    for index, term in enumerate(terms):
        here = f"{at}[{index}].matchLabelExpressions"
        labels: dict[str, frozenset[str]] = {}
        for place, expression in enumerate(term.get("matchLabelExpressions") or ()):
            errors += _validate_expression(expression, labels, f"{here}[{place}]")
        errors += [duplicate(here, "") for other in before if other == labels]
        before.append(labels)
    return errors


def _validate_expression(expression: Object, labels: dict[str, frozenset[str]], at: str) -> Errors:
    """One label and its values; notes them in `labels`, where no label may be twice."""
    key, values = expression.get("key") or "", expression.get("values") or []
    errors = [] if values else [required(f"{at}.values")]
    errors += [duplicate(f"{at}.values[{i}]", value) for i, value in enumerate(values) if value in values[:i]]
    errors += [invalid_value(f"{at}.key", key, problem) for problem in qualified_name_problems(key)]
    if key in labels:
        errors.append(duplicate(f"{at}.key", key))
    labels[key] = frozenset(values)
    return errors
