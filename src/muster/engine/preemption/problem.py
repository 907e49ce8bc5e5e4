"""The victim problem in numbers: which units to evict so that enough pods of some shapes fit onto the nodes.

What is modelled: requests of every resource (pod slots are one), the most pods of a shape that a node takes with all
candidates gone, and single units that are in the way for another reason (host ports, anti-affinity on the node). Rules
beyond that are left to the check of the finished plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.mixed import Demand
from muster.engine.preemption.budgets import Budgets
from muster.engine.preemption.model import Unit
from muster.engine.profile import Profile
from muster.engine.requests import Usage
from muster.engine.snapshot import Snapshot, Trial


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
    draws on the budgets, of which `allowed` [B] is left. `nodes` [N]: the rows of the nodes in the snapshot.
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
        )

    def enough(self, chosen: Bools) -> bool:
        """Whether the pods might fit without the chosen units; False is certain."""
        if self.shapes == 1:
            return int(self.room(chosen).sum()) >= self.need
        free = self.freed(chosen)
        fits = [int(fitting(free, self.requests[g], self.caps[:, g]).sum()) for g in range(self.shapes)]
        return int(np.minimum(fits, self.demand).sum()) >= self.need

    def lowest_level(self) -> int | None:
        """The lowest priority such that evicting all units up to it might be enough; None if nothing is."""
        levels = np.unique(self.priorities)
        if not self.enough(np.ones(len(self.units), dtype=np.bool_)):
            return None
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self.enough(self.priorities <= levels[middle]):
                high = middle
            else:
                low = middle + 1
        return int(levels[low])

    def fewest_pods(self) -> int:
        """A lower bound for the pods that have to go, by the places that each unit can make at most.

        Evicting a set makes no more places on a node than its releases of the resource that is scarcest there now, in
        units of the request, and the part of a place that is free already.
        """
        if self.shapes > 1 or self.blockers:
            return 1
        request = self.requests[0]
        asked = np.flatnonzero(request)
        parts = np.maximum(self.free[:, asked], 0) / request[asked]
        scarcest = parts.argmin(axis=1)
        lacking = self.need - int(self.room(np.zeros(len(self.units), dtype=np.bool_)).sum())
        if lacking <= 0:
            return 0
        now = parts[np.arange(len(parts)), scarcest]
        column = asked[scarcest[self.rows]]
        gains = self.releases[np.arange(len(self.rows)), column] / request[column] + (now - np.floor(now))[self.rows]
        gains = np.minimum(gains, self.caps[self.rows, 0]).astype(np.float64)
        gain = np.bincount(self.at, gains, minlength=len(self.units)).astype(np.float64)
        return _fractional_cover(gain, self.pods, float(lacking))

    def cost(self, chosen: Bools) -> tuple[int, int, int, int]:
        """What is compared before the rest: violations, highest priority, pods, run time lost in whole seconds."""
        if not chosen.any():
            return 0, -(2**63), 0, 0
        highest = int(self.priorities[chosen].max())
        return self.violations(chosen), highest, int(self.pods[chosen].sum()), int(self.ages[chosen].sum())


def _fractional_cover(gains: NDArray[np.float64], pods: Ints, lacking: float) -> int:
    """The fewest pods with which units, parts of them allowed, gain so much."""
    useful = np.flatnonzero((gains > 0) & (pods > 0))
    order = useful[np.argsort(-(gains[useful] / pods[useful]), kind="stable")]
    reached = np.cumsum(gains[order])
    last = int(np.searchsorted(reached, lacking - 1e-9))
    if last >= len(order):
        return int(pods[order].sum())
    before = float(reached[last - 1]) if last else 0.0
    part = float(pods[order[:last]].sum()) + (lacking - before) / float(gains[order[last]]) * float(pods[order[last]])
    return max(1, int(np.ceil(part - 1e-6)))


def fitting(free: Ints, request: Ints, caps: Ints) -> Ints:
    """int64[N]: how often the request fits into what is free, at most the caps."""
    asked = np.flatnonzero(request)
    times = (np.maximum(free[:, asked], 0) // request[asked]).min(axis=1)
    fits: Ints = np.minimum(times, caps)
    return fits


def build(
    profile: Profile,
    base: Trial,
    gone: Trial,
    units: Sequence[Unit],
    demands: Sequence[Demand],
    need: int,
    budgets: Budgets,
    now_s: float,
) -> Problem:
    """The problem, from a trial in which every unit is in place and one of it without any of them.

    In both, pods that are leaving are gone. `gone` is written and left as it was.
    """
    axis = base.axis
    ordered = tuple(sorted(units, key=lambda unit: unit.key))
    at, rows, releases = _entries(base, ordered)
    requests = np.array([axis.vector(demand.shape.usage.requests, pods=1) for demand in demands], dtype=np.int64)
    requests = requests.reshape(len(demands), len(axis))
    columns = np.flatnonzero(requests.any(axis=0))
    free = base.free()[:, columns]
    caps = np.array([profile.count(demand.shape, gone) for demand in demands], dtype=np.int64).T
    caps = np.minimum(caps, np.array([len(demand.places) for demand in demands]))
    problem = Problem(
        ordered,
        need,
        np.array([len(demand.places) for demand in demands], dtype=np.int64),
        requests[:, columns],
        free,
        np.ascontiguousarray(caps),
        at,
        rows,
        releases[:, columns],
        np.array([unit.priority for unit in ordered], dtype=np.int64),
        np.array([len(unit.evicted) for unit in ordered], dtype=np.int64),
        np.array([round(unit.age_s(now_s)) for unit in ordered], dtype=np.int64),
        _spent(ordered, budgets),
        np.array([max(0, budget.allowed) for budget in budgets.all], dtype=np.int64),
        np.arange(len(base), dtype=np.int64),
    )
    blockers = _blockers(profile, gone, problem, demands)
    return replace(problem, blockers=blockers) if blockers else problem


def remove_all(trial: Trial, units: Sequence[Unit]) -> None:
    """Takes the pods of the units away, without their keys where these do not matter.

    Keys of pods with ports, volumes or relations to others are removed one by one; of the others, only what they use.
    """
    index, placed = trial.table.index, trial.placed
    rows_of: dict[int, tuple[Usage, list[int]]] = {}
    special = []
    for unit in units:
        for pod in unit.evicted:
            usage, row = placed.get(pod.node, _NOTHING).get(pod.key), index.get(pod.node)
            if usage is None or row is None:
                continue
            known = rows_of.get(id(usage))
            if known is not None:
                known[1].append(row)
            elif usage.ports or usage.volumes or usage.identity is not None:
                special.append(pod.key)
            else:
                rows_of[id(usage)] = (usage, [row])
    for usage, rows in rows_of.values():
        counts = np.bincount(np.array(rows, dtype=np.int64), minlength=len(trial))
        distinct = np.flatnonzero(counts)
        trial.place_many(usage, distinct, -counts[distinct].astype(np.int64))
    trial.remove(special)


def _entries(snapshot: Snapshot, units: Sequence[Unit]) -> tuple[Ints, Ints, Ints]:
    """For each unit and node that it is on: unit, row, and the sum of what its pods take there."""
    index, placed = snapshot.table.index, snapshot.placed
    pairs: dict[tuple[int, int], int] = {}
    known_as: dict[int, int] = {}  # by identity: hashing what tens of thousands of pods take would cost more
    usages: list[Usage] = []
    entry_of, usage_of_pod = [], []
    for place, unit in enumerate(units):
        for pod in unit.evicted:
            row = index.get(pod.node)
            usage = placed.get(pod.node, _NOTHING).get(pod.key)
            if row is None or usage is None:
                continue
            number = known_as.get(id(usage))
            if number is None:
                number = known_as[id(usage)] = len(usages)
                usages.append(usage)
            entry_of.append(pairs.setdefault((place, row), len(pairs)))
            usage_of_pod.append(number)
    vectors = np.array([snapshot.axis.vector(usage.requests, pods=1) for usage in usages], dtype=np.int64)
    vectors = vectors.reshape(len(usages), len(snapshot.axis))
    releases = np.zeros((len(pairs), len(snapshot.axis)), dtype=np.int64)
    np.add.at(releases, np.array(entry_of, dtype=np.int64), vectors[np.array(usage_of_pod, dtype=np.int64)])
    known = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return known[:, 0], known[:, 1], releases


_NOTHING: Mapping[str, Usage] = {}


def _spent(units: Sequence[Unit], budgets: Budgets) -> Ints:
    spent = np.zeros((len(units), len(budgets.all)), dtype=np.int64)
    if len(budgets.all):
        for place, unit in enumerate(units):
            for pod in unit.evicted:
                for budget in budgets.of(pod):
                    spent[place, budget] += 1
    return spent


def _blockers(profile: Profile, gone: Trial, problem: Problem, demands: Sequence[Demand]) -> tuple[Blocker, ...]:
    """Units that keep pods off a node for other reasons than room; `gone`: the trial without any of the units.

    Only pods with ports, volumes or relations to others can (see `remove_all`). They are put back one unit a node at a
    time.
    """
    names, found = gone.table.names, list[Blocker]()
    back_on: dict[int, list[tuple[int, list[str]]]] = {}
    for unit, row in zip(problem.at.tolist(), problem.rows.tolist(), strict=True):
        keys = [pod.key for pod in problem.units[unit].evicted if pod.key in gone.removed and pod.node == names[row]]
        if keys and problem.caps[row].any():
            back_on.setdefault(row, []).append((unit, keys))
    for step in range(max(map(len, back_on.values()), default=0)):
        now = [(row, *units[step]) for row, units in back_on.items() if len(units) > step]
        back = [key for _, _, keys in now for key in keys]
        gone.restore(back)
        free = gone.free()
        for shape, demand in enumerate(demands):
            counts = profile.count(demand.shape, gone)
            allowed = fitting(free, gone.axis.vector(demand.shape.usage.requests, pods=1), problem.caps[:, shape])
            found += [Blocker(unit, row, shape, int(counts[row])) for row, unit, _ in now if counts[row] < allowed[row]]
        gone.remove(back)
    return tuple(found)
