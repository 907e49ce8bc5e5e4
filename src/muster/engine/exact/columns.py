"""Column generation: patterns that the master problem lacks, and the bound that the search for them gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.certificate import UNIT, Weighing, bound, pattern_weights
from muster.engine.exact.master import Master, Relaxed
from muster.engine.exact.pricing import Floats, price
from muster.engine.exact.work import Budget

_FEWEST_STATES, _NARROW_STATES = 8, 6_000
_WIDER, _MOST_STATES, _ALL_STATES = 8, 4_096, 600_000
_SLOW, _FEW = 0.2, 0.25
"""A round that closes less than this part of the gap was slow; one that finds patterns for fewer classes found few."""
_WORK_PER_CALL = 4_000
_EPSILON = 1e-6
_LARGEST_DUAL = 4096.0
"""Larger ones are cut: sums of whole numbers must stay within 64 bits, and any weights and prices prove something."""


@dataclass(slots=True)
class Bounded:
    """What is known of a problem: nothing is worth more than `most`, by `weighing` (None: by what was known before)."""

    most: int
    weighing: Weighing | None = None
    relaxed: Relaxed | None = None


def generate(master: Master, bounded: Bounded, cutoff: int, budget: Budget) -> Relaxed:
    """Adds patterns until the bound is at most `cutoff`, or more of them cannot lower it, or the budget is used up.

    The search for patterns is narrow as long as that finds many, and gets wider as they get rare.
    """
    classes, center = master.problem.classes, _Center()
    if master.ready.listed is not None:
        budget.spent += master.ready.listed.work
    states = narrow(classes)
    most_states = min(_MOST_STATES, max(_ALL_STATES // classes, _WIDER * states))
    added, before = classes, -1.0
    while True:
        relaxed = relax(master, budget)
        bounded.relaxed = relaxed
        if int(relaxed.value + _EPSILON) >= bounded.most or budget.is_used_up:
            return relaxed
        slow = relaxed.value - before < _SLOW * (bounded.most - relaxed.value)
        is_stuck = not added and not center.is_used
        if is_stuck or (slow and added and added < _FEW * classes):
            states = min(_WIDER * states, most_states)
        before = relaxed.value
        duals = center.towards(relaxed, added > 0)
        added, weighing = add_patterns(master, duals, master.problem.caps, states, budget)
        most = bound(master.problem, weighing)
        center.note(most, duals)
        if most < bounded.most or bounded.weighing is None:
            bounded.most, bounded.weighing = min(most, bounded.most), weighing
        if bounded.most <= cutoff or (not added and not center.is_used and states == most_states):
            return relaxed


_PULL = 0.4


@dataclass(slots=True)
class _Center:
    """The duals with the best bound so far. Duals of early rounds jump about; patterns are looked for between them and
    the centre, which gives better bounds and fewer rounds (Wentges, Weighted Dantzig-Wolfe decomposition)."""

    most: int | None = None
    duals: Relaxed | None = None
    is_used: bool = False

    def towards(self, relaxed: Relaxed, pulled: bool) -> Relaxed:
        """The relaxation with duals between its own and the centre; with its own if that found nothing."""
        self.is_used = pulled and self.duals is not None
        if not self.is_used or self.duals is None:
            return relaxed
        weights = _PULL * self.duals.weights + (1 - _PULL) * relaxed.weights
        prices = _PULL * self.duals.prices + (1 - _PULL) * relaxed.prices
        return replace(relaxed, weights=weights, prices=prices)

    def note(self, most: int, duals: Relaxed) -> None:
        """A bound that these duals give."""
        if self.most is None or most <= self.most:
            self.most, self.duals = most, duals


def narrow(classes: int) -> int:
    """The states of a class that a narrow search keeps: as many as cost little more than the calls themselves."""
    return max(_FEWEST_STATES, min(_NARROW_STATES // classes, _MOST_STATES // _WIDER))


def relax(master: Master, budget: Budget) -> Relaxed:
    """The linear relaxation; its work is counted."""
    before = master.work
    relaxed = master.relax()
    budget.spent += master.work - before
    return relaxed


def add_patterns(master: Master, relaxed: Relaxed, caps: Ints, states: int, budget: Budget) -> tuple[int, Weighing]:
    """Adds the best pattern of every class that weighs more than the known ones; how many, and the weighing.

    `caps` int64[C, G]: at most so many pods of each shape; the weighing is a proof only for the caps of the problem.
    """
    problem = master.problem
    weights, prices = _units(relaxed.weights), _units(relaxed.prices)
    table = pattern_weights(problem, weights, prices)
    known = np.maximum(master.patterns.heaviest(table), _units(relaxed.rents) if caps is not problem.caps else 0)
    priced = price(problem, table, known, caps, states, master.ready)
    budget.spent += _WORK_PER_CALL + priced.work
    better = np.flatnonzero(priced.values > known)
    added = master.patterns.add(better.tolist(), list(map(tuple, priced.counts[better].tolist())))
    master.sync()
    return added, Weighing(tuple(weights.tolist()), tuple(prices.tolist()), tuple(priced.bounds.tolist()))


def _units(duals: Floats) -> Ints:
    """The duals in units, rounded down."""
    units: Ints = np.floor(np.minimum(duals, _LARGEST_DUAL) * UNIT).astype(np.int64)
    return units
