"""Deployments, ReplicaSets, StatefulSets, DaemonSets and CronJobs: stored with their defaults and basic checks.

Sources: upstream `pkg/apis/apps/v1/defaults.go`, `pkg/apis/batch/v1/defaults.go`, recordings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

from muster.api.codec import JSON, Object, copy
from muster.api.cron import ScheduleError, parse_schedule, parse_zone
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, not_supported, required
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
            if spec.get(field) is None:
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
        errors: list[FieldError] = []
        selector = spec.get("selector")
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        if (spec.get("replicas") or 0) < 0:
            errors.append(invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        if selector is None:
            errors.append(required("spec.selector"))
        elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
            errors.append(invalid_value("spec.selector", selector, "empty selector is invalid for " + self.noun))
        elif any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
            why = "`selector` does not match template `labels`"
            errors.append(invalid_value("spec.template.metadata.labels", labels, why))
        errors += validate_pod_spec(spec["template"]["spec"], "spec.template.spec")
        policy = spec["template"]["spec"].get("restartPolicy")
        if policy in ("OnFailure", "Never"):
            errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
        return errors

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        errors = self.validate(new, ctx)
        selector = new["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            errors.append(invalid_value("spec.selector", selector, "field is immutable"))
        return errors

    noun: ClassVar[str] = "deployment"


def _complete(given: Object, default: Object) -> None:
    """Fill in a strategy or policy that was given in part; only a rolling update has `rollingUpdate`."""
    for field, value in default.items():
        if field == "rollingUpdate" and given.get("type") != _ROLLING:
            continue
        if given.get(field) is None:
            given[field] = copy(value)
        elif isinstance(value, dict):
            _complete(given[field], value)


class DeploymentStrategy(PodControllerStrategy):
    """apps/v1 Deployment."""

    defaults: ClassVar[Values] = {
        "replicas": 1,
        "strategy": {"type": _ROLLING, "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }


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
    defaults: ClassVar[Values] = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": _ROLLING, "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    status: ClassVar[Values] = {"replicas": 0, "availableReplicas": 0}

    def default(self, obj: Object, ctx: Context) -> None:
        super().default(obj, ctx)
        rolling = obj["spec"]["updateStrategy"].get("rollingUpdate")
        if ctx.options.emulate == "1.37" and rolling is not None:
            rolling.setdefault("maxUnavailable", 1)
        for template in obj["spec"].get("volumeClaimTemplates") or ():
            template.setdefault("apiVersion", "v1")
            template.setdefault("kind", "PersistentVolumeClaim")
            if (template.setdefault("spec", {})).get("volumeMode") is None:
                template["spec"]["volumeMode"] = "Filesystem"
            template.setdefault("status", {"phase": "Pending"})

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        fields = (new["spec"].keys() | old["spec"].keys()) - _MUTABLE
        if all(new["spec"].get(field) == old["spec"].get(field) for field in sorted(fields)):
            return super().validate_update(new, old, ctx)
        listed = (
            "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
            "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
        )
        why = f"updates to statefulset spec for fields other than {listed} are forbidden"
        return [forbidden_field("spec", why)]


class DaemonSetStrategy(PodControllerStrategy):
    """apps/v1 DaemonSet."""

    noun = "daemonset"
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
        template = (spec.get("jobTemplate") or {}).get("spec", {}).get("template") or {}
        if template.get("spec"):
            default_pod_spec(template["spec"])

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
        return errors


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
