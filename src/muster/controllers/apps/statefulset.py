"""statefulset-controller: keeps pods with names that last, one after the other or all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Result, Update
from muster.controllers.apps.revisions import History, collides
from muster.controllers.apps.statefulset_pods import Spec, ordinal_of, revision_name
from muster.controllers.apps.statefulset_sync import Look, pods_by_ordinal, sync
from muster.controllers.ownership import claims, keys_of_owners
from muster.controllers.runner import Request
from muster.controllers.state import State

HASH_LABEL = "controller.kubernetes.io/hash"


class _Revisions(Struct, frozen=True):
    """The two revisions in use, and what must be written before anything is done with them."""

    current: Object
    update: Object
    action: Action | None


class StatefulSetController:
    """Reconciles StatefulSets; keys are `namespace/name`."""

    name = "statefulset-controller"
    resources: tuple[Resource, ...] = (STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == STATEFUL_SETS:
            return [Request(key_of(change.object))] if change.new is not None else []
        if resource == PERSISTENT_VOLUME_CLAIMS:
            return _of_claim(change, state)
        return [Request(key) for key in keys_of_owners(change, STATEFUL_SETS, state)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        owner = state[STATEFUL_SETS].get(key)
        if owner is None:
            return Result()
        if patches := _claims(owner, state):
            return Result(tuple(patches), requeue_after_s=0.0)
        history = History.of(owner, STATEFUL_SETS, state[CONTROLLER_REVISIONS].controlled_by(uid_of(owner)), HASH_LABEL)
        revisions = _revisions(owner, history)
        if revisions.action is not None:
            return Result((_unless_taken(owner, revisions.action, state),))
        pods = state[PODS].controlled_by(uid_of(owner))
        volume_claims = {
            name_of(claim): claim for claim in state[PERSISTENT_VOLUME_CLAIMS].in_namespace(namespace_of(owner))
        }
        look = Look(
            owner,
            Spec.of(owner),
            pods_by_ordinal(owner, pods),
            volume_claims,
            revisions.current,
            revisions.update,
            now,
        )
        result = sync(look)
        if result.actions or is_deleting(owner):
            return result
        live = {name_of(revisions.current), name_of(revisions.update), *map(revision_name, pods)}
        return Result(tuple(history.surplus(frozenset(live))), requeue_after_s=result.requeue_after_s)


def _claims(owner: Object, state: State) -> list[Action]:
    """The patches that adopt and release pods and revisions."""
    if is_deleting(owner):
        return []

    def is_member(pod: Object) -> bool:
        return ordinal_of(owner, pod) is not None

    uid, namespace = uid_of(owner), namespace_of(owner)
    pods, revisions = state[PODS], state[CONTROLLER_REVISIONS]
    return [
        *claims(owner, STATEFUL_SETS, PODS, pods.controlled_by(uid), pods.without_controller(namespace), is_member),
        *claims(owner, STATEFUL_SETS, CONTROLLER_REVISIONS, (), revisions.without_controller(namespace)),
    ]


def _revisions(owner: Object, history: History) -> _Revisions:
    update, action = history.present()
    current = history.named((owner.get("status") or {}).get("currentRevision") or "")
    if current is not None and name_of(current) == name_of(update):
        current = update
    return _Revisions(update if current is None else current, update, action)


def _unless_taken(owner: Object, action: Action, state: State) -> Action:
    """The creation of a revision, or the count of a collision if another object has its name."""
    if isinstance(action, Create):
        existing = state[CONTROLLER_REVISIONS].in_namespace(namespace_of(owner))
        if collides(action.object, existing):
            status = owner.get("status") or {}
            counted = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
            return Update(STATEFUL_SETS, {**owner, "status": counted}, "status")
    return action


def _of_claim(change: Change, state: State) -> Iterator[Request]:
    """The StatefulSets that may wait for the end of a claim."""
    if change.new is None:
        for owner in state[STATEFUL_SETS].in_namespace(namespace_of(change.object)):
            if owner["spec"].get("volumeClaimTemplates"):
                yield Request(key_of(owner))
