"""Disruption budgets: validation, and what an eviction spends of them.

Sources: upstream `pkg/apis/policy/validation`, `pkg/registry/core/pod/storage/eviction.go`, recordings.
"""

from __future__ import annotations

import re

from muster.api.codec import JSON, Object
from muster.api.meta import condition, has_condition
from muster.api.selectors import label_selector
from muster.apiserver import errors
from muster.apiserver.bodies import DeleteOptions
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, invalid_value, not_supported
from muster.apiserver.registry.placement import validate_label_selector
from muster.apiserver.registry.strategy import Strategy

_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_ZEROS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class BudgetStrategy(Strategy):
    """PodDisruptionBudget."""

    has_status = True
    counts_generation = True

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        # Without a controller behind it, a budget that says nothing must not forbid everything.
        if not ctx.options.is_lenient:
            obj["status"] = dict.fromkeys(_ZEROS, 0)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found: list[FieldError] = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            found.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for name in ("minAvailable", "maxUnavailable"):
            if spec.get(name) is not None:
                found += _validate_amount(spec[name], f"spec.{name}")
        policy, choices = spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget")
        if policy is not None and policy not in choices:
            found.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, choices))
        return found + validate_label_selector(spec.get("selector"), "spec.selector")


def _validate_amount(value: JSON, at: str) -> list[FieldError]:
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(at, value, "must be greater than or equal to 0")]
    if not _PERCENT.fullmatch(value):
        return [invalid_value(at, value, _PERCENT_TEXT)]
    return [] if int(value[:-1]) <= 100 else [invalid_value(at, value, "must not be greater than 100%")]


def eviction_options(eviction: Object, ctx: Context) -> DeleteOptions:
    """The options of the deletion that an Eviction asks for."""
    options = eviction.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    ctx.dry_run = ctx.dry_run or bool(options.get("dryRun"))
    return DeleteOptions(
        options.get("gracePeriodSeconds"),
        options.get("propagationPolicy"),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        ctx.dry_run,
    )


def noted(pod: Object, ctx: Context) -> Object | None:
    """The pod with the condition that says why it is about to go; None if it has that or has ended."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed") or has_condition(pod, "DisruptionTarget"):
        return None
    kept = [entry for entry in status.get("conditions") or () if entry["type"] != "DisruptionTarget"]
    entry: Object = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": ctx.timestamp,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "metadata": dict(pod["metadata"]), "status": {**status, "conditions": [*kept, entry]}}


def spend(pod: Object, ctx: Context) -> Object | None:
    """The pod's budget after this eviction; None if there is nothing to spend. Raises StatusError (429, 500)."""
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp"):
        return None
    meta = pod["metadata"]
    page = ctx.store.list(f"/poddisruptionbudgets/{meta['namespace']}/")
    budgets = [
        budget
        for budget in page.items
        if label_selector((budget.get("spec") or {}).get("selector")).matches(meta.get("labels") or {})
    ]
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise errors.failure(500, "", why)
    if not budgets or _is_free(budgets[0], pod):
        return None
    return _spent(budgets[0], meta["name"], ctx)


def _is_free(budget: Object, pod: Object) -> bool:
    """Whether a pod that is not ready may go without spending anything of the budget."""
    if has_condition(pod, "Ready"):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return desired > 0 and (status.get("currentHealthy") or 0) >= desired


def _why(budget: Object) -> str:
    allowed = condition(budget, "DisruptionAllowed") or {}
    if allowed.get("reason") != "SyncFailed":
        return ""
    return f" because it failed sync: {allowed.get('message', '')}"


def _spent(budget: Object, pod_name: str, ctx: Context) -> Object | None:
    status = budget.get("status") or {}
    if status.get("disruptionsAllowed") is None:
        return None
    name, refusal = budget["metadata"]["name"], "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise errors.too_many_requests(refusal, [{"reason": "DisruptionBudget", "message": text}], retry_after_s=10)
    if status["disruptionsAllowed"] <= 0:
        current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        text = f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        if current > desired:
            text = f"The disruption budget {name} does not allow evicting pods currently{_why(budget)}"
        raise errors.too_many_requests(refusal, [{"reason": "DisruptionBudget", "message": text}])
    disrupted = {**(status.get("disruptedPods") or {}), pod_name: ctx.timestamp}
    left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
    return {**budget, "metadata": dict(budget["metadata"]), "status": left}
