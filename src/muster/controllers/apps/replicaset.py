"""replicaset-controller, and replicationcontroller-controller for the older kind: as many pods as an object asks for.

Source of the rules: kube-controller-manager `pkg/controller/{replicaset,replication}`: a ReplicationController is
looked at as a ReplicaSet whose selector is its map of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, namespace_of, uid_of
from muster.api.resource import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, Resource
from muster.api.selectors import LabelSelector
from muster.client.informer import Change
from muster.controllers.action import Result
from muster.controllers.apps.replicaset_sync import Look, sync
from muster.controllers.ownership import claims, keys_of_owners, selector_of
from muster.controllers.pod_availability import is_active
from muster.controllers.runner import Request
from muster.controllers.state import State

_NAMES = {REPLICA_SETS: "replicaset-controller", REPLICATION_CONTROLLERS: "replicationcontroller-controller"}


def _all_equal(pod: Object) -> int:
    return 0


class ReplicaSetController:
    """Reconciles objects of one of the two kinds; keys are `namespace/name`. `tie`: `ControllerOptions.removal_tie`."""

    def __init__(self, tie: Callable[[Object], int] = _all_equal, resource: Resource = REPLICA_SETS) -> None:
        self.name = _NAMES[resource]
        self.resources: tuple[Resource, ...] = (resource, PODS)
        self._resource = resource
        self._tie = tie

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == self._resource:
            return [Request(key_of(change.object))] if change.new is not None else []
        return [Request(key) for key in keys_of_owners(change, self._resource, state, self._selector)]

    def _selector(self, owner: Object) -> LabelSelector:
        return selector_of(_with_selector(owner, self._resource))

    def reconcile(self, key: str, state: State, now: float) -> Result:
        owner = state[self._resource].get(key)
        if owner is None:
            return Result()
        owner = _with_selector(owner, self._resource)
        pods = state[PODS].controlled_by(uid_of(owner))
        orphans = () if is_deleting(owner) else state[PODS].without_controller(namespace_of(owner))
        patches = claims(owner, self._resource, PODS, filter(is_active, pods), orphans, is_active)
        if patches:
            return Result(tuple(patches), requeue_after_s=0.0)
        related = _related(owner, pods, self._resource, state)
        return sync(Look(owner, pods, related, now, self._resource), self._tie)


def _with_selector(owner: Object, resource: Resource) -> Object:
    """The object with its selector in the form of newer kinds."""
    if resource == REPLICA_SETS:
        return owner
    selector = owner["spec"].get("selector")
    return {**owner, "spec": {**owner["spec"], "selector": {"matchLabels": selector} if selector else None}}


def _related(owner: Object, pods: list[Object], resource: Resource, state: State) -> list[Object]:
    """The pods of all objects of this kind with the same controller."""
    controller = controller_of(owner)
    if controller is None:
        return pods
    siblings = state[resource].controlled_by(controller.get("uid", ""))
    return [pod for sibling in siblings for pod in state[PODS].controlled_by(uid_of(sibling))]
