"""DaemonSets: stored with their defaults and checks.

Sources: upstream `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation`, recordings.
"""

from __future__ import annotations

from typing import ClassVar

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    invalid_value,
    not_supported,
    required,
)
from muster.apiserver.registry.pod_controllers import (
    ROLLING_UPDATE,
    PodControllerStrategy,
    Values,
    amount_of,
    at_most_all,
    shown_rolling_update,
    validate_number_or_percent,
)

_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(PodControllerStrategy):
    """apps/v1 DaemonSet."""

    noun = "daemonset"
    owner = "DaemonSet"
    requires_selector = False
    selector_text = None
    counts: ClassVar[tuple[str, ...]] = ("minReadySeconds", "revisionHistoryLimit")
    defaults: ClassVar[Values] = {
        "updateStrategy": {"type": ROLLING_UPDATE, "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
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
        if kind != ROLLING_UPDATE:
            shown = {"Type": kind, "RollingUpdate": None if rolling is None else shown_rolling_update(rolling)}
            return [not_supported(at, shown, (ROLLING_UPDATE, "OnDelete"))]
        if rolling is None:
            return [required(f"{at}.rollingUpdate")]
        at = f"{at}.rollingUpdate"
        missing, extra = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        errors = validate_number_or_percent(missing, f"{at}.maxUnavailable")
        errors += validate_number_or_percent(extra, f"{at}.maxSurge")
        if amount_of(missing) != 0 and amount_of(extra) != 0:
            errors.append(invalid_value(f"{at}.maxSurge", extra, "may not be set when maxUnavailable is non-zero"))
        elif amount_of(missing) == 0 and amount_of(extra) == 0:
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
