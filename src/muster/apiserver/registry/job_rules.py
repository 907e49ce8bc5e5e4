"""What may stand in a Job and what may change in it later.

Source: upstream `pkg/apis/batch/validation/validation.go`, `pkg/registry/batch/job/strategy.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.api.codec import Object, copy_object
from muster.api.meta import has_condition
from muster.apiserver.fields import FieldError, invalid_value, not_supported, required, validate_labels

_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_COUNTS_BY_INDEX = ("backoffLimitPerIndex", "maxFailedIndexes")
_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def problems(job: Object) -> list[FieldError]:
    """What is wrong with the spec of a new Job."""
    spec = job["spec"]
    return [
        *(_negative(spec, _COUNTS)),
        *_completion_mode(spec),
        *_by_index(spec),
        *_template(spec),
    ]


def _negative(spec: Object, names: Sequence[str]) -> list[FieldError]:
    return [
        invalid_value(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in names
        if isinstance(spec.get(name), int) and spec[name] < 0
    ]


def _completion_mode(spec: Object) -> list[FieldError]:
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        return [not_supported("spec.completionMode", mode, ("NonIndexed", "Indexed"))]
    if mode == "Indexed" and spec.get("completions") is None:
        return [required("spec.completions", "when completion mode is Indexed")]
    return []


def _by_index(spec: Object) -> list[FieldError]:
    found = _negative(spec, _COUNTS_BY_INDEX)
    per_index, most = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if spec.get("completionMode") != "Indexed":
        if per_index is not None:
            found.append(invalid_value("spec.backoffLimitPerIndex", per_index, "requires indexed completion mode"))
        if most is not None:
            found.append(invalid_value("spec.maxFailedIndexes", most, "requires indexed completion mode"))
        if spec.get("successPolicy") is not None:
            policy = spec["successPolicy"]
            found.append(invalid_value("spec.successPolicy", policy, "requires indexed completion mode"))
    elif most is not None:
        if per_index is None:
            found.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
        if spec.get("completions") is not None and most > spec["completions"]:
            found.append(invalid_value("spec.maxFailedIndexes", most, "must be less than or equal to completions"))
    return found


def _template(spec: Object) -> list[FieldError]:
    template = spec["template"]
    found = validate_labels((template.get("metadata") or {}).get("labels") or {}, "spec.template.labels")
    if not template["spec"].get("containers"):
        found.append(required("spec.template.spec.containers"))
    policy = template["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        found.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        found.append(invalid_value("spec.template.spec.restartPolicy", policy, detail))
    return found


def update_problems(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a change of a Job."""
    return [*problems(new), *_completions_change(new, old), *_template_change(new, old), *_fixed_change(new, old)]


def _completions_change(new: Object, old: Object) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    completions = spec.get("completions")
    if completions == before.get("completions"):
        return []
    if before.get("completionMode") != "Indexed":
        return [invalid_value("spec.completions", completions, "field is immutable")]
    if completions == spec.get("parallelism") and before.get("completions") == before.get("parallelism"):
        return []
    return [invalid_value("spec.completions", completions, "can only be modified in tandem with spec.parallelism")]


def _template_change(new: Object, old: Object) -> list[FieldError]:
    """The template is fixed, but for what tells the scheduler where, while a Job is suspended and not running."""
    template, before = new["spec"]["template"], old["spec"]["template"]
    if _may_redirect(old):
        before = copy_object(before)
        metadata = template.get("metadata") or {}
        before["metadata"] = {**(before.get("metadata") or {}), **_only(metadata, ("labels", "annotations"))}
        template = {**template, "metadata": {**before["metadata"], **metadata}}
        before["spec"] = {**_without(before["spec"], _DIRECTIVES), **_only(template["spec"], _DIRECTIVES)}
    if template["spec"] != before["spec"] and _may_redirect(old):
        return [invalid_value("spec.template.spec", template["spec"], "field is immutable")]
    if template != before:
        return [invalid_value("spec.template", template, "field is immutable")]
    return []


def _may_redirect(old: Object) -> bool:
    if not old["spec"].get("suspend"):
        return False
    return not (old.get("status") or {}).get("startTime") or has_condition(old, "Suspended")


def _only(value: Object, keys: Sequence[str]) -> Object:
    return {key: value[key] for key in keys if key in value}


def _without(value: Object, keys: Sequence[str]) -> Object:
    return {key: item for key, item in value.items() if key not in keys}


def _fixed_change(new: Object, old: Object) -> list[FieldError]:
    return [
        invalid_value(f"spec.{name}", new["spec"].get(name), "field is immutable")
        for name in _FIXED
        if new["spec"].get(name) != old["spec"].get(name)
    ]
