"""Groups whose members use one ResourceClaim: its devices are chosen first, each choice in turn, then places for all.

A claim gets devices once, and they say on which nodes its pods can be. Whoever comes first would choose for all others;
so that no placement is missed, every choice that differs in more than the names of devices is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object, canonical
from muster.engine.arrays import Bools
from muster.engine.devices.allocated import Use
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.rooms import Plan, Spot, around_of, plan_of, room_of, terms_of, written
from muster.engine.devices.search import AllocationFault, ways_to_allocate
from muster.engine.devices.view import View, view_of
from muster.engine.mixed import demands_of
from muster.engine.model import Decision, GroupRequest, Infeasible, Placed, Undecided
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot, spots_of

Inside = Callable[[Snapshot, GroupRequest, int], Decision]
"""Decides about a request within so much budget."""

_MOST_WAYS = 32
"""So many ways to allocate a claim are looked at on one node."""
_MOST_CHOICES = 512
"""So many choices for a claim are looked at."""
_SHARES = 8


class Choice(Struct, frozen=True):
    """Devices for a claim, as its allocation says."""

    allocation: Object
    uses: tuple[Use, ...]


def claims_in_common(snapshot: Snapshot, request: GroupRequest) -> list[str]:
    """The claims that members name and that have no devices yet."""
    view = _view(snapshot)
    keys: dict[str, None] = {}
    for demand in demands_of(request.members):
        devices = demand.shape.usage.devices
        if devices is not None and not devices.features.upstream:
            plan = plan_of(devices, view, waits=False)
            keys |= dict.fromkeys(plan.shared if not plan.problem else ())
    return list(keys)


def decide_by_choices(
    profile: Profile,
    snapshot: Snapshot,
    request: GroupRequest,
    key: str,
    limit: int,
    inside: Inside,
    known: Placed | Undecided,
) -> Decision:
    """The best decision over all choices for a claim; Infeasible if each of them was proved to be.

    `known`: what was found without looking at them.
    """
    users = {member.key for member in request.members if _uses(member.shape.usage.devices, key)}
    choices, is_all = _choices(profile, snapshot, request, key)
    share, spent = max(1, limit // _SHARES), 0
    best: Placed | None = None
    failed: Infeasible | Placed | Undecided = known
    for choice in choices:
        with snapshot.trial() as trial:
            trial.fix_claim(key, choice.allocation, choice.uses)
            found = inside(trial, request, max(1, min(share, limit - spent)))
        if isinstance(found, Placed):
            best = found if best is None or len(found.unplaced) < len(best.unplaced) else best
            if not best.unplaced:
                return best
        elif isinstance(found, Undecided):
            is_all, failed = False, found
            spent += found.spent
        elif failed is known:
            failed = found
        if spent >= limit:
            is_all = False
            break
    left = tuple(member for member in request.members if member.key not in users)
    if left and len(left) >= request.min_count - request.scheduled:
        found = inside(snapshot, replace(request, members=left), share)
        if isinstance(found, Placed):
            without = replace(found, unplaced=(*found.unplaced, *sorted(users)))
            best = without if best is None or len(without.unplaced) < len(best.unplaced) else best
        is_all = is_all and not isinstance(found, Undecided)
    if best is not None:
        return best
    if is_all and failed.diagnosis is not None:
        return Infeasible(_proof(key, len(choices)), failed.diagnosis)
    return known


def _proof(key: str, ways: int) -> str:
    if not ways:
        return f"ResourceClaim {key} gets its devices nowhere where all its pods have room"
    number = "one way" if ways == 1 else f"{ways} ways"
    return f"ResourceClaim {key} can get its devices in {number}, and the group fits with none of them"


def _uses(devices: DeviceDemand | None, key: str) -> bool:
    return devices is not None and any(each.key == key for each in devices.claims)


def _choices(profile: Profile, snapshot: Snapshot, request: GroupRequest, key: str) -> tuple[list[Choice], bool]:
    """The choices with room for as many of the claim's pods as are needed, those with most room first; and whether
    these are all."""
    users = [each for each in demands_of(request.members) if _uses(each.shape.usage.devices, key)]
    number = sum(len(each.places) for each in users)
    needed = max(1, request.min_count - request.scheduled - (len(request.members) - number))
    room = np.zeros(len(snapshot), dtype=np.int64)
    for each in users:
        room += np.minimum(profile.ceiling(each.shape, snapshot), len(each.places))
    view, spots = _view(snapshot), spots_of(snapshot.table)
    demand = users[0].shape.usage.devices
    assert demand is not None
    plan = plan_of(demand, view, waits=False)
    at = plan.keys.index(key)
    plan = replaced(plan, wanted=(plan.wanted[at],), keys=(key,))
    seen: set[bytes] = set()
    nodes: dict[bytes, Bools] = {}
    found: list[tuple[int, Choice]] = []
    is_all = True
    for row in np.flatnonzero(room).tolist():
        ways = _ways(plan, spots[row], view)
        is_all = is_all and ways is not None and len(ways) <= _MOST_WAYS
        for allocation, uses in (ways or [])[:_MOST_WAYS]:
            identity = canonical(allocation)
            if identity in seen:
                continue
            seen.add(identity)
            selector = allocation.get("nodeSelector")
            where = canonical(selector)
            if where not in nodes:
                nodes[where] = _nodes(selector, spots, snapshot.table.index)
            most = int(room[nodes[where]].sum())
            if most >= needed:
                found.append((most, Choice(allocation, uses)))
    found.sort(key=lambda pair: -pair[0])
    return [each for _, each in found[:_MOST_CHOICES]], is_all and len(found) <= _MOST_CHOICES


def _ways(plan: Plan, spot: Spot, view: View) -> list[tuple[Object, tuple[Use, ...]]] | None:
    """Allocations of the plan's only claim for a pod on the node, with what they take; None if they are not known."""
    try:
        ways = ways_to_allocate(around_of(plan, spot, view), plan.wanted[0], _MOST_WAYS)
    except AllocationFault:
        return None
    rooms = [room_of(found, plan.wanted, ()) for found in ways]
    return [(written(plan, room, spot.name, view, [plan.wanted[0].label])[0], room.uses) for room in rooms]


def _nodes(selector: Object | None, spots: Sequence[Spot], index: Mapping[str, int]) -> Bools:
    """bool[N]: the nodes of an allocation's selector."""
    if not selector:
        return np.ones(len(spots), dtype=np.bool_)
    nodes = np.zeros(len(spots), dtype=np.bool_)
    names = _only_names(selector)
    if names is not None:
        nodes[[index[name] for name in names if name in index]] = True
        return nodes
    terms = terms_of(selector)
    for row, spot in enumerate(spots):
        nodes[row] = any(term.matches(spot.labels, spot.name) for term in terms)
    return nodes


def _only_names(selector: Object) -> list[str] | None:
    """The names of a selector that says nothing else, as those for devices of one node do."""
    terms = selector["nodeSelectorTerms"]
    fields = terms[0].get("matchFields") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(fields) != 1 or fields[0]["operator"] != "In":
        return None
    names: list[str] = fields[0]["values"]
    return names


def _view(snapshot: Snapshot) -> View:
    return view_of(snapshot.objects) if snapshot.devices is None else snapshot.devices.view
