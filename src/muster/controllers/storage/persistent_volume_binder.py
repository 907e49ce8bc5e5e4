"""persistentvolume-binder-controller: gives claims their volumes, and volumes their phases.

Claims that wait for their first consumer are left to the scheduler, which writes the reference from the volume or the
node for which one is to be made. Source of the rules: kube-controller-manager
`pkg/controller/volume/persistentvolume/pv_controller.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muster.api.codec import Object
from muster.api.meta import key_of, name_of, uid_of
from muster.api.resource import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Resource
from muster.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    bound_volume,
    capacity_bytes,
    class_of,
    could_hold,
    is_available_for,
    is_bound,
    is_bound_to,
    waits_for_consumer,
)
from muster.client.informer import Change
from muster.controllers.action import Action, Emit, Patch, Result, Update
from muster.controllers.runner import Request
from muster.controllers.state import State

VOLUME = "volume "
PROVISIONERS = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
"""Annotations of a claim that name who is to make its volume; the older one for older provisioners."""


class VolumeBinderController:
    """Reconciles claims (keys `namespace/name`) and volumes (`volume name`)."""

    name = "persistentvolume-binder-controller"
    resources: tuple[Resource, ...] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == PERSISTENT_VOLUME_CLAIMS:
            return [Request(key) for key in _of_claim(change, state)]
        if resource == PERSISTENT_VOLUMES:
            return [Request(key) for key in _of_volume(change, state)]
        return [Request(key_of(claim)) for claim in _unbound(state, name_of(change.object))]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        if key.startswith(VOLUME):
            volume = state[PERSISTENT_VOLUMES].get(key.removeprefix(VOLUME))
            return Result() if volume is None else Result(tuple(_look_at_volume(volume, state)))
        claim = state[PERSISTENT_VOLUME_CLAIMS].get(key)
        if claim is None or (claim.get("status") or {}).get("phase") == "Lost":
            return Result()
        look = _look_at_bound if is_bound(claim) else _look_at_unbound
        return Result(tuple(look(claim, state)))


def _of_claim(change: Change, state: State) -> Iterator[str]:
    claim = change.object
    if change.new is not None:
        yield key_of(claim)
    if name := claim["spec"].get("volumeName"):
        yield VOLUME + name
    elif change.new is None:
        yield from (VOLUME + name_of(each) for each in state[PERSISTENT_VOLUMES].all() if is_bound_to(each, claim))


def _of_volume(change: Change, state: State) -> Iterator[str]:
    volume = change.object
    if change.new is not None:
        yield VOLUME + name_of(volume)
    reference = volume["spec"].get("claimRef")
    if reference:
        yield f"{reference.get('namespace')}/{reference.get('name')}"
    elif change.new is not None and _phase(volume) == "Available" and _phase(change.old) != "Available":
        yield from map(key_of, _unbound(state, class_of(volume)))
    yield from (key_of(claim) for claim in state[PERSISTENT_VOLUME_CLAIMS].all() if _asks_for(claim, volume))


def _asks_for(claim: Object, volume: Object) -> bool:
    wanted: str = claim["spec"].get("volumeName") or ""
    return wanted == name_of(volume)


def _unbound(state: State, class_name: str) -> Iterator[Object]:
    for claim in state[PERSISTENT_VOLUME_CLAIMS].all():
        if not claim["spec"].get("volumeName") and class_of(claim) == class_name:
            yield claim


def _phase(obj: Object | None) -> str:
    phase: str = ((obj or {}).get("status") or {}).get("phase") or ""
    return phase


# -- claims -----------------------------------------------------------------------------------------------------------


def _look_at_unbound(claim: Object, state: State) -> Iterator[Action]:
    name = claim["spec"].get("volumeName")
    if name:
        yield from _look_at_requested(claim, state[PERSISTENT_VOLUMES].get(name))
        return
    storage_class = state[STORAGE_CLASSES].get(class_of(claim)) if class_of(claim) else None
    waits = waits_for_consumer(storage_class)
    volume = _best_volume(claim, list(state[PERSISTENT_VOLUMES].all()), waits)
    if volume is not None:
        yield from _bind(volume, claim)
    elif waits and SELECTED_NODE not in (claim["metadata"].get("annotations") or {}):
        text = "waiting for first consumer to be created before binding"
        yield Emit(claim, "Normal", "WaitForFirstConsumer", text)
    elif class_of(claim):
        yield from _provision(claim, storage_class)
    else:
        text = "no persistent volumes available for this claim and no storage class is set"
        yield Emit(claim, "Normal", "FailedBinding", text)


def _look_at_requested(claim: Object, volume: Object | None) -> Iterator[Action]:
    """A claim that names its volume."""
    if volume is None:
        return
    if is_bound_to(volume, claim):
        yield from _bind(volume, claim)
    elif volume["spec"].get("claimRef"):
        text = f'volume "{name_of(volume)}" already bound to a different claim.'
        yield Emit(claim, "Warning", "FailedBinding", text)
    elif (problem := _mismatch(volume, claim)) is not None:
        text = f'Cannot bind to requested volume "{name_of(volume)}": {problem}'
        yield Emit(claim, "Warning", "VolumeMismatch", text)
    else:
        yield from _bind(volume, claim)


def _mismatch(volume: Object, claim: Object) -> str | None:
    """Why a volume that a claim names does not suit it."""
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    modes = [(obj["spec"].get("volumeMode") or "Filesystem") for obj in (claim, volume)]
    if modes[0] != modes[1]:
        return "incompatible volumeMode"
    if not set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ()):
        return "incompatible accessMode"
    return None if could_hold(volume, claim) else "requested PV is too small"


def _best_volume(claim: Object, volumes: Sequence[Object], waits: bool) -> Object | None:
    """The volume that refers to the claim, else the smallest that suits it, unless the scheduler is to choose."""
    suitable = [volume for volume in volumes if could_hold(volume, claim)]
    tied = [volume for volume in suitable if is_bound_to(volume, claim)]
    if tied:
        return min(tied, key=name_of)
    free = [volume for volume in suitable if not volume["spec"].get("claimRef") and is_available_for(volume, claim)]
    return min(free, key=lambda volume: (capacity_bytes(volume), name_of(volume)), default=None) if not waits else None


def _bind(volume: Object, claim: Object) -> Iterator[Action]:
    """What is missing of the bond between a volume and a claim: reference and phase, then name and phase."""
    bound = bound_volume(volume, claim)
    if bound is not volume:
        yield Update(PERSISTENT_VOLUMES, bound)
    if _phase(volume) != "Bound":
        yield _set_phase(PERSISTENT_VOLUMES, volume, "Bound")
    metadata, annotations = claim["metadata"], dict(claim["metadata"].get("annotations") or {})
    if not claim["spec"].get("volumeName"):
        annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
    annotations.setdefault(BIND_COMPLETED, "yes")
    if annotations != metadata.get("annotations") or not claim["spec"].get("volumeName"):
        spec = {**claim["spec"], "volumeName": name_of(volume)}
        yield Update(
            PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        )
    wanted = {
        "phase": "Bound",
        "accessModes": list(volume["spec"].get("accessModes") or ()),
        "capacity": dict(volume["spec"].get("capacity") or {}),
    }
    status = claim.get("status") or {}
    if any(status.get(key) != value for key, value in wanted.items()):
        yield _patch_status(PERSISTENT_VOLUME_CLAIMS, claim, wanted)


def _look_at_bound(claim: Object, state: State) -> Iterator[Action]:
    volume = state[PERSISTENT_VOLUMES].get(claim["spec"]["volumeName"])
    if volume is None:
        yield _set_phase(PERSISTENT_VOLUME_CLAIMS, claim, "Lost")
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        yield Emit(claim, "Warning", "ClaimLost", text)
    elif not volume["spec"].get("claimRef") or is_bound_to(volume, claim):
        yield from _bind(volume, claim)
    else:
        yield _set_phase(PERSISTENT_VOLUME_CLAIMS, claim, "Lost")
        text = "Two claims are bound to the same volume, this one is bound incorrectly"
        yield Emit(claim, "Warning", "ClaimMisbound", text)


def _provision(claim: Object, storage_class: Object | None) -> Iterator[Action]:
    """Ask for a volume to be made: a provisioner that watches claims is named, and does the rest."""
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
        yield Emit(claim, "Warning", "ProvisioningFailed", text)
        return
    provisioner: str = storage_class.get("provisioner") or ""
    if provisioner == "kubernetes.io/no-provisioner":
        text = f"no volume plugin matched name: {provisioner}"
        yield Emit(claim, "Warning", "ProvisioningFailed", text)
        return
    metadata = claim["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **dict.fromkeys(PROVISIONERS, provisioner)}
    if annotations != metadata.get("annotations"):
        yield Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": {**metadata, "annotations": annotations}})
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )
    yield Emit(claim, "Normal", "ExternalProvisioning", text)


# -- volumes ----------------------------------------------------------------------------------------------------------


def _look_at_volume(volume: Object, state: State) -> Iterator[Action]:
    phase = _wanted_phase(volume, state)
    if phase is not None and phase != _phase(volume):
        yield _set_phase(PERSISTENT_VOLUMES, volume, phase)


def _wanted_phase(volume: Object, state: State) -> str | None:
    """The phase that a volume should have; None while a claim is about to be bound to it."""
    reference = volume["spec"].get("claimRef")
    if not reference or not reference.get("uid"):
        return "Available"
    claim = state[PERSISTENT_VOLUME_CLAIMS].get(f"{reference.get('namespace')}/{reference.get('name')}")
    if claim is None or uid_of(claim) != reference["uid"]:
        return "Released"
    if not claim["spec"].get("volumeName"):
        return None
    return "Bound" if _asks_for(claim, volume) else "Released"


def _set_phase(resource: Resource, obj: Object, phase: str) -> Patch:
    return _patch_status(resource, obj, {"phase": phase})


def _patch_status(resource: Resource, obj: Object, status: Object) -> Patch:
    metadata = {"uid": uid_of(obj)}
    namespace = obj["metadata"].get("namespace", "")
    return Patch(resource, namespace, name_of(obj), {"metadata": metadata, "status": status}, subresource="status")
