"""DynamicResources: a node must have the devices that the claims of a pod ask for, or be where they have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.between import Between, Devices
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device
from muster.engine.devices.rooms import (
    Room,
    Spot,
    free_on,
    is_plain,
    is_wide,
    least_of,
    most_on,
    plan_of,
    score_of,
)
from muster.engine.devices.scratch import Scratch
from muster.engine.devices.together import Sitter, Unsettled, kind_of, known_together, seated
from muster.engine.devices.view import View, view_of
from muster.engine.model import Status
from muster.engine.profile import UNLIMITED, Feasible, Normalisation, Scaled, noted, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, spots_of

NAME = "DynamicResources"


class DynamicResources(Struct, frozen=True):
    """Upstream `dynamicresources/dynamicresources.go` (1.36)."""

    name: str = NAME

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """How many pods find devices on each node, if one follows the other there."""
        return unlimited(snapshot) if shape.usage.devices is None else answers_of(shape, snapshot).counts

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """What the search for devices says."""
        rooms = answers_of(shape, snapshot).rooms
        known: dict[tuple[str, bool], Status] = {}
        for row in rows.tolist():
            key = rooms[row].reason, rooms[row].is_fault
            if key not in known:
                text = f'running "{NAME}" filter plugin: {key[0]}' if key[1] else key[0]
                known[key] = Status(NAME, (text,), resolvable=False, is_fault=key[1])
        return [known[rooms[row].reason, rooms[row].is_fault] for row in rows.tolist()]

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Claims that do not exist yet, or classes."""
        if shape.usage.devices is None:
            return None
        problem = answers_of(shape, snapshot).plan.problem
        return Status(NAME, (problem,), resolvable=False) if problem else None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None

    def coupling(self, shape: Shape, snapshot: Snapshot) -> _Devices | None:
        """What pods that were placed leave to the others; None if each node can be counted for itself."""
        if shape.usage.devices is None:
            return None
        answers = answers_of(shape, snapshot)
        if not answers.plan.needs_devices or answers.is_plain:
            return None
        return _Devices(shape.usage.devices, answers, snapshot)

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether the shape asks for devices."""
        return shape.usage.devices is not None

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Bounded by the devices that there are."""
        if shape.usage.devices is None:
            return unlimited(snapshot)
        return answers_of(shape, snapshot).ceiling

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """Devices that several pods may want: where that is not plain for each shape by itself."""
        return devices_between(shapes, snapshot)


