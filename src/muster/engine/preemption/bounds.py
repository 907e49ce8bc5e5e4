"""What any victim set costs at least, for the domains of a level in one pass: which of them are worth a search.

Every bound is one for the problem on the nodes of the domain alone, by counting; blockers are left out of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.problem import Problem, fitting

Floats = NDArray[np.float64]


class Bound(Struct, frozen=True):
    """No set of the domain has a victim of highest priority below `level`; of those up to it, none evicts fewer `pods`
    or loses fewer `seconds`."""

    level: int
    pods: int
    seconds: int


def bounds(problem: Problem, ids: Ints, number: int) -> list[Bound | None]:
    """Of each domain (`ids` int64[N] that of each node, -1 for none); None where no set is enough."""
    levels = np.unique(problem.priorities)
    lowest = _lowest(problem, ids, number, levels)
    gains = _gains(problem)
    here = ids[problem.rows]
    lacking = _lacking(problem, ids, number)
    order = np.argsort(here, kind="stable")
    starts = np.searchsorted(here[order], np.arange(number + 1))
    found: list[Bound | None] = []
    for domain, place in enumerate(lowest.tolist()):
        if place < 0:
            found.append(None)
            continue
        level = int(levels[place])
        entries = order[starts[domain] : starts[domain + 1]]
        entries = entries[problem.priorities[problem.at[entries]] <= level]
        units, local = np.unique(problem.at[entries], return_inverse=True)
        gain = np.bincount(local.reshape(-1), gains[entries], minlength=len(units)).astype(np.float64)
        pods, seconds = (_cover(gain, costs[units], float(lacking[domain])) for costs in (problem.pods, problem.ages))
        found.append(Bound(level, max(pods, int(lacking[domain] > 0)), seconds))
    return found


def _lacking(problem: Problem, ids: Ints, number: int) -> Ints:
    """int64[D]: how many pods have no room yet; 0 where that is not a matter of counting."""
    if problem.shapes > 1:
        return np.zeros(number, dtype=np.int64)
    return problem.need - _sums(problem.room(np.zeros(len(problem.units), dtype=np.bool_)), ids, number)


def _lowest(problem: Problem, ids: Ints, number: int, levels: Ints) -> Ints:
    """int64[D]: the place of the lowest level such that evicting all units up to it might be enough; -1 without."""
    low, high = np.zeros(number, dtype=np.int64), np.full(number, len(levels) - 1, dtype=np.int64)
    possible = _enough(problem, ids, levels[high]) if len(levels) else np.zeros(number, dtype=np.bool_)
    while (low < high).any():
        middle = (low + high) // 2
        is_enough = _enough(problem, ids, levels[middle])
        low, high = np.where(is_enough, low, np.minimum(middle + 1, high)), np.where(is_enough, middle, high)
    return np.where(possible, high, -1)


def _enough(problem: Problem, ids: Ints, highest: Ints) -> Bools:
    """bool[D]: whether the pods might fit into each domain without the units of priority up to `highest` int64[D]."""
    here = ids[problem.rows]
    gone = (here >= 0) & (problem.priorities[problem.at] <= highest[here])
    free = problem.free.copy()
    np.add.at(free, problem.rows[gone], problem.releases[gone])
    total = np.zeros(len(highest), dtype=np.int64)
    for shape in range(problem.shapes):
        fits = fitting(free, problem.requests[shape], problem.caps[:, shape])
        total += np.minimum(_sums(fits, ids, len(highest)), problem.demand[shape])
    return np.asarray(total >= problem.need)


def _sums(values: Ints, ids: Ints, number: int) -> Ints:
    known = ids >= 0
    return np.bincount(ids[known], values[known], minlength=number).astype(np.int64)


def _gains(problem: Problem) -> Floats:
    """float64[E]: the places that an eviction can make at most on the node; infinite where that is not known.

    Evicting a set makes no more places on a node than its releases of the resource that is scarcest there now, in
    units of the request, and the part of a place that is free already.
    """
    if problem.shapes > 1 or problem.blockers:
        return np.full(len(problem.at), np.inf)
    request, rows = problem.requests[0], problem.rows
    asked = np.flatnonzero(request)
    parts = np.maximum(problem.free[:, asked], 0) / request[asked]
    scarcest = parts.argmin(axis=1)
    now = parts[np.arange(len(parts)), scarcest]
    column = asked[scarcest[rows]]
    gains = problem.releases[np.arange(len(rows)), column] / request[column] + (now - np.floor(now))[rows]
    return np.asarray(np.minimum(gains, problem.caps[rows, 0]), dtype=np.float64)


def _cover(gains: Floats, costs: Ints, lacking: float) -> int:
    """The least cost with which units, parts of them allowed, gain so much."""
    if lacking <= 0 or np.isinf(gains).any():
        return 0
    lacking -= float(gains[costs == 0].sum())
    useful = np.flatnonzero((gains > 0) & (costs > 0))
    order = useful[np.argsort(-(gains[useful] / costs[useful]), kind="stable")]
    reached = np.cumsum(gains[order])
    last = int(np.searchsorted(reached, lacking - 1e-9))
    if lacking <= 1e-9:
        return 0
    if last >= len(order):
        return int(costs[order].sum())
    before = float(reached[last - 1]) if last else 0.0
    part = float(costs[order[:last]].sum())
    part += (lacking - before) / float(gains[order[last]]) * float(costs[order[last]])
    return int(np.ceil(part - 1e-6))
