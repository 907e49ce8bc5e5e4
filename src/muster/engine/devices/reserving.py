"""Devices that pods on their way to a node will have: assumed like the pods themselves, so that nobody else gets them.

A claim is assumed as the API will show it once its allocation is written. What was written stays assumed until the API
shows it, or something newer. Source: kube-scheduler `dynamicresources/dra_manager.go` (in-flight allocations, 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.codec import Object, Objects, loads
from muster.api.meta import key_of, uid_of
from muster.engine.devices.demand import DeviceDemand, pod_claims
from muster.engine.devices.extended import ANNOTATION, IN_MEMORY, mappings_of
from muster.engine.devices.rooms import Room, Spot, plan_of, room_on, written
from muster.engine.devices.together import Seated, Sitter, Unsettled, seated
from muster.engine.devices.view import IN_FLIGHT, View, view_of
from muster.engine.objects import RESOURCE_CLAIM, ObjectStore


class ReservedClaim(Struct, frozen=True):
    """A claim that a pod is to use: its key, the pod's entry for it, and what it gets; None if it has that already."""

    key: str
    entry: str
    allocation: Object | None = None


class ReservedExtended(Struct, frozen=True):
    """The claim for extended resources that is to be made: its `spec.devices`, allocation and request mappings."""

    devices: Object
    allocation: Object
    mappings: Objects


class DeviceReservation(Struct, frozen=True):
    """What has to be written before a pod can be bound to its node. `missing`: why it cannot have its devices there."""

    node: str
    claims: tuple[ReservedClaim, ...] = ()
    extended: ReservedExtended | None = None
    missing: str = ""


class Wanting(Struct, frozen=True):
    """A pod that is to come to a node."""

    key: str
    pod: Object
    spot: Spot


@dataclass(slots=True)
class DeviceLedger:
    """Reservations by pod, and what of claims is assumed: their objects as the API shows them, and who needs that."""

    by_pod: dict[str, DeviceReservation] = field(default_factory=dict)
    _own: dict[str, Object] = field(default_factory=dict)
    _wanted: dict[str, Object] = field(default_factory=dict)
    _users: dict[str, dict[str, None]] = field(default_factory=dict)
    _written: dict[str, int] = field(default_factory=dict)

    def reserve(
        self, pods: Sequence[Wanting], demand: Callable[[Object], DeviceDemand | None], objects: ObjectStore
    ) -> str:
        """Assume devices for pods that are placed together; the first that finds none, or "".

        One after the other takes what it finds, or, if that does not lead to the end, what all of them together can
        have. All are noted, that one with what is `missing`; those after it get nothing.
        """
        wanting = [(each, wanted) for each in pods if (wanted := demand(each.pod)) is not None]
        found, failed = _one_by_one(wanting, objects)
        if failed and len(wanting) > 1:
            together = _together(wanting, objects)
            found, failed = (found, failed) if together is None else (together, "")
        self.by_pod |= found
        for each in pods:
            if each.key in self.by_pod:
                self._assume(each, objects)
        return failed

    def _assume(self, wanting: Wanting, objects: ObjectStore) -> None:
        reservation = self.by_pod[wanting.key]
        for claim in reservation.claims:
            if claim.allocation is not None:
                self._users.setdefault(claim.key, {})[wanting.key] = None
                self._hold(claim.key, claim.allocation, objects)
            elif claim.key in self._wanted:
                self._users[claim.key][wanting.key] = None
        if reservation.extended is not None:
            objects.set(RESOURCE_CLAIM, _in_memory(wanting.key, reservation.extended))

    def _hold(self, key: str, allocation: Object, objects: ObjectStore) -> None:
        claim = objects.get(RESOURCE_CLAIM, key)
        if claim is not None and key not in self._own:
            self._own[key], self._wanted[key] = claim, allocation
            objects.set(RESOURCE_CLAIM, assumed(claim, allocation))

    def release(self, pod: str, objects: ObjectStore) -> bool:
        """Take back what no other pod needs and was not written; whether there was a reservation."""
        reservation = self.by_pod.pop(pod, None)
        if reservation is None:
            return False
        for claim in reservation.claims:
            users = self._users.get(claim.key, {})
            users.pop(pod, None)
            if not users and claim.key not in self._written:
                self._drop(claim.key, objects)
        if reservation.extended is not None:
            objects.remove(RESOURCE_CLAIM, _memory_key(pod))
        return True

    def note_written(self, claim: Object) -> None:
        """The API has taken our allocation of a claim, or its removal: it counts until the API shows that version."""
        if key_of(claim) in self._own:
            self._written[key_of(claim)] = _version(claim)

    def seen(self, claim: Object) -> Object:
        """How a claim that the API shows is to be stored while something of it is assumed."""
        key = key_of(claim)
        if key not in self._own:
            return claim
        is_shown = bool((claim.get("status") or {}).get("allocation"))
        if is_shown or (key in self._written and _version(claim) >= self._written[key]):
            self._forget(key)
            return claim
        self._own[key] = claim
        return assumed(claim, self._wanted[key])

    def gone(self, key: str) -> None:
        """The claim is gone: nothing of it is assumed any more."""
        self._forget(key)

    def own(self, key: str, objects: ObjectStore) -> Object | None:
        """The claim as the API shows it, without what is assumed."""
        return self._own.get(key) or objects.get(RESOURCE_CLAIM, key)

    def _drop(self, key: str, objects: ObjectStore) -> None:
        own = self._own.get(key)
        self._forget(key)
        if own is not None:
            objects.set(RESOURCE_CLAIM, own)

    def _forget(self, key: str) -> None:
        for table in (self._own, self._wanted, self._users, self._written):
            table.pop(key, None)


