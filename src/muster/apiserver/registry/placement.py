"""Validation of what a pod says about where it may run: selectors, affinity, tolerations, spread.

Source: upstream `pkg/apis/core/validation` and recordings.
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import JSON, Object, Objects
from muster.api.labels import label_value_errors
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    validate_labels,
)

Errors: TypeAlias = list[FieldError]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_COUNT = "must be greater than zero"


def validate_node_selector(spec: Object, field: str) -> Errors:
    """The plain node selector."""
    selector = spec.get("nodeSelector")
    return validate_labels(selector, f"{field}.nodeSelector") if selector else []


def validate_affinity(affinity: JSON, at: str) -> Errors:
    """Node affinity, pod affinity and pod anti-affinity."""
    if not affinity:
        return []
    errors: Errors = []
    node = affinity.get("nodeAffinity")
    if node:
        errors += _validate_node_affinity(node, f"{at}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for index, term in enumerate(terms.get(REQUIRED) or ()):
            errors += _validate_pod_term(term, f"{at}.{kind}.{REQUIRED}[{index}]")
        for index, weighted in enumerate(terms.get(PREFERRED) or ()):
            here = f"{at}.{kind}.{PREFERRED}[{index}]"
            errors += _validate_weight(weighted, here)
            errors += _validate_pod_term(weighted.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")
    return errors


def _validate_weight(weighted: Object, at: str) -> Errors:
    weight = weighted.get("weight") or 0
    return [] if 1 <= weight <= 100 else [invalid_value(f"{at}.weight", weight, "must be in the range 1-100")]


def _validate_node_affinity(node: Object, at: str) -> Errors:
    errors: Errors = []
    hard = node.get(REQUIRED)
    if hard is not None:
        errors += validate_node_terms(hard, f"{at}.{REQUIRED}")
    for index, preferred in enumerate(node.get(PREFERRED) or ()):
        here = f"{at}.{PREFERRED}[{index}]"
        errors += _validate_weight(preferred, here)
        errors += validate_node_term(preferred.get("preference") or {}, f"{here}.preference", checks_values=False)
    return errors


def validate_node_terms(selector: Object, at: str) -> Errors:
    """A NodeSelector object: it has at least one term."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")]
    return [
        error
        for index, term in enumerate(terms)
        for error in validate_node_term(term, f"{at}.nodeSelectorTerms[{index}]")
    ]


def validate_node_term(term: Object, at: str, *, checks_values: bool = True) -> Errors:
    """One term of a node selector. `checks_values`: values are those of labels, which preferences need not have."""
    errors: Errors = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        here = f"{at}.matchExpressions[{index}]"
        errors += _validate_node_expression(expression, here)
        for place, value in enumerate(expression.get("values") or () if checks_values else ()):
            errors += [invalid_value(f"{here}.values[{place}]", value, text) for text in label_value_errors(value)]
    for index, expression in enumerate(term.get("matchFields") or ()):
        here = f"{at}.matchFields[{index}]"
        if expression.get("operator") not in ("In", "NotIn"):
            errors.append(
                invalid_value(f"{here}.operator", expression.get("operator") or "", "not a valid selector operator")
            )
        elif len(expression.get("values") or ()) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errors.append(required(f"{here}.values", why))
        if expression.get("key") != "metadata.name":
            errors.append(invalid_value(f"{here}.key", expression.get("key") or "", "not a valid field selector key"))
    return errors


def _validate_node_expression(expression: Object, at: str) -> Errors:
    errors: Errors = []
    operator, values = expression.get("operator"), expression.get("values") or []
    match operator:
        case "In" | "NotIn":
            if not values:
                errors.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                body = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(FieldError("FieldValueForbidden", f"{at}.values", body))
        case "Gt" | "Lt":
            if len(values) != 1:
                errors.append(
                    required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
                )
        case _:
            errors.append(invalid_value(f"{at}.operator", operator or "", "not a valid selector operator"))
    key = expression.get("key") or ""
    errors += [invalid_value(f"{at}.key", key, problem) for problem in qualified_name_problems(key)]
    return errors


