"""One look at one ReplicaSet: pods that are missing or too many, and its status.

Source of the rules: kube-controller-manager `pkg/controller/replicaset/{replica_set,replica_set_utils}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import condition, is_deleting
from muster.api.resource import PODS, REPLICA_SETS, Resource
from muster.clock import rfc3339
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.apps.replicaset_removal import pods_to_remove
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_availability import (
    FINISHED,
    is_active,
    is_available,
    is_ready,
    next_available_s,
    phase_of,
)
from muster.controllers.pod_templates import pod_from_template
from muster.controllers.pod_writes import delete_pod

BURST = 500
"""At most so many pods are made or deleted at one look."""

FAILURE = "ReplicaFailure"


class Look(Struct, frozen=True):
    """A ReplicaSet, its pods, and pods of ReplicaSets of the same owner. `resource`: the kind that it really is."""

    replica_set: Object
    pods: Sequence[Object]
    related: Sequence[Object]
    now: float
    resource: Resource = REPLICA_SETS

    @property
    def active(self) -> list[Object]:
        """The pods that count."""
        return [pod for pod in self.pods if is_active(pod)]

    @property
    def min_ready_s(self) -> float:
        """How long pods must be ready to be available."""
        return float(self.replica_set["spec"].get("minReadySeconds") or 0)


def sync(look: Look, tie: Callable[[Object], int]) -> Result:
    """What to do about a ReplicaSet. The status tells of the pods before these actions."""
    changes = [] if is_deleting(look.replica_set) else _manage(look, tie)
    status = _status_update(look, _conditions(look, None))
    wait = next_available_s(look.active, look.min_ready_s, look.now)

    def tell(action: Action, error: str) -> tuple[Action, ...]:
        reason = "FailedDelete" if isinstance(action, Delete) else "FailedCreate"
        return _status_update(look, _conditions(look, (reason, error)))

    return Result((*changes, *status), requeue_after_s=wait, on_failure=tell)


def _manage(look: Look, tie: Callable[[Object], int]) -> list[Action]:
    active, owner = look.active, look.replica_set
    missing = (owner["spec"].get("replicas") or 0) - len(active)
    if missing >= 0:
        return [create_pod(owner, look.resource) for _ in range(min(missing, BURST))]
    count = min(-missing, BURST)
    removed = pods_to_remove(active, look.related, count, tie, look.now)
    return [remove_pod(owner, pod) for pod in removed]


def create_pod(owner: Object, resource: Resource) -> Create:
    """The creation of a pod of a ReplicaSet."""
    pod = pod_from_template(owner["spec"]["template"], owner, owner_reference(owner, resource))
    done = Emit(owner, "Normal", "SuccessfulCreate", "Created pod: {name}")
    return Create(PODS, pod, done=done, failed=Emit(owner, "Warning", "FailedCreate", "Error creating: {error}"))


def remove_pod(owner: Object, pod: Object) -> Delete:
    """The deletion of a pod of a ReplicaSet, with its events."""
    delete = delete_pod(pod)
    done = Emit(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {delete.name}")
    failed = Emit(owner, "Warning", "FailedDelete", "Error deleting: {error}")
    return Delete(delete.resource, delete.namespace, delete.name, delete.options, done, failed)


def _conditions(look: Look, failure: tuple[str, str] | None) -> list[Object]:
    """The conditions: a failure is noted once and forgotten at the next success."""
    kept: list[Object] = list((look.replica_set.get("status") or {}).get("conditions") or ())
    if failure is None:
        return [entry for entry in kept if entry.get("type") != FAILURE]
    if condition(look.replica_set, FAILURE) is not None:
        return kept
    reason, message = failure
    entry = {"type": FAILURE, "status": "True", "reason": reason, "message": message}
    return [*kept, {**entry, "lastTransitionTime": rfc3339(look.now)}]


def _status_update(look: Look, conditions: list[Object]) -> tuple[Action, ...]:
    owner = look.replica_set
    status = status_of(look, conditions)
    if status == (owner.get("status") or {}):
        return ()
    return (Update(look.resource, {**owner, "status": status}, "status"),)


def status_of(look: Look, conditions: list[Object]) -> Object:
    """The status that the pods give."""
    active = look.active
    labels = (look.replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    terminating = sum(is_deleting(pod) and phase_of(pod) not in FINISHED for pod in look.pods)
    counts = {
        "fullyLabeledReplicas": sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active),
        "readyReplicas": sum(map(is_ready, active)),
        "availableReplicas": sum(is_available(pod, look.min_ready_s, look.now) for pod in active),
    }
    return {
        "replicas": len(active),
        **{name: count for name, count in counts.items() if count},
        **({"terminatingReplicas": terminating} if look.resource == REPLICA_SETS else {}),
        "observedGeneration": look.replica_set["metadata"].get("generation", 0),
        **({"conditions": conditions} if conditions else {}),
    }
