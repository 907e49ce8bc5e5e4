"""What the kinds with a selector and a pod template share: defaults, counts and percentages.

Source: upstream `pkg/apis/apps/validation/validation.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from muster.api.codec import JSON, Object, copy
from muster.api.selectors import label_selector
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
    validate_labels,
)
from muster.apiserver.registry.placement import shown_selector, validate_label_selector
from muster.apiserver.registry.poddefaults import default_pod_spec
from muster.apiserver.registry.podspec import validate_pod_spec
from muster.apiserver.registry.strategy import Strategy

Values: TypeAlias = Mapping[str, JSON]
ROLLING_UPDATE = "RollingUpdate"
ALL_REVISIONS = "a negative value retains all historical revisions; a value >= 0 is recommended"


class PodControllerStrategy(Strategy):
    """What the kinds with a selector and a pod template share. `defaults`: fields of the spec and their values."""

    has_status = True
    counts_generation = True
    defaults: ClassVar[Values] = {}
    status: ClassVar[Values] = {}

    def default(self, obj: Object, ctx: Context) -> None:
        spec: Object = obj.setdefault("spec", {})
        fields: Values = self.defaults
        for field, value in fields.items():
            if spec.get(field) in (None, ""):
                spec[field] = copy(value)
            elif isinstance(value, dict):
                _complete(spec[field], value)
        template = spec.get("template")
        if template is None:
            template = spec["template"] = {}
        if template.get("spec") is None:
            template["spec"] = {}
        default_pod_spec(template["spec"])

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = dict(self.status)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        errors = validate_counts(spec, self.counts, "spec")
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        errors += self._validate_selector(spec.get("selector"), labels)
        errors += validate_labels(labels, "spec.template.labels") if labels else []
        errors += validate_pod_spec(self.pods_of(spec), "spec.template.spec")
        policy = spec["template"]["spec"].get("restartPolicy")
        if policy in ("OnFailure", "Never"):
            errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
        if spec["template"]["spec"].get("activeDeadlineSeconds") is not None:
            why = f"activeDeadlineSeconds in {self.owner} is not Supported"
            errors.append(forbidden_field("spec.template.spec.activeDeadlineSeconds", why))
        return errors + self.validate_rolling(spec)

    def _validate_selector(self, selector: Object | None, labels: Object) -> list[FieldError]:
        """A selector is needed, is not empty, and matches the pods."""
        why = "`selector` does not match template `labels`"
        mismatch = invalid_value("spec.template.metadata.labels", labels or None, why)
        if selector is None:
            return [required("spec.selector"), mismatch] if self.requires_selector else [mismatch]
        errors = validate_label_selector(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            errors.append(invalid_value("spec.selector", selector, f"empty selector is invalid for {self.noun}"))
        elif errors:
            if self.selector_text is not None:
                errors.append(invalid_value("spec.selector", shown_selector(selector), self.selector_text))
        elif not label_selector(selector).matches(labels):
            errors.append(mismatch)
        return errors

    def pods_of(self, spec: Object) -> Object:
        """The spec of the pods, as it is validated."""
        pods: Object = spec["template"]["spec"]
        return pods

    def validate_rolling(self, spec: Object) -> list[FieldError]:
        """How pods are replaced by those of a changed template."""
        return []

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        errors = self.validate(new, ctx)
        selector = new["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            errors.append(invalid_value("spec.selector", shown_selector(selector), "field is immutable"))
        return errors

    counts: ClassVar[tuple[str, ...]] = ("replicas", "minReadySeconds")
    owner: ClassVar[str] = "ReplicaSet"
    requires_selector: ClassVar[bool] = True
    """Said of a selector that is missing; else only that it does not match."""
    selector_text: ClassVar[str | None] = "invalid label selector"
    """Said once more of a selector that is wrong; None if nothing is."""
    noun: ClassVar[str] = "deployment"


def _complete(given: Object, default: Object) -> None:
    """Fill in a strategy or policy that was given in part; only a rolling update has `rollingUpdate`."""
    for field, value in default.items():
        if field == "rollingUpdate" and given.get("type") != ROLLING_UPDATE:
            continue
        if given.get(field) in (None, ""):
            given[field] = copy(value)
        elif isinstance(value, dict):
            _complete(given[field], value)


def validate_counts(spec: Object, names: tuple[str, ...], field: str) -> list[FieldError]:
    """Numbers that may not be negative."""
    return [
        invalid_value(f"{field}.{name}", spec[name], "must be greater than or equal to 0")
        for name in names
        if (spec.get(name) or 0) < 0
    ]


_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def validate_number_or_percent(value: JSON, at: str) -> list[FieldError]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str):
        return [] if _PERCENT.fullmatch(value) else [invalid_value(at, value, _PERCENT_TEXT)]
    return [invalid_value(at, value, "must be greater than or equal to 0")] if value < 0 else []


def validate_surge(rolling: Object, at: str, *, replicas: int) -> list[FieldError]:
    """How many pods more or fewer there may be for a while: not both none."""
    missing, extra = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    errors = validate_number_or_percent(missing, f"{at}.maxUnavailable")
    errors += validate_number_or_percent(extra, f"{at}.maxSurge")
    if amount_of(missing) == 0 and amount_of(extra) == 0:
        errors.append(invalid_value(f"{at}.maxUnavailable", missing, "may not be 0 when `maxSurge` is 0"))
    return errors + at_most_all(missing, f"{at}.maxUnavailable")


def at_most_all(value: JSON, at: str) -> list[FieldError]:
    """A percentage of at most 100."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return [invalid_value(at, value, "must not be greater than 100%")]
    return []


def amount_of(value: JSON) -> int:
    """The number, or that of the percentage; what is neither counts as none."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value)


def shown_rolling_update(rolling: Object) -> Object:
    """As messages show it: with the names of Go's fields."""
    return {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
