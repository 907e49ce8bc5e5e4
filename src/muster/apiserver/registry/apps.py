"""Deployments, ReplicaSets, StatefulSets, DaemonSets and CronJobs: stored with their defaults and basic checks.

Sources: upstream `pkg/apis/apps/v1/defaults.go`, `pkg/apis/batch/v1/defaults.go`, recordings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from muster.api.codec import JSON, Object, copy
from muster.api.cron import ScheduleError, parse_schedule, parse_zone
from muster.api.selectors import label_selector
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    required,
    validate_labels,
)
from muster.apiserver.registry.claims import default_claim_template, validate_claim_templates, warn_of_size
from muster.apiserver.registry.jobs import default_conditions, validate_job_template
from muster.apiserver.registry.placement import shown_selector, validate_label_selector
from muster.apiserver.registry.poddefaults import default_pod_spec
from muster.apiserver.registry.podspec import validate_pod_spec
from muster.apiserver.registry.strategy import Strategy

_ROLLING = "RollingUpdate"
_GENERATION = "deprecated.daemonset.template.generation"
_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
"""The fields of a StatefulSet's spec that may change."""
_ALL_REVISIONS = "a negative value retains all historical revisions; a value >= 0 is recommended"

Values: TypeAlias = Mapping[str, JSON]


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
        if field == "rollingUpdate" and given.get("type") != _ROLLING:
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
    if _amount(missing) == 0 and _amount(extra) == 0:
        errors.append(invalid_value(f"{at}.maxUnavailable", missing, "may not be 0 when `maxSurge` is 0"))
    return errors + at_most_all(missing, f"{at}.maxUnavailable")


def at_most_all(value: JSON, at: str) -> list[FieldError]:
    """A percentage of at most 100."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return [invalid_value(at, value, "must not be greater than 100%")]
    return []


def _amount(value: JSON) -> int:
    """The number, or that of the percentage; what is neither counts as none."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return int(value)


class DeploymentStrategy(PodControllerStrategy):
    """apps/v1 Deployment."""

    owner = "ReplicaSet"

    defaults: ClassVar[Values] = {
        "replicas": 1,
        "strategy": {"type": _ROLLING, "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    counts: ClassVar[tuple[str, ...]] = (
        "replicas",
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    )

    def default(self, obj: Object, ctx: Context) -> None:
        strategy = (obj.get("spec") or {}).get("strategy")
        if strategy is not None and not strategy.get("type"):
            strategy["type"] = _ROLLING
        super().default(obj, ctx)

    def validate_rolling(self, spec: Object) -> list[FieldError]:
        strategy, at = spec.get("strategy") or {}, "spec.strategy"
        errors: list[FieldError] = []
        kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
        if kind not in ("Recreate", _ROLLING):
            shown = {"Type": kind, "RollingUpdate": None if rolling is None else _shown_rolling(rolling)}
            errors.append(not_supported(at, shown, ("Recreate", _ROLLING)))
        elif kind == "Recreate" and rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden_field(f"{at}.rollingUpdate", why))
        elif rolling is not None:
            errors += validate_surge(rolling, f"{at}.rollingUpdate", replicas=spec.get("replicas") or 0)
        limit, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
        if limit is not None and limit <= least:
            errors.append(invalid_value("spec.progressDeadlineSeconds", limit, "must be greater than minReadySeconds"))
        return errors


def _shown_rolling(rolling: Object) -> Object:
    return {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}


class ReplicaSetStrategy(PodControllerStrategy):
    """apps/v1 ReplicaSet."""

    defaults: ClassVar[Values] = {"replicas": 1}
    status: ClassVar[Values] = {"replicas": 0}

    def default(self, obj: Object, ctx: Context) -> None:
        super().default(obj, ctx)
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels") and obj["spec"].get("selector") is None:
            obj["metadata"]["labels"] = dict(labels)


