"""daemonset-controller: keeps a pod on every node that a DaemonSet is for. The scheduler binds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Result, Update
from muster.controllers.apps.daemonset_pods import HASH_LABEL, by_node, should_run
from muster.controllers.apps.daemonset_sync import Failures, Look, sync
from muster.controllers.apps.revisions import History, collides
from muster.controllers.node.taints import taints_of
from muster.controllers.ownership import claims, keys_of_owners
from muster.controllers.runner import Request
from muster.controllers.state import State


def _all_equal(pod: Object) -> int:
    return 0


class DaemonSetController:
    """Reconciles DaemonSets; keys are `namespace/name`. `tie` orders old pods that could be replaced next."""

    name = "daemonset-controller"
    resources: tuple[Resource, ...] = (DAEMON_SETS, PODS, NODES, CONTROLLER_REVISIONS)

    def __init__(self, tie: Callable[[Object], int] = _all_equal) -> None:
        self._tie = tie

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == DAEMON_SETS:
            return [Request(key_of(change.object))] if change.new is not None else []
        if resource == NODES:
            return _of_node(change.new, state) if change.new is not None and _matters(change) else []
        return [Request(key) for key in keys_of_owners(change, DAEMON_SETS, state)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        owner = state[DAEMON_SETS].get(key)
        if owner is None or is_deleting(owner):
            return Result()
        memory = state.memory(key)
        if patches := _claims(owner, state):
            return Result(tuple(patches), requeue_after_s=0.0, memory=memory)
        history = History.of(owner, DAEMON_SETS, state[CONTROLLER_REVISIONS].controlled_by(uid_of(owner)), HASH_LABEL)
        revision, action = history.present()
        if action is not None:
            return Result((_unless_taken(owner, action, state),), memory=memory)
        pods = state[PODS].controlled_by(uid_of(owner))
        failures = memory if isinstance(memory, Failures) else Failures()
        nodes = list(state[NODES].all())
        result = sync(Look(owner, nodes, by_node(pods), history.hash_of(revision), failures, now), self._tie)
        if result.actions:
            return result
        hashes = {(pod["metadata"].get("labels") or {}).get(HASH_LABEL, "") for pod in pods}
        live = {name_of(entry) for entry in history.revisions if history.hash_of(entry) in hashes}
        surplus = history.surplus(frozenset({name_of(revision), *live}))
        return Result(tuple(surplus), requeue_after_s=result.requeue_after_s, memory=result.memory)


def _claims(owner: Object, state: State) -> list[Action]:
    """The patches that adopt and release pods, and adopt revisions."""
    uid, namespace = uid_of(owner), namespace_of(owner)
    pods, revisions = state[PODS], state[CONTROLLER_REVISIONS]
    return [
        *claims(owner, DAEMON_SETS, PODS, pods.controlled_by(uid), pods.without_controller(namespace)),
        *claims(owner, DAEMON_SETS, CONTROLLER_REVISIONS, (), revisions.without_controller(namespace)),
    ]


def _unless_taken(owner: Object, action: Action, state: State) -> Action:
    """The creation of a revision, or the count of a collision if another object has its name."""
    existing = state[CONTROLLER_REVISIONS].in_namespace(namespace_of(owner))
    if not isinstance(action, Create) or not collides(action.object, existing):
        return action
    status = owner.get("status") or {}
    counted = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
    return Update(DAEMON_SETS, {**owner, "status": counted}, "status")


def _matters(change: Change) -> bool:
    """Whether a node is new, or something changed of it that decides about pods."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return taints_of(old) != taints_of(new) or old["metadata"].get("labels") != new["metadata"].get("labels")


def _of_node(node: Object, state: State) -> Iterator[Request]:
    """The DaemonSets that lack a pod on a node, or have one where it may not stay.

    Pods count as there once they are bound. Nothing else about a node makes a DaemonSet be looked at, so its counters
    may be late.
    """
    bound = state[PODS].on_node(name_of(node))
    for owner in state[DAEMON_SETS].all():
        has_pod = any((controller_of(pod) or {}).get("uid") == uid_of(owner) for pod in bound)
        runs, stays = should_run(owner, node)
        if (runs and not has_pod) or (has_pod and not stays):
            yield Request(key_of(owner))