def validate_label_selector(selector: JSON, at: str) -> Errors:
    """A LabelSelector object."""
    if not selector:
        return []
    errors: Errors = []
    if selector.get("matchLabels"):
        errors += validate_labels(selector["matchLabels"], f"{at}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        here = f"{at}.matchExpressions[{index}]"
        values = expression.get("values") or []
        match expression.get("operator"):
            case "In" | "NotIn":
                if not values:
                    errors.append(required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            case "Exists" | "DoesNotExist":
                if values:
                    body = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    errors.append(FieldError("FieldValueForbidden", f"{here}.values", body))
            case other:
                errors.append(invalid_value(f"{here}.operator", other or "", "not a valid selector operator"))
        key = expression.get("key") or ""
        errors += [invalid_value(f"{here}.key", key, problem) for problem in qualified_name_problems(key)]
        for place, value in enumerate(values):
            errors += [invalid_value(f"{here}.values[{place}]", value, text) for text in label_value_errors(value)]
    return errors


def shown_selector(selector: JSON) -> JSON:
    """A LabelSelector as messages print it: fields in Go's order, labels sorted."""
    if not isinstance(selector, dict):
        return selector
    result: Object = {}
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    if labels:
        result["matchLabels"] = {key: labels[key] for key in sorted(labels)}
    if expressions:
        result["matchExpressions"] = [
            {
                "key": expression.get("key") or "",
                "operator": expression.get("operator") or "",
                **({"values": expression["values"]} if expression.get("values") else {}),
            }
            for expression in expressions
        ]
    return result


def _validate_pod_term(term: Object, at: str) -> Errors:
    errors = validate_label_selector(term.get("labelSelector"), f"{at}.labelSelector")
    errors += validate_label_selector(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        errors += [invalid_value(f"{at}.namespace", name, problem) for problem in label_problems(name, "characters")]
    if term.get("labelSelector") is None:
        why = "must not be specified when labelSelector is not set"
        keys = ("matchLabelKeys", "mismatchLabelKeys")
        errors += [forbidden_field(f"{at}.{name}", why) for name in keys if term.get(name)]
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        for place, name in enumerate(term.get(field) or () if term.get("labelSelector") is not None else ()):
            spot = f"{at}.{field}[{place}]"
            errors += [invalid_value(spot, name, problem) for problem in qualified_name_problems(name)]
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(required(f"{at}.topologyKey", "can not be empty"))
    return errors + [invalid_value(f"{at}.topologyKey", key, problem) for problem in qualified_name_problems(key)]


def validate_tolerations(tolerations: JSON, at: str) -> Errors:
    """Keys, operators, values and effects."""
    errors: Errors = []
    for index, toleration in enumerate(tolerations or ()):
        here = f"{at}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            errors += [invalid_value(f"{here}.key", key, problem) for problem in qualified_name_problems(key)]
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid_value(f"{here}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid_value(f"{here}.effect", effect, why))
        match operator:
            case "" | "Equal":
                errors += [invalid_value(f"{here}.operator", value, text) for text in label_value_errors(value)]
            case "Exists":
                if value:
                    why = "value must be empty when `operator` is 'Exists'"
                    errors.append(invalid_value(f"{here}.operator", value, why))
            case _:
                errors.append(not_supported(f"{here}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, EFFECTS))
    return errors


def validate_spread(constraints: JSON, at: str) -> Errors:
    """Topology spread constraints."""
    errors: Errors = []
    rest: Objects = constraints or []
    for index, constraint in enumerate(rest):
        here = f"{at}[{index}]"
        skew, key = constraint.get("maxSkew") or 0, constraint.get("topologyKey") or ""
        action, domains = constraint.get("whenUnsatisfiable") or "", constraint.get("minDomains")
        if skew <= 0:
            errors.append(invalid_value(f"{here}.maxSkew", skew, _COUNT))
        if not key:
            errors.append(required(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(not_supported(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if any(
            (later.get("topologyKey"), later.get("whenUnsatisfiable")) == (key, action) for later in rest[index + 1 :]
        ):
            shown = f"{{{key}, {action}}}"
            errors.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", shown))
        if domains is not None:
            errors += _validate_min_domains(domains, action, f"{here}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(name) not in (None, "Ignore", "Honor"):
                errors.append(not_supported(f"{here}.{name}", constraint[name], ("Honor", "Ignore")))
        for place, name in enumerate(constraint.get("matchLabelKeys") or ()):
            spot = f"{here}.matchLabelKeys[{place}]"
            errors += [invalid_value(spot, name, problem) for problem in qualified_name_problems(name)]
        errors += validate_label_selector(constraint.get("labelSelector"), f"{here}.labelSelector")
    return errors


def _validate_min_domains(domains: int, action: str, at: str) -> Errors:
    errors: Errors = []
    if domains <= 0:
        errors.append(invalid_value(at, domains, _COUNT))
    if action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(invalid_value(at, domains, why))
    return errors
