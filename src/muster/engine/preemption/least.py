"""The least disruptive victim set of a problem: criteria one after the other, each proved before the next.

Order (issue: leastDisruption): evictions beyond budgets, the highest priority of a victim, evicted pods, run time lost,
victims that could run elsewhere (more is better), names. What was excluded by the check of a plan stays excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.by_node import FEW_UNITS, least_by_node
from muster.engine.preemption.greedy import Greedy
from muster.engine.preemption.problem import Problem

if TYPE_CHECKING:
    from muster.engine.preemption.search import Model

Cost: TypeAlias = tuple[int, int, int, int, int]
"""Violations, highest priority, pods, run time lost in seconds, pods that could run elsewhere (negative)."""

_NAMES_AT_ONCE = 20
_BOUNDED = 2
"""Of so many criteria a limit and bounds are known: pods and seconds."""
_BEFORE_NAMES = 3
_LIMITED = 2 + _BOUNDED
"""Of a limit, so many criteria count."""


@dataclass(slots=True)
class Effort:
    """Nodes of search trees and questions to the engine that may still be spent, and a cap in seconds for each search
    of a live scheduler."""

    nodes: int
    time_limit_s: float | None = None
    checks: int = 0
    spent: int = 0

    def spend(self, nodes: int) -> None:
        """Takes note of a search."""
        self.spent += nodes

    def check(self) -> bool:
        """Takes note of a question to the engine; False if no more may be asked."""
        self.checks -= 1
        return self.checks >= 0

    @property
    def left(self) -> int:
        """How many nodes may still be spent."""
        return max(0, self.nodes - self.spent)


class Cut(Struct, frozen=True):
    """Units (bool[U]) that were not enough. `alone`: just these; otherwise neither is any part of them."""

    chosen: Bools
    alone: bool = False

    def rules_out(self, chosen: Bools) -> bool:
        """Whether a set is not enough because of this."""
        return bool(np.array_equal(chosen, self.chosen) if self.alone else not (chosen & ~self.chosen).any())


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
    """Looks for the least set. `elsewhere` gives int64[U]: of each of these units (bool[U]), the pods that could run
    elsewhere."""

    problem: Problem
    effort: Effort
    elsewhere: Callable[[Bools], Ints]
    floor: tuple[int, int, int] | None = None
    """A level, and a bound for sets of it on the pods that go and on the seconds that are lost."""
    cuts: list[Cut] = field(default_factory=list)
    _greedy: Greedy | None = None

    def least(self, limit: Cost | None = None) -> Victims | None:
        """The least set; None if there is none that costs at most `limit` (proved, for the rules that are modelled)."""
        level = self.problem.lowest_level()
        if level is None:
            return None
        best: tuple[int, int, Victims] | None = None  # violations, level
        for priority in np.unique(self.problem.priorities).tolist():
            if priority < level:
                continue
            if limit is not None and (0, priority) > limit[:2]:
                break
            is_by_node, alone = self._by_node(priority)
            if alone is not None:
                is_within = limit is None or self.cost(alone)[:_LIMITED] <= limit[:_LIMITED]
                return Victims(alone, None, True, int(self.problem.pods[alone].sum())) if is_within else None
            found = None if is_by_node and not len(self.problem.allowed) else self._fewest_violations(priority)
            if found is None:
                continue
            violations = self.problem.violations(found.chosen)
            if best is None or violations < best[0]:
                best = violations, priority, found
            if violations == 0:
                break
        if best is None or (limit is not None and best[:2] > limit[:2]):
            return None
        return self._refined(*best, limit)

    def _by_node(self, level: int) -> tuple[bool, Bools | None]:
        """The least set up to the level without violations, if units are on one node each; see `least_by_node`."""
        problem = self.problem
        if problem.shapes > 1 or problem.form is not None or self.cuts:
            return False, None
        allowed = (problem.priorities <= level) & (problem.pods > 0)
        if len(problem.allowed):
            allowed &= ~(problem.spent > problem.allowed).any(axis=1)
        is_by_node, chosen = least_by_node(problem, allowed, self.elsewhere)
        if not is_by_node:
            on_several = allowed & (np.bincount(problem.at, minlength=len(allowed)) > 1)
            _, chosen = least_by_node(problem, allowed & ~on_several, self.elsewhere)
            # No unit on several nodes is in a least set if each alone has more pods than a set without them.
            if chosen is None or (problem.pods[on_several] <= int(problem.pods[chosen].sum())).any():
                return False, None
            is_by_node = True
        return is_by_node, None if chosen is None or problem.violations(chosen) else chosen

    def cost(self, chosen: Bools) -> Cost:
        """All that is compared before names."""
        violations, highest, pods, seconds = self.problem.cost(chosen)
        return violations, highest, pods, seconds, -int(self.elsewhere(chosen)[chosen].sum())

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
        if problem.shapes > 1 or problem.form is not None:
            return None
        if self._greedy is None:
            self._greedy = Greedy(problem)
        found = []
        over = (problem.spent > problem.allowed).any(axis=1) if len(problem.allowed) else None
        sets = [allowed] if over is None else [allowed & ~over, allowed]
        for units in sets:
            for costs in (problem.pods, np.ones_like(problem.pods)):
                chosen = self._greedy.find(units, np.maximum(costs, 1))
                if chosen is not None and not any(cut.rules_out(chosen) for cut in self.cuts):
                    found.append(chosen)
        return min(found, key=problem.cost, default=None)

    # -- the other criteria

    def _refined(self, violations: int, level: int, found: Victims, limit: Cost | None) -> Victims | None:
        """The set with the fewest pods and so on, among those with these violations up to this level.

        A unit that alone costs more than the best set known is left out of the model: that is most of them.
        """
        problem = self.problem
        allowed = (problem.priorities <= level) & (problem.pods > 0)
        chosen, counts, fewest = found.chosen, found.counts, 0
        required: list[tuple[Ints, int]] = []
        names: list[Ints] = []
        ties = limit is not None and (violations, level) == limit[:2]
        number = 0
        while number < _BEFORE_NAMES + len(names):
            costs = self._criterion(number, allowed, names)
            value = _value(costs, chosen)
            most = limit[2 + number] if limit is not None and ties and number < _BOUNDED else None
            if (costs >= 0).all():
                allowed = allowed & ((costs <= value) | chosen)
            # Once the fewest pods are known no part of the chosen units is enough.
            is_settled = not costs[allowed].any() or (number > 0 and not (allowed & ~chosen).any())
            if not is_settled and not self._is_least(number, level, value):
                model = self._model(allowed, violations, required if most is None else [*required, (costs, most)])
                step = model.least(costs, chosen, self.effort.left)
                self.effort.spend(step.nodes)
                if step.chosen is None and step.proved:
                    return None  # all that would do cost more than the limit
                if step.chosen is not None and _value(costs, step.chosen) <= value:
                    chosen, counts = step.chosen, step.counts
                if not step.proved:
                    return Victims(chosen, counts, False, step.bound if number == 0 else fewest)
                value = _value(costs, chosen)
            if most is not None and value > most:
                return None
            fewest = value if number == 0 else fewest
            ties = ties and value == most
            required.append((costs, value))
            number += 1
            if number == _BEFORE_NAMES:
                names = _names(allowed)
        return Victims(self._lowest_of_alike(chosen, allowed), counts, found.proved, fewest)

    def _is_least(self, number: int, level: int, value: int) -> bool:
        """Whether a bound that was known before says that no set has less of a criterion."""
        if self.floor is None or number >= _BOUNDED or self.floor[0] != level:
            return False
        return value <= self.floor[1 + number]

    def _criterion(self, number: int, allowed: Bools, names: Sequence[Ints]) -> Ints:
        """The costs to be made small at this place in the order; the last ones are names."""
        if number >= _BEFORE_NAMES:
            return names[number - _BEFORE_NAMES]
        if number == 2:
            return -self.elsewhere(allowed)
        return self.problem.ages if number else self.problem.pods

    def _lowest_of_alike(self, chosen: Bools, allowed: Bools) -> Bools:
        """The same choice with the lowest names among units that are alike in everything else."""
        if int(allowed.sum()) <= FEW_UNITS or self.problem.is_coupled:
            return chosen
        classes: dict[bytes, list[int]] = {}
        for unit, kind in _kinds(self.problem, chosen, allowed, self.elsewhere(allowed)):
            classes.setdefault(kind, []).append(unit)
        lowest = np.zeros_like(chosen)
        for units in classes.values():
            lowest[units[: int(chosen[units].sum())]] = True
        return lowest

    def _model(self, allowed: Bools, violations: int | None = None, required: Sequence[tuple[Ints, int]] = ()) -> Model:
        from muster.engine.preemption.search import Model  # HiGHS is loaded by the first search, not by the import

        model = Model(self.problem, allowed, self.effort.time_limit_s)
        for cut in self.cuts:
            if cut.alone:
                model.exclude_exactly(cut.chosen)
            else:
                model.exclude(cut.chosen)
        if violations is not None and len(self.problem.allowed):
            model.require_violations(violations)
        for costs, most in required:
            model.require(costs, most)
        return model


def _names(allowed: Bools) -> list[Ints]:
    """Costs that prefer units with low names (units are sorted by name), so many at once as numbers can tell apart."""
    units, found = np.flatnonzero(allowed), []
    for first in range(0, len(units) if len(units) <= FEW_UNITS else 0, _NAMES_AT_ONCE):
        some = units[first : first + _NAMES_AT_ONCE]
        weights = np.zeros(len(allowed), dtype=np.int64)
        weights[some] = -(1 << (_NAMES_AT_ONCE - 1 - np.arange(len(some))))
        found.append(weights)
    return found


def _value(costs: Ints, chosen: Bools) -> int:
    return int(costs[chosen].sum())


def _kinds(problem: Problem, chosen: Bools, allowed: Bools, elsewhere: Ints) -> Iterator[tuple[int, bytes]]:
    """Units that are as costly as a chosen one, each with bytes that are equal for those that are interchangeable."""
    own = np.column_stack([problem.priorities, problem.pods, problem.ages, elsewhere, problem.spent])
    costs = {own[unit].tobytes() for unit in np.flatnonzero(chosen).tolist()}
    bounds = np.searchsorted(problem.at, np.arange(len(problem.units) + 1)).tolist()
    marks: dict[int, list[tuple[int, int, int]]] = {}
    for each in problem.blockers:
        marks.setdefault(each.unit, []).append((each.row, each.shape, each.most))
    for unit in np.flatnonzero(allowed | chosen).tolist():
        cost = own[unit].tobytes()
        if cost in costs:
            part = slice(bounds[unit], bounds[unit + 1])
            where = problem.rows[part].tobytes() + problem.releases[part].tobytes()
            yield unit, cost + where + repr(sorted(marks.get(unit, ()))).encode()
