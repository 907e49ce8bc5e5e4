"""The volumes of a cluster, sorted once for all claims: who is free, in which class, and who refers to which claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.api.codec import Object, canonical
from muster.api.meta import name_of
from muster.api.storage import capacity_bytes, class_of, could_hold, is_available_for, is_bound_to
from muster.engine.arrays import Ints
from muster.engine.objects import PERSISTENT_VOLUME, ObjectStore

ClaimName: TypeAlias = tuple[str, str]


class Facts(Struct, frozen=True):
    """What is read of a volume once. `kind`: what claims ask about; `affinity`: a key of what nodes must be."""

    class_name: str
    kind: bytes
    affinity: bytes


class Alike(Struct, frozen=True):
    """Volumes that suit the same claims: `places` in `Offers.volumes`, ascending, with the size of each."""

    size: int
    places: Ints


class Offers(Struct, frozen=True):
    """`volumes` by name, with the facts about each; `free` by class, `tied` by the claim that a volume refers to."""

    volumes: tuple[Object, ...]
    facts: tuple[Facts, ...]
    free: Mapping[str, Sequence[Alike]]
    tied: Mapping[ClaimName, Sequence[int]]

    def free_for(self, claim: Object) -> list[int]:
        """The places of volumes that suit a claim and refer to none, smallest first, then by name."""
        alike = [each for each in self.free.get(class_of(claim), ()) if self._suits(each, claim)]
        if not alike:
            return []
        places = np.concatenate([each.places for each in alike])
        sizes = np.repeat([each.size for each in alike], [len(each.places) for each in alike])
        ordered: list[int] = places[np.lexsort((places, sizes))].tolist()
        return ordered

    def _suits(self, alike: Alike, claim: Object) -> bool:
        volume = self.volumes[alike.places[0]]
        return could_hold(volume, claim) and is_available_for(volume, claim)

    def tied_to(self, claim: Object) -> int | None:
        """The place of the volume that refers to a claim and can hold it."""
        name = (claim["metadata"].get("namespace", ""), claim["metadata"]["name"])
        for place in self.tied.get(name, ()):
            volume = self.volumes[place]
            if could_hold(volume, claim) and is_bound_to(volume, claim):
                return place
        return None


def offers(objects: ObjectStore) -> Offers:
    """The volumes of a store, sorted when one of them has changed."""
    return objects.derived(PERSISTENT_VOLUME, lambda before: _sorted(objects, before))


def _sorted(objects: ObjectStore, before: Offers | None) -> Offers:
    """The volumes of a store. Of a volume that is the same object as before, nothing is read again."""
    volumes = tuple(sorted(objects.all(PERSISTENT_VOLUME).values(), key=name_of))
    known = {} if before is None else {id(each): at for at, each in enumerate(before.volumes)}
    facts = []
    for volume in volumes:
        at = known.get(id(volume))
        facts.append(_facts(volume) if before is None or at is None else before.facts[at])
    free: dict[str, dict[bytes, list[int]]] = {}
    tied: dict[ClaimName, list[int]] = {}
    for place, volume in enumerate(volumes):
        reference = volume["spec"].get("claimRef")
        if reference:
            tied.setdefault((reference.get("namespace", ""), reference.get("name", "")), []).append(place)
        else:
            fact = facts[place]
            free.setdefault(fact.class_name, {}).setdefault(fact.kind, []).append(place)
    return Offers(
        volumes,
        tuple(facts),
        {name: [_alike(volumes, places) for places in kinds.values()] for name, kinds in free.items()},
        tied,
    )


def _alike(volumes: Sequence[Object], places: list[int]) -> Alike:
    return Alike(capacity_bytes(volumes[places[0]]), np.array(places, dtype=np.int64))


def _facts(volume: Object) -> Facts:
    return Facts(class_of(volume), _kind(volume), _affinity(volume))


def _kind(volume: Object) -> bytes:
    """What claims ask about in a volume."""
    spec, metadata = volume["spec"], volume["metadata"]
    asked = [spec.get(key) for key in ("capacity", "volumeMode", "volumeAttributesClassName", "accessModes")]
    phase = (volume.get("status") or {}).get("phase")
    return canonical([*asked, phase, metadata.get("labels"), bool(metadata.get("deletionTimestamp"))])


def _affinity(volume: Object) -> bytes:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return b"" if required is None else canonical(required)
