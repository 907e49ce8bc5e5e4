"""Whether a pod may be evicted. Source: upstream `pkg/registry/core/pod/storage/eviction.go`."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.meta import has_condition
from muster.apiserver import errors
from muster.apiserver.bodies import DeleteOptions
from muster.apiserver.context import Context
from muster.apiserver.store.protocol import Store


def delete_options(eviction: Object, ctx: Context) -> DeleteOptions:
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


def check(pod: Object, ctx: Context, store: Store) -> None:
    """Ask the pod's disruption budget. Raises StatusError (429) if it allows no disruption now."""
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed", "Pending") or pod["metadata"].get("deletionTimestamp"):
        return
    budgets = _budgets(pod, store)
    if len(budgets) > 1:
        raise errors.failure(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if budgets:
        _spend(budgets[0], ctx)


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
    return {**pod, "status": {**status, "conditions": [*kept, entry]}}


def _budgets(pod: Object, store: Store) -> list[Object]:
    namespace = pod["metadata"]["namespace"]
    labels = pod["metadata"].get("labels") or {}
    page = store.list(f"/poddisruptionbudgets/{namespace}/")
    return [budget for budget in page.items if _selects((budget.get("spec") or {}).get("selector"), labels)]


def _selects(selector: Object | None, labels: Object) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(term, labels) for term in selector.get("matchExpressions") or ())


def _holds(term: Object, labels: Object) -> bool:
    key, values = term["key"], term.get("values") or ()
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels


def _spend(budget: Object, ctx: Context) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("disruptionsAllowed", 0) > 0:
        return
    current, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    cause = {
        "reason": "DisruptionBudget",
        "message": f"The disruption budget {name} needs {desired} healthy pods and has {current} currently",
    }
    raise errors.too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", [cause])
