"""disruption-controller: says in each PodDisruptionBudget how many of its pods may be evicted now.

Source of the rules: kube-controller-manager `pkg/controller/disruption/disruption.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muster.api.codec import Object, Objects
from muster.api.meta import condition, controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from muster.client.informer import Change
from muster.clock import parse_rfc3339, rfc3339
from muster.controllers.action import Action, Emit, Result, Update
from muster.controllers.disruption_counting import (
    DELETION_TIMEOUT_S,
    CountFailed,
    Expected,
    Scale,
    expected,
    healthy,
    selector_text,
    still_disrupted,
)
from muster.controllers.ownership import selector_of
from muster.controllers.pod_writes import FINISHED, patch_status, pod_condition
from muster.controllers.runner import Request
from muster.controllers.state import State

ALLOWED = "DisruptionAllowed"
STALE = "stale "
"""Begins the keys of pods that were to be disrupted and perhaps are not."""

_SCALABLE = {
    resource.kind: resource for resource in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS, DEPLOYMENTS)
}
_PLURALS = {"Job": "jobs.batch", "DaemonSet": "daemonsets.apps", "CronJob": "cronjobs.batch"}


class DisruptionController:
    """Reconciles budgets (keys `namespace/name`) and pods that were to be disrupted (keys that begin with `stale`)."""

    name = "disruption-controller"
    resources: tuple[Resource, ...] = (POD_DISRUPTION_BUDGETS, PODS, *_SCALABLE.values())

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == POD_DISRUPTION_BUDGETS:
            return [Request(key_of(change.object))] if change.new is not None else []
        return _of_pod(change, state) if resource == PODS else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        if key.startswith(STALE):
            return _forget_disruption(state[PODS].get(key.removeprefix(STALE)), now)
        budget = state[POD_DISRUPTION_BUDGETS].get(key)
        return Result() if budget is None else _sync(budget, _pods_of(budget, state), state, now)


def _of_pod(change: Change, state: State) -> Iterator[Request]:
    """The budgets of a pod, as it is and as it was."""
    pods = [pod for pod in (change.old, change.new) if pod is not None]
    for budget in state[POD_DISRUPTION_BUDGETS].in_namespace(namespace_of(change.object)):
        selector = selector_of(budget)
        if any(selector.matches(pod["metadata"].get("labels")) for pod in pods):
            yield Request(key_of(budget))
    if change.new is not None and _may_be_stale(change.new):
        yield Request(STALE + key_of(change.new))


def _pods_of(budget: Object, state: State) -> Objects:
    selector = selector_of(budget)
    pods = state[PODS].in_namespace(namespace_of(budget))
    return [pod for pod in pods if selector.matches(pod["metadata"].get("labels"))]


def _sync(budget: Object, pods: Sequence[Object], state: State, now: float) -> Result:
    actions: list[Action] = []
    if not pods:
        actions.append(Emit(budget, "Normal", "NoPods", "No matching pods found"))
    try:
        wanted = expected(budget, pods, lambda pod: _scale_of(pod, state))
    except CountFailed as error:
        text = f"Failed to calculate the number of expected pods: {error}"
        event = Emit(budget, "Warning", "CalculateExpectedPodCountFailed", text)
        return Result((*actions, event, *_failed(budget, str(error), now)))
    if wanted.unmanaged:
        actions.append(Emit(budget, "Warning", "UnmanagedPods", _unmanaged_text(budget)))
    disrupted, late = still_disrupted(budget, pods, now)
    for pod in late:
        text = f"Pod was expected by PDB {key_of(budget)} to be deleted but it wasn't"
        actions.append(Emit(pod, "Warning", "NotDeleted", text))
    status = _status(budget, wanted, healthy(pods, disrupted), disrupted, now)
    if status != (budget.get("status") or {}):
        actions.append(_update(budget, status))
    ends = [parse_rfc3339(since) + DELETION_TIMEOUT_S - now for since in disrupted.values()]
    return Result(tuple(actions), requeue_after_s=min(ends) + 1.0 if ends else None)


def _unmanaged_text(budget: Object) -> str:
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {selector_text(budget['spec'].get('selector'))}) were "
        "found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in "
        'undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer '
        "value."
    )


def _status(budget: Object, wanted: Expected, now_healthy: int, disrupted: dict[str, str], now: float) -> Object:
    allowed = now_healthy - wanted.healthy
    if wanted.pods <= 0 or allowed <= 0:
        allowed = 0
    value, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    status: Object = {
        "observedGeneration": budget["metadata"].get("generation", 0),
        "disruptionsAllowed": allowed,
        "currentHealthy": now_healthy,
        "desiredHealthy": wanted.healthy,
        "expectedPods": wanted.pods,
        "conditions": _conditions(budget, value, reason, "", now),
    }
    return {**status, "disruptedPods": disrupted} if disrupted else status


def _conditions(budget: Object, value: str, reason: str, message: str, now: float) -> Objects:
    old = condition(budget, ALLOWED)
    since = old["lastTransitionTime"] if old is not None and old.get("status") == value else rfc3339(now)
    entry = {
        "type": ALLOWED,
        "status": value,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    kept = list((budget.get("status") or {}).get("conditions") or ())
    if old is None:
        return [*kept, entry]
    return [entry if other.get("type") == ALLOWED else other for other in kept]


def _failed(budget: Object, why: str, now: float) -> tuple[Action, ...]:
    """The status of a budget that cannot be computed: nothing may be evicted."""
    status = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
        **(budget.get("status") or {}),
        "disruptionsAllowed": 0,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "conditions": _conditions(budget, "False", "SyncFailed", why, now),
    }
    return () if status == (budget.get("status") or {}) else (_update(budget, status),)


def _update(budget: Object, status: Object) -> Update:
    return Update(POD_DISRUPTION_BUDGETS, {**budget, "status": status}, "status")


def _scale_of(pod: Object, state: State) -> Scale:
    """The scale of a pod's controller; that of the Deployment for pods of its ReplicaSets. Raises CountFailed."""
    owner = controller_of(pod) or {}
    kind = owner.get("kind", "")
    resource = _SCALABLE.get(kind)
    if resource is None:
        plural = _PLURALS.get(kind, f"{kind.lower()}s")
        raise CountFailed(f"{plural} does not implement the scale subresource")
    found = state[resource].get(f"{namespace_of(pod)}/{owner.get('name')}")
    if found is None or uid_of(found) != owner.get("uid"):
        raise CountFailed(f'found no controllers for pod "{name_of(pod)}"')
    above = controller_of(found) or {}
    if resource == REPLICA_SETS and above.get("kind") == DEPLOYMENTS.kind:
        deployment = state[DEPLOYMENTS].get(f"{namespace_of(pod)}/{above.get('name')}")
        if deployment is not None and uid_of(deployment) == above.get("uid"):
            found = deployment
    replicas = found["spec"].get("replicas")
    return Scale(uid_of(found), 1 if replicas is None else replicas)


def _may_be_stale(pod: Object) -> bool:
    entry = condition(pod, "DisruptionTarget")
    ended = (pod.get("status") or {}).get("phase") in FINISHED
    return entry is not None and entry.get("status") == "True" and not is_deleting(pod) and not ended


def _forget_disruption(pod: Object | None, now: float) -> Result:
    """Take back that a pod is to be disrupted if it has not been deleted for two minutes."""
    if pod is None or not _may_be_stale(pod):
        return Result()
    entry = condition(pod, "DisruptionTarget") or {}
    left = parse_rfc3339(entry["lastTransitionTime"]) + DELETION_TIMEOUT_S - now
    if left > 0:
        return Result(requeue_after_s=left)
    return Result((patch_status(pod, pod_condition(pod, now, "DisruptionTarget", "False")),))
