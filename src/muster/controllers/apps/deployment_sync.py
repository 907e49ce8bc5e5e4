"""One look at one Deployment: which ReplicaSet grows, which shrinks, and the status.

Each look makes one step. What follows from it is done at the next one, when the ReplicaSets have changed.
Source of the rules: kube-controller-manager `pkg/controller/deployment` (rolling, recreate, sync and the controller).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of
from muster.api.resource import DEPLOYMENTS, REPLICA_SETS
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.apps.deployment_sets import (
    REVISION,
    Sets,
    annotated,
    new_replica_set,
    next_revision,
    revision_of,
)
from muster.controllers.apps.deployment_sizes import (
    DESIRED,
    annotation_number,
    count,
    is_rolling,
    max_unavailable,
    proportional_sizes,
    replicas_of,
    size_annotations,
    size_of_new,
    total_replicas,
)
from muster.controllers.apps.deployment_status import (
    PROGRESSING,
    calculated,
    deadline_left_s,
    has_deadline,
    is_complete,
    paused_status,
    rollout_status,
    status_condition,
    with_condition,
)

_NO_LIMIT = 2**31 - 1


class Look(Struct, frozen=True):
    """A Deployment, its ReplicaSets, whether pods of old ones are left, and the time."""

    deployment: Object
    sets: Sets
    old_pods_left: bool
    now: float


def sync(look: Look) -> Result:
    """What to do about a Deployment."""
    deployment, sets = look.deployment, look.sets
    if is_deleting(deployment):
        return Result(_status(look, calculated(deployment, sets, look.now)))
    noted = paused_status(deployment, look.now)
    if noted is not None:
        return Result(_status(look, noted))
    if noting := _note_revision(look):
        return Result(noting)
    if deployment["spec"].get("paused") or _is_scaled(look):
        actions = _scale(look)
        if deployment["spec"].get("paused"):
            actions = [*actions, *_clean_up(look)]
        return Result((*actions, *_status(look, calculated(deployment, sets, look.now))))
    actions = _roll(look) if is_rolling(deployment) else _recreate(look)
    if any(isinstance(action, Create) for action in actions):
        return Result(tuple(actions))
    if not actions and is_complete(deployment, deployment.get("status") or {}):
        actions = _clean_up(look)
    status = _status(look, rollout_status(deployment, sets, look.now))
    return Result((*actions, *status), requeue_after_s=None if status else _stuck_s(look))


def _status(look: Look, status: Object, revision: int = 0) -> tuple[Action, ...]:
    """The update of the status, and of the revision that the Deployment is annotated with if one is given."""
    metadata = look.deployment["metadata"]
    annotations = metadata.get("annotations") or {}
    if revision and annotations.get(REVISION) != str(revision):
        metadata = {**metadata, "annotations": {**annotations, REVISION: str(revision)}}
    changed = {**look.deployment, "metadata": metadata, "status": status}
    if metadata is look.deployment["metadata"] and status == (look.deployment.get("status") or {}):
        return ()
    return (Update(DEPLOYMENTS, changed, "status"),)


def _note_revision(look: Look) -> tuple[Action, ...]:
    """Note in the new ReplicaSet and in the Deployment which revision it is, if they do not say so."""
    deployment, new = look.deployment, look.sets.new
    if new is None:
        return ()
    annotations = annotated(deployment, new, next_revision(look.sets), exists=True)
    min_ready = deployment["spec"].get("minReadySeconds") or 0
    if annotations != (new["metadata"].get("annotations") or {}) or min_ready != (
        new["spec"].get("minReadySeconds") or 0
    ):
        spec = {key: value for key, value in new["spec"].items() if key != "minReadySeconds"}
        if min_ready:
            spec["minReadySeconds"] = min_ready
        return (
            Update(REPLICA_SETS, {**new, "metadata": {**new["metadata"], "annotations": annotations}, "spec": spec}),
        )
    status = deployment.get("status") or {}
    if has_deadline(deployment) and status_condition(status, PROGRESSING) is None:
        text = f'Found new replica set "{name_of(new)}"'
        status = with_condition(status, look.now, PROGRESSING, "True", "FoundNewReplicaSet", text)
    return _status(look, status, revision_of(new))


def _is_scaled(look: Look) -> bool:
    """Whether a ReplicaSet knows another size of the Deployment."""
    wanted = replicas_of(look.deployment)
    sizes = [annotation_number(found, DESIRED) for found in look.sets.active]
    return any(size is not None and size != wanted for size in sizes)


def _resized(look: Look, found: Object, size: int) -> list[Action]:
    """The update of a ReplicaSet to that size, with the event."""
    annotations = {**(found["metadata"].get("annotations") or {}), **size_annotations(look.deployment)}
    before = replicas_of(found)
    if size == before and annotations == (found["metadata"].get("annotations") or {}):
        return []
    metadata, spec = {**found["metadata"], "annotations": annotations}, {**found["spec"], "replicas": size}
    update = Update(REPLICA_SETS, {**found, "metadata": metadata, "spec": spec})
    if size == before:
        return [update]
    way = "up" if size > before else "down"
    text = f"Scaled {way} replica set {name_of(found)} from {before} to {size}"
    return [update, Emit(look.deployment, "Normal", "ScalingReplicaSet", text)]


def _scaled(look: Look, found: Object, size: int) -> list[Action]:
    """Like `_resized`, but a ReplicaSet of that size is left alone."""
    return [] if replicas_of(found) == size else _resized(look, found, size)


def _scale(look: Look) -> list[Action]:
    """Bring the ReplicaSets to the Deployment's size without replacing pods."""
    deployment, sets = look.deployment, look.sets
    single = _only_or_latest(sets)
    if single is not None:
        return _scaled(look, single, replicas_of(deployment))
    if _is_saturated(deployment, sets.new):
        return [action for found in sets.active_old for action in _scaled(look, found, 0)]
    if not is_rolling(deployment):
        return []
    by_name = {name_of(found): found for found in sets.all}
    sizes = proportional_sizes(deployment, sets.all)
    return [action for name, size in sizes.items() for action in _resized(look, by_name[name], size)]


