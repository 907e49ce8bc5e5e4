"""HorizontalPodAutoscalers: defaults, validation, and the older version that knows a CPU target only.

Source: upstream's `pkg/apis/autoscaling/{v1,v2,validation}`.
"""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, invalid_value, required
from muster.apiserver.registry.strategy import Strategy

V1, V2 = "autoscaling/v1", "autoscaling/v2"
DEFAULT_CPU_PERCENT = 80


class AutoscalerStrategy(Strategy):
    """HorizontalPodAutoscaler."""

    has_status = True
    returns_deleted = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if obj.get("apiVersion") == V2 and not spec.get("metrics"):
            spec["metrics"] = [_cpu_metric(DEFAULT_CPU_PERCENT)]

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
        if least is not None and least < 1:
            errors.append(invalid_value("spec.minReplicas", least, "must be greater than or equal to 1"))
        if most < 1:
            errors.append(invalid_value("spec.maxReplicas", most, "must be greater than 0"))
        if least is not None and most < least:
            errors.append(invalid_value("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
        target = spec.get("scaleTargetRef") or {}
        errors += [required(f"spec.scaleTargetRef.{field}") for field in ("kind", "name") if not target.get(field)]
        return errors


def _cpu_metric(percent: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _is_cpu(metric: JSON) -> bool:
    resource = metric.get("resource") or {}
    return metric.get("type") == "Resource" and resource.get("name") == "cpu"


def from_v2(stored: Object) -> Object:
    """The older form of an autoscaler: of its metrics only the CPU target is shown."""
    spec, status = dict(stored.get("spec") or {}), dict(stored.get("status") or {})
    for metric in spec.pop("metrics", None) or ():
        percent = ((metric.get("resource") or {}).get("target") or {}).get("averageUtilization")
        if _is_cpu(metric) and percent is not None:
            spec["targetCPUUtilizationPercentage"] = percent
    for metric in status.pop("currentMetrics", None) or ():
        percent = ((metric.get("resource") or {}).get("current") or {}).get("averageUtilization")
        if _is_cpu(metric) and percent is not None:
            status["currentCPUUtilizationPercentage"] = percent
    spec.pop("behavior", None)
    status.pop("conditions", None)
    shown: Object = {**stored, "apiVersion": V1, "spec": spec}
    return {**shown, "status": status} if "status" in stored else shown


def to_v2(obj: Object, old: Object | None) -> Object:
    """The stored form of an older autoscaler; the metrics that it cannot say stay."""
    spec, before = dict(obj.get("spec") or {}), (old or {}).get("spec") or {}
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    kept = [metric for metric in before.get("metrics") or () if not _is_cpu(metric)]
    if percent is None and not kept:
        percent = DEFAULT_CPU_PERCENT
    spec["metrics"] = [*kept, *([_cpu_metric(percent)] if percent is not None else [])]
    if "behavior" in before:
        spec["behavior"] = before["behavior"]
    stored: Object = {**obj, "apiVersion": V2, "spec": spec}
    if "status" in obj:
        status, known = dict(obj["status"]), (old or {}).get("status") or {}
        status.pop("currentCPUUtilizationPercentage", None)
        stored["status"] = {**{key: known[key] for key in ("currentMetrics", "conditions") if key in known}, **status}
    return stored
