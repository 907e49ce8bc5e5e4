"""Devices in a trial: what pods that are placed there would take, and give back.

A pod takes what it finds first. Where it finds nothing, those before it in the trial get others, if that helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.engine.devices.allocated import Use, uses_of
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.rooms import Plan, Room, Spot, is_wide, plan_of, room_on, written
from muster.engine.devices.together import Seated, Sitter, Unsettled, count_together, is_worth_it, seated
from muster.engine.devices.view import View, view_of
from muster.engine.objects import ObjectStore


@dataclass(slots=True, eq=False)
class _Given:
    """A pod of the trial and what it got: `uses`, and the claims (by key) that got their devices with it."""

    sitter: Sitter
    uses: tuple[Use, ...] = ()
    decided: tuple[str, ...] = ()


@dataclass(slots=True)
class Scratch:
    """The devices of the pods of a trial, in the order in which they came, over the objects of its snapshot."""

    view: View
    _given: list[_Given] = field(default_factory=list)
    _left: dict[str, int] = field(default_factory=dict)
    """How many of the pods that use a claim (by key) were taken away, of claims that had devices before the trial."""

    @classmethod
    def over(cls, objects: ObjectStore) -> Scratch:
        """Nothing given yet."""
        view = view_of(objects)
        return cls(view_of(objects, view.allocated.copy(), {}))

    def copy(self) -> Scratch:
        """The same, to go on apart."""
        given = [_Given(each.sitter, each.uses, each.decided) for each in self._given]
        return Scratch(_apart(self.view), given, dict(self._left))

    def place(self, demand: DeviceDemand, spot: Spot, count: int) -> frozenset[Use] | None:
        """Gives devices to so many more pods there (takes them back from so many, if negative); what was given.

        None: others of the trial have other devices for it. A pod for which there are none gets none. Pods that are
        taken away and did not come in the trial leave the claims that they use, and may come again.
        """
        uses: list[Use] = []
        is_changed = False
        if count > 0 and any(self._left.get(each.key) for each in demand.claims):
            self._leave(demand, -count)
            return None
        for _ in range(count):
            is_changed = self._seat(Sitter(demand, spot)) or is_changed
            uses += self._given[-1].uses
        if count < 0:
            own = [each for each in self._given if each.sitter.demand == demand and each.sitter.spot.name == spot.name]
            for each in own[count:]:
                self._take_back(each)
                self._given.remove(each)
            self._leave(demand, -count - len(own[count:]))
        return None if is_changed else frozenset(uses)

    def _leave(self, demand: DeviceDemand, count: int) -> None:
        """So many pods that run leave their claims (come again, if negative): one that nobody uses has no devices.

        Devices of a claim that a group uses stay with it (workload-scheduling.md 3.5).
        """
        for use in demand.claims if count else ():
            claim = self.view.claim(use.key) or {}
            status: Object = claim.get("status") or {}
            consumers = status.get("reservedFor") or ()
            if not status.get("allocation") or any(each.get("resource") != "pods" for each in consumers):
                continue
            before = self._left.get(use.key, 0)
            now = self._left[use.key] = max(0, before + count)
            is_free = [bool(consumers) and number >= len(consumers) for number in (before, now)]
            if is_free[0] != is_free[1]:
                self.view.allocated.add(uses_of(status["allocation"]), -1 if is_free[1] else 1)

    def room(self, plan: Plan, spot: Spot) -> tuple[Room, bool]:
        """What the next pod would get on the node, and whether others would have other devices for it."""
        room = room_on(plan, spot, self.view)
        if room.found is not None or plan.problem:
            return room, False
        beside = self._beside(plan, spot)
        if not beside or not is_worth_it(plan, self.view, [each.sitter for each in beside]):
            return room, False
        found = self._resat([*beside, _Given(Sitter(plan.demand, spot))])
        return (room, False) if found is None else (found[-1].room, True)

    def count(self, plan: Plan, spot: Spot) -> tuple[int, Room, bool]:
        """How many more pods can be seated there, what the first would get, and whether it is sure that no more can."""
        beside = self._beside(plan, spot)
        return count_together(plan, spot, self.view, [each.sitter for each in beside], self._without(beside))

    def fix(self, key: str, allocation: Object, uses: Iterable[Use]) -> None:
        """Gives a claim its devices for good."""
        _decided(self.view)[key] = allocation
        self.view.allocated.add(uses)

    def touched(self, plan: Plan, spots: Iterable[Spot]) -> frozenset[str]:
        """Those of the nodes, by name, on which pods of the trial take devices from one that comes."""
        if self._given and self._is_wide(plan):
            return frozenset(spot.name for spot in spots)
        return frozenset(each.sitter.spot.name for each in self._given)

    def released_by(self, demand: DeviceDemand) -> Iterator[Use]:
        """What the claims of a running pod have that would be free without it and all others that use them."""
        for use in demand.claims:
            status: Object = (self.view.claim(use.key) or {}).get("status") or {}
            if all(each.get("resource") == "pods" for each in status.get("reservedFor") or ()):
                yield from uses_of(status.get("allocation"))

    def sitters(self) -> list[Sitter]:
        """The pods of the trial."""
        return [each.sitter for each in self._given]

    def bare(self) -> View:
        """What there is without what pods of the trial have."""
        return self._without(self._given)

    def _seat(self, sitter: Sitter) -> bool:
        """Adds a pod; whether others have other devices for it."""
        plan, given = plan_of(sitter.demand, self.view), _Given(sitter)
        room = Room(None) if plan.problem else room_on(plan, sitter.spot, self.view)
        beside = self._beside(plan, sitter.spot) if room.found is None else []
        self._given.append(given)
        if room.found is not None:
            self._give(given, plan, room)
            return False
        if not beside or not is_worth_it(plan, self.view, [each.sitter for each in beside]):
            return False
        found = self._resat([*beside, given])
        if found is None:
            return False
        for each in beside:
            self._take_back(each)
        for each, seat in zip((*beside, given), found, strict=True):
            self._give(each, seat.plan, seat.room)
        return True

    def _resat(self, givens: list[_Given]) -> list[Seated] | None:
        try:
            return seated([each.sitter for each in givens], self._without(givens))
        except Unsettled:
            return None

    def _beside(self, plan: Plan, spot: Spot) -> list[_Given]:
        """The pods of the trial that a pod there takes devices from: those on the node, or all that have to do with
        devices which several nodes reach, or with claims which several pods use."""
        wide = self._is_wide(plan)
        return [each for each in self._given if wide or each.sitter.spot.name == spot.name]

    def _is_wide(self, plan: Plan) -> bool:
        return is_wide(plan, self.view) or any(each.decided for each in self._given)

    def _without(self, givens: Iterable[_Given]) -> View:
        view = _apart(self.view)
        for each in givens:
            view.allocated.add(each.uses, -1)
            for key in each.decided:
                _decided(view).pop(key, None)
        return view

    def _give(self, given: _Given, plan: Plan, room: Room) -> None:
        if not room.wanted:
            return
        labels = [each.label for each in room.wanted]
        node = given.sitter.spot.name
        for key, allocation in zip(plan.keys, written(plan, room, node, self.view, labels), strict=False):
            if key:
                _decided(self.view)[key] = allocation
        self.view.allocated.add(room.uses)
        given.uses, given.decided = room.uses, plan.shared

    def _take_back(self, given: _Given) -> None:
        self.view.allocated.add(given.uses, -1)
        for key in given.decided:
            _decided(self.view).pop(key, None)
        given.uses, given.decided = (), ()


def _apart(view: View) -> View:
    return View(view.inventory, view.classes, view.rules, view.claims, view.allocated.copy(), dict(view.decided))


def _decided(view: View) -> dict[str, Object]:
    assert isinstance(view.decided, dict)  # `over` and `copy` make it one
    return view.decided
