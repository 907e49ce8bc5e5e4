"""Deployments, ReplicaSets, ReplicationControllers and ControllerRevisions: stored with their defaults and checks.

Sources: upstream `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation`, recordings.
"""

from __future__ import annotations

from typing import ClassVar

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from muster.apiserver.registry.pod_controllers import (
    ROLLING_UPDATE,
    PodControllerStrategy,
    Values,
    shown_rolling_update,
    validate_surge,
)
from muster.apiserver.registry.poddefaults import default_pod_spec
from muster.apiserver.registry.strategy import Strategy


class DeploymentStrategy(PodControllerStrategy):
    """apps/v1 Deployment."""

    owner = "ReplicaSet"

    defaults: ClassVar[Values] = {
        "replicas": 1,
        "strategy": {"type": ROLLING_UPDATE, "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
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
            strategy["type"] = ROLLING_UPDATE
        super().default(obj, ctx)

    def validate_rolling(self, spec: Object) -> list[FieldError]:
        strategy, at = spec.get("strategy") or {}, "spec.strategy"
        errors: list[FieldError] = []
        kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
        if kind not in ("Recreate", ROLLING_UPDATE):
            shown = {"Type": kind, "RollingUpdate": None if rolling is None else shown_rolling_update(rolling)}
            errors.append(not_supported(at, shown, ("Recreate", ROLLING_UPDATE)))
        elif kind == "Recreate" and rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden_field(f"{at}.rollingUpdate", why))
        elif rolling is not None:
            errors += validate_surge(rolling, f"{at}.rollingUpdate", replicas=spec.get("replicas") or 0)
        limit, least = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
        if limit is not None and limit <= least:
            errors.append(invalid_value("spec.progressDeadlineSeconds", limit, "must be greater than minReadySeconds"))
        return errors


class ReplicaSetStrategy(PodControllerStrategy):
    """apps/v1 ReplicaSet."""

    defaults: ClassVar[Values] = {"replicas": 1}
    status: ClassVar[Values] = {"replicas": 0}

    def default(self, obj: Object, ctx: Context) -> None:
        super().default(obj, ctx)
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels") and obj["spec"].get("selector") is None:
            obj["metadata"]["labels"] = dict(labels)


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
