"""The claims of a pod resolved against the objects of a snapshot: which volume each has, or may get."""

from __future__ import annotations

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import controller_of
from muster.api.storage import class_of, is_bound, waits_for_consumer
from muster.engine.objects import PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, ObjectStore
from muster.engine.storage.volumes import EPHEMERAL, VolumeUse


class Claims(Struct, frozen=True):
    """The claims of a pod by state: bound, to be bound before any pod is placed, to be bound for the pod's node."""

    bound: tuple[Object, ...] = ()
    immediate: tuple[Object, ...] = ()
    waiting: tuple[Object, ...] = ()


def claims_of(uses: tuple[VolumeUse, ...], objects: ObjectStore) -> Claims | str | None:
    """The claims, why they cannot be used, or None without any (upstream `volumebinding` PreFilter)."""
    wanted = [use for use in uses if use.is_claim]
    if not wanted:
        return None
    found: list[Object] = []
    for use in wanted:
        claim = objects.get(PERSISTENT_VOLUME_CLAIM, use.key)
        problem = _problem(use, claim)
        if problem or claim is None:
            return problem
        found.append(claim)
    groups: tuple[list[Object], list[Object], list[Object]] = ([], [], [])
    for claim in found:
        groups[_state(claim, objects)].append(claim)
    return Claims(*(tuple(group) for group in groups))


def missing(use: VolumeUse) -> str:
    """The text for a claim that does not exist."""
    return f'persistentvolumeclaim "{use.name}" not found'


def _problem(use: VolumeUse, claim: Object | None) -> str:
    if claim is None:
        if use.kind == EPHEMERAL:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return missing(use)
    if (claim.get("status") or {}).get("phase") == "Lost":
        volume = claim["spec"].get("volumeName", "")
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{volume}"'
    if claim["metadata"].get("deletionTimestamp"):
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    if use.kind == EPHEMERAL and not _is_for(use, claim):
        return f"PVC {use.key} was not created for pod {use.namespace}/{use.pod} (pod is not owner)"
    return ""


def _is_for(use: VolumeUse, claim: Object) -> bool:
    owner = controller_of(claim)
    return owner is not None and owner.get("kind") == "Pod" and owner.get("uid") == use.owner


def _state(claim: Object, objects: ObjectStore) -> int:
    """0 bound, 1 to be bound at once, 2 waiting for a pod's node."""
    if is_bound(claim):
        return 0
    volume = claim["spec"].get("volumeName") or ""
    storage_class = objects.get(STORAGE_CLASS, class_of(claim)) if class_of(claim) else None
    return 2 if waits_for_consumer(storage_class) and not volume else 1
