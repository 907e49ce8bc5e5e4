"""The search for devices for the claims of pods on their nodes: depth first, the first full solution.

Source: `structured/internal/*/allocator_*.go` (Allocate, allocateOne, allocateDevice; 1.36), whose order of trying it
keeps: claims, requests and alternatives in order, devices in the order of the pools; within a request only later
devices are tried for the next place; every request starts at the first device again. Several pods are one pod with the
claims of all: if one after the other finds its first solution, that is the answer, else what came before is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from muster.api.quantity import Quantity
from muster.engine.devices.allocated import Allocated
from muster.engine.devices.capacity import consumption, fits
from muster.engine.devices.classes import ClassBook
from muster.engine.devices.constraints import Constraint, constraint_of
from muster.engine.devices.counters import Counters
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device, PoolId
from muster.engine.devices.pools import Pool
from muster.engine.devices.requests import ALL, EXACT_COUNT, ClaimSpec, DeviceRequest
from muster.engine.devices.selecting import matches
from muster.engine.devices.tolerations import TaintRule, keeps_away

MOST_RESULTS = 32
"""So many devices a claim can have (`resource.k8s.io` AllocationResultsMaxSize)."""

MOST_STEPS = 200_000
"""A search that looks at more places than this has failed; upstream stops after ten seconds."""

MOST_STEPS_TOGETHER = 20_000
"""As MOST_STEPS, for the pods of a group together."""

_PATIENT_STEPS = 256
"""After so many steps it pays to count what is left before going on, and not to try like devices twice."""


class AllocationFault(Exception):
    """Something is wrong with a claim, a class or a pool, so that nothing can be said. The text is upstream's."""


class Wanted(Struct, frozen=True):
    """A claim that needs devices. `label`: how messages name it (`namespace/name`).

    `is_shared`: pods on several nodes are to use it, so that devices which more nodes reach are tried first. `only`:
    the devices that it may have, None for all.
    """

    label: str
    spec: ClaimSpec
    is_shared: bool = False
    only: frozenset[Device] | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device for a request. `consumed`: what a result that shares the device takes; None if it does not share.

    `counts`: counters were taken for it.
    """

    request: DeviceRequest
    device: Device
    pool: Pool
    consumed: Mapping[str, Quantity] | None
    counts: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A solution: the devices of each claim in order, and for each of its entries the place of the choice met."""

    devices: tuple[tuple[Chosen, ...], ...]
    picks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Around:
    """What a search on one node goes by."""

    pools: tuple[Pool, ...]
    labels: Mapping[str, str]
    node: str
    classes: ClassBook
    allocated: Allocated
    rules: tuple[TaintRule, ...]
    features: Features


class _Outcome(Enum):
    DONE = "done"
    FAILED = "failed"
    TOO_MANY = "too many results"


