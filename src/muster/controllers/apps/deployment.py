"""deployment-controller: makes ReplicaSets of Deployments and moves pods from old ones to the new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Result, Update
from muster.controllers.apps.deployment_sets import Sets, collides, sets_of
from muster.controllers.apps.deployment_sizes import is_rolling
from muster.controllers.apps.deployment_sync import Look, sync
from muster.controllers.ownership import claims, controller_key, selector_of
from muster.controllers.pod_availability import FINISHED, phase_of
from muster.controllers.runner import Request
from muster.controllers.state import State


class DeploymentController:
    """Reconciles Deployments; keys are `namespace/name`."""

    name = "deployment-controller"
    resources: tuple[Resource, ...] = (DEPLOYMENTS, REPLICA_SETS, PODS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == DEPLOYMENTS:
            return [Request(key_of(change.object))] if change.new is not None else []
        if resource == PODS:
            return _of_deleted_pod(change, state)
        sets = [found for found in (change.old, change.new) if found is not None]
        return [Request(key) for key in {key: None for found in sets for key in _keys_of(found, state)}]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        deployment = state[DEPLOYMENTS].get(key)
        if deployment is None:
            return Result()
        owned = state[REPLICA_SETS].controlled_by(uid_of(deployment))
        orphans = () if is_deleting(deployment) else state[REPLICA_SETS].without_controller(namespace_of(deployment))
        patches = claims(deployment, DEPLOYMENTS, REPLICA_SETS, owned, orphans)
        if patches:
            return Result(tuple(patches), requeue_after_s=0.0)
        sets = sets_of(deployment, owned)
        result = sync(Look(deployment, sets, _old_pods_left(sets, state), now))
        for action in result.actions:
            if isinstance(action, Create) and collides(deployment, state[REPLICA_SETS].get(key_of(action.object))):
                return Result((_count_collision(deployment),))
        return result


def _count_collision(deployment: Object) -> Action:
    """Another ReplicaSet has the name: the next hash is another one."""
    status = deployment.get("status") or {}
    counted = {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}
    return Update(DEPLOYMENTS, {**deployment, "status": counted}, "status")


def _old_pods_left(sets: Sets, state: State) -> bool:
    """Whether a pod of an old ReplicaSet may still run."""
    pods = (pod for found in sets.old for pod in state[PODS].controlled_by(uid_of(found)))
    return any(phase_of(pod) not in FINISHED for pod in pods)


def _of_deleted_pod(change: Change, state: State) -> Iterator[Request]:
    """The Deployment that may have waited for the end of a pod."""
    key = controller_key(change.object, REPLICA_SETS) if change.new is None else None
    found = state[REPLICA_SETS].get(key) if key is not None else None
    owner = controller_key(found, DEPLOYMENTS) if found is not None else None
    deployment = state[DEPLOYMENTS].get(owner) if owner is not None else None
    if deployment is not None and not is_rolling(deployment):
        yield Request(key_of(deployment))


def _keys_of(found: Object, state: State) -> Iterator[str]:
    """The Deployments that a ReplicaSet belongs to, or may be adopted by."""
    if controller_of(found) is not None:
        key = controller_key(found, DEPLOYMENTS)
        if key is not None:
            yield key
    elif labels := found["metadata"].get("labels"):
        for deployment in state[DEPLOYMENTS].in_namespace(namespace_of(found)):
            if selector_of(deployment).matches(labels):
                yield f"{namespace_of(deployment)}/{name_of(deployment)}"
