"""The dive: from a fractional optimum to a placement, by fixing what is nearly whole and solving the rest again."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.assignment import assign_to_nodes
from muster.engine.exact.columns import add_patterns, narrow, relax
from muster.engine.exact.master import Master, Relaxed
from muster.engine.exact.problem import Problem, Use, used_of
from muster.engine.exact.work import Budget

_ROUNDS = 3
_EPSILON = 1e-6


def dive(master: Master, target: int, budget: Budget, nearly_whole: float) -> tuple[Use, ...]:
    """A placement, worth `target` if the dive went well. The master is as before, but for new patterns.

    Where nothing is whole, the largest fraction is fixed, and others with it that are at least `nearly_whole`.
    """
    left = _Left(master.problem)
    _descend(master, left, target, budget, nearly_whole, 0)
    return tuple(left.uses)


def dive_to_few(
    master: Master, target: int, budget: Budget, nearly_whole: float, cells: int, tree_nodes: int
) -> tuple[Use, ...]:
    """A dive until so many cells (nodes times shapes) are left, for which single nodes are looked at as a whole."""
    left = _Left(master.problem)
    _descend(master, left, target, budget, nearly_whole, cells)
    rest = left.rest()
    return (*left.uses, *assign_to_nodes(rest, target - left.value, tree_nodes, budget))


def _descend(master: Master, left: _Left, target: int, budget: Budget, nearly_whole: float, cells: int) -> None:
    while left.is_any and left.cells > cells and not budget.is_used_up:
        master.limit(left.demand, left.nodes, left.mosts)
        relaxed = relax(master, budget)
        for _ in range(_ROUNDS):
            if left.value + relaxed.value > target - _EPSILON:
                break
            if not add_patterns(master, relaxed, left.caps, narrow(master.problem.classes), budget)[0]:
                break
            relaxed = relax(master, budget)
        target = min(target, left.value + int(relaxed.value + _EPSILON))
        if not left.fix(master, relaxed, nearly_whole):
            break
    master.unlimit()


class _Left:
    """What is still to be placed, `demand` [G], the nodes still empty, `nodes` [C], what is left of the limit of each
    rule, `mosts`; and what was fixed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.demand = problem.demand.copy()
        self.nodes = problem.nodes.copy()
        self.mosts = np.array([row.most for row in problem.rows], dtype=np.int64)
        self.uses: list[Use] = []

    @property
    def is_any(self) -> bool:
        """Whether something is left to do."""
        return bool(self.demand.any() and self.nodes.any())

    @property
    def cells(self) -> int:
        """Nodes that are still empty, times shapes of which some are left."""
        return int(self.nodes.sum()) * int(np.count_nonzero(self.demand))

    def rest(self) -> Problem:
        """What is left, as a problem of its own."""
        first = np.maximum(self.problem.first - (self.problem.demand - self.demand), 0)
        rows = tuple(replace(row, most=most) for row, most in zip(self.problem.rows, self.mosts.tolist(), strict=True))
        return replace(self.problem, demand=self.demand, first=first, nodes=self.nodes, caps=self.caps, rows=rows)

    @property
    def caps(self) -> Ints:
        """int64[C, G]: the most pods of each shape that a node can still receive."""
        caps: Ints = np.where(self.nodes[:, None] > 0, np.minimum(self.problem.caps, self.demand), 0)
        return caps

    @property
    def value(self) -> int:
        """What the fixed part is worth."""
        return self.problem.value(self.problem.demand - self.demand)

    def fix(self, master: Master, relaxed: Relaxed, nearly_whole: float) -> bool:
        """Fixes whole parts, else the largest fractions that do not get into each other's way; False if none is."""
        amounts = relaxed.amounts
        whole = np.floor(amounts + _EPSILON).astype(np.int64)
        if whole.any():
            chosen = np.flatnonzero(whole)
            return sum(self._use(master, each, int(whole[each]), True) for each in chosen.tolist()) > 0
        order = np.argsort(-amounts, kind="stable")[: int((amounts > _EPSILON).sum())]
        fixed = False
        for each in order.tolist():
            if fixed and amounts[each] < nearly_whole:
                break
            fixed = self._use(master, each, 1, not fixed) or fixed
        return fixed

    def _use(self, master: Master, pattern: int, number: int, cut: bool) -> bool:
        """Puts the pattern on so many nodes; `cut`: even if that is more than what is left to be placed."""
        at, counts = master.patterns.at[pattern], np.array(master.patterns.counts[pattern], dtype=np.int64)
        number = min(number, int(self.nodes[at]))
        while number and not (counts * number <= self.demand).all():
            if number == 1:
                return cut and self._put(at, np.minimum(counts, self.demand), 1)
            number -= 1
        return number > 0 and self._put(at, counts, number)

    def _put(self, at: int, counts: Ints, number: int) -> bool:
        use = Use(at, tuple(counts.tolist()), number)
        used = used_of(self.problem, use)
        if not counts.any() or (used > np.maximum(self.mosts, 0)).any():
            return False
        self.demand = self.demand - number * counts
        self.nodes[at] -= number
        self.mosts = self.mosts - used
        self.uses.append(use)
        return True
