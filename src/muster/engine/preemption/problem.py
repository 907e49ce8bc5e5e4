"""The victim problem in numbers: which units to evict so that enough pods of some shapes fit onto the nodes.

What is modelled: requests of every resource (pod slots are one), the most pods of a shape that a node takes with all
candidates gone, and single units that are in the way for another reason (host ports, anti-affinity on the node). Rules
beyond that are left to the check of the finished plan.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.forms import Form, Parts
from muster.engine.preemption.model import Unit


class Blocker(Struct, frozen=True):
    """While `unit` stays, node `row` takes at most `most` pods of `shape`, whatever else goes."""

    unit: int
    row: int
    shape: int
    most: int


class Problem(Struct, frozen=True):
    """U units (sorted by key), N nodes, R resources, G shapes; arrays are int64 and not written.

    `need` pods in all must fit, at most `demand[g]` of each shape; `requests` [G, R]; `free` [N, R] with every unit in
    place; `caps` [N, G] the most of each shape with all units gone. `at` [E] unit, `rows` [E] node and `releases`
    [E, R]: what an eviction frees where. `priorities`, `pods`, `ages` [U] are what a unit costs; `spent` [U, B] what it
    draws on the budgets, of which `allowed` [B] is left. `nodes` [N]: the rows of the nodes in the snapshot. `form`:
    what must hold of the pods beyond their number.
    """

    units: tuple[Unit, ...]
    need: int
    demand: Ints
    requests: Ints
    free: Ints
    caps: Ints
    at: Ints
    rows: Ints
    releases: Ints
    priorities: Ints
    pods: Ints
    ages: Ints
    spent: Ints
    allowed: Ints
    nodes: Ints
    blockers: tuple[Blocker, ...] = ()
    form: Form | None = None
    is_coupled: bool = False
    """Rules between pods are left out: units that are alike here may still differ."""

    @property
    def shapes(self) -> int:
        """G."""
        return len(self.demand)

    def violations(self, chosen: Bools) -> int:
        """Evictions beyond the budgets."""
        if not len(self.allowed):
            return 0
        return int(np.maximum(self.spent[chosen].sum(axis=0) - self.allowed, 0).sum())

    def freed(self, chosen: Bools) -> Ints:
        """int64[N, R]: what is free without the chosen units (bool[U])."""
        free = self.free.copy()
        entries = np.flatnonzero(chosen[self.at])
        np.add.at(free, self.rows[entries], self.releases[entries])
        return free

    def room(self, chosen: Bools) -> Ints:
        """int64[N]: pods of the only shape that fit without the chosen units; an upper bound for rules not modelled."""
        room = fitting(self.freed(chosen), self.requests[0], self.caps[:, 0])
        for blocker in self.blockers:
            if not chosen[blocker.unit]:
                room[blocker.row] = min(room[blocker.row], blocker.most)
        return room

    def within(self, nodes: Bools) -> Problem:
        """The problem on a part of the nodes (bool[N]), with the units that free something there."""
        inside = nodes[self.rows]
        units = np.unique(self.at[inside])
        unit_of = np.full(len(self.units), -1, dtype=np.int64)
        unit_of[units] = np.arange(len(units))
        row_of = np.full(len(nodes), -1, dtype=np.int64)
        row_of[nodes] = np.arange(int(nodes.sum()))
        blockers = tuple(
            replace(each, unit=int(unit_of[each.unit]), row=int(row_of[each.row]))
            for each in self.blockers
            if nodes[each.row]
        )
        return replace(
            self,
            units=tuple(self.units[unit] for unit in units.tolist()),
            free=self.free[nodes],
            caps=self.caps[nodes],
            at=unit_of[self.at[inside]],
            rows=row_of[self.rows[inside]],
            releases=self.releases[inside],
            priorities=self.priorities[units],
            pods=self.pods[units],
            ages=self.ages[units],
            spent=self.spent[units],
            nodes=self.nodes[nodes],
            blockers=blockers,
            form=replace(self.form, ids=self.form.ids[nodes]) if isinstance(self.form, Parts) else self.form,
        )

    def enough(self, chosen: Bools) -> bool:
        """Whether the pods might fit without the chosen units; False is certain."""
        if self.shapes == 1:
            return int(self.room(chosen).sum()) >= self.need
        free = self.freed(chosen)
        fits = [int(fitting(free, self.requests[g], self.caps[:, g]).sum()) for g in range(self.shapes)]
        return int(np.minimum(fits, self.demand).sum()) >= self.need

    def lowest_level(self) -> int | None:
        """The lowest priority such that evicting all units up to it might be enough; None if nothing is.

        Without units nothing is: that it fits without evictions was asked before.
        """
        levels = np.unique(self.priorities)
        if not len(levels) or not self.enough(np.ones(len(self.units), dtype=np.bool_)):
            return None
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self.enough(self.priorities <= levels[middle]):
                high = middle
            else:
                low = middle + 1
        return int(levels[low])

    def cost(self, chosen: Bools) -> tuple[int, int, int, int]:
        """What is compared before the rest: violations, highest priority, pods, run time lost in whole seconds."""
        if not chosen.any():
            return 0, -(2**63), 0, 0
        highest = int(self.priorities[chosen].max())
        return self.violations(chosen), highest, int(self.pods[chosen].sum()), int(self.ages[chosen].sum())


def fitting(free: Ints, request: Ints, caps: Ints) -> Ints:
    """int64[N]: how often the request fits into what is free, at most the caps."""
    asked = np.flatnonzero(request)
    times = (np.maximum(free[:, asked], 0) // request[asked]).min(axis=1)
    fits: Ints = np.minimum(times, caps)
    return fits
