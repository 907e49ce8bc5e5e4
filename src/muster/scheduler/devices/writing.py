"""What has to be written to claims before pods are bound, and how a claim reads then. Pure.

Source of the rules and texts: kube-scheduler `dynamicresources/dynamicresources.go` (bindClaim, Unreserve; 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.engine.devices.extended import ANNOTATION
from muster.engine.devices.reserving import DeviceReservation, ReservedExtended
from muster.engine.devices.results import FINALIZER
from muster.scheduler.binder import BindRequest

POD_GROUP_API = "scheduling.k8s.io"


class BindingFailed(Exception):
    """The devices of pods cannot be had any more. Retryable by scheduling anew; the text is upstream's."""


class Consumer(Struct, frozen=True):
    """Who is noted in `reservedFor`: a pod, or the PodGroup of pods."""

    resource: str
    name: str
    uid: str
    group: str = ""

    @property
    def entry(self) -> Object:
        """The entry of `reservedFor`."""
        named = {"resource": self.resource, "name": self.name, "uid": self.uid}
        return {"apiGroup": self.group, **named} if self.group else named


@dataclass(slots=True)
class ClaimWrite:
    """A claim that pods of one commit use. `allocation` None: it has devices already."""

    key: str
    allocation: Object | None = None
    consumers: dict[Consumer, None] = field(default_factory=dict)
    requests: list[BindRequest] = field(default_factory=list)


class Step(Struct, frozen=True):
    """The next write to a claim: the whole object, or its status."""

    claim: Object
    subresource: str
    what: str


GroupLookup = Callable[[str], Object | None]
"""A PodGroup by `namespace/name`."""


def consumer_of(pod: Object, entry_name: str, group: GroupLookup) -> Consumer:
    """Who reserves the claim of an entry of the pod: its PodGroup if that has the very same entry, else the pod."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    found = group(f"{namespace_of(pod)}/{name}") if name else None
    entry = next((each for each in pod["spec"].get("resourceClaims") or () if each.get("name") == entry_name), None)
    if found is not None and any(_is_same(entry, each) for each in found["spec"].get("resourceClaims") or ()):
        return Consumer("podgroups", name_of(found), uid_of(found), POD_GROUP_API)
    return Consumer("pods", name_of(pod), uid_of(pod))


def _is_same(entry: Object | None, other: Object) -> bool:
    fields = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return entry is not None and all(entry.get(name) == other.get(name) for name in fields)


def claim_writes(
    requests: Sequence[BindRequest], reservation: Callable[[str], DeviceReservation | None], group: GroupLookup
) -> list[ClaimWrite]:
    """The claims to write for these pods, each once. Raises BindingFailed for a pod that has found no devices."""
    writes: dict[str, ClaimWrite] = {}
    for request in requests:
        reserved = reservation(request.key)
        for each in () if reserved is None else reserved.claims:
            write = writes.setdefault(each.key, ClaimWrite(each.key))
            write.allocation = write.allocation or each.allocation
            write.consumers[consumer_of(request.pod, each.entry, group)] = None
            write.requests.append(request)
    return list(writes.values())


def next_step(claim: Object | None, write: ClaimWrite, now: str) -> Step | None:
    """The next write that makes the claim what it must be; None once it is. Raises BindingFailed."""
    if claim is None:
        raise BindingFailed(f"claim {write.key} not found")
    if is_deleting(claim):
        raise BindingFailed(f"claim {write.key} got deleted in the meantime")
    status: Object = claim.get("status") or {}
    current: Object | None = status.get("allocation")
    if current is not None and write.allocation is not None and _bare(current) != _bare(write.allocation):
        raise BindingFailed(f"claim {write.key} got allocated elsewhere in the meantime")
    if current is None and write.allocation is None:
        raise BindingFailed(f"claim {write.key} is not allocated any more")
    metadata = claim["metadata"]
    if current is None and FINALIZER not in (metadata.get("finalizers") or ()):
        finalizers = [*(metadata.get("finalizers") or ()), FINALIZER]
        return Step({**claim, "metadata": {**metadata, "finalizers": finalizers}}, "", "add finalizer to")
    reserved: Objects = status.get("reservedFor") or []
    known = {each.get("uid") for each in reserved}
    missing = [each.entry for each in write.consumers if each.uid not in known]
    if current is not None and not missing:
        return None
    if current is None:
        status = {**status, "allocation": {**(write.allocation or {}), "allocationTimestamp": now}}
    what = "add reservation to" if current is not None else "add allocation and reservation to"
    return Step({**claim, "status": {**status, "reservedFor": [*reserved, *missing]}}, "status", what)


def without(claim: Object, consumers: Iterable[Consumer], *, deallocates: bool) -> Object | None:
    """The claim without these consumers, and without devices if they were the last and `deallocates`.

    None if nothing is to be written.
    """
    status: Object = claim.get("status") or {}
    reserved: Objects = status.get("reservedFor") or []
    gone = {each.uid for each in consumers}
    left = [each for each in reserved if each.get("uid") not in gone]
    frees = deallocates and not left and status.get("allocation") is not None
    if len(left) == len(reserved) and not frees:
        return None
    kept = {name: value for name, value in status.items() if name != "reservedFor"}
    if left:
        kept["reservedFor"] = left
    if frees:
        kept.pop("allocation", None)
        kept.pop("devices", None)
    return {**claim, "status": kept}


def is_in_the_way(claim: Object, consumers: Container[str]) -> bool:
    """Whether a claim has devices that only some nodes reach, and nobody but these (uids) is noted as using them.

    Where they have no node with these devices, they may get others. Source: `dynamicresources.go` (PostFilter).
    """
    status: Object = claim.get("status") or {}
    is_bound_to_nodes = bool((status.get("allocation") or {}).get("nodeSelector"))
    return is_bound_to_nodes and all(each.get("uid") in consumers for each in status.get("reservedFor") or ())


def freed(claim: Object) -> Object:
    """The claim without devices and consumers."""
    kept = {
        name: value for name, value in claim["status"].items() if name not in ("allocation", "reservedFor", "devices")
    }
    return {**claim, "status": kept}


def extended_claim(pod: Object, extended: ReservedExtended) -> Object:
    """The claim for a pod's extended resources, as it is created."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod), "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": namespace_of(pod),
            "generateName": f"{name_of(pod)}-extended-resources-",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": extended.devices},
    }


def unready(claim: Object) -> bool:
    """Whether a device of the claim still has to be made ready for its node. Raises BindingFailed if one failed."""
    waits = False
    for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ():
        conditions = _true_conditions(claim, result)
        failures = [each for each in result.get("bindingFailureConditions") or () if each in conditions]
        if failures:
            device = f"{result.get('driver')}/{result.get('pool')}/{result.get('device')}"
            raise BindingFailed(f"claim {key_of(claim)} binding failed: device {device} has {failures[0]}")
        waits = waits or any(each not in conditions for each in result.get("bindingConditions") or ())
    return waits


def _true_conditions(claim: Object, result: Object) -> set[str]:
    names = ("driver", "pool", "device")
    return {
        str(condition.get("type"))
        for device in (claim.get("status") or {}).get("devices") or ()
        if all(device.get(name) == result.get(name) for name in names)
        for condition in device.get("conditions") or ()
        if condition.get("status") == "True"
    }


def _bare(allocation: Object) -> Object:
    return {name: value for name, value in allocation.items() if name != "allocationTimestamp"}
