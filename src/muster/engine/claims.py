"""The claims of a pod resolved against the objects of a snapshot: which volume each has, or may get."""

from __future__ import annotations

from dataclasses import dataclass

from muster.api.codec import Object
from muster.api.meta import controller_of
from muster.api.quantity import QuantityError, parse_quantity
from muster.engine.objects import PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, ObjectStore
from muster.engine.volumes import EPHEMERAL, VolumeUse

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True, slots=True)
class Claims:
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


def class_of(obj: Object) -> str:
    """The storage class name of a claim or volume; the annotation wins."""
    annotated = (obj["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
    name: str = annotated if annotated is not None else obj["spec"].get("storageClassName") or ""
    return name


def bytes_of(quantity: object) -> int:
    """A storage size in bytes, rounded up; 0 for what is no quantity."""
    try:
        return parse_quantity(quantity).units()
    except QuantityError:
        return 0


def requested_bytes(claim: Object) -> int | None:
    """The size that a claim asks for; None if it says nothing."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return bytes_of(requests["storage"]) if "storage" in requests else None


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
    volume = claim["spec"].get("volumeName") or ""
    if volume and _BIND_COMPLETED in (claim["metadata"].get("annotations") or {}):
        return 0
    storage_class = objects.get(STORAGE_CLASS, class_of(claim)) if class_of(claim) else None
    waits = storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return 2 if waits and not volume else 1