class StatefulSetStrategy(PodControllerStrategy):
    """apps/v1 StatefulSet."""

    noun = "statefulset"
    owner = "StatefulSet"
    selector_text = ""
    defaults: ClassVar[Values] = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": _ROLLING, "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    status: ClassVar[Values] = {"replicas": 0, "availableReplicas": 0}

    def default(self, obj: Object, ctx: Context) -> None:
        strategy = (obj.get("spec") or {}).get("updateStrategy") or {}
        is_plain = bool(strategy.get("type")) and strategy.get("rollingUpdate") is None
        super().default(obj, ctx)
        if is_plain:
            obj["spec"]["updateStrategy"].pop("rollingUpdate", None)
        if obj["spec"].get("ordinals") is not None:
            obj["spec"]["ordinals"].setdefault("start", 0)
        rolling = obj["spec"]["updateStrategy"].get("rollingUpdate")
        if ctx.options.emulate == "1.37" and rolling is not None:
            rolling.setdefault("maxUnavailable", 1)
        for template in obj["spec"].get("volumeClaimTemplates") or ():
            default_claim_template(template)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        service = obj["spec"].get("serviceName") or ""
        problems = label_problems(service, "characters") if service else []
        errors = [invalid_value("spec.serviceName", service, problem) for problem in problems]
        return errors + validate_claim_templates(obj["spec"], "spec") + super().validate(obj, ctx)

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        if (new["spec"].get("revisionHistoryLimit") or 0) < 0:
            ctx.warn(f"spec.revisionHistoryLimit: {_ALL_REVISIONS}")

    def review_create(self, obj: Object, ctx: Context) -> None:
        self.review_update(obj, obj, ctx)
        for index, template in enumerate(obj["spec"].get("volumeClaimTemplates") or ()):
            warn_of_size(template["spec"], f"spec.volumeClaimTemplates[{index}]", ctx)

    def pods_of(self, spec: Object) -> Object:
        """With the volumes of the claims, which come before all others."""
        templates = spec.get("volumeClaimTemplates") or ()
        names = dict.fromkeys((template.get("metadata") or {}).get("name") or "" for template in templates)
        claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        pods = super().pods_of(spec)
        others = [volume for volume in pods.get("volumes") or () if volume.get("name") not in names]
        return {**pods, "volumes": [*claims, *others]} if claims else pods

    def validate_rolling(self, spec: Object) -> list[FieldError]:
        strategy = spec.get("updateStrategy") or {}
        kind, rolling, at = strategy.get("type") or "", strategy.get("rollingUpdate"), "spec.updateStrategy"
        errors: list[FieldError] = []
        management = spec.get("podManagementPolicy") or ""
        choices = ("OrderedReady", "Parallel")
        if not management:
            errors.append(required("spec.podManagementPolicy"))
        elif management not in choices:
            why = f"must be '{choices[0]}' or '{choices[1]}'"
            errors.append(invalid_value("spec.podManagementPolicy", management, why))
        if kind == _ROLLING and rolling is not None:
            errors += validate_counts(rolling, ("partition",), f"{at}.rollingUpdate")
        elif kind == "OnDelete" and rolling is not None:
            why = "only allowed for updateStrategy 'RollingUpdate'"
            errors.append(invalid_value(f"{at}.rollingUpdate", rolling, why))
        elif kind not in (_ROLLING, "OnDelete"):
            why = f"must be '{_ROLLING}' or 'OnDelete'"
            errors.append(invalid_value(at, strategy, why) if kind else required(f"{at}.type"))
        policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        for name in ("whenDeleted", "whenScaled"):
            value = policy.get(name)
            if value not in ("Retain", "Delete"):
                here = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
                errors.append(not_supported(here, value or "", ("Retain", "Delete")))
        return errors + validate_counts(spec.get("ordinals") or {}, ("start",), "spec.ordinals")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        errors = super().validate(new, ctx)
        fields = (new["spec"].keys() | old["spec"].keys()) - _MUTABLE
        if all(new["spec"].get(field) == old["spec"].get(field) for field in sorted(fields)):
            return errors
        listed = (
            "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
            "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
        )
        why = f"updates to statefulset spec for fields other than {listed} are forbidden"
        return [*errors, forbidden_field("spec", why)]


