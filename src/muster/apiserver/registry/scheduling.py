"""Workload, PodGroup and CompositePodGroup in the versions of three releases: defaults, validation, what may change.

Source: the workload-aware scheduling API as published and as recorded from real servers of 1.35, 1.36 and 1.37.
Rules work on the object in the version of the request, so that error paths are the client's.
"""

from __future__ import annotations

from typing import ClassVar

from muster.api.codec import JSON, Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import FieldError, immutable, invalid_value, required
from muster.apiserver.registry.conditions import validate_conditions
from muster.apiserver.registry.priority import resolve
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.registry.workloads import (
    validate_claims,
    validate_constraints,
    validate_gang,
    validate_mode,
    validate_name_field,
    validate_policy_update,
    validate_priority,
    validate_union,
)

PROTECTION = "scheduling.k8s.io/podgroup-protection"
PREEMPT = "PreemptLowerPriority"

_GROUPS = Qualified("scheduling.k8s.io", "podgroups")
_COMPOSITES = Qualified("scheduling.k8s.io", "compositepodgroups")


class GroupStrategy(Strategy):
    """What PodGroup and CompositePodGroup have in common."""

    has_status = True
    status_keeps_metadata = True
    resource: ClassVar[Qualified] = _GROUPS
    count_name: ClassVar[str] = "minCount"
    fixed: ClassVar[tuple[str, ...]] = ()

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.get("spec")
        if spec is None:
            spec = obj["spec"] = {}
        if spec.get("disruptionMode") is None:
            spec["disruptionMode"] = "Pod" if ctx.version == "v1alpha2" else {"single": {}}
        if ctx.version != "v1alpha2" and not ctx.options.is_lenient:
            spec.setdefault("preemptionPolicy", PREEMPT)

    def admit_create(self, obj: Object, ctx: Context) -> None:
        resolve_group_priority(obj, ctx, self.resource)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = self.validate_references(spec)
        errors += validate_gang(spec.get("schedulingPolicy"), "spec.schedulingPolicy", self.count_name)
        errors += validate_constraints(spec.get("schedulingConstraints"), "spec.schedulingConstraints")
        errors += validate_claims(spec.get("resourceClaims"), "spec.resourceClaims")
        errors += validate_mode(spec.get("disruptionMode"), "spec.disruptionMode", ctx.version)
        return errors + validate_priority(spec, "spec")

    def validate_references(self, spec: Object) -> list[FieldError]:
        """The fields that name the parent and the Workload."""
        return []

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        changed = [immutable(f"spec.{field}") for field in self.fixed if spec.get(field) != before.get(field)]
        if ctx.version == "v1alpha2" or self.count_name != "minCount":
            if spec.get("schedulingPolicy") != before.get("schedulingPolicy"):
                changed.insert(0, immutable("spec.schedulingPolicy"))
            return changed or self.validate(new, ctx)
        switched = validate_policy_update(
            spec.get("schedulingPolicy"), before.get("schedulingPolicy"), "spec.schedulingPolicy"
        )
        return switched + changed or self.validate(new, ctx)

    def validate_status(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        status = new.get("status") or {}
        errors = validate_conditions(status.get("conditions") or [], "status.conditions")
        known = {claim.get("name") for claim in (new.get("spec") or {}).get("resourceClaims") or ()}
        for index, claim in enumerate(status.get("resourceClaimStatuses") or ()):
            if claim.get("name") not in known:
                why = "must match the name of an entry in `spec.resourceClaims`"
                errors.append(invalid_value(f"status.resourceClaimStatuses[{index}].name", claim.get("name"), why))
        return errors


class PodGroupStrategy(GroupStrategy):
    """PodGroups keep a finalizer until their pods have ended."""

    fixed = (
        "parentCompositePodGroupName",
        "podGroupTemplateRef",
        "workloadRef",
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    )

    def default(self, obj: Object, ctx: Context) -> None:
        super().default(obj, ctx)
        if not obj["spec"].get("schedulingPolicy") and ctx.options.is_lenient:
            obj["spec"]["schedulingPolicy"] = {"basic": {}}
            ctx.warn("spec.schedulingPolicy: `basic` is assumed; other API servers require one of `basic`, `gang`")

    def admit_create(self, obj: Object, ctx: Context) -> None:
        super().admit_create(obj, ctx)
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]

    def review_create(self, obj: Object, ctx: Context) -> None:
        if ctx.options.emulate == "1.36":
            require_template(obj, ctx)

    def validate_references(self, spec: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        old_reference = spec.get("podGroupTemplateRef")
        if old_reference is not None:
            errors += validate_union(old_reference, ("workload",), "spec.podGroupTemplateRef")
            names = (("workloadName", "subdomain"), ("podGroupTemplateName", "label"))
            if old_reference.get("workload") is not None:
                errors += _validate_names(old_reference["workload"], "spec.podGroupTemplateRef.workload", names)
        errors += validate_parent(spec)
        if spec.get("workloadRef") is not None:
            errors += _validate_names(spec["workloadRef"], "spec.workloadRef", _REFERENCE)
        elif spec.get("parentCompositePodGroupName"):
            errors.append(required("spec.workloadRef", "must be set when parentCompositePodGroupName is set"))
        return errors


class CompositePodGroupStrategy(GroupStrategy):
    """CompositePodGroups: nothing of the spec may change."""

    resource = _COMPOSITES
    count_name = "minGroupCount"
    fixed = (
        "parentCompositePodGroupName",
        "workloadRef",
        "schedulingConstraints",
        "disruptionMode",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    )

    def validate_references(self, spec: Object) -> list[FieldError]:
        errors = validate_parent(spec)
        if spec.get("workloadRef") is None:
            return [*errors, required("spec.workloadRef")]
        return errors + _validate_names(spec["workloadRef"], "spec.workloadRef", _REFERENCE)


_REFERENCE = (("workloadName", "subdomain"), ("templateName", "label"))


def validate_parent(spec: Object) -> list[FieldError]:
    """The name of the composite group above this one."""
    parent = spec.get("parentCompositePodGroupName")
    return validate_name_field(parent, "spec.parentCompositePodGroupName", "subdomain") if parent else []


def _validate_names(value: Object, field: str, names: tuple[tuple[str, str], ...]) -> list[FieldError]:
    return [error for name, form in names for error in validate_name_field(value.get(name), f"{field}.{name}", form)]


def resolve_group_priority(obj: Object, ctx: Context, of: Qualified) -> None:
    """Set priority (and, from v1alpha3 on, preemptionPolicy) of a new group from its class (admission plugin Priority).

    Raises StatusError (403) if the client set something else.
    """
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    found = resolve(spec.get("priorityClassName") or "", ctx, of, name)
    value, policy = 0, PREEMPT
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        value, policy = found["value"], found.get("preemptionPolicy") or PREEMPT
    given = spec.get("priority")
    if given is not None and given != value:
        why = (
            f"priority set in the pod group ({given}) must match the priority computed ({value}) based on the priority "
            "class set in the spec"
        )
        raise forbidden(of, name, why)
    spec["priority"] = value
    if ctx.version == "v1alpha2":
        return
    given_policy = spec.get("preemptionPolicy")
    if given_policy is not None and given_policy != policy:
        why = (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod group spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(of, name, why)
    spec["preemptionPolicy"] = policy


def require_template(obj: Object, ctx: Context) -> None:
    """The Workload and template that a group names must exist (admission plugin PodGroupWorkloadExists of 1.36)."""
    meta = obj["metadata"]
    reference: JSON = (obj["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if not reference or not reference.get("workloadName"):
        return
    name, template = reference["workloadName"], reference.get("podGroupTemplateName")
    workload = ctx.read("workloads", meta["namespace"], name)
    if workload is None:
        why = f'PodGroup rejected: Workload "{name}" not found'
    elif workload["metadata"].get("deletionTimestamp"):
        why = f'PodGroup rejected: Workload "{name}" is being deleted'
    elif not any(entry.get("name") == template for entry in workload["spec"].get("podGroupTemplates") or ()):
        why = f'PodGroup rejected: PodGroupTemplate "{template}" not found in Workload "{name}"'
    else:
        return
    raise forbidden(_GROUPS, meta.get("name", ""), why)
