"""What one node has for a demand: devices for the next pod, for how many of them, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api.codec import Object
from muster.api.selectors import NodeSelectorTerm, SelectorError, node_selector_term
from muster.engine.devices.allocated import Allocated, PoolUse, Use
from muster.engine.devices.classes import ClassBook
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.extended import IN_MEMORY, Mapped
from muster.engine.devices.inventory import Device, Slice
from muster.engine.devices.requests import ALL, ClaimSpec, DeviceRequest, claim_spec
from muster.engine.devices.results import allocations
from muster.engine.devices.search import AllocationFault, Around, Found, InvalidPools, Wanted, allocate
from muster.engine.devices.selecting import matches
from muster.engine.devices.view import IN_FLIGHT, View

MANY = 2**31 - 1
"""The count where devices do not limit how many pods come to a node."""

NO_DEVICES = "cannot allocate all claims"
NOT_HERE = "resourceclaim not available on the node"
_MOST_ROUNDS = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """A demand looked at with the claims of a view.

    `problem`: why it cannot be met on any node. `terms`: for each claim that has devices already, the nodes where these
    can be used. `wanted`: the claims that need devices, with their keys ("" for those of one pod alone).
    """

    demand: DeviceDemand
    problem: str = ""
    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    wanted: tuple[Wanted, ...] = ()
    keys: tuple[str, ...] = ()
    chosen: int = 0

    @property
    def shared(self) -> tuple[str, ...]:
        """The keys of claims that get devices once for all pods that use them."""
        return tuple(key for key in self.keys if key)

    @property
    def needs_devices(self) -> bool:
        """Whether devices have to be found at all, at least on some nodes."""
        return bool(self.wanted) or self.demand.extended is not None

    def lets(self, labels: Mapping[str, str], node: str) -> bool:
        """Whether the claims that have devices can be used on a node."""
        return all(any(term.matches(labels, node) for term in terms) for terms in self.terms)


@dataclass(frozen=True, slots=True)
class Spot:
    """A node as the search for devices sees it; `offered`: the extended resources that it has itself."""

    name: str
    labels: Mapping[str, str]
    offered: frozenset[str]


@dataclass(frozen=True, slots=True)
class Room:
    """The answer of a node: devices for the next pod, or why there are none; `is_fault`: that is a fault, not a no.

    `uses`: what the pod would take, `counts`: counters among it; `wanted` and `mapped`: its claims there, that for
    extended resources included.
    """

    found: Found | None
    wanted: tuple[Wanted, ...] = ()
    uses: tuple[Use, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    reason: str = ""
    is_fault: bool = False
    counts: bool = False


FREE = Room(Found((), ()))
"""The answer of a node on which no devices have to be found."""


def plan_of(demand: DeviceDemand, view: View, *, waits: bool = True) -> Plan:
    """The demand with the claims of this moment.

    `waits`: as upstream does, nobody relies on an allocation that is decided and not written.
    """
    if demand.problem:
        return Plan(demand, demand.problem)
    terms: list[tuple[NodeSelectorTerm, ...]] = []
    wanted: list[Wanted] = []
    keys: list[str] = []
    chosen = 0
    for use in demand.claims:
        spec = use.spec
        if use.key:
            claim = view.claim(use.key)
            if claim is None:
                return Plan(demand, f'could not find ResourceClaim "{use.key}"')
            if waits and demand.features.upstream and claim.get(IN_FLIGHT):
                return Plan(demand, f"resource claim {use.label} is in the process of being allocated")
            spec = claim_spec(claim)
            allocation = view.allocation(use.key)
            if allocation is not None:
                chosen += _chosen(spec, allocation)
                if allocation.get("nodeSelector"):
                    terms.append(terms_of(allocation["nodeSelector"]))
                continue
        assert spec is not None
        problem = _class_problem(use.label, spec, view, demand)
        if problem:
            return Plan(demand, problem)
        wanted.append(Wanted(use.label, spec, use.is_shared))
        keys.append(use.key)
    return Plan(demand, "", tuple(terms), tuple(wanted), tuple(keys), chosen)


def terms_of(selector: Object) -> tuple[NodeSelectorTerm, ...]:
    """The terms of a node selector; those that are malformed match no node."""
    terms = []
    for each in selector.get("nodeSelectorTerms") or ():
        try:
            terms.append(node_selector_term(each))
        except SelectorError:
            continue
    return tuple(terms)


def _chosen(spec: ClaimSpec, allocation: Object) -> int:
    """The score of the alternatives that a claim got."""
    names = {each.get("request") for each in (allocation.get("devices") or {}).get("results") or ()}
    return sum(
        next((8 - at for at, choice in enumerate(entry.choices) if choice.full_name in names), 0)
        for entry in spec.entries
        if entry.is_list
    )


def _class_problem(label: str, spec: ClaimSpec, view: View, demand: DeviceDemand) -> str:
    for entry in spec.entries:
        if entry.is_list and not demand.features.prioritised_list:
            return (
                f"resource claim {label}, request {entry.name}: has subrequests, but the DRAPrioritizedList feature is "
                "disabled"
            )
        if not entry.choices:
            return f"resource claim {label}, request {entry.name}: unknown request type"
        for choice in entry.choices:
            if not choice.device_class:
                return f"request {choice.full_name}: unsupported request type"
            if choice.device_class not in view.classes.by_name:
                return f"request {choice.full_name}: device class {choice.device_class} does not exist"
    return ""


def room_on(plan: Plan, spot: Spot, view: View, allocated: Allocated | None = None) -> Room:
    """What the node has for the next pod; `allocated` in place of what the view says is taken."""
    wanted, mapped = claims_on(plan, spot)
    if not wanted:
        return FREE if plan.lets(spot.labels, spot.name) else Room(None, reason=NOT_HERE)
    around = around_of(plan, spot, view, allocated)
    try:
        found = allocate(around, wanted)
    except InvalidPools as fault:
        return Room(None, reason=str(fault))
    except AllocationFault as fault:
        return Room(None, reason=str(fault), is_fault=True)
    if found is None:
        return Room(None, reason=NO_DEVICES)
    if not plan.lets(spot.labels, spot.name):
        return Room(None, reason=NOT_HERE)
    return room_of(found, wanted, mapped)


def around_of(plan: Plan, spot: Spot, view: View, allocated: Allocated | None = None) -> Around:
    """What a search on the node goes by."""
    features = plan.demand.features
    pools = view.pools(spot.labels, spot.name, features)
    taken = view.allocated if allocated is None else allocated
    rules = view.rules if features.taint_rules else ()
    return Around(pools, spot.labels, spot.name, view.classes, taken, rules, features)


def room_of(found: Found, wanted: tuple[Wanted, ...], mapped: tuple[Mapped, ...]) -> Room:
    """The room of a solution for these claims."""
    counts = any(each.counts for devices in found.devices for each in devices)
    return Room(found, wanted, _uses(found), mapped, counts=counts)


def claims_on(plan: Plan, spot: Spot) -> tuple[tuple[Wanted, ...], tuple[Mapped, ...]]:
    """The claims that need devices on this node, and which container gets what of extended resources."""
    extended = plan.demand.extended
    if extended is None:
        return plan.wanted, ()
    missing = plan.demand.resources - spot.offered
    # As upstream, an empty claim stands for resources that the node offers itself, beside claims of the user.
    if not missing and not (plan.demand.features.upstream and plan.demand.claims):
        return plan.wanted, ()
    spec, mapped = extended.claim(missing)
    return (*plan.wanted, Wanted(f"{plan.demand.extended_label}{IN_MEMORY}", spec)), mapped


def _uses(found: Found) -> tuple[Use, ...]:
    return tuple(
        Use(
            each.device.id,
            each.consumed is not None,
            tuple(sorted((name, amount.nano) for name, amount in (each.consumed or {}).items())),
        )
        for devices in found.devices
        for each in devices
        if not each.request.admin
    )


def score_of(plan: Plan, room: Room) -> int:
    """How early the alternatives are that the pod gets; 0 if nothing has to be allocated for it."""
    if not room.wanted or room.found is None:
        return 0
    total = plan.chosen
    for claim, picks in zip(room.wanted, room.found.picks, strict=True):
        total += sum(8 - pick for entry, pick in zip(claim.spec.entries, picks, strict=True) if entry.is_list)
    return total


def count_on(plan: Plan, spot: Spot, view: View) -> tuple[int, Room]:
    """How many pods of the demand find devices one after the other, and the answer to the first of them."""
    first = room_on(plan, spot, view)
    if first.found is None:
        return 0, first
    if not first.wanted:
        return MANY, first
    later = after(plan)
    if not later.needs_devices or is_endless(_uses_of_later(plan, first)):
        return MANY, first
    allocated = view.allocated.copy()
    allocated.add(first.uses)
    number = 1
    while number < _MOST_ROUNDS:
        room = room_on(later, spot, view, allocated)
        if room.found is None:
            return number, first
        if not room.wanted or is_endless(room.uses):
            return MANY, first
        allocated.add(room.uses)
        number += 1
    return number, first


def after(plan: Plan) -> Plan:
    """The plan of the next pod, once the claims that pods share have devices."""
    if not plan.shared:
        return plan
    own = tuple(each for each, key in zip(plan.wanted, plan.keys, strict=True) if not key)
    return replace(plan, wanted=own, keys=("",) * len(own))


def _uses_of_later(plan: Plan, first: Room) -> tuple[Use, ...]:
    """Of what the first pod takes, what every further one takes as well."""
    if not plan.shared:
        return first.uses
    assert first.found is not None
    own = [devices for at, devices in enumerate(first.found.devices) if at >= len(plan.keys) or not plan.keys[at]]
    return _uses(Found(tuple(own), ()))


def is_endless(uses: Sequence[Use]) -> bool:
    """Whether any number of pods can take this."""
    return all(use.is_shared and not use.consumed for use in uses)


def most_on(plan: Plan, spot: Spot, view: View) -> int:
    """A bound on how many pods of the demand ever find devices on the node, in whatever order devices are taken."""
    needed = _least(claims_on(after(plan), spot)[0])
    free = free_on(plan, spot, view) if needed else None
    return MANY if free is None else len(free) // needed


def least_of(plan: Plan) -> int:
    """The least number of devices that every further pod takes for itself, on whatever node."""
    return _least(after(plan).wanted)


def _least(wanted: Sequence[Wanted]) -> int:
    entries = [entry for claim in wanted for entry in claim.spec.entries]
    return sum(min((_number(each) for each in entry.choices), default=0) for entry in entries)


def _number(request: DeviceRequest) -> int:
    if request.admin:
        return 0
    return 1 if request.mode == ALL else request.count


def free_on(plan: Plan, spot: Spot, view: View) -> set[Device] | None:
    """The devices in reach of a node that some of the requests may take; None if one of them can be shared."""
    wanted, _ = claims_on(plan, spot)
    choices = [choice for claim in wanted for entry in claim.spec.entries for choice in entry.choices]
    free: set[Device] = set()
    for pool in view.pools(spot.labels, spot.name, plan.demand.features):
        use = view.allocated.of(pool.id)
        for device in pool.devices:
            if device.id.device in use.exclusive or not any(_may_take(each, device, view) for each in choices):
                continue
            if device.is_multiple:
                return None
            free.add(device)
    return free


def is_plain(plan: Plan, view: View) -> bool:
    """Whether any way of giving devices to pods of the demand is as good as another, on each node for itself.

    So it is where a pod has one request, and the devices for it are in slices of single nodes, share no counters and
    are not shared themselves.
    """
    if plan.demand.extended is not None or len(plan.wanted) != 1 or plan.shared:
        return False
    spec = plan.wanted[0].spec
    if len(spec.entries) != 1 or spec.entries[0].is_list or spec.constraints:
        return False
    return _about_devices("plain", plan, view, lambda device, home: not _is_special(device, home))


def is_wide(plan: Plan, view: View) -> bool:
    """Whether what pods of the demand get depends on pods of other nodes: by devices that several reach, or claims
    that several pods use."""
    return bool(plan.shared) or has_common_devices(plan, view)


def has_common_devices(plan: Plan, view: View) -> bool:
    """Whether several nodes may reach a device that the pods may take."""
    if plan.demand.extended is not None:
        return bool(view.inventory.shared)
    return not _about_devices("own", plan, view, lambda device, home: _is_own(device, home, view))


def _is_own(device: Device, home: Slice, view: View) -> bool:
    """Whether only one node has to do with the device, with the counters that it takes of as well."""
    if not home.reach.node_name:
        return False
    slices = view.inventory.pools[home.pool] if device.consumes else ()
    return all(each.reach.node_name == home.reach.node_name for each in slices if each.devices)


def _is_special(device: Device, home: Slice) -> bool:
    return not home.reach.node_name or device.is_multiple or bool(device.consumes)


def _about_devices(name: str, plan: Plan, view: View, holds: Callable[[Device, Slice], bool]) -> bool:
    """Whether something holds for all devices that the requests of the plan may take; worked out once an inventory."""
    choices = tuple(choice for claim in plan.wanted for entry in claim.spec.entries for choice in entry.choices)
    memo, key = view.inventory.memo, (name, choices)
    known = memo.get(key)
    if isinstance(known, _Said) and known.classes is view.classes:
        return known.holds
    answer = all(
        holds(device, home)
        for _, home in view.inventory.by_name.values()
        for device in home.devices
        if any(_may_take(choice, device, view) for choice in choices)
    )
    memo[key] = _Said(view.classes, answer)
    return answer


@dataclass(frozen=True, slots=True)
class _Said:
    classes: ClassBook
    holds: bool


def _may_take(choice: DeviceRequest, device: Device, view: View) -> bool:
    """Whether the selectors let the request have the device, or have nothing to say about it."""
    found = view.classes.by_name.get(choice.device_class)
    selectors = (*(() if found is None else found.selectors), *choice.selectors)
    return all(selector is not None and matches(device, selector) is not False for selector in selectors)


def written(plan: Plan, room: Room, node: str, view: View, ids: Sequence[str]) -> list[Object]:
    """The allocations of the claims of a room, in its order; `ids` name the claims, for the ids of shares."""
    assert room.found is not None
    features = plan.demand.features
    return allocations(room.found, room.wanted, node, view.classes, features, lambda at, place: f"{ids[at]}/{place}")


@dataclass(frozen=True, slots=True)
class Known:
    """A count that was worked out, with all that it went by."""

    labels: Mapping[str, str]
    offered: frozenset[str]
    classes: object
    rules: object
    uses: tuple[PoolUse, ...]
    count: int
    room: Room

    def holds(self, spot: Spot, view: View, uses: Sequence[PoolUse]) -> bool:
        """Whether the node would answer the same again."""
        return (
            self.classes is view.classes
            and self.rules is view.rules
            and self.offered == spot.offered
            and self.labels == spot.labels
            and len(uses) == len(self.uses)
            and all(one is other for one, other in zip(self.uses, uses, strict=True))
        )


def known_count(plan: Plan, spot: Spot, view: View) -> tuple[int, Room]:
    """As `count_on`, remembered while nothing changed that the node can see."""
    if plan.shared or plan.terms or not plan.needs_devices:
        return count_on(plan, spot, view)
    pools = view.pools(spot.labels, spot.name, plan.demand.features)
    uses = tuple(view.allocated.of(pool.id) for pool in pools)
    key = "count", plan.demand, spot.name
    known = view.inventory.memo.get(key)
    if isinstance(known, Known) and known.holds(spot, view, uses):
        return known.count, known.room
    count, room = count_on(plan, spot, view)
    view.inventory.memo[key] = Known(spot.labels, spot.offered, view.classes, view.rules, uses, count, room)
    return count, room
