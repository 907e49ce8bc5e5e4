"""Workloads: templates of groups, flat or as a tree, and the checks of their parts that groups share.

Source: the published types of `scheduling.k8s.io` (validation markers) and recordings of 1.35, 1.36 and 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from muster.api.codec import JSON, Object, Objects
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    immutable,
    invalid_value,
    label_problems,
    not_supported,
    path_segment_problems,
    qualified_name_problems,
    required,
    subdomain_problems,
    too_many,
)
from muster.apiserver.registry.strategy import Strategy

MOST_TEMPLATES = 8
MOST_CLAIMS = 4
DEEPEST_TREE = 3
HIGHEST_USER_PRIORITY = 1_000_000_000

Errors: TypeAlias = list[FieldError]

_TEMPLATE_FIXED = (
    "schedulingConstraints",
    "resourceClaims",
    "disruptionMode",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
)


def validate_union(value: JSON, members: tuple[str, ...], field: str) -> Errors:
    """Exactly one of the members is set."""
    found = [name for name in members if isinstance(value, dict) and value.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not found:
        return [invalid_value(field, "", f"must specify one of: {listed}")]
    if len(found) > 1:
        return [invalid_value(field, "{" + ", ".join(found) + "}", f"must specify exactly one of: {listed}")]
    return []


def validate_gang(policy: JSON, field: str, count_name: str) -> Errors:
    """A scheduling policy: `basic`, or `gang` with a count of at least 1."""
    errors = validate_union(policy, ("basic", "gang"), field)
    gang = (policy or {}).get("gang")
    if gang is None:
        return errors
    count = gang.get(count_name)
    at = f"{field}.gang.{count_name}"
    if not count:
        errors.append(required(at))
    elif count < 1:
        errors.append(invalid_value(at, count, "must be greater than or equal to 1"))
    return errors


def validate_policy_update(new: JSON, old: JSON, field: str) -> Errors:
    """The variant of a policy stays; `gang.minCount` may change."""
    new, old = new or {}, old or {}
    errors: Errors = []
    if (new.get("basic") is None) != (old.get("basic") is None):
        errors.append(immutable(f"{field}.basic"))
    if new.get("gang") is None and old.get("gang") is not None:
        errors.append(invalid_value(f"{field}.gang", None, "field cannot be cleared once set"))
    if new.get("gang") is not None and old.get("gang") is None:
        errors.append(invalid_value(f"{field}.gang", None, "field cannot be set once created"))
    return errors


def validate_constraints(value: JSON, field: str) -> Errors:
    """At most one topology, named by a label key."""
    topology = (value or {}).get("topology") or []
    if len(topology) > 1:
        return [too_many(f"{field}.topology", len(topology), 1)]
    errors: Errors = []
    for index, entry in enumerate(topology):
        at = f"{field}.topology[{index}].key"
        key = entry.get("key") or ""
        if not key:
            errors.append(required(at))
        else:
            errors += [invalid_value(at, key, problem) for problem in qualified_name_problems(key)]
    return errors


def validate_claims(claims: JSON, field: str) -> Errors:
    """Named claims, each from exactly one source."""
    claims = claims or []
    if len(claims) > MOST_CLAIMS:
        return [too_many(field, len(claims), MOST_CLAIMS)]
    errors: Errors = []
    names: list[str] = []
    for index, claim in enumerate(claims):
        at = f"{field}[{index}]"
        name = claim.get("name") or ""
        if name in names:
            errors.append(duplicate(at, claim))
        names.append(name)
        errors += validate_name_field(name, f"{at}.name", "label")
        sources = ("resourceClaimName", "resourceClaimTemplateName")
        errors += validate_union(claim, sources, at)
        for source in sources:
            if claim.get(source) is not None:
                errors += validate_name_field(claim[source], f"{at}.{source}", "subdomain")
    return errors


def validate_mode(mode: JSON, field: str, version: str) -> Errors:
    """The disruption mode: a word in v1alpha2, a union later."""
    if mode is None:
        return []
    if version == "v1alpha2":
        return [] if mode in ("Pod", "PodGroup") else [not_supported(field, mode, ("Pod", "PodGroup"))]
    return validate_union(mode, ("single", "all"), field)


def validate_priority(value: Object, field: str) -> Errors:
    """Priority and its class of a group or template."""
    errors: Errors = []
    class_name, priority = value.get("priorityClassName"), value.get("priority")
    if class_name:
        errors += validate_name_field(class_name, f"{field}.priorityClassName", "subdomain")
    if priority is not None and priority > HIGHEST_USER_PRIORITY:
        why = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        errors.append(invalid_value(f"{field}.priority", priority, why))
    policy = value.get("preemptionPolicy")
    if policy is not None and policy not in ("Never", "PreemptLowerPriority"):
        errors.append(not_supported(f"{field}.preemptionPolicy", policy, ("Never", "PreemptLowerPriority")))
    return errors


def validate_name_field(value: JSON, field: str, form: str) -> Errors:
    """A required name; `form`: `label`, `subdomain` or `segment`."""
    if value is None or (not value and form != "subdomain"):
        return [required(field)]
    check = {"label": label_problems, "subdomain": subdomain_problems, "segment": path_segment_problems}[form]
    return [invalid_value(field, value, problem) for problem in check(value)]


def validate_controller(reference: JSON, field: str = "spec.controllerRef") -> Errors:
    """The reference to the true workload."""
    if reference is None:
        return []
    errors: Errors = []
    if reference.get("apiGroup"):
        errors += validate_name_field(reference["apiGroup"], f"{field}.apiGroup", "subdomain")
    errors += validate_name_field(reference.get("kind"), f"{field}.kind", "segment")
    return errors + validate_name_field(reference.get("name"), f"{field}.name", "segment")


class WorkloadStrategy(Strategy):
    """Workloads of v1alpha2 and later. They have no status and no generation."""

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj.get("spec") or {}
        errors = validate_controller(spec.get("controllerRef"))
        flat, trees = spec.get("podGroupTemplates"), spec.get("compositePodGroupTemplates")
        if ctx.version == "v1alpha2":
            if not flat:
                return [*errors, required("spec.podGroupTemplates")]
            return errors + _validate_templates(flat, "spec.podGroupTemplates", ctx.version)
        members = {"podGroupTemplates": flat or None, "compositePodGroupTemplates": trees or None}
        errors += validate_union(members, ("podGroupTemplates", "compositePodGroupTemplates"), "spec")
        errors += _validate_templates(flat or [], "spec.podGroupTemplates", ctx.version)
        errors += _validate_trees(trees or [], "spec.compositePodGroupTemplates", ctx.version, 1)
        return errors or _validate_whole(spec)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        errors: Errors = []
        if spec.get("controllerRef") != before.get("controllerRef"):
            errors.append(immutable("spec.controllerRef"))
        for field in ("podGroupTemplates", "compositePodGroupTemplates"):
            after, earlier = spec.get(field) or [], before.get(field) or []
            if after == earlier:
                continue
            if ctx.version == "v1alpha2":
                errors.append(immutable(f"spec.{field}"))
            else:
                errors += _validate_templates_update(after, earlier, f"spec.{field}")
        return errors or self.validate(new, ctx)


def _validate_templates(templates: Objects, field: str, version: str) -> Errors:
    if len(templates) > MOST_TEMPLATES:
        return [too_many(field, len(templates), MOST_TEMPLATES)]
    errors: Errors = []
    names: list[str] = []
    for index, template in enumerate(templates):
        at = f"{field}[{index}]"
        name = template.get("name") or ""
        if name in names:
            errors.append(duplicate(at, template))
        names.append(name)
        errors += validate_name_field(name, f"{at}.name", "label")
        errors += validate_gang(template.get("schedulingPolicy"), f"{at}.schedulingPolicy", "minCount")
        errors += validate_constraints(template.get("schedulingConstraints"), f"{at}.schedulingConstraints")
        errors += validate_claims(template.get("resourceClaims"), f"{at}.resourceClaims")
        errors += validate_mode(template.get("disruptionMode"), f"{at}.disruptionMode", version)
        errors += validate_priority(template, at)
    return errors


def _validate_trees(trees: Objects, field: str, version: str, depth: int) -> Errors:
    if len(trees) > MOST_TEMPLATES:
        return [too_many(field, len(trees), MOST_TEMPLATES)]
    errors: Errors = []
    for index, tree in enumerate(trees):
        at = f"{field}[{index}]"
        errors += validate_name_field(tree.get("name"), f"{at}.name", "label")
        errors += validate_gang(tree.get("schedulingPolicy"), f"{at}.schedulingPolicy", "minGroupCount")
        errors += validate_constraints(tree.get("schedulingConstraints"), f"{at}.schedulingConstraints")
        errors += validate_mode(tree.get("disruptionMode"), f"{at}.disruptionMode", version)
        errors += validate_priority(tree, at)
        leaves, inner = tree.get("podGroupTemplates") or [], tree.get("compositePodGroupTemplates") or []
        errors += _validate_templates(leaves, f"{at}.podGroupTemplates", version)
        errors += _validate_trees(inner, f"{at}.compositePodGroupTemplates", version, depth + 1)
        if not leaves and not inner:
            why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            errors.append(invalid_value(at, tree.get("name"), why))
        if depth == 1 and _depth(tree) > DEEPEST_TREE:
            errors.append(invalid_value(at, inner, f"exceeds the maximum depth of {DEEPEST_TREE}"))
    return errors


def _depth(tree: Object) -> int:
    return 1 + max((_depth(inner) for inner in tree.get("compositePodGroupTemplates") or ()), default=0)


def _validate_whole(spec: Object) -> Errors:
    """What holds over all templates: unique names in a tree, one priority."""
    errors: Errors = []
    names: set[str] = set()
    priorities: list[tuple[JSON, JSON]] = []
    for field, template in _walk(spec, "spec"):
        name = template.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{field}.name", name))
        names.add(name)
        priorities.append((template.get("priorityClassName") or None, template.get("priority")))
    if any(priority != priorities[0] for priority in priorities):
        why = (
            "all priority and priorityClassName values must be identical, detected multiple values"
            if spec.get("compositePodGroupTemplates")
            else "detected multiple priority configurations"
        )
        errors.append(invalid_value("spec", None, why))
    return errors


def _walk(value: Object, field: str) -> Iterator[tuple[str, Object]]:
    for name in ("podGroupTemplates", "compositePodGroupTemplates"):
        for index, template in enumerate(value.get(name) or ()):
            at = f"{field}.{name}[{index}]"
            yield at, template
            yield from _walk(template, at)


def _validate_templates_update(new: Objects, old: Objects, field: str) -> Errors:
    """Templates may not be added or removed; of each only a gang's minCount may change."""
    before = {template.get("name"): template for template in old}
    errors: Errors = []
    for index, template in enumerate(new):
        at = f"{field}[{index}]"
        earlier = before.get(template.get("name"))
        if earlier is None:
            errors.append(forbidden_field(at, "item may not be added"))
            continue
        errors += validate_policy_update(
            template.get("schedulingPolicy"), earlier.get("schedulingPolicy"), f"{at}.schedulingPolicy"
        )
        errors += [immutable(f"{at}.{name}") for name in _TEMPLATE_FIXED if template.get(name) != earlier.get(name)]
        for inner in ("podGroupTemplates", "compositePodGroupTemplates"):
            if (template.get(inner) or []) != (earlier.get(inner) or []):
                errors += _validate_templates_update(
                    template.get(inner) or [], earlier.get(inner) or [], f"{at}.{inner}"
                )
    kept = {template.get("name") for template in new}
    if any(name not in kept for name in before):
        errors.append(forbidden_field(field, "item may not be removed"))
    return errors


