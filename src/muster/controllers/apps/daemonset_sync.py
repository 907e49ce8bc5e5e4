"""One look at one DaemonSet: nodes that lack a pod, pods that are in the way, rolling updates, and the status.

Source of the rules: kube-controller-manager `pkg/controller/daemon/{daemon_controller,update}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of
from muster.api.resource import DAEMON_SETS, PODS
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.apps.daemonset_pods import ByNode, is_updated, new_pod, should_run
from muster.controllers.percentages import scaled
from muster.controllers.pod_availability import is_available, is_ready, next_available_s, phase_of
from muster.controllers.pod_writes import delete_pod

BURST = 250
"""At most so many pods are made or deleted at one look."""

FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Failures:
    """How long a node's failed pods are left before they are deleted: by node, the wait and when it began."""

    waits: dict[str, tuple[float, float]] = field(default_factory=dict)

    def left_s(self, node: str, now: float) -> float:
        """Seconds that a failed pod on that node must still be left."""
        wait, since = self.waits.get(node, (0.0, 0.0))
        return max(0.0, since + wait - now)

    def after(self, node: str, now: float) -> Failures:
        """The same with one more deletion on that node: the next wait is twice as long."""
        before, since = self.waits.get(node, (0.0, 0.0))
        is_old = now - since > 2 * MAX_BACKOFF_S
        wait = FIRST_BACKOFF_S if is_old or not before else min(2 * before, MAX_BACKOFF_S)
        return Failures({**self.waits, node: (wait, now)})


class Look(Struct, frozen=True):
    """A DaemonSet, all nodes, its pods by node, the hash of its present revision, and what failed before."""

    owner: Object
    nodes: Sequence[Object]
    pods: ByNode
    revision_hash: str
    failures: Failures
    now: float

    @property
    def min_ready_s(self) -> float:
        """How long pods must be ready to be available."""
        return float(self.owner["spec"].get("minReadySeconds") or 0)

    def available(self, pod: Object) -> bool:
        """Whether a pod has been ready for long enough."""
        return is_available(pod, self.min_ready_s, self.now)

    def is_updated(self, pod: Object) -> bool:
        """Whether a pod is of the present template."""
        return is_updated(pod, self.owner, self.revision_hash)


@dataclass(slots=True)
class _Plan:
    """Nodes that need a pod, pods to delete, events to record, and when to look again."""

    nodes: list[str]
    removed: list[Object]
    events: list[Action]
    failures: Failures
    retry_s: float | None = None


def sync(look: Look, tie: Callable[[Object], int]) -> Result:
    """What to do about a DaemonSet."""
    if is_deleting(look.owner):
        return Result()
    plan = _manage(look)
    if not plan.nodes and not plan.removed and _is_rolling(look.owner):
        _roll(look, plan, tie)
    actions = [
        *plan.events,
        *(_remove(look.owner, pod) for pod in plan.removed[:BURST]),
        *(_create(look, node) for node in plan.nodes[:BURST]),
    ]
    status = status_of(look)
    if status != (look.owner.get("status") or {}):
        actions.append(Update(DAEMON_SETS, {**look.owner, "status": status}, "status"))
    pods = (pod for found in look.pods.values() for pod in found)
    waits = [wait for wait in (plan.retry_s, next_available_s(pods, look.min_ready_s, look.now)) if wait is not None]
    memory = plan.failures if plan.failures.waits else None
    return Result(tuple(actions), requeue_after_s=min(waits, default=None), memory=memory)


