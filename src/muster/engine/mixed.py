"""Placing a group of several shapes: a set of greedy passes, and bounds on how many pods can fit at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.defaults import packing
from muster.engine.identical import fill, put
from muster.engine.model import Member
from muster.engine.plugins.node_resources_fit import delegated
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial


class Demand(Struct, frozen=True):
    """The members of one shape, in the order of the group; `places` are their positions in the group."""

    shape: Shape
    places: tuple[int, ...]


class Attempt(Struct, frozen=True):
    """Where a pass put members: position in the group → node row, positions ascending."""

    rows: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> tuple[int, tuple[int, ...]]:
        """Smaller is better: more members, then those with lower positions."""
        return -len(self.rows), tuple(place for place, _ in self.rows)


def demands_of(members: Sequence[Member]) -> list[Demand]:
    """The members by shape, shapes in the order of their first member."""
    places: dict[Shape, list[int]] = {}
    shape, found = None, list[int]()
    for place, member in enumerate(members):
        if member.shape is not shape:  # shapes are interned: neighbours are mostly the same object
            shape = member.shape
            found = places.setdefault(shape, [])
        found.append(place)
    return [Demand(shape, tuple(found)) for shape, found in places.items()]


def attempts(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> Iterator[Attempt]:
    """Greedy passes, the one that spreads as single pods would first, then those that pack more and more.

    A group of one shape needs only the first: its pass is exact.
    """
    yield _pass(profile, snapshot, demands)
    if len(demands) == 1:
        return
    orders = [_by_size(snapshot, demands), _by_scarcity(profile, snapshot, demands)]
    for order in orders:
        yield _pass(profile, snapshot, order)
    for resources in _packings(demands):
        packed = packing(profile, resources)
        for order in orders:
            yield _pass(packed, snapshot, order)
    yield _pass(packing(profile, _packings(demands)[0]), snapshot, list(reversed(orders[0])))


def assign(demand: Demand, received: Ints) -> list[tuple[int, int]]:
    """(position, row) for the first members of the demand: neighbours in the group become neighbours in the table."""
    rows = np.repeat(np.arange(len(received)), received)
    return list(zip(demand.places, rows.tolist(), strict=False))


def most_placeable(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> tuple[int, str]:
    """An upper bound on how many members fit at the same time, and in words what binds."""
    counts = [profile.count(demand.shape, snapshot) for demand in demands]
    if binding(profile, snapshot, demands) and any(count.any() for count in counts):
        counts = [profile.ceiling(demand.shape, snapshot) for demand in demands]
    most = [_most(profile, snapshot, demand, count) for demand, count in zip(demands, counts, strict=True)]
    room = [min(len(demand.places), each) for demand, each in zip(demands, most, strict=True)]
    bound, proof = sum(room), _room_proof(demands, room)
    if len(demands) == 1:
        return bound, proof  # exact: no total can say more
    usable = np.logical_or.reduce([count > 0 for count in counts])
    free = np.where(usable[:, None], np.maximum(snapshot.free(), 0), 0).sum(axis=0)
    by_devices = frozenset[str]().union(*(delegated(demand.shape) for demand in demands))
    for resource, column in snapshot.axis.columns.items():
        if resource in by_devices:
            continue
        fits = _fitting(demands, room, resource, int(free[column]))
        if fits < bound:
            bound, proof = fits, f"{resource} suffices for at most {fits} of the pods, whatever the nodes"
    return bound, proof


def binding(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> bool:
    """Whether some of the pods have hard rules about other pods, or about volumes or devices that they may both want.

    Then what fits on a node now is no bound, and what fits on one node may not fit for what is on another.
    """
    if sum(demand.shape.usage.devices is not None for demand in demands) > 1:
        return True
    return any(
        demand.shape.usage.volumes or any(coupling.binding for coupling, _ in profile.couplings(demand.shape, snapshot))
        for demand in demands
    )


def _most(profile: Profile, snapshot: Snapshot, demand: Demand, count: Ints) -> int:
    """How many pods of the shape can be placed at most, by the counts of the nodes and by rules over domains."""
    room = int(count.sum())
    for coupling, _ in profile.couplings(demand.shape, snapshot):
        room = min(room, coupling.most(count > 0))
    return room


def _pass(profile: Profile, snapshot: Snapshot, order: Sequence[Demand]) -> Attempt:
    if len(order) == 1:
        return Attempt(tuple(assign(order[0], fill(profile, snapshot, order[0].shape, len(order[0].places)))))
    placed: list[tuple[int, int]] = []
    with snapshot.trial() as trial:
        for demand in order:
            received = fill(profile, trial, demand.shape, len(demand.places))
            placed += assign(demand, received)
            put(trial, demand.shape, received)
    return Attempt(tuple(sorted(placed)))


def apply(trial: Trial, members: Sequence[Member], attempt: Attempt) -> None:
    """Puts the members of an attempt into a trial."""
    by_shape: dict[Shape, list[int]] = {}
    for place, row in attempt.rows:
        by_shape.setdefault(members[place].shape, []).append(row)
    for shape, rows in by_shape.items():
        distinct, counts = np.unique(np.array(rows, dtype=np.int64), return_counts=True)
        trial.place_many(shape.usage, distinct, counts.astype(np.int64))


def _by_size(snapshot: Snapshot, demands: Sequence[Demand]) -> list[Demand]:
    """Largest first: by the largest share of a resource that the nodes offer in all."""
    offered = np.maximum(snapshot.table.allocatable.sum(axis=0, dtype=np.float64), 1.0)
    shares = [
        float((snapshot.axis.vector(demand.shape.usage.requests) / offered).max(initial=0.0)) for demand in demands
    ]
    return [demands[place] for place in sorted(range(len(demands)), key=lambda place: (-shares[place], place))]


def _by_scarcity(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand]) -> list[Demand]:
    """Those with the least room for each member first."""
    room = [float(profile.count(demand.shape, snapshot).sum()) / len(demand.places) for demand in demands]
    return [demands[place] for place in sorted(range(len(demands)), key=lambda place: (room[place], place))]


def _packings(demands: Sequence[Demand]) -> list[tuple[str, ...]]:
    """The sets of resources to pack by: all that are requested, and each alone."""
    requested = dict.fromkeys(name for demand in demands for name, _ in demand.shape.usage.requests)
    names = tuple(requested) or ("cpu",)
    return [names, *((name,) for name in names)] if len(names) > 1 else [names]


def _room_proof(demands: Sequence[Demand], room: Sequence[int]) -> str:
    short = [
        f"room for {fits} of the {len(demand.places)} pods like the first"
        if len(demands) == 1
        else f"room for {fits} of {len(demand.places)} pods of one kind"
        for demand, fits in zip(demands, room, strict=True)
        if fits < len(demand.places)
    ]
    return "; ".join(short)


def _fitting(demands: Sequence[Demand], room: Sequence[int], resource: str, free: int) -> int:
    """How many pods fit into the total of one resource, taking those that ask least first."""
    fitting = 0
    sizes = [1 if resource == "pods" else demand.shape.request(resource) for demand in demands]
    for place in sorted(range(len(demands)), key=lambda place: sizes[place]):
        take = room[place] if sizes[place] == 0 else min(room[place], free // sizes[place])
        fitting += take
        free -= take * sizes[place]
    return fitting
