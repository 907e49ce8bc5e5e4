"""StatefulSets: stored with their defaults and checks.

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
    label_problems,
    not_supported,
    required,
)
from muster.apiserver.registry.claims import default_claim_template, validate_claim_templates, warn_of_size
from muster.apiserver.registry.pod_controllers import (
    ALL_REVISIONS,
    ROLLING_UPDATE,
    PodControllerStrategy,
    Values,
    validate_counts,
)

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


class StatefulSetStrategy(PodControllerStrategy):
    """apps/v1 StatefulSet."""

    noun = "statefulset"
    owner = "StatefulSet"
    selector_text = ""
    defaults: ClassVar[Values] = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": ROLLING_UPDATE, "rollingUpdate": {"partition": 0}},
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
            ctx.warn(f"spec.revisionHistoryLimit: {ALL_REVISIONS}")

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
        if kind == ROLLING_UPDATE and rolling is not None:
            errors += validate_counts(rolling, ("partition",), f"{at}.rollingUpdate")
        elif kind == "OnDelete" and rolling is not None:
            why = "only allowed for updateStrategy 'RollingUpdate'"
            errors.append(invalid_value(f"{at}.rollingUpdate", rolling, why))
        elif kind not in (ROLLING_UPDATE, "OnDelete"):
            why = f"must be '{ROLLING_UPDATE}' or 'OnDelete'"
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