def assumed(claim: Object, allocation: Object) -> Object:
    """The claim as it will be."""
    return {**claim, "status": {**(claim.get("status") or {}), "allocation": allocation}, IN_FLIGHT: True}


def _one_by_one(
    wanting: Sequence[tuple[Wanting, DeviceDemand]], objects: ObjectStore
) -> tuple[dict[str, DeviceReservation], str]:
    """What each gets after those before it, up to the first that finds nothing; and its key, or ""."""
    view, found = _scratch(objects), dict[str, DeviceReservation]()
    for each, demand in wanting:
        plan = plan_of(demand, view, waits=False)
        room = Room(None, reason=plan.problem) if plan.problem else room_on(plan, each.spot, view)
        if room.found is None:
            found[each.key] = DeviceReservation(each.spot.name, missing=room.reason)
            return found, each.key
        found[each.key] = _reserved(each, Seated(plan, room), view)
    return found, ""


def _together(
    wanting: Sequence[tuple[Wanting, DeviceDemand]], objects: ObjectStore
) -> dict[str, DeviceReservation] | None:
    """What each gets so that all get something; None if no way was found."""
    view = _scratch(objects)
    if any(demand.features.upstream for _, demand in wanting):
        return None
    try:
        seats = seated([Sitter(demand, each.spot) for each, demand in wanting], view)
    except Unsettled:
        return None
    if seats is None:
        return None
    return {each.key: _reserved(each, seat, view) for (each, _), seat in zip(wanting, seats, strict=True)}


def _scratch(objects: ObjectStore) -> View:
    """What there is, with room for what is decided meanwhile."""
    return view_of(objects, view_of(objects).allocated.copy(), {})


def _reserved(wanting: Wanting, seat: Seated, view: View) -> DeviceReservation:
    """What the pod gets; `view` then counts it and has the allocations of its claims."""
    node, plan, room = wanting.spot.name, seat.plan, seat.room
    ids = [uid_of(view.claims[key]) if key in view.claims else key for key in plan.keys]
    ids += [f"{uid_of(wanting.pod)}/{IN_MEMORY}"] * (len(room.wanted) - len(ids))
    allocations = written(plan, room, node, view, ids) if room.wanted else []
    view.allocated.add(room.uses)
    given = dict(zip(plan.keys, allocations, strict=False))
    assert isinstance(view.decided, dict)  # see `_scratch`
    view.decided.update(given)
    claims = tuple(ReservedClaim(each.key, each.entry, given.get(each.key)) for each in pod_claims(wanting.pod))
    extended = None
    if room.mapped:
        spec: Object = loads(room.wanted[-1].spec.written)
        extended = ReservedExtended(spec, allocations[-1], mappings_of(room.mapped))
    return DeviceReservation(node, claims, extended)


def _memory_key(pod: str) -> str:
    namespace, _, name = pod.partition("/")
    return f"{namespace}/{IN_MEMORY} {name}"


def _in_memory(pod: str, extended: ReservedExtended) -> Object:
    namespace, _, name = _memory_key(pod).partition("/")
    metadata = {"namespace": namespace, "name": name, "annotations": {ANNOTATION: "true"}}
    claim: Object = {"metadata": metadata, "spec": {"devices": extended.devices}}
    return assumed(claim, extended.allocation)


def _version(claim: Object) -> int:
    version = claim["metadata"].get("resourceVersion") or ""
    return int(version) if version.isdecimal() else 0
