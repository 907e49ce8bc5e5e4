"""Repair: a placement that lacks a few pods is improved by filling some of its nodes anew.

The nodes on which most is left over, and others by turns, are emptied; how to fill them with their pods and those that
lack a place is a small problem of the same kind (Shaw, Large Neighbourhood Search). Answers that are as good as before
are taken too: they leave over other amounts on other nodes.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.columns import Bounded, generate
from muster.engine.exact.dive import dive
from muster.engine.exact.master import Master, Patterns, worth
from muster.engine.exact.problem import Counts, Problem, Use, placed_by, used_of
from muster.engine.exact.work import Budget

_ROUNDS, _ROUNDS_UNDER_RULES = 24, 8
_SHARE = 4
"""A repair gets this part of the work that is left."""
_WASTEFUL, _OTHERS = 8, 16
"""How many nodes are emptied in a round: those with most left over, and others."""
_MOST_NODES = 20_000
_MOST_LACKING = 0.1
"""Placements that lack more than this part of the pods are not worth it."""
_NEARLY_WHOLE = (0.7, 0.95, 0.45)


def repaired(
    problem: Problem, patterns: Patterns, uses: tuple[Use, ...], target: int, budget: Budget
) -> tuple[Use, ...]:
    """A placement that is worth at least as much, `target` if it went well."""
    number = int(problem.nodes.sum())
    if number > _MOST_NODES or worth(problem, uses) < (1 - _MOST_LACKING) * target:
        return uses
    nodes, most_spent = _Nodes(problem, uses), budget.spent + (budget.work - budget.spent) // _SHARE
    for turn in range(_ROUNDS_UNDER_RULES if problem.rows else _ROUNDS):
        if nodes.value >= target or budget.is_used_up or budget.spent > most_spent:
            break
        chosen = nodes.chosen(turn)
        small, classes = nodes.without(chosen)
        found = _filled(small, within(patterns, classes, small), _NEARLY_WHOLE[turn % len(_NEARLY_WHOLE)], budget)
        nodes.fill(chosen, small, classes, found)
    return nodes.uses()


def _filled(small: Problem, patterns: Patterns, nearly_whole: float, budget: Budget) -> tuple[Use, ...]:
    master, full = Master(small, patterns), small.value(small.demand)
    bounded = Bounded(full)
    generate(master, bounded, 0, budget)
    return dive(master, min(full, bounded.most), budget, nearly_whole)


def within(patterns: Patterns, classes: Ints, small: Problem) -> Patterns:
    """The patterns of some classes (ascending), as patterns of a problem that has only these."""
    at, counts = patterns.arrays(small.shapes)
    place = np.searchsorted(classes, at)
    kept = np.flatnonzero((place < len(classes)) & (classes[np.minimum(place, len(classes) - 1)] == at))
    found = Patterns()
    found.add(place[kept].tolist(), list(map(tuple, counts[kept].tolist())))
    return found.fitting(small)


class _Nodes:
    """Every node by itself: its class [N], and what it receives [N, G]."""

    def __init__(self, problem: Problem, uses: tuple[Use, ...]) -> None:
        self._problem = problem
        self._at = np.repeat(np.arange(problem.classes), problem.nodes)
        self._counts = np.zeros((len(self._at), problem.shapes), dtype=np.int64)
        following = np.cumsum(problem.nodes) - problem.nodes
        for use in uses:
            start = int(following[use.at])
            self._counts[start : start + use.nodes] = use.counts
            following[use.at] += use.nodes

    @property
    def value(self) -> int:
        """What the placement is worth."""
        return self._problem.value(self._counts.sum(axis=0))

    def uses(self) -> tuple[Use, ...]:
        """The placement."""
        found: dict[tuple[int, Counts], int] = {}
        for at, counts in zip(self._at.tolist(), self._counts.tolist(), strict=True):
            if any(counts):
                found[at, tuple(counts)] = found.get((at, tuple(counts)), 0) + 1
        return tuple(Use(at, counts, number) for (at, counts), number in found.items())

    def chosen(self, turn: int) -> Ints:
        """The nodes of a turn."""
        problem = self._problem
        left = problem.free[self._at] - self._counts @ problem.requests
        share = (left / np.maximum(problem.free.max(axis=0), 1)).min(axis=1, initial=1.0)
        total = (left / np.maximum(problem.free.max(axis=0), 1)).sum(axis=1)
        order = np.lexsort((np.arange(len(left)), -total, -share))
        few = min(_WASTEFUL, max(1, len(left) // 3))
        more = min(_OTHERS, max(1, len(left) // 3))
        wasteful, rest = order[:few], np.sort(order[few:])
        step = max(1, len(rest) // more)
        others = rest[(turn // 2) % step :: step] if turn % 2 else np.roll(rest, -more * (turn // 2))
        return np.sort(np.concatenate([wasteful, others[:more]]))

    def without(self, chosen: Ints) -> tuple[Problem, Ints]:
        """The problem of these nodes, of the pods on them and of those that lack a place; and its classes."""
        problem = self._problem
        classes, nodes = np.unique(self._at[chosen], return_counts=True)
        kept = self._counts.copy()
        kept[chosen] = 0
        placed = kept.sum(axis=0)
        demand = np.maximum(problem.demand - placed, 0)
        first = np.minimum(np.maximum(problem.first - placed, 0), demand)
        place = {int(at): index for index, at in enumerate(classes.tolist())}
        rows = []
        for row in problem.rows:
            inside = np.zeros(problem.classes, dtype=np.bool_)
            inside[list(row.classes)] = True
            used = int((kept[inside[self._at]] @ np.array(row.weights, dtype=np.int64)).sum())
            within = tuple(place[at] for at in row.classes if at in place)
            if within:
                rows.append(replace(row, classes=within, most=row.most - used))
        small = replace(
            problem,
            demand=demand,
            free=problem.free[classes],
            caps=np.minimum(problem.caps[classes], demand),
            nodes=nodes.astype(np.int64),
            first=first,
            rows=tuple(rows),
            modes=problem.modes_of(classes),
        )
        return small, classes

    def fill(self, chosen: Ints, small: Problem, classes: Ints, uses: tuple[Use, ...]) -> None:
        """Takes what was found for the nodes if it is no worse than what they have, and keeps the rules."""
        before = small.value(self._counts[chosen].sum(axis=0))
        used = sum((used_of(small, use) for use in uses), np.zeros(len(small.rows), dtype=np.int64))
        if small.value(placed_by(small, uses)) < before or any(
            take > row.most for take, row in zip(used.tolist(), small.rows, strict=True)
        ):
            return
        free = {at: iter(chosen[self._at[chosen] == at].tolist()) for at in classes.tolist()}
        self._counts[chosen] = 0
        for use in uses:
            for _ in range(use.nodes):
                self._counts[next(free[int(classes[use.at])])] = use.counts
