"""Which volumes the claims of several pods may compete for, as a rule between the pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from muster.api.codec import Object
from muster.api.meta import key_of
from muster.api.storage import SELECTED_NODE, requested_bytes
from muster.engine.between import Between, Choice, Volumes
from muster.engine.nodes import NodeTable
from muster.engine.objects import ObjectStore
from muster.engine.storage.claims import Claims, claims_of
from muster.engine.storage.finding import Nodes, provisioning
from muster.engine.storage.offers import Offers, offers
from muster.engine.storage.volumes import VolumeUse

_MANY = 256
_MOST_PAIRS = 4_000_000
"""Volumes times nodes, beyond which the rule is left to the test of placements."""


def claims_that_choose(pods: Sequence[tuple[VolumeUse, ...]], table: NodeTable, objects: ObjectStore) -> list[Between]:
    """The rule about the claims of these pods, none if they have nothing to choose. See `finding.find_volumes`."""
    waiting = {at: found for at, uses in enumerate(pods) if uses and (found := _waiting(uses, objects))}
    if not waiting:
        return []
    offered, nodes = offers(objects), Nodes(table)
    claims = {key_of(claim): claim for found in waiting.values() for claim in found}
    users = Counter(key_of(claim) for found in waiting.values() for claim in found)
    suiting = {key: _suiting(claim, offered) for key, claim in claims.items()}
    is_few = (
        len(claims) <= _MANY
    )  # of many, those that nobody else mounts and that get a volume of their own are left out
    chosen = [key for key in claims if suiting[key] or users[key] > 1 or is_few]
    places = sorted({place for key in chosen for place in suiting[key]})
    if not chosen or len(places) * len(table) > _MOST_PAIRS:
        return []
    position = {place: at for at, place in enumerate(places)}
    choices = []
    for key in chosen:
        allowed, enough = provisioning(claims[key], nodes, objects)
        choices.append(Choice(key, tuple(position[place] for place in suiting[key]), allowed & enough))
    index = {key: at for at, key in enumerate(chosen)}
    of_shapes = {
        at: tuple(index[key_of(claim)] for claim in found if key_of(claim) in index) for at, found in waiting.items()
    }
    reach = np.array([nodes.reached(offered.volumes[place]) for place in places], dtype=np.bool_)
    rule = Volumes(
        "claims that choose volumes",
        np.arange(len(table), dtype=np.int32),
        {at: found for at, found in of_shapes.items() if found},
        tuple(choices),
        reach.reshape(len(places), len(table)),
    )
    return [rule]


def _waiting(uses: tuple[VolumeUse, ...], objects: ObjectStore) -> list[Object]:
    """The claims that are still open, in the order in which they choose: the smallest first."""
    claims = claims_of(uses, objects)
    if not isinstance(claims, Claims):
        return []
    open_ = [each for each in claims.waiting if SELECTED_NODE not in (each["metadata"].get("annotations") or {})]
    return sorted(open_, key=lambda claim: requested_bytes(claim) or 0)


def _suiting(claim: Object, offered: Offers) -> list[int]:
    tied = offered.tied_to(claim)
    return offered.free_for(claim) if tied is None else [tied]
