"""Roles and bindings: their defaults and rules, and that nobody grants more than they have.

Source: kube-apiserver `pkg/apis/rbac/{v1/defaults.go,validation}`, `pkg/registry/rbac`.
"""

from __future__ import annotations

from typing import ClassVar

from muster.api.codec import Object
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.authorization.escalation import check_binding, check_role
from muster.apiserver.authorization.rules import GROUP
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    invalid_value,
    not_supported,
    path_segment_problems,
    required,
    subdomain_problems,
)
from muster.apiserver.registry.strategy import Strategy

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class _AccessStrategy(Strategy):
    """What roles and bindings have in common."""

    def name_problems(self, name: str) -> list[str]:
        return path_segment_problems(name)

    @staticmethod
    def allowed(ctx: Context, attributes: Attributes) -> bool:
        """Whether the request's user may do something."""
        return authorizer(ctx.options.authorization_modes, ctx.store)(ctx.user, attributes).is_allowed


class RoleStrategy(_AccessStrategy):
    """Roles of one namespace."""

    is_namespaced: ClassVar[bool] = True

    def admit_create(self, obj: Object, ctx: Context) -> None:
        check_role(ctx.store, ctx.user, lambda attributes: self.allowed(ctx, attributes), obj, None)

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        check_role(ctx.store, ctx.user, lambda attributes: self.allowed(ctx, attributes), new, old)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        for at, rule in enumerate(obj.get("rules") or ()):
            errors += _rule_errors(rule, f"rules[{at}]", is_namespaced=self.is_namespaced)
        return errors


class ClusterRoleStrategy(RoleStrategy):
    """Roles of the whole cluster."""

    is_namespaced = False

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors = super().validate(obj, ctx)
        aggregation = obj.get("aggregationRule")
        if aggregation is None:
            return errors
        field = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors") or []
        if not selectors:
            why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            return [*errors, required(field, why)]
        for at, selector in enumerate(selectors):
            errors += _selector_errors(selector, f"{field}[{at}]")
        return errors


def _rule_errors(rule: Object, field: str, *, is_namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(required(f"{field}.verbs", "verbs must contain at least one value"))
    paths = rule.get("nonResourceURLs")
    if paths:
        where = f"{field}.nonResourceURLs"
        if is_namespaced:
            errors.append(invalid_value(where, paths, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(where, paths, why))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{field}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{field}.resources", "resource rules must supply at least one resource"))
    return errors


def _selector_errors(selector: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for at, expression in enumerate(selector.get("matchExpressions") or ()):
        where, operator = f"{field}.matchExpressions[{at}]", expression.get("operator", "")
        values = expression.get("values") or []
        if operator not in _OPERATORS:
            errors.append(invalid_value(f"{where}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            errors.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(FieldError("FieldValueForbidden", f"{where}.values", f"Forbidden: {why}"))
    if errors:
        errors.append(invalid_value(field, None, "invalid label selector."))
    return errors


class RoleBindingStrategy(_AccessStrategy):
    """Bindings in one namespace."""

    role_kinds: ClassVar[tuple[str, ...]] = ("Role", "ClusterRole")
    is_namespaced: ClassVar[bool] = True

    def default(self, obj: Object, ctx: Context) -> None:
        reference = obj.get("roleRef")
        if isinstance(reference, dict) and not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def admit_create(self, obj: Object, ctx: Context) -> None:
        # What is not valid as a binding is refused as that.
        if not self.validate(obj, ctx):
            check_binding(ctx.store, ctx.user, lambda attributes: self.allowed(ctx, attributes), obj)

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        check_binding(ctx.store, ctx.user, lambda attributes: self.allowed(ctx, attributes), new)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        reference: Object = obj.get("roleRef") or {}
        errors: list[FieldError] = []
        if reference.get("apiGroup") != GROUP:
            errors.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), [GROUP]))
        if reference.get("kind") not in self.role_kinds:
            errors.append(not_supported("roleRef.kind", reference.get("kind", ""), self.role_kinds))
        name = reference.get("name") or ""
        if not name:
            errors.append(required("roleRef.name"))
        else:
            errors += [invalid_value("roleRef.name", name, problem) for problem in path_segment_problems(name)]
        for at, subject in enumerate(obj.get("subjects") or ()):
            errors += _subject_errors(subject, f"subjects[{at}]", is_namespaced=self.is_namespaced)
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = self.validate(new, ctx)
        if new.get("roleRef") != old.get("roleRef"):
            reference = new.get("roleRef") or {}
            shown = {key: reference.get(key[0].lower() + key[1:], "") for key in ("Kind", "Name")}
            shown = {"APIGroup": reference.get("apiGroup", ""), **shown}
            errors.append(invalid_value("roleRef", shown, "cannot change roleRef"))
        return errors


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    """Bindings for the whole cluster."""

    role_kinds = ("ClusterRole",)
    is_namespaced = False


def _subject_errors(subject: Object, field: str, *, is_namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    kind, name, group = subject.get("kind", ""), subject.get("name") or "", subject.get("apiGroup") or ""
    if not name:
        errors.append(required(f"{field}.name"))
    match kind:
        case "ServiceAccount":
            if name:
                errors += [invalid_value(f"{field}.name", name, problem) for problem in subdomain_problems(name)]
            if group:
                errors.append(not_supported(f"{field}.apiGroup", group, [""]))
            if not is_namespaced and not subject.get("namespace"):
                errors.append(required(f"{field}.namespace"))
        case "User" | "Group":
            if group != GROUP:
                errors.append(not_supported(f"{field}.apiGroup", group, [GROUP]))
        case _:
            errors.append(not_supported(f"{field}.kind", kind, ["ServiceAccount", "User", "Group"]))
    return errors