def _only_or_latest(sets: Sets) -> Object | None:
    """The only active ReplicaSet; the latest one if none is active; None if there are several."""
    active = sets.active
    if len(active) == 1:
        return active[0]
    return (sets.all[-1] if sets.all else None) if not active else None


def _is_saturated(deployment: Object, new: Object | None) -> bool:
    """Whether the new ReplicaSet alone has all the pods that are wanted, available."""
    wanted = replicas_of(deployment)
    if new is None or annotation_number(new, DESIRED) != wanted:
        return False
    return replicas_of(new) == wanted and ((new.get("status") or {}).get("availableReplicas") or 0) == wanted


def _create(look: Look) -> list[Action]:
    """Make the new ReplicaSet, and note its revision in the Deployment."""
    deployment = look.deployment
    found = new_replica_set(deployment, look.sets)
    size, name = replicas_of(found), name_of(found)
    text = f"Scaled up replica set {name} from 0 to {size}"
    done = Emit(deployment, "Normal", "ScalingReplicaSet", text) if size else None
    failed = Emit(
        deployment, "Warning", "ReplicaSetCreateError", f'Failed to create new replica set "{name}": {{error}}'
    )
    status = deployment.get("status") or {}
    if has_deadline(deployment):
        text = f'Created new replica set "{name}"'
        status = with_condition(status, look.now, PROGRESSING, "True", "NewReplicaSetCreated", text)
    create = Create(REPLICA_SETS, found, done=done, failed=failed)
    return [create, *_status(look, status, next_revision(look.sets))]


def _roll(look: Look) -> list[Action]:
    """Replace pods little by little: the new ReplicaSet grows first, then old ones shrink."""
    deployment, sets = look.deployment, look.sets
    if sets.new is None:
        return _create(look)
    size = replicas_of(sets.new)
    wanted = replicas_of(deployment)
    size = wanted if size >= wanted else size_of_new(deployment, sets.all, size)
    return _scaled(look, sets.new, size) or _shrink_old(look)


def _shrink_old(look: Look) -> list[Action]:
    """Take pods from old ReplicaSets: first those that are not available anyway, then as many as may go."""
    deployment, sets = look.deployment, look.sets
    active = sets.active_old
    if sets.new is None or not active:
        return []
    least = replicas_of(deployment) - max_unavailable(deployment)
    available = count((sets.new,), "availableReplicas")
    room = total_replicas(sets.all) - least - (replicas_of(sets.new) - available)
    if room <= 0:
        return []
    sizes = {name_of(found): replicas_of(found) for found in active}
    _take_unavailable(active, sizes, room)
    _take_available(active, sizes, count(sets.all, "availableReplicas") - least)
    return [action for found in active for action in _scaled(look, found, sizes[name_of(found)])]


def _take_unavailable(active: Sequence[Object], sizes: dict[str, int], room: int) -> None:
    for found in active:
        gone = min(room, replicas_of(found) - count((found,), "availableReplicas"))
        if gone > 0:
            sizes[name_of(found)] -= gone
            room -= gone


def _take_available(active: Sequence[Object], sizes: dict[str, int], room: int) -> None:
    for found in active:
        gone = min(room, sizes[name_of(found)])
        if gone > 0:
            sizes[name_of(found)] -= gone
            room -= gone


def _recreate(look: Look) -> list[Action]:
    """Replace all pods at once: nothing new until the last old pod is gone."""
    sets = look.sets
    shrunk = [action for found in sets.active_old for action in _scaled(look, found, 0)]
    if shrunk:
        return shrunk
    if look.old_pods_left or count(sets.old, "replicas") > 0:
        return []
    return _create(look) if sets.new is None else _scaled(look, sets.new, replicas_of(look.deployment))


def _clean_up(look: Look) -> list[Action]:
    """Delete the oldest revisions beyond the limit, unless they have pods."""
    limit = look.deployment["spec"].get("revisionHistoryLimit")
    if limit is None or limit == _NO_LIMIT:
        return []
    kept = [found for found in look.sets.old if not is_deleting(found)]
    kept.sort(key=lambda found: (revision_of(found), found["metadata"].get("creationTimestamp") or "", name_of(found)))
    return [
        Delete(REPLICA_SETS, namespace_of(found), name_of(found))
        for found in kept[: max(0, len(kept) - limit)]
        if not _may_have_pods(found)
    ]


def _may_have_pods(found: Object) -> bool:
    status = found.get("status") or {}
    is_seen = status.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    return bool(status.get("replicas") or replicas_of(found) or not is_seen)


def _stuck_s(look: Look) -> float | None:
    """When to look again whether the rollout has timed out."""
    status = look.deployment.get("status") or {}
    left = deadline_left_s(look.deployment, status, look.now)
    if left is None or is_complete(look.deployment, status):
        return None
    reason = (status_condition(status, PROGRESSING) or {}).get("reason")
    return None if reason == "ProgressDeadlineExceeded" else max(left, 0.0) + 1.0