class FirstWorkloadStrategy(Strategy):
    """Workloads of v1alpha1 (1.35), whose validation is older."""

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj.get("spec") or {}
        errors = validate_controller(spec.get("controllerRef"))
        groups = spec.get("podGroups") or []
        if not groups:
            return [*errors, required("spec.podGroups", "must have at least one item")]
        if len(groups) > MOST_TEMPLATES:
            return [*errors, too_many("spec.podGroups", len(groups), MOST_TEMPLATES)]
        names: list[str] = []
        for index, group in enumerate(groups):
            at = f"spec.podGroups[{index}]"
            name = group.get("name") or ""
            if name in names:
                errors.append(duplicate(f"{at}.name", name))
            names.append(name)
            errors += [invalid_value(f"{at}.name", name, problem) for problem in label_problems(name)]
            errors += _validate_first_policy(group.get("policy") or {}, f"{at}.policy")
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        errors: Errors = []
        if before.get("controllerRef") is not None and spec.get("controllerRef") != before["controllerRef"]:
            reference = spec.get("controllerRef")
            shown = reference and {key: reference.get(key[0].lower() + key[1:], "") for key in ("Kind", "Name")}
            group = (reference or {}).get("apiGroup") or ""
            errors.append(invalid_value("controllerRef", shown and {"APIGroup": group, **shown}, "field is immutable"))
        if spec.get("podGroups") != before.get("podGroups"):
            errors.append(invalid_value("podGroups", spec.get("podGroups"), "field is immutable"))
        return errors or self.validate(new, ctx)


def _validate_first_policy(policy: Object, field: str) -> Errors:
    found = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if not found:
        return [required(field, "exactly one of `basic`, `gang` is required")]
    if len(found) > 1:
        why = "exactly one of `basic`, `gang` is required, but multiple fields are set"
        return [invalid_value(field, "{`basic`, `gang`}", why)]
    count = (policy.get("gang") or {}).get("minCount") or 0
    if found == ["gang"] and count < 1:
        return [invalid_value(f"{field}.gang.minCount", count, "must be greater than zero")]
    return []
