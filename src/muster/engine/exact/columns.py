"""Column generation: patterns that the master problem lacks, and the bound that the search for them gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.exact.certificate import UNIT, Weighing, bound, pattern_weights
from muster.engine.exact.master import Master, Relaxed
from muster.engine.exact.pricing import Floats, price
from muster.engine.exact.work import Budget

_FEW_STATES = 8
_MANY_STATES = 4_000
_WORK_PER_CALL = 4_000
_EPSILON = 1e-6


@dataclass(slots=True)
class Bounded:
    """What is known of a problem: nothing is worth more than `most`, by `weighing` (None: by what was known before)."""

    most: int
    weighing: Weighing | None = None
    relaxed: Relaxed | None = None


def generate(master: Master, bounded: Bounded, cutoff: int, budget: Budget) -> Relaxed:
    """Adds patterns until the bound is at most `cutoff`, or more of them cannot lower it, or the budget is used up."""
    few = True
    while True:
        relaxed = relax(master, budget)
        bounded.relaxed = relaxed
        if int(relaxed.value + _EPSILON) >= bounded.most or budget.is_used_up:
            return relaxed
        added, weighing = add_patterns(master, relaxed, _FEW_STATES if few else _MANY_STATES, budget)
        most = bound(master.problem, weighing)
        if most < bounded.most or bounded.weighing is None:
            bounded.most, bounded.weighing = min(most, bounded.most), weighing
        if bounded.most <= cutoff or (not added and not few):
            return relaxed
        few = added > 0


def relax(master: Master, budget: Budget) -> Relaxed:
    """The linear relaxation; its work is counted."""
    before = master.work
    relaxed = master.relax()
    budget.spent += master.work - before
    return relaxed


def add_patterns(master: Master, relaxed: Relaxed, limit: int, budget: Budget) -> tuple[int, Weighing]:
    """Adds the best pattern of every class that is worth more than the class's rent; the number and the weighing."""
    problem = master.problem
    weights, prices, rents = (_units(each) for each in (relaxed.weights, relaxed.prices, relaxed.rents))
    priced = price(problem, pattern_weights(problem, weights, prices), rents + 1, problem.caps, limit)
    budget.spent += _WORK_PER_CALL + priced.work
    better = np.flatnonzero(priced.values > rents + 1)
    added = master.patterns.add(better.tolist(), list(map(tuple, priced.counts[better].tolist())))
    master.sync()
    return added, Weighing(tuple(weights.tolist()), tuple(prices.tolist()), tuple(priced.bounds.tolist()))


def add_fitting(master: Master, relaxed: Relaxed, demand: Ints, nodes: Ints, budget: Budget) -> int:
    """Adds good patterns for what is left in a dive; they need not be the best."""
    problem = master.problem
    weights, prices, rents = (_units(each) for each in (relaxed.weights, relaxed.prices, relaxed.rents))
    caps = np.where(nodes[:, None] > 0, np.minimum(problem.caps, demand), 0)
    priced = price(problem, pattern_weights(problem, weights, prices), rents + 1, caps, _FEW_STATES)
    budget.spent += _WORK_PER_CALL + priced.work
    better = np.flatnonzero(priced.values > rents + 1)
    added = master.patterns.add(better.tolist(), list(map(tuple, priced.counts[better].tolist())))
    master.sync()
    return added


def _units(duals: Floats) -> Ints:
    """The duals in units, rounded down: any weights and prices prove something."""
    units: Ints = np.floor(np.minimum(duals, 4.0) * UNIT).astype(np.int64)
    return units
