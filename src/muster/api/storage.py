"""Claims and volumes: what a claim asks for, what a volume offers, and whether they belong together.

Source of the rules: component-helpers `storage/volume/{helpers,pv_helpers}.go`.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.quantity import QuantityError, parse_quantity
from muster.api.selectors import SelectorError, label_selector

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def class_of(obj: Object) -> str:
    """The storage class name of a claim or volume; the annotation wins."""
    annotated = (obj["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    name: str = annotated if annotated is not None else obj["spec"].get("storageClassName") or ""
    return name


def waits_for_consumer(storage_class: Object | None) -> bool:
    """Whether claims of the class are bound for the node of their first pod."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


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


def capacity_bytes(volume: Object) -> int:
    """The size of a volume."""
    return bytes_of((volume["spec"].get("capacity") or {}).get("storage", "0"))


def is_bound(claim: Object) -> bool:
    """Whether the claim has its volume for good."""
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Whether the volume refers to the claim, by uid or (prepared by a person) by name alone."""
    reference = volume["spec"].get("claimRef") or {}
    named = (reference.get("namespace"), reference.get("name")) == (namespace_of(claim), name_of(claim))
    return named and reference.get("uid") in (None, "", uid_of(claim))


def could_hold(volume: Object, claim: Object) -> bool:
    """Whether size, mode and attributes of the volume suit the claim, and nobody deletes it."""
    modes = [(obj["spec"].get("volumeMode") or "Filesystem") for obj in (claim, volume)]
    attributes = [(obj["spec"].get("volumeAttributesClassName") or "") for obj in (claim, volume)]
    large_enough = capacity_bytes(volume) >= (requested_bytes(claim) or 0)
    return large_enough and not is_deleting(volume) and modes[0] == modes[1] and attributes[0] == attributes[1]


def is_available_for(volume: Object, claim: Object) -> bool:
    """Whether nobody has the volume, and class, access modes and labels are what the claim asks for."""
    if (volume.get("status") or {}).get("phase") != "Available" or class_of(volume) != class_of(claim):
        return False
    if not set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ()):
        return False
    selector = claim["spec"].get("selector")
    if selector is None:
        return True
    try:
        return label_selector(selector).matches(volume["metadata"].get("labels") or {})
    except SelectorError:
        return False


def bound_volume(volume: Object, claim: Object) -> Object:
    """The volume as it is written to bind it to a claim; the same object if it is bound to it already."""
    old, metadata = volume["spec"].get("claimRef"), volume["metadata"]
    if not is_bound_to(volume, claim):
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), BOUND_BY_CONTROLLER: "yes"}}
    elif old.get("uid"):
        return volume
    reference = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": namespace_of(claim),
        "name": name_of(claim),
        "uid": uid_of(claim),
        "resourceVersion": claim["metadata"].get("resourceVersion", ""),
    }
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": reference}}
