"""The least disruptive victim set of a problem: criteria one after the other, each proved before the next.

Order (issue: leastDisruption): evictions beyond budgets, the highest priority of a victim, evicted pods, run time lost,
victims that could run elsewhere (more is better), names. What was excluded by the check of a plan stays excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.greedy import greedy
from muster.engine.preemption.problem import Problem

if TYPE_CHECKING:
    from muster.engine.preemption.search import Model

Cost: TypeAlias = tuple[int, int, int, int]
"""Violations, highest priority, pods, run time lost in seconds."""

FEW_UNITS = 60
"""Up to so many units, ties are decided by names exactly; beyond, only between units that are alike."""

_NAMES_AT_ONCE = 20


@dataclass(slots=True)
class Effort:
    """Nodes of search trees that may still be spent, and a cap in seconds for each search of a live scheduler."""

    nodes: int
    time_limit_s: float | None = None
    spent: int = 0

    def spend(self, nodes: int) -> None:
        """Takes note of a search."""
        self.spent += nodes

    @property
    def left(self) -> int:
        """How many nodes may still be spent."""
        return max(0, self.nodes - self.spent)


class Victims(Struct, frozen=True):
    """bool[U] chosen units; `counts` [N, G] pods that then fit on each node, if a search said so.

    `proved`: no set costs less; otherwise no set that violates as little evicts fewer than `fewest_pods`.
    """

    chosen: Bools
    counts: Ints | None
    proved: bool
    fewest_pods: int


@dataclass(slots=True)
class Search:
    """Looks for the least set. `elsewhere` gives int64[U]: of each unit, the pods that could run elsewhere."""

    problem: Problem
    effort: Effort
    elsewhere: Callable[[], Ints]
    limit: Cost | None = None
    """Sets that cost more than this are of no use."""
    excluded: list[Bools] = field(default_factory=list)

    def least(self) -> Victims | None:
        """The least set; None if there is none (proved, for the rules that are modelled)."""
        level = self.problem.lowest_level()
        if level is None:
            return None
        best: tuple[int, int, Victims] | None = None  # violations, level
        for priority in np.unique(self.problem.priorities).tolist():
            if priority < level:
                continue
            found = self._fewest_violations(priority)
            if found is None:
                continue
            violations = self.problem.violations(found.chosen)
            if best is None or violations < best[0]:
                best = violations, priority, found
            if violations == 0:
                break
        if best is None or (self.limit is not None and best[:2] > self.limit[:2]):
            return None
        return self._refined(*best)

    # -- violations and level

    def _fewest_violations(self, level: int) -> Victims | None:
        """A set of units up to the level with as few violations as possible."""
        problem = self.problem
        allowed = problem.priorities <= level
        start = self._start(allowed)
        if start is not None and problem.violations(start) == 0:
            return Victims(start, None, True, 0)
        if start is None and not problem.enough(allowed):
            return None
        found = self._model(allowed).least_violations(start, self.effort.left)
        self.effort.spend(found.nodes)
        if found.chosen is None:
            return None if start is None or found.proved else Victims(start, None, False, 0)
        return Victims(found.chosen, found.counts, found.proved, 0)

    def _start(self, allowed: Bools) -> Bools | None:
        """A set from the greedy passes that is not excluded, preferably without violations."""
        problem = self.problem
        if problem.shapes > 1:
            return None
        found = []
        over = (problem.spent > problem.allowed).any(axis=1) if len(problem.allowed) else None
        sets = [allowed] if over is None else [allowed & ~over, allowed]
        for units in sets:
            for costs in (problem.pods, np.ones_like(problem.pods)):
                chosen = greedy(problem, units, np.maximum(costs, 1))
                if chosen is not None and not self._is_excluded(chosen):
                    found.append(chosen)
        return min(found, key=problem.cost, default=None)

    def _is_excluded(self, chosen: Bools) -> bool:
        return any(not (chosen & ~other).any() for other in self.excluded)

    # -- the other criteria

    def _refined(self, violations: int, level: int, found: Victims) -> Victims | None:
        """The set with the fewest pods and so on, among those with these violations up to this level.

        A unit that alone costs more than the best set known is left out of the model: that is most of them.
        """
        problem = self.problem
        allowed = (problem.priorities <= level) & (problem.pods > 0)
        chosen, counts, fewest = found.chosen, found.counts, 0
        required: list[tuple[Ints, int]] = []
        if self.limit is not None and (violations, level) == self.limit[:2]:
            required.append((problem.pods, self.limit[2]))
        for number, costs in enumerate(self._criteria()):
            if not costs[allowed].any():
                continue
            if (costs >= 0).all():
                allowed = allowed & ((costs <= _value(costs, chosen)) | chosen)
            model = self._model(allowed)
            if len(problem.allowed):
                model.require_violations(violations)
            for other, most in required:
                model.require(other, most)
            step = model.least(costs, chosen, self.effort.left)
            self.effort.spend(step.nodes)
            if step.chosen is None and step.proved:
                return None  # all that would do cost more than the limit
            if step.chosen is not None and _value(costs, step.chosen) <= _value(costs, chosen):
                chosen, counts = step.chosen, step.counts
            if number == 0:
                fewest = step.bound
            if not step.proved:
                return Victims(chosen, counts, False, fewest)
            required.append((costs, _value(costs, chosen)))
        return Victims(self._lowest_of_alike(chosen), counts, found.proved, fewest)

    def _criteria(self) -> list[Ints]:
        """The costs to be made small, in order; the last ones are names."""
        problem = self.problem
        costs = [problem.pods, problem.ages, -self.elsewhere()]
        if len(problem.units) <= FEW_UNITS:
            for first in range(0, len(problem.units), _NAMES_AT_ONCE):
                weights = np.zeros(len(problem.units), dtype=np.int64)
                places = np.arange(first, min(first + _NAMES_AT_ONCE, len(problem.units)))
                weights[places] = -(1 << (_NAMES_AT_ONCE - 1 - (places - first)))
                costs.append(weights)
        return costs

    def _lowest_of_alike(self, chosen: Bools) -> Bools:
        """The same choice with the lowest names among units that are alike in everything else."""
        if len(self.problem.units) <= FEW_UNITS:
            return chosen
        classes: dict[bytes, list[int]] = {}
        for unit, kind in enumerate(_kinds(self.problem, self.elsewhere())):
            classes.setdefault(kind, []).append(unit)
        lowest = np.zeros_like(chosen)
        for units in classes.values():
            lowest[units[: int(chosen[units].sum())]] = True
        return lowest

    def _model(self, allowed: Bools) -> Model:
        from muster.engine.preemption.search import Model  # HiGHS is loaded by the first search, not by the import

        model = Model(self.problem, allowed, self.effort.time_limit_s)
        for chosen in self.excluded:
            model.exclude(chosen)
        return model


def _value(costs: Ints, chosen: Bools) -> int:
    return int(costs[chosen].sum())


def _kinds(problem: Problem, elsewhere: Ints) -> Sequence[bytes]:
    """Bytes that are equal for units that are interchangeable."""
    own = np.column_stack([problem.priorities, problem.pods, problem.ages, elsewhere, problem.spent])
    bounds = np.searchsorted(problem.at, np.arange(len(problem.units) + 1)).tolist()
    blocking = {(each.unit, each.row, each.shape, each.most) for each in problem.blockers}
    kinds = []
    for unit in range(len(problem.units)):
        part = slice(bounds[unit], bounds[unit + 1])
        order = np.argsort(problem.rows[part], kind="stable")
        marks = sorted(mark[1:] for mark in blocking if mark[0] == unit)
        where = problem.rows[part][order].tobytes() + problem.releases[part][order].tobytes()
        kinds.append(own[unit].tobytes() + where + repr(marks).encode())
    return kinds