class DynamicResourcesScore(Struct, frozen=True):
    """Upstream `dynamicresources/dynamicresources.go` (Score): nodes where earlier alternatives can be had."""

    name: str = NAME
    static: bool = True
    normalisation: Normalisation = Normalisation.HIGHEST

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The sum over the lists of alternatives; see `rooms.score_of`."""
        if shape.usage.devices is None:
            return np.zeros(len(rows), dtype=np.int64)
        answers = answers_of(shape, snapshot)
        return np.array([score_of(answers.plan, answers.rooms[row]) for row in rows.tolist()], dtype=np.int64)


class Answers:
    """What all nodes say to a demand. `counts` int32[N]; `rooms`: for each node the answer to the next pod.

    `is_plain`: what one node gives does not matter to others, and no way of taking devices leaves more than another.
    `is_sure`: no node has room for more than its count.
    """

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        assert shape.usage.devices is not None
        self.view = view_of(snapshot.objects) if snapshot.devices is None else snapshot.devices.view
        self.plan = plan_of(shape.usage.devices, self.view)
        self.spots = spots_of(snapshot.table)
        if self.plan.problem:
            self.rooms = [Room(None, reason=self.plan.problem)] * len(snapshot)
            self.counts = np.zeros(len(snapshot), dtype=np.int32)
            self.is_plain = self.is_sure = True
            return
        # A search for each node, as devices are not numbers; nodes that answered before and saw no change are quick.
        scratch, plan = snapshot.devices, self.plan
        touched = frozenset[str]() if scratch is None else scratch.touched(plan, self.spots)
        found = [
            known_together(plan, spot, self.view)
            if scratch is None or spot.name not in touched
            else scratch.count(plan, spot)
            for spot in self.spots
        ]
        self.rooms = [room for _, room, _ in found]
        self.counts = np.array([count for count, _, _ in found], dtype=np.int64).clip(0, UNLIMITED).astype(np.int32)
        self.is_plain = not plan.needs_devices or is_plain(plan, self.view)
        self.is_sure = all(sure for _, _, sure in found)

    @cached_property
    def ceiling(self) -> Ints32:
        """int32[N]: no more pods find devices on a node, in whatever order they come."""
        if self.is_sure and not self.plan.demand.features.upstream:
            return self.counts
        most = [
            0 if room.found is None else most_on(self.plan, spot, self.view)
            for room, spot in zip(self.rooms, self.spots, strict=True)
        ]
        return np.maximum(np.array(most, dtype=np.int64).clip(0, UNLIMITED).astype(np.int32), self.counts)


class _Devices:
    """Devices that one pod takes from another, on nodes that differ or on the same.

    `steady`: pods on other nodes do not matter, so that the counts of the nodes hold.
    """

    def __init__(self, demand: DeviceDemand, answers: Answers, snapshot: Snapshot) -> None:
        self._demand, self._answers = demand, answers
        self.steady = not is_wide(answers.plan, answers.view)
        self.binding = not (self.steady and answers.is_sure) or demand.features.upstream
        self._scratch = Scratch.over(snapshot.objects) if snapshot.devices is None else snapshot.devices.copy()
        self._plan, self._rooms = answers.plan, list(answers.rooms)
        self._stale: set[int] = set()
        self._moving: set[int] = set()  # rows with room only if others get other devices, whatever these are then
        self._left = answers.counts.copy()

    def most(self, usable: Bools) -> int:
        """No more than there are devices for."""
        answers, needed = self._answers, least_of(self._answers.plan)
        if not needed:
            return UNLIMITED
        free: set[Device] = set()
        for row in np.flatnonzero(usable).tolist():
            spot = answers.spots[row]
            found = free_on(answers.plan, spot, answers.view)
            if found is None:
                return UNLIMITED
            free |= found
        return len(free) // needed

    def allowed(self) -> Bools | None:
        """The nodes on which the next pod finds devices."""
        if self.steady:
            return self._left > 0
        for row in sorted(self._stale | self._moving):
            self._rooms[row], moves = self._scratch.room(self._plan, self._answers.spots[row])
            (self._moving.add if moves else self._moving.discard)(row)
        self._stale.clear()
        return np.array([room.found is not None for room in self._rooms], dtype=np.bool_)

    def scores(self, feasible: Feasible) -> Scaled | None:
        """None: see `DynamicResourcesScore`."""
        return None

    def place(self, row: int) -> None:
        """A pod takes its devices on the node."""
        self._left[row] = max(0, self._left[row] - 1)
        if self.steady:
            return
        given = self._scratch.place(self._demand, self._answers.spots[row], 1)
        if given is None or self._plan.shared:
            self._plan = plan_of(self._demand, self._scratch.view)
            self._stale.update(range(len(self._rooms)))
            return
        taken = {use.device for use in given}
        pools = {device[:2] for device in taken}
        for at, room in enumerate(self._rooms):
            if at == row or any(use.device in taken or (room.counts and use.device[:2] in pools) for use in room.uses):
                self._stale.add(at)


def devices_between(shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
    """The rule between pods of shapes that need devices; none where each shape can be counted for itself."""
    answers = {at: answers_of(shape, snapshot) for at, shape in enumerate(shapes) if shape.usage.devices is not None}
    needing = {at: each for at, each in answers.items() if each.plan.needs_devices or each.plan.problem}
    if any(each.plan.demand.features.upstream for each in needing.values()):
        return []
    is_local = not any(is_wide(each.plan, each.view) for each in needing.values())
    if is_local and len(needing) < 2 and all(each.is_sure for each in needing.values()):
        return []
    view = next(iter(needing.values())).view
    beside = () if snapshot.devices is None else tuple(snapshot.devices.sitters())
    bare = view if snapshot.devices is None else snapshot.devices.bare()
    spots = spots_of(snapshot.table)
    demands = {at: each.plan.demand for at, each in needing.items()}
    rule = Devices(
        NAME,
        _kinds(spots, bare, next(iter(demands.values())).features, {each.spot.name for each in beside}),
        np.arange(len(snapshot)),
        frozenset(demands),
        is_local and not any(is_wide(plan_of(each.demand, bare), bare) for each in beside),
        lambda placed: _fits(placed, demands, spots, beside, bare),
    )
    return [rule]


def _kinds(spots: Sequence[Spot], view: View, features: Features, apart: set[str]) -> Ints32:
    """int32[N]: nodes that have the same devices have the same number; those `apart` have one of their own."""
    numbers: dict[object, int] = {}
    kinds = [spot.name if view.rules or spot.name in apart else kind_of(spot, view, features) for spot in spots]
    return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int32)


def _fits(
    placed: Mapping[tuple[int, int], int],
    demands: Mapping[int, DeviceDemand],
    spots: Sequence[Spot],
    beside: Sequence[Sitter],
    view: View,
) -> bool | None:
    """Whether all these pods find devices together, beside those; None if that takes too long to tell."""
    more = [
        Sitter(demands[shape], spots[row]) for (shape, row), number in sorted(placed.items()) for _ in range(number)
    ]
    names = {each.spot.name for each in more}
    wide = any(is_wide(plan_of(each.demand, view), view) for each in (*beside, *more))
    known = [each for each in beside if wide or each.spot.name in names]
    try:
        return seated([*known, *more], view) is not None
    except Unsettled:
        return None


def has_choices(shape: Shape, snapshot: Snapshot) -> bool:
    """Whether scores of nodes may differ by what pods of the shape take there."""
    if shape.usage.devices is None:
        return False
    plan = answers_of(shape, snapshot).plan
    return any(entry.is_list for claim in plan.wanted for entry in claim.spec.entries)


def answers_of(shape: Shape, snapshot: Snapshot) -> Answers:
    """The answers, worked out once a snapshot and demand."""
    return noted(snapshot, (NAME, shape.usage.devices), lambda: Answers(shape, snapshot))