def _is_rolling(owner: Object) -> bool:
    return (owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete"


def _create(look: Look, node: str) -> Create:
    done = Emit(look.owner, "Normal", "SuccessfulCreate", "Created pod: {name}")
    failed = Emit(look.owner, "Warning", "FailedCreate", "Error creating: {error}")
    return Create(PODS, new_pod(look.owner, node, look.revision_hash), done=done, failed=failed)


def _remove(owner: Object, pod: Object) -> Delete:
    delete = delete_pod(pod)
    done = Emit(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {delete.name}")
    failed = Emit(owner, "Warning", "FailedDelete", "Error deleting: {error}")
    return Delete(delete.resource, delete.namespace, delete.name, delete.options, done, failed)


def _manage(look: Look) -> _Plan:
    """Give every node that should have one a pod, and take away those that should not be there."""
    plan = _Plan([], [], [], look.failures)
    for node in look.nodes:
        _manage_node(look, node, plan)
    known = {name_of(node) for node in look.nodes}
    for node_name, pods in look.pods.items():
        if node_name not in known:
            plan.removed += [pod for pod in pods if not pod["spec"].get("nodeName") and not is_deleting(pod)]
    return plan


def _manage_node(look: Look, node: Object, plan: _Plan) -> None:
    name = name_of(node)
    pods = look.pods.get(name, ())
    runs, stays = should_run(look.owner, node)
    if not stays:
        plan.removed += [pod for pod in pods if not is_deleting(pod)]
        return
    if runs and not pods:
        plan.nodes.append(name)
    kept = [pod for pod in pods if not is_deleting(pod) and not _replaces(look, name, pod, plan)]
    if _surge(look) == 0:
        plan.removed += kept[1:]
        return
    _manage_surge(look, name, pods, kept, plan, runs=runs)


def _manage_surge(
    look: Look, node: str, pods: Sequence[Object], kept: Sequence[Object], plan: _Plan, *, runs: bool
) -> None:
    """With surge one old and one new pod may be on a node, until the new one is available."""
    if runs and pods and not kept:
        plan.nodes.append(node)
        return
    old = [pod for pod in kept if not look.is_updated(pod)]
    new = [pod for pod in kept if look.is_updated(pod)]
    plan.removed += [*old[1:], *new[1:]]
    if old and new and look.available(new[0]):
        plan.removed.append(old[0])


def _replaces(look: Look, node: str, pod: Object, plan: _Plan) -> bool:
    """Whether a pod has ended, so that it is deleted (a failed one after a while) for another one to come."""
    phase = phase_of(pod)
    if phase not in ("Failed", "Succeeded"):
        return False
    if phase == "Failed":
        left = plan.failures.left_s(node, look.now)
        if left > 0:
            plan.retry_s = min(left, plan.retry_s or left)
            return True
        plan.failures = plan.failures.after(node, look.now)
    word, reason = ("failed", "FailedDaemonPod") if phase == "Failed" else ("succeeded", "SucceededDaemonPod")
    what = f"{namespace_of(pod)}/{name_of(pod)} on node {node}"
    verb = "will try to kill it" if phase == "Failed" else "will try to delete it"
    type_ = "Warning" if phase == "Failed" else "Normal"
    plan.events.append(Emit(look.owner, type_, reason, f"Found {word} daemon pod {what}, {verb}"))
    plan.removed.append(pod)
    return True


def _desired(look: Look) -> list[str]:
    return [name_of(node) for node in look.nodes if should_run(look.owner, node)[0]]


def _surge(look: Look) -> int:
    rules = (look.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    if not _is_rolling(look.owner) or not rules.get("maxSurge"):
        return 0
    return scaled(rules["maxSurge"], len(_desired(look)), up=True)


def _max_unavailable(look: Look, surge: int) -> int:
    rules = (look.owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    allowed = scaled(rules.get("maxUnavailable", 1), len(_desired(look)), up=True)
    return 1 if allowed == surge == 0 else allowed


def _roll(look: Look, plan: _Plan, tie: Callable[[Object], int]) -> None:
    """Delete old pods, or with surge make new ones beside them, as many as may be missing (or too many) at once."""
    surge = _surge(look)
    if surge:
        _roll_with_surge(look, plan, surge)
        return
    unavailable = 0
    candidates: list[Object] = []
    for node in look.nodes:
        pods = [pod for pod in look.pods.get(name_of(node), ()) if not is_deleting(pod)]
        if not should_run(look.owner, node)[0] and not pods:
            continue
        old = [pod for pod in pods if not look.is_updated(pod)]
        new = [pod for pod in pods if look.is_updated(pod)]
        if len(old) + len(new) != 1:
            unavailable += bool(look.pods.get(name_of(node)) or should_run(look.owner, node)[0])
        elif new:
            unavailable += not look.available(new[0])
        elif look.available(old[0]):
            candidates.append(old[0])
        else:
            plan.removed.append(old[0])
            unavailable += 1
    room = max(0, _max_unavailable(look, 0) - unavailable)
    candidates.reverse()
    candidates.sort(key=tie)
    plan.removed += candidates[:room]


def _roll_with_surge(look: Look, plan: _Plan, surge: int) -> None:
    urgent: list[str] = []
    candidates: list[str] = []
    extra = 0
    for node in _desired(look):
        pods = [pod for pod in look.pods.get(node, ()) if not is_deleting(pod)]
        old = [pod for pod in pods if not look.is_updated(pod)]
        new = [pod for pod in pods if look.is_updated(pod)]
        if len(old) > 1 or len(new) > 1 or (old and new and not look.available(new[0])):
            extra += 1
        elif old and not new:
            (candidates if look.available(old[0]) else urgent).append(node)
    plan.nodes += [*urgent, *candidates[: max(0, surge - extra)]]


def status_of(look: Look) -> Object:
    """The status that nodes and pods give."""
    desired = current = misscheduled = ready = available = updated = 0
    for node in look.nodes:
        pods = look.pods.get(name_of(node), ())
        if not should_run(look.owner, node)[0]:
            misscheduled += bool(pods)
            continue
        desired += 1
        if pods:
            oldest = pods[0]
            current += 1
            ready += is_ready(oldest)
            available += look.available(oldest)
            updated += look.is_updated(oldest)
    old = look.owner.get("status") or {}
    optional = {
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    return {
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "observedGeneration": look.owner["metadata"].get("generation", 0),
        **{name: count for name, count in optional.items() if count},
        **{key: old[key] for key in ("collisionCount", "conditions") if old.get(key)},
    }
