"""Devices in a trial: what pods that are placed there would take, one pod after the other, and give back."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.engine.devices.allocated import Use
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.rooms import Spot, plan_of, room_on, written
from muster.engine.devices.view import View, view_of
from muster.engine.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class _Given:
    """What a pod got: `uses`, and the claims (by key) that got their devices with it."""

    uses: tuple[Use, ...] = ()
    decided: tuple[str, ...] = ()


@dataclass(slots=True)
class Scratch:
    """The devices of the pods of a trial, by demand and node, over the objects of its snapshot."""

    view: View
    _given: dict[tuple[DeviceDemand, str], list[_Given]] = field(default_factory=dict)

    @classmethod
    def over(cls, objects: ObjectStore) -> Scratch:
        """Nothing given yet."""
        view = view_of(objects)
        return cls(view_of(objects, view.allocated.copy(), {}))

    def copy(self) -> Scratch:
        """The same, to go on apart."""
        view = self.view
        apart = View(view.inventory, view.classes, view.rules, view.claims, view.allocated.copy(), dict(view.decided))
        return Scratch(apart, {key: list(given) for key, given in self._given.items()})

    def place(self, demand: DeviceDemand, spot: Spot, count: int) -> tuple[Use, ...]:
        """Gives devices to so many more pods there (takes them back from so many, if negative); what was given.

        A pod for which there are none gets none.
        """
        given = self._given.setdefault((demand, spot.name), [])
        come = [self._give(demand, spot) for _ in range(count)]
        given += come
        for _ in range(min(-count, len(given))):
            self._take_back(given.pop())
        return tuple(use for each in come for use in each.uses)

    def _give(self, demand: DeviceDemand, spot: Spot) -> _Given:
        plan = plan_of(demand, self.view)
        if plan.problem:
            return _Given()
        room = room_on(plan, spot, self.view)
        if room.found is None or not room.wanted:
            return _Given()
        decided = self._decided()
        labels = [each.label for each in room.wanted]
        for key, allocation in zip(plan.keys, written(plan, room, spot.name, self.view, labels), strict=False):
            if key:
                decided[key] = allocation
        self.view.allocated.add(room.uses)
        return _Given(room.uses, plan.shared)

    def _take_back(self, given: _Given) -> None:
        self.view.allocated.add(given.uses, -1)
        for key in given.decided:
            self._decided().pop(key, None)

    def _decided(self) -> dict[str, Object]:
        assert isinstance(self.view.decided, dict)  # `over` and `copy` make it one
        return self.view.decided
