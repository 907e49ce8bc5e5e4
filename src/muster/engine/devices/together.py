"""Devices for several pods at once, each on its node: a way to give all of them theirs, if there is one.

Where pods that come one after the other all find devices, that is the way. Else the search changes what earlier ones
of them have: two pods that each may take a device of two kinds must not both begin with the one that a third needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from muster.engine.devices.classes import ClassBook
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device
from muster.engine.devices.pools import Pool
from muster.engine.devices.rooms import (
    FREE,
    MANY,
    Plan,
    Room,
    Spot,
    around_of,
    claims_on,
    count_on,
    has_common_devices,
    is_endless,
    is_plain,
    known_count,
    most_on,
    plan_of,
    room_of,
)
from muster.engine.devices.search import AllocationFault, Around, Seat, Wanted, allocate_together
from muster.engine.devices.view import View


@dataclass(frozen=True, slots=True)
class Sitter:
    """A pod that is to be on a node."""

    demand: DeviceDemand
    spot: Spot


@dataclass(frozen=True, slots=True)
class Seated:
    """What a pod gets on its node. `plan`: what is left to find for it, where pods before it have found the rest."""

    plan: Plan
    room: Room


_MOST_ROUNDS = 256


class Unsettled(Exception):
    """The search took too many steps to say whether there is a way."""


def seated(sitters: Sequence[Sitter], view: View) -> list[Seated] | None:
    """Devices for all of these pods, in their order; None if there is no way. Raises Unsettled.

    The claims of the view that have devices keep them.
    """
    found: dict[int, Seated] = {}
    plans = [plan_of(each.demand, view, waits=False) for each in sitters]
    if any(plan.problem or not plan.lets(each.spot.labels, each.spot.name) for plan, each in _pairs(plans, sitters)):
        return None
    for part in _apart(plans, sitters, view):
        seats = _seated([plans[at] for at in part], [sitters[at] for at in part], view)
        if seats is None:
            return None
        found |= zip(part, seats, strict=True)
    return [found[at] for at in range(len(sitters))]


def _pairs(plans: Sequence[Plan], sitters: Sequence[Sitter]) -> Iterator[tuple[Plan, Sitter]]:
    return zip(plans, sitters, strict=True)


def _apart(plans: Sequence[Plan], sitters: Sequence[Sitter], view: View) -> list[list[int]]:
    """The pods in sets that take nothing from each other; of like pods on a node one follows the other."""
    sets: list[tuple[frozenset[object], list[int]]] = []
    places = {(each.spot.name, each.demand): at for at, each in reversed(list(enumerate(sitters)))}
    nodes = {each.spot.name: at for at, each in reversed(list(enumerate(sitters)))}
    order = sorted(
        range(len(sitters)),
        key=lambda at: (nodes[sitters[at].spot.name], places[sitters[at].spot.name, sitters[at].demand], at),
    )
    for at in order:
        touched = frozenset(_touched(plans[at], sitters[at], view))
        joined = [at]
        rest = []
        for tokens, members in sets:
            if tokens & touched:
                touched, joined = touched | tokens, members + joined
            else:
                rest.append((tokens, members))
        sets = [*rest, (touched, joined)]
    ranks = {at: rank for rank, at in enumerate(order)}
    return [sorted(members, key=ranks.__getitem__) for _, members in sets]


def _touched(plan: Plan, sitter: Sitter, view: View) -> Iterator[object]:
    """What pods have in common with others: their node, pools that other nodes reach, claims."""
    yield sitter.spot.name
    yield from plan.shared
    if has_common_devices(plan, view):
        yield from (pool.id for pool in view.pools(sitter.spot.labels, sitter.spot.name, plan.demand.features))


def _seated(plans: Sequence[Plan], sitters: Sequence[Sitter], view: View) -> list[Seated] | None:
    arounds: dict[str, Around] = {}
    users: dict[str, list[Around]] = {}
    for plan, each in _pairs(plans, sitters):
        around = arounds.setdefault(each.spot.name, around_of(plan, each.spot, view))
        for key in plan.shared:
            users.setdefault(key, []).append(around)
    taken: set[str] = set()
    left: list[Plan] = []
    seats: list[Seat] = []
    mapped = []
    for plan, each in _pairs(plans, sitters):
        plan = _without(plan, taken, users)
        taken.update(plan.shared)
        claims, maps = claims_on(plan, each.spot)
        left.append(plan)
        mapped.append(maps)
        seats.append(Seat(arounds[each.spot.name], claims))
    asking = [at for at, seat in enumerate(seats) if seat.claims]
    if not asking:
        return [Seated(plan, FREE) for plan in left]
    try:
        found = allocate_together([seats[at] for at in asking])
    except AllocationFault as fault:
        raise Unsettled(str(fault)) from fault
    if found is None:
        return None
    rooms = dict(zip(asking, found, strict=True))
    return [
        Seated(plan, room_of(rooms[at], seats[at].claims, mapped[at]) if at in rooms else FREE)
        for at, plan in enumerate(left)
    ]


def _without(plan: Plan, taken: set[str], users: dict[str, list[Around]]) -> Plan:
    """The plan without claims for which devices are found already; those for several pods only with devices that all
    of them reach."""
    if not plan.shared:
        return plan
    wanted: list[Wanted] = []
    keys: list[str] = []
    for claim, key in zip(plan.wanted, plan.keys, strict=True):
        if key in taken:
            continue
        around = users.get(key, ())
        wanted.append(claim if len(around) < 2 else _narrowed(claim, around))
        keys.append(key)
    return replace(plan, wanted=tuple(wanted), keys=tuple(keys))


def _narrowed(claim: Wanted, arounds: Sequence[Around]) -> Wanted:
    reached = [
        {device for pool in around.pools for device in pool.devices if _reaches(around, pool, device)}
        for around in {id(each): each for each in arounds}.values()
    ]
    return Wanted(claim.label, claim.spec, claim.is_shared, frozenset(set.intersection(*reached)))


def _reaches(around: Around, pool: Pool, device: Device) -> bool:
    return device not in pool.per_device or device.reach.matches(around.labels, around.node)


def count_together(
    plan: Plan, spot: Spot, view: View, beside: Sequence[Sitter], before: View
) -> tuple[int, Room, bool]:
    """How many pods of the demand can be seated on the node beside these, whose devices may be changed for that; what
    the first of them gets; and whether it is sure that no more can.

    `view` counts what those beside have, `before` does not.
    """
    number, first = count_on(plan, spot, view)
    if number == MANY or not is_worth_it(plan, view, beside):
        return number, first, True
    return _more_than(number, first, plan, spot, beside, before)


def _more_than(
    number: int, first: Room, plan: Plan, spot: Spot, beside: Sequence[Sitter], before: View
) -> tuple[int, Room, bool]:
    """As `count_together`, for which so many find devices one after the other."""
    most, reached, room = most_on(plan, spot, before), number, first
    while reached < most:
        if reached > _MOST_ROUNDS:
            return number, first, False
        more = [Sitter(plan.demand, spot)] * (reached + 1)
        try:
            found = seated([*beside, *more], before)
        except Unsettled:
            return number, first, False
        if found is None:
            break
        room = room if reached else found[len(beside)].room
        reached += 1
        if reached > 1 and is_endless(found[-1].room.uses):
            return MANY, room, True
    return reached, room, True


def known_together(plan: Plan, spot: Spot, view: View) -> tuple[int, Room, bool]:
    """As `count_together` beside nobody, remembered for nodes that have the same."""
    number, first = known_count(plan, spot, view)
    if number == MANY or not is_worth_it(plan, view, ()):
        return number, first, True
    if plan.shared or plan.terms or view.rules:
        return _more_than(number, first, plan, spot, (), view)
    memo, key = view.inventory.memo, ("together", plan.demand, kind_of(spot, view, plan.demand.features))
    known = memo.get(key)
    if isinstance(known, _Count) and known.classes is view.classes and first.found is not None:
        return known.number, first, known.is_sure
    number, first, is_sure = _more_than(number, first, plan, spot, (), view)
    memo[key] = _Count(view.classes, number, is_sure)
    return number, first, is_sure


@dataclass(frozen=True, slots=True)
class _Count:
    classes: ClassBook
    number: int
    is_sure: bool


def kind_of(spot: Spot, view: View, features: Features) -> object:
    """What tells the node apart from others on which any pods find devices, but for claims that have some already."""
    pools = view.pools(spot.labels, spot.name, features)
    return spot.offered, tuple(_kind_of_pool(pool, spot, view) for pool in pools)


def _kind_of_pool(pool: Pool, spot: Spot, view: View) -> object:
    use = view.allocated.of(pool.id)
    names = [device.id.device for device in (*pool.devices, *pool.elsewhere)]
    taken = tuple(
        (at, use.exclusive.get(name), use.shared.get(name), tuple(sorted(use.consumed.get(name, {}).items())))
        for at, name in enumerate(names)
        if name in use.exclusive or name in use.shared
    )
    reached = tuple(
        device.reach.matches(spot.labels, spot.name) for device in pool.devices if device in pool.per_device
    )
    return pool.content(), taken, reached


def is_worth_it(plan: Plan, view: View, beside: Iterable[Sitter]) -> bool:
    """Whether another way than one pod after the other could give more."""
    if plan.problem or plan.demand.features.upstream or not plan.needs_devices:
        return False
    return not is_plain(plan, view) or any(each.demand != plan.demand for each in beside)