@dataclass(slots=True)
class _Ask:
    """A request with what is known before the search: how many devices, and which if it wants all."""

    request: DeviceRequest
    number: int
    every: tuple[tuple[Pool, Device], ...] | None = None
    hopeless: set[Device] = field(default_factory=set)
    takes: dict[Device, dict[str, Quantity] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod on its node with the claims that need devices."""

    around: Around
    claims: tuple[Wanted, ...]


def allocate(around: Around, claims: Sequence[Wanted]) -> Found | None:
    """Devices for all the claims on the node; None if there are none. Raises AllocationFault."""
    search = _Search([Seat(around, tuple(claims))], MOST_STEPS)
    if search.run():
        return search.found(0)
    if any(pool.is_invalid for pool in around.pools):
        raise InvalidPools("invalid resource pools were encountered")
    return None


def allocate_together(seats: Sequence[Seat]) -> list[Found] | None:
    """Devices for all the pods, for each what it gets; None if there is no way. All see the same allocated devices.

    Raises AllocationFault, also if it takes too many steps to tell.
    """
    search = _Search(seats, MOST_STEPS_TOGETHER)
    return [search.found(at) for at in range(len(seats))] if search.run() else None


def ways_to_allocate(around: Around, claim: Wanted, most: int) -> list[Found]:
    """All ways to give the claim devices on the node that differ in more than names; at most so many and one more.

    Raises AllocationFault.
    """
    search = _Search([Seat(around, (claim,))], MOST_STEPS_TOGETHER)
    search.collect(most + 1)
    return search.ways


class InvalidPools(AllocationFault):
    """There is no solution on the node, and some of its pools are not valid: other nodes are still possible."""


class _Search:
    def __init__(self, seats: Sequence[Seat], most_steps: int) -> None:
        self._seats = seats
        self._claims = [claim for seat in seats for claim in seat.claims]
        self._arounds = [seat.around for seat in seats for _ in seat.claims]
        first = seats[0].around
        self._features, self._allocated = first.features, first.allocated
        self._steps, self._most_steps = 0, most_steps
        self._counters = Counters(first.allocated, first.features)
        self._taken: dict[Device, set[int]] = {}  # device → claims that are about to have it for themselves
        self._shared: dict[Device, list[Mapping[str, Quantity]]] = {}
        self._results: list[list[Chosen]] = [[] for _ in self._claims]
        self._picks: list[list[int]] = [[0] * len(claim.spec.entries) for claim in self._claims]
        self._open: dict[tuple[int, bool], list[tuple[Pool, Device]]] = {}
        self._devices = [self._devices_for(at) for at in range(len(self._claims))]
        self._asks = [self._asks_of(at) for at in range(len(self._claims))]
        self._constraints = [self._constraints_of(claim) for claim in self._claims]
        self._begins = set(_firsts(seats))
        self._failed: set[object] = set()
        self._patient_steps = _PATIENT_STEPS
        self._most_ways = 0
        self.ways: list[Found] = []
        self._kinds: dict[object, int] = {}
        self._likeness_of: dict[Device, int] = {}

    def _devices_for(self, at: int) -> list[tuple[Pool, Device]]:
        """The devices that a claim may have, in the order in which they are tried."""
        claim, around = self._claims[at], self._arounds[at]
        key = id(around), claim.is_shared
        found = self._open.get(key)
        if found is None:
            found = [(pool, device) for pool in around.pools if pool.is_usable for device in pool.devices]
            if claim.is_shared:
                found.sort(key=lambda each: _is_local(*each))
            self._open[key] = found
        return found if claim.only is None else [each for each in found if each[1] in claim.only]

    def found(self, seat: int) -> Found:
        """The solution for a pod, once `run` was successful."""
        first = sum(len(each.claims) for each in self._seats[:seat])
        own = slice(first, first + len(self._seats[seat].claims))
        return Found(tuple(map(tuple, self._results[own])), tuple(map(tuple, self._picks[own])))

    def run(self) -> bool:
        """Whether there is a solution."""
        return self._claim(0) is _Outcome.DONE

    def collect(self, most: int) -> None:
        """Finds as many `ways` as there are, up to so many."""
        self._most_ways, self._patient_steps = most, 0
        self._claim(0)

    # -- before the search

    def _asks_of(self, at: int) -> list[list[_Ask]]:
        claim = self._claims[at]
        entries = range(len(claim.spec.entries))
        asks = [[self._ask(at, choice) for choice in self._checked(claim, entry)] for entry in entries]
        least = sum(min(ask.number for ask in choices) for choices in asks)
        if least > MOST_RESULTS:
            raise AllocationFault(
                f"claim {claim.label}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
            )
        return asks

    def _checked(self, claim: Wanted, at: int) -> tuple[DeviceRequest, ...]:
        """The choices of an entry, if the features suffice for them."""
        entry = claim.spec.entries[at]
        if entry.is_list and not self._features.prioritised_list:
            raise AllocationFault(
                f"claim {claim.label}, request {entry.name}: has subrequests, but the DRAPrioritizedList feature is "
                "disabled"
            )
        if not self._features.consumable_capacity:
            for choice in entry.choices:
                if choice.capacity is not None:
                    raise AllocationFault(
                        f"claim {claim.label}, {'subrequest' if choice.parent else 'request'} {choice.name}: has "
                        "capacity requests, but the DRAConsumableCapacity feature is disabled"
                    )
        if not entry.choices:
            raise AllocationFault(
                f"claim {claim.label}, request {entry.name}: missing device class name (unsupported request type?)"
            )
        return entry.choices

    def _ask(self, at: int, request: DeviceRequest) -> _Ask:
        claim = self._claims[at]
        where = f"claim {claim.label}, request {request.name}"
        for place, selector in enumerate(request.selectors):
            if selector is None:
                raise AllocationFault(f"{where}, selector #{place}: CEL expression empty (unsupported selector type?)")
        if request.admin is not None and not self._features.admin_access:
            raise AllocationFault(f"{where}: admin access is requested, but the feature is disabled")
        if not request.device_class:
            raise AllocationFault(f"{where}: missing device class name (unsupported request type?)")
        if request.device_class not in self._arounds[at].classes.by_name:
            raise AllocationFault(
                f"{where}: could not retrieve device class {request.device_class}: "
                f'deviceclass.resource.k8s.io "{request.device_class}" not found'
            )
        if request.mode == EXACT_COUNT:
            return _Ask(request, request.count)
        if request.mode == ALL:
            every = tuple(self._every(at, _Ask(request, 0)))
            return _Ask(request, len(every), every)
        raise AllocationFault(f"{where}: unsupported count mode {request.mode}")

    def _every(self, at: int, ask: _Ask) -> Iterator[tuple[Pool, Device]]:
        """All devices that a request for all of them is about."""
        request = ask.request
        for pool in self._arounds[at].pools:
            if not pool.is_usable:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationFault(
                    f"claim {self._claims[at].label}, request {request.name}: asks for all devices, but resource pool "
                    f"{pool.id} is currently {state}"
                )
            for device in pool.devices:
                if self._is_selected(at, request, pool, device) and self._has_capacity(ask, device):
                    yield pool, device

    def _constraints_of(self, claim: Wanted) -> list[Constraint]:
        found = []
        for place, spec in enumerate(claim.spec.constraints):
            constraint = constraint_of(spec, self._features)
            if constraint is None:
                raise AllocationFault(
                    f"claim {claim.label}, constraint #{place}: empty constraint (unsupported constraint type?)"
                )
            found.append(constraint)
        return found

    # -- the search

    def _claim(self, at: int) -> _Outcome:
        if at == len(self._claims):
            return self._end()
        state = self._state(at) if at in self._begins and self._steps > self._patient_steps else None
        if state is not None and state in self._failed:
            return _Outcome.FAILED
        outcome = self._entry(at, 0)
        if state is not None and outcome is not _Outcome.DONE:
            self._failed.add(state)
        return outcome

    def _end(self) -> _Outcome:
        """A solution: the end, or one of several."""
        if not self._most_ways:
            return _Outcome.DONE
        self.ways.append(self.found(0))
        return _Outcome.DONE if len(self.ways) >= self._most_ways else _Outcome.FAILED

    def _state(self, at: int) -> object:
        """What is left to the claims from this one on, the first of a pod: where that was too little once, it is."""
        pools = {each.device: each.pool for chosen in self._results[:at] for each in chosen}
        taken: dict[object, int] = {}
        for device, pool in pools.items():
            key = self._likeness(pool, device), bool(self._taken.get(device)), self._shared_by(device)
            taken[key] = taken.get(key, 0) + 1
        return at, frozenset(taken.items())

    def _shared_by(self, device: Device) -> object:
        """What the claims take of a shared device, whoever they are."""
        found = [tuple(sorted((name, each.nano) for name, each in one.items())) for one in self._shared.get(device, ())]
        return tuple(sorted(found))

    def _entry(self, at: int, entry: int) -> _Outcome:
        """Meets the entries of a claim from this one on, then the claims after it."""
        if entry == len(self._asks[at]):
            outcome = self._claim(at + 1)
            return _Outcome.FAILED if outcome is _Outcome.TOO_MANY else outcome
        choices = self._asks[at][entry]
        if not self._claims[at].spec.entries[entry].is_list:
            return self._place(at, entry, choices[0], 0, 0)
        too_many = True
        for pick, ask in enumerate(choices):
            self._picks[at][entry] = pick
            outcome = self._place(at, entry, ask, 0, 0)
            if outcome is _Outcome.DONE:
                return outcome
            too_many = too_many and outcome is _Outcome.TOO_MANY
        return _Outcome.TOO_MANY if too_many else _Outcome.FAILED

    def _place(self, at: int, entry: int, ask: _Ask, place: int, start: int) -> _Outcome:
        """Finds the devices of a request from this place on, among devices from `start` on, and all after it."""
        self._steps += 1
        if self._steps > self._most_steps:
            raise AllocationFault("timed out trying to allocate devices")
        if ask.every is not None and not ask.every:
            return _Outcome.FAILED
        if place >= ask.number:
            return self._entry(at, entry + 1)
        if len(self._results[at]) + ask.number - place > MOST_RESULTS:
            return _Outcome.TOO_MANY
        if ask.every is not None:
            pool, device = ask.every[place]
            if not self._take(at, ask, pool, device, must=True):
                return _Outcome.FAILED
            outcome = self._place(at, entry, ask, place + 1, 0)
            if outcome is not _Outcome.DONE:
                self._give(at)
            return outcome
        return self._one_of(at, entry, ask, place, start)

    def _one_of(self, at: int, entry: int, ask: _Ask, place: int, start: int) -> _Outcome:
        request, devices = ask.request, self._devices[at]
        failed: set[object] = set()
        for position in range(start, len(devices)):
            is_patient = self._steps > self._patient_steps
            if is_patient and not self._suffice(ask, place, devices[position:]):
                break
            pool, device = devices[position]
            if self._is_taken(at, request, device):
                continue
            if not self._is_selected(at, request, pool, device):
                ask.hopeless.add(device)
                continue
            likeness = (self._likeness(pool, device), self._shared_by(device)) if is_patient else None
            if likeness in failed:
                continue
            if not self._has_capacity(ask, device) or not self._take(at, ask, pool, device, must=False):
                continue
            outcome = self._place(at, entry, ask, place + 1, position + 1)
            if outcome is _Outcome.DONE:
                return outcome
            self._give(at)
            if outcome is _Outcome.TOO_MANY:
                return outcome
            if likeness is not None:
                failed.add(likeness)
        return _Outcome.FAILED

    def _likeness(self, pool: Pool, device: Device) -> int:
        """A number of the device and all others that lead to the same, as things are before the search."""
        known = self._likeness_of.get(device)
        if known is None:
            ruled = tuple(rule.covers(*device.id) for rule in self._seats[0].around.rules)
            use = self._allocated.of(pool.id)
            taken = use.shared.get(device.id.device), tuple(sorted(use.consumed.get(device.id.device, {}).items()))
            kind = pool.id, pool.said_of(device), ruled, taken
            known = self._likeness_of[device] = self._kinds.setdefault(kind, len(self._kinds))
        return known

    def _suffice(self, ask: _Ask, place: int, left: Sequence[tuple[Pool, Device]]) -> bool:
        """Whether there may be enough devices among those that are left."""
        needed = ask.number - place
        for _, device in left:
            if device not in ask.hopeless and not (ask.request.admin is not True and self._is_gone(device)):
                needed -= 1
                if not needed:
                    return True
        return needed <= 0

    # -- one device

    def _is_gone(self, device: Device) -> bool:
        """Whether it was allocated before, for its owner alone."""
        use = self._allocated.of(_pool_of(device))
        if device.id.device in use.exclusive:
            return True
        return not self._features.consumable_capacity and device.id.device in use.shared

    def _is_taken(self, at: int, request: DeviceRequest, device: Device) -> bool:
        takers = self._taken.get(device)
        if request.admin:
            return takers is not None and at in takers
        return bool(takers) or self._is_gone(device)

    def _is_selected(self, at: int, request: DeviceRequest, pool: Pool, device: Device) -> bool:
        """Whether the device is one that class and request select. Raises AllocationFault."""
        claim, around = self._claims[at], self._arounds[at]
        if not self._features.binding_conditions and device.binding_conditions:
            return False
        device_class = around.classes.by_name[request.device_class]
        if not _selects(f"class {device_class.name}", device_class.selectors, device):
            return False
        if not _selects(f"claim {claim.label}", request.selectors, device):
            return False
        return device not in pool.per_device or device.reach.matches(around.labels, around.node)

    def _has_capacity(self, ask: _Ask, device: Device) -> bool:
        if not self._features.consumable_capacity:
            return True
        if not device.capacity and not ask.request.capacity:
            return True
        taken = self._consumption(ask, device)
        if taken is None:
            return False
        before = self._allocated.of(_pool_of(device)).consumed.get(device.id.device, {})
        during = [{name: each.nano for name, each in one.items()} for one in self._shared.get(device, ())]
        return fits(taken, device, before, *during)

    def _consumption(self, ask: _Ask, device: Device) -> dict[str, Quantity] | None:
        if device not in ask.takes:
            ask.takes[device] = consumption(ask.request, device, self._features)
        return ask.takes[device]

    def _take(self, at: int, ask: _Ask, pool: Pool, device: Device, *, must: bool) -> bool:
        """Takes the device for the claim, if that is possible; `must`: the request fails without it."""
        request = ask.request
        shares = self._features.consumable_capacity and device.is_multiple
        if must and not (shares and request.admin) and self._is_taken(at, request, device):
            return False
        if device.consumes and not self._features.partitionable:
            return False
        counts = bool(device.consumes) and not (shares and self._is_in_use(device))
        if counts and not self._counters.take(pool, device):
            return False
        if self._is_kept_away(at, request, device) or (shares and not self._has_capacity(ask, device)):
            self._uncount(counts, pool, device)
            return False
        if not self._constrained(at, request, device):
            self._uncount(counts, pool, device)
            if must:
                raise AllocationFault(
                    f"claim {self._claims[at].label}, request {request.name}: cannot add device {device.id} because a "
                    "claim constraint would not be satisfied"
                )
            return False
        consumed = None
        if shares:
            consumed = self._consumption(ask, device) or {}
            self._shared.setdefault(device, []).append(consumed)
        else:
            self._taken.setdefault(device, set()).add(at)
        self._results[at].append(Chosen(request, device, pool, consumed, counts))
        return True

    def _give(self, at: int) -> None:
        """Gives back what the claim took last."""
        last = self._results[at].pop()
        for constraint in self._constraints[at]:
            constraint.remove(last.request, last.device)
        self._uncount(last.counts, last.pool, last.device)
        if last.consumed is None:
            self._taken[last.device].discard(at)
            return
        self._shared[last.device].pop()
        if not self._shared[last.device]:
            del self._shared[last.device]

    def _uncount(self, counts: bool, pool: Pool, device: Device) -> None:
        if counts:
            self._counters.give(pool, device)

    def _is_in_use(self, device: Device) -> bool:
        """Whether results share the device already."""
        return device in self._shared or device.id.device in self._allocated.of(_pool_of(device)).shared

    def _is_kept_away(self, at: int, request: DeviceRequest, device: Device) -> bool:
        """Whether the device has a taint that the request does not tolerate."""
        if not self._features.taints:
            return False
        ruled = [rule.taint for rule in self._arounds[at].rules if rule.covers(*device.id)]
        return bool(device.taints or ruled) and keeps_away((*device.taints, *ruled), request.tolerations)

    def _constrained(self, at: int, request: DeviceRequest, device: Device) -> bool:
        """Whether the constraints of the claim let the device be added; if so, it counts."""
        for place, constraint in enumerate(self._constraints[at]):
            if not constraint.add(request, device):
                for earlier in reversed(self._constraints[at][:place]):
                    earlier.remove(request, device)
                return False
        return True


def _selects(where: str, selectors: Sequence[str | None], device: Device) -> bool:
    """Whether all the selectors match. Raises AllocationFault."""
    for place, selector in enumerate(selectors):
        if selector is None:
            raise AllocationFault(f"{where}: selector #{place}: CEL expression empty (unsupported selector type?)")
        answer = matches(device, selector)
        if isinstance(answer, str):
            raise AllocationFault(f"{where}: selector #{place}: {answer}")
        if not answer:
            return False
    return True


def _firsts(seats: Sequence[Seat]) -> Iterator[int]:
    """The first claim of each pod but the first."""
    first = 0
    for seat in seats[:-1]:
        first += len(seat.claims)
        yield first


def _is_local(pool: Pool, device: Device) -> bool:
    """Whether only one node reaches the device."""
    home = (pool.slices or {})[device]
    return bool((device.reach if home.is_per_device else home.reach).node_name) or device.binds_to_node


def _pool_of(device: Device) -> PoolId:
    return PoolId(device.id.driver, device.id.pool)
