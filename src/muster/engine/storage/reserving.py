"""Volumes that pods on their way to a node will have: assumed like the pods themselves, so that nobody else gets them.

A claim that is matched with a volume is assumed as a volume that refers to it, one whose volume is to be made as a
claim that names the node: both as the API will show them once they are written.
Source of the rules: kube-scheduler `volumebinding/{binder,assume_cache}.go` (AssumePodVolumes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import key_of, name_of
from muster.api.storage import SELECTED_NODE, bound_volume
from muster.engine.nodes import NodeTable
from muster.engine.objects import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, ObjectStore
from muster.engine.storage.claims import Claims, claims_of
from muster.engine.storage.finding import find_volumes
from muster.engine.storage.volumes import VolumeUse


class Match(NamedTuple):
    """A claim (`namespace/name`) and the volume that it is to be bound to."""

    claim: str
    volume: str


class Reservation(Struct, frozen=True):
    """What has to be written, and then to happen, before a pod can be bound to its node.

    `missing`: the node has not, and cannot get, what the claims need after all.
    """

    node: str
    matched: tuple[Match, ...] = ()
    provisioned: tuple[str, ...] = ()
    missing: bool = False

    def __bool__(self) -> bool:
        return bool(self.matched or self.provisioned or self.missing)


def reservation_at(uses: tuple[VolumeUse, ...], row: int, table: NodeTable, objects: ObjectStore) -> Reservation:
    """What the claims of a pod need on the node of that row; all that can be had, if something is missing."""
    name = table.records[row].name
    claims = claims_of(uses, objects)
    if not isinstance(claims, Claims) or not claims.waiting:
        return Reservation(name)
    found = find_volumes(claims, table, objects, np.array([row], dtype=np.int64))
    picks = [(claim, int(pick[0])) for claim, pick in found.chosen]
    matched = tuple(Match(key_of(claim), name_of(found.volumes[at])) for claim, at in picks if at >= 0)
    made = (*found.provisioned, *(claim for claim, at in picks if at < 0))
    return Reservation(name, matched, tuple(map(key_of, made)), not found.satisfied[0])


def placed_claim(claim: Object, node: str) -> Object:
    """The claim as the scheduler writes it to have its volume made for a node."""
    metadata = claim["metadata"]
    return {
        **claim,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), SELECTED_NODE: node}},
    }


Key: TypeAlias = tuple[str, str]
"""Kind and key of an object."""


@dataclass(slots=True)
class Reservations:
    """Reservations by pod, and the objects of a store that look as if they were carried out.

    Of the objects that are changed so, the store's own form is kept, and comes back when the last pod gives up.
    """

    by_pod: dict[object, Reservation] = field(default_factory=dict)
    _users: dict[Key, dict[object, None]] = field(default_factory=dict)
    _own: dict[Key, Object] = field(default_factory=dict)
    _wanted: dict[Key, Match | str] = field(default_factory=dict)

    def copy(self) -> Reservations:
        """The same, to go on by itself."""
        users = {key: dict(pods) for key, pods in self._users.items()}
        return Reservations(dict(self.by_pod), users, dict(self._own), dict(self._wanted))

    def add(self, pod: object, reservation: Reservation, objects: ObjectStore) -> None:
        """Assume what a pod needs; `pod` is whatever `remove` will name it by."""
        self.by_pod[pod] = reservation
        for key, wanted in _wants(reservation):
            known = objects.get(*key)
            if known is None:
                continue
            self._users.setdefault(key, {})[pod] = None
            if key not in self._own:
                self._own[key], self._wanted[key] = known, wanted
                objects.set(key[0], self._assumed(key, known, objects))

    def remove(self, pod: object, objects: ObjectStore) -> bool:
        """Take back what no other pod needs; whether that is anything."""
        reservation = self.by_pod.pop(pod, None)
        changed = False
        for key, _ in _wants(reservation) if reservation is not None else ():
            users = self._users.get(key, {})
            users.pop(pod, None)
            if not users and key in self._own:
                own = self._own.pop(key)
                del self._users[key], self._wanted[key]
                changed = objects.set(key[0], own) or changed
        return changed

    def seen(self, kind: str, obj: Object, objects: ObjectStore) -> Object:
        """How an object that the API shows is to be stored while something of it is assumed."""
        key = (kind, key_of(obj))
        if key not in self._own:
            return obj
        self._own[key] = obj
        return self._assumed(key, obj, objects)

    def own(self, kind: str, key: str, objects: ObjectStore) -> Object | None:
        """The object as the API shows it, without what is assumed."""
        return self._own.get((kind, key)) or objects.get(kind, key)

    def gone(self, kind: str, key: str) -> None:
        """The object is gone: nothing of it is assumed any more."""
        for table in (self._own, self._users, self._wanted):
            table.pop((kind, key), None)

    def _assumed(self, key: Key, obj: Object, objects: ObjectStore) -> Object:
        wanted = self._wanted[key]
        if isinstance(wanted, Match):
            claim = objects.get(PERSISTENT_VOLUME_CLAIM, wanted.claim)
            return obj if claim is None or obj["spec"].get("claimRef") else bound_volume(obj, claim)
        return obj if obj["spec"].get("volumeName") else placed_claim(obj, wanted)


def _wants(reservation: Reservation) -> Iterable[tuple[Key, Match | str]]:
    for match in reservation.matched:
        yield (PERSISTENT_VOLUME, match.volume), match
    for claim in reservation.provisioned:
        yield (PERSISTENT_VOLUME_CLAIM, claim), reservation.node