class DaemonSetStrategy(PodControllerStrategy):
    """apps/v1 DaemonSet."""

    noun = "daemonset"
    owner = "DaemonSet"
    requires_selector = False
    selector_text = None
    counts: ClassVar[tuple[str, ...]] = ("minReadySeconds", "revisionHistoryLimit")
    defaults: ClassVar[Values] = {
        "updateStrategy": {"type": _ROLLING, "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        "revisionHistoryLimit": 10,
    }
    status: ClassVar[Values] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def validate_rolling(self, spec: Object) -> list[FieldError]:
        strategy = spec.get("updateStrategy") or {}
        kind, rolling, at = strategy.get("type") or "", strategy.get("rollingUpdate"), "spec.updateStrategy"
        if kind == "OnDelete":
            return []
        if kind != _ROLLING:
            shown = {"Type": kind, "RollingUpdate": None if rolling is None else _shown_rolling(rolling)}
            return [not_supported(at, shown, (_ROLLING, "OnDelete"))]
        if rolling is None:
            return [required(f"{at}.rollingUpdate")]
        at = f"{at}.rollingUpdate"
        missing, extra = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        errors = validate_number_or_percent(missing, f"{at}.maxUnavailable")
        errors += validate_number_or_percent(extra, f"{at}.maxSurge")
        if _amount(missing) != 0 and _amount(extra) != 0:
            errors.append(invalid_value(f"{at}.maxSurge", extra, "may not be set when maxUnavailable is non-zero"))
        elif _amount(missing) == 0 and _amount(extra) == 0:
            errors.append(required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        return errors + at_most_all(missing, f"{at}.maxUnavailable") + at_most_all(extra, f"{at}.maxSurge")

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        super().prepare_create(obj, ctx)
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {**annotations, _GENERATION: "1"}

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        """The generation of the template grows with it."""
        text = (old["metadata"].get("annotations") or {}).get(_GENERATION, "")
        generation = int(text) if text.isdecimal() else 0
        grown = generation + (new["spec"].get("template") != old["spec"].get("template"))
        annotations = new["metadata"].get("annotations") or {}
        new["metadata"]["annotations"] = {**annotations, _GENERATION: str(grown)}


class ControllerRevisionStrategy(Strategy):
    """apps/v1 ControllerRevision: `data` never changes."""

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        if (obj.get("revision") or 0) < 0:
            errors.append(invalid_value("revision", obj["revision"], "must be greater than or equal to 0"))
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        errors = self.validate(new, ctx)
        if new.get("data") != old.get("data"):
            errors.append(invalid_value("data", new.get("data"), "field is immutable"))
        return errors


class ReplicationControllerStrategy(Strategy):
    """v1 ReplicationController; its selector is a plain map."""

    has_status = True
    counts_generation = True
    garbage_policy = "orphan"

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if labels:
            spec.setdefault("selector", dict(labels))
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        if (spec.get("template") or {}).get("spec"):
            default_pod_spec(spec["template"]["spec"])

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {"replicas": 0}


class CronJobStrategy(Strategy):
    """batch/v1 CronJob."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        defaults = (
            ("concurrencyPolicy", "Allow"),
            ("suspend", False),
            ("successfulJobsHistoryLimit", 3),
            ("failedJobsHistoryLimit", 1),
        )
        for field, value in defaults:
            if spec.get(field) is None:
                spec[field] = value
        job: Object = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        default_conditions(job)
        default_pod_spec(job.setdefault("template", {}).setdefault("spec", {}))

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        errors = _validate_schedule(spec.get("schedule") or "", spec.get("timeZone"))
        for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
            if (spec.get(field) or 0) < 0:
                why = "must be greater than or equal to 0"
                errors.append(invalid_value(f"spec.{field}", spec[field], why))
        policies = ("Allow", "Forbid", "Replace")
        if spec.get("concurrencyPolicy") not in policies:
            errors.append(not_supported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies))
        return errors + validate_job_template(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _validate_schedule(schedule: str, zone: str | None) -> list[FieldError]:
    if not schedule:
        return [required("spec.schedule")]
    errors: list[FieldError] = []
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid_value("spec.schedule", schedule, why))
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        errors.append(invalid_value("spec.schedule", schedule, str(error)))
    if zone is not None:
        try:
            parse_zone(zone)
        except ScheduleError as error:
            errors.append(invalid_value("spec.timeZone", zone, str(error)))
    return errors
