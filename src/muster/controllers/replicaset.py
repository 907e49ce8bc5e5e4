"""replicaset-controller: keeps as many pods as a ReplicaSet asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, namespace_of, uid_of
from muster.api.resource import PODS, REPLICA_SETS, Resource
from muster.client.informer import Change
from muster.controllers.action import Result
from muster.controllers.ownership import claims, controller_key, selector_of
from muster.controllers.pod_availability import is_active
from muster.controllers.replicaset_sync import Look, sync
from muster.controllers.runner import Request
from muster.controllers.state import State


def _all_equal(pod: Object) -> int:
    return 0


class ReplicaSetController:
    """Reconciles ReplicaSets; keys are `namespace/name`. `tie`: see `ControllerOptions.removal_tie`."""

    name = "replicaset-controller"
    resources: tuple[Resource, ...] = (REPLICA_SETS, PODS)

    def __init__(self, tie: Callable[[Object], int] = _all_equal) -> None:
        self._tie = tie

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == REPLICA_SETS:
            return [Request(key_of(change.object))] if change.new is not None else []
        found = {key: None for pod in (change.old, change.new) if pod is not None for key in _keys_of(pod, state)}
        return [Request(key) for key in found]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        owner = state[REPLICA_SETS].get(key)
        if owner is None:
            return Result()
        pods = state[PODS].controlled_by(uid_of(owner))
        orphans = () if is_deleting(owner) else state[PODS].without_controller(namespace_of(owner))
        patches = claims(owner, REPLICA_SETS, PODS, filter(is_active, pods), orphans, is_active)
        if patches:
            return Result(tuple(patches), requeue_after_s=0.0)
        return sync(Look(owner, pods, _related(owner, pods, state), now), self._tie)


def _keys_of(pod: Object, state: State) -> Iterator[str]:
    """The ReplicaSets that a pod belongs to, or may be adopted by."""
    if controller_of(pod) is not None:
        key = controller_key(pod, REPLICA_SETS)
        if key is not None:
            yield key
    elif labels := pod["metadata"].get("labels"):
        for owner in state[REPLICA_SETS].in_namespace(namespace_of(pod)):
            if selector_of(owner).matches(labels):
                yield key_of(owner)


def _related(owner: Object, pods: list[Object], state: State) -> list[Object]:
    """The pods of all ReplicaSets of the same controller."""
    controller = controller_of(owner)
    if controller is None:
        return pods
    siblings = state[REPLICA_SETS].controlled_by(controller.get("uid", ""))
    return [pod for sibling in siblings for pod in state[PODS].controlled_by(uid_of(sibling))]
