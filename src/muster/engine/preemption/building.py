"""Builds the victim problem from two trials: one with every unit in place, one without any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.mixed import Demand
from muster.engine.preemption.budgets import Budgets
from muster.engine.preemption.device_columns import device_columns
from muster.engine.preemption.model import Unit
from muster.engine.preemption.problem import Blocker, Problem, fitting
from muster.engine.profile import Profile
from muster.engine.requests import Usage
from muster.engine.snapshot import Snapshot, Trial


class Census(Struct, frozen=True):
    """The pods that an eviction of the units (sorted by key) would delete: of each [P] its unit, its row, and the
    number of what it takes in `usages`. `special`: keys of pods with ports, volumes or relations to others."""

    units: tuple[Unit, ...]
    unit_of: Ints
    rows: Ints
    usage_of: Ints
    usages: tuple[Usage, ...]
    special: tuple[str, ...]


def census(snapshot: Snapshot, units: Sequence[Unit]) -> Census:
    """Looks every pod up once; pods that are not known on their nodes are left out."""
    ordered = tuple(sorted(units, key=lambda unit: unit.key))
    index, placed = snapshot.table.index, snapshot.placed
    nodes: dict[str, tuple[int, Mapping[str, Usage]]] = {}
    known_as: dict[int, int] = {}  # by identity: hashing what tens of thousands of pods take would cost more
    usages: list[Usage] = []
    unit_of, rows, usage_of = list[int](), list[int](), list[int]()
    special: list[str] = []
    for place, unit in enumerate(ordered):
        for pod in unit.evicted:
            node = nodes.get(pod.node)
            if node is None:
                node = nodes[pod.node] = index.get(pod.node, -1), placed.get(pod.node, _NOTHING)
            usage = node[1].get(pod.key)
            if usage is None or node[0] < 0:
                continue
            number = known_as.get(id(usage))
            if number is None:
                number = known_as[id(usage)] = len(usages)
                usages.append(usage)
            if usage.ports or usage.volumes or usage.identity is not None:
                special.append(pod.key)
            unit_of.append(place)
            rows.append(node[0])
            usage_of.append(number)
    return Census(ordered, _array(unit_of), _array(rows), _array(usage_of), tuple(usages), tuple(special))


def _array(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


def remove_all(trial: Trial, found: Census) -> None:
    """Takes the pods away, without their keys where these do not matter.

    Keys of pods with ports, volumes or relations to others are removed one by one; of the others, only what they use.
    """
    for number, usage in enumerate(found.usages):
        if usage.ports or usage.volumes or usage.identity is not None:
            continue
        counts = np.bincount(found.rows[found.usage_of == number], minlength=len(trial))
        distinct = np.flatnonzero(counts)
        trial.place_many(usage, distinct, -counts[distinct].astype(np.int64))
    trial.remove(found.special)


def build(
    profile: Profile,
    base: Trial,
    gone: Trial,
    found: Census,
    demands: Sequence[Demand],
    need: int,
    budgets: Budgets,
    now_s: float,
    *,
    is_coupled: bool = False,
) -> Problem:
    """The problem, from a trial in which every unit is in place and one of it without any of them.

    In both, pods that are leaving are gone. `gone` is written and left as it was. `is_coupled`: rules between pods are
    left out, so that the problem is easier than it is.
    """
    axis, units = base.axis, found.units
    at, rows, releases = _entries(base, found)
    requests = np.array([axis.vector(demand.shape.usage.requests, pods=1) for demand in demands], dtype=np.int64)
    requests = requests.reshape(len(demands), len(axis))
    columns = np.flatnonzero(requests.any(axis=0))
    asked, free, freed = requests[:, columns], base.free()[:, columns], releases[:, columns]
    shapes = [demand.shape for demand in demands]
    if any(shape.usage.devices is not None for shape in shapes):
        devices = device_columns(base, gone, shapes, found.usages, _takers(found, at, rows))
        asked, free = np.hstack([asked, devices.requests]), np.hstack([free, devices.free])
        freed = np.hstack([freed, devices.releases])
    most = profile.ceiling if is_coupled else profile.count
    caps = np.array([most(demand.shape, gone) for demand in demands], dtype=np.int64).T
    caps = np.minimum(caps, np.array([len(demand.places) for demand in demands]))
    problem = Problem(
        units,
        need,
        np.array([len(demand.places) for demand in demands], dtype=np.int64),
        asked,
        free,
        np.ascontiguousarray(caps),
        at,
        rows,
        freed,
        np.array([unit.priority for unit in units], dtype=np.int64),
        np.array([len(unit.evicted) for unit in units], dtype=np.int64),
        np.array([round(unit.age_s(now_s)) for unit in units], dtype=np.int64),
        _spent(units, budgets),
        np.array([max(0, budget.allowed) for budget in budgets.all], dtype=np.int64),
        np.arange(len(base), dtype=np.int64),
    )
    blockers = () if is_coupled else _blockers(profile, gone, problem, demands)
    return replace(problem, blockers=blockers) if blockers else problem


def _entries(snapshot: Snapshot, found: Census) -> tuple[Ints, Ints, Ints]:
    """For each unit and node that it is on: unit, row, and the sum of what its pods take there."""
    vectors = np.array([snapshot.axis.vector(usage.requests, pods=1) for usage in found.usages], dtype=np.int64)
    vectors = vectors.reshape(len(found.usages), len(snapshot.axis))
    pairs, entry_of = np.unique(found.unit_of * max(1, len(snapshot)) + found.rows, return_inverse=True)
    releases = np.zeros((len(pairs), len(snapshot.axis)), dtype=np.int64)
    np.add.at(releases, entry_of.reshape(-1), vectors[found.usage_of])
    at, rows = np.divmod(pairs, max(1, len(snapshot)))
    return at, rows, releases


def _takers(found: Census, at: Ints, rows: Ints) -> list[tuple[int, list[int]]]:
    """For each entry the row, and the numbers of what pods with devices take there."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for unit, row, usage in zip(found.unit_of.tolist(), found.rows.tolist(), found.usage_of.tolist(), strict=True):
        if found.usages[usage].devices is not None:
            numbers.setdefault((unit, row), []).append(usage)
    return [(row, numbers.get((unit, row), [])) for unit, row in zip(at.tolist(), rows.tolist(), strict=True)]


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
    if not gone.removed:
        return ()
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
