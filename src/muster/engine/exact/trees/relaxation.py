"""The relaxation of a tree of groups: a mixture of choices that has room in a mixture of patterns, as a linear program.

Both sides grow as they are needed: patterns of nodes by pricing (see `pricing`), choices by `cheapest`. Any duals weigh
the pods; what the lightest choice weighs more than all nodes hold is a proof, which does not depend on the solver.
"""

from __future__ import annotations

import highspy
import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.exact.columns import narrow
from muster.engine.exact.highs import quiet, work_of
from muster.engine.exact.master import Patterns
from muster.engine.exact.pricing import Floats, price
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.trees.choices import Node, Pick, cheapest, pods_of
from muster.engine.exact.trees.proof import UNIT, Weighed, capacity
from muster.engine.exact.work import Budget

_WIDER, _MOST_STATES, _ALL_STATES = 8, 4_096, 600_000
_WORK_PER_CALL = 4_000
_WORK_PER_CHOICE = 500
_EPSILON = 1e-6
_DEAR = 4.0
"""What a pod without room costs where pods are worth 1 each."""


class Mixed(Struct, frozen=True):
    """`picks`: the choices of the mixture with their shares, the largest first; none if a proof came first.

    `weighing` proves that no choice fits, or none with more pods than were asked about.
    """

    picks: tuple[tuple[Pick, float], ...]
    weighing: Weighed | None = None


def relax_tree(problem: Problem, tree: Node, patterns: Patterns, budget: Budget, more_than: int | None = None) -> Mixed:
    """A mixture of choices that fits, or a proof that none does.

    `more_than`: of choices with more pods than this, one with the most pods; None: any choice.
    """
    return _Relaxation(problem, tree, patterns, budget, more_than).run()


class _Relaxation:
    """The model: columns are what is missing of each class of pods, then choices and patterns as they come."""

    def __init__(self, problem: Problem, tree: Node, patterns: Patterns, budget: Budget, more_than: int | None) -> None:
        self.problem, self.tree, self.patterns, self.budget, self.more_than = problem, tree, patterns, budget, more_than
        self.reward = int(more_than is not None)
        self.picks: list[Pick] = []
        self._known: set[Counts] = set()
        self._columns_of_picks: list[int] = []
        self._synced = 0
        self._highs = quiet()
        self._add_frame()

    def run(self) -> Mixed:
        """Column generation, narrow as long as that finds much."""
        states, most_states = narrow(self.problem.classes), 0
        most_states = min(_MOST_STATES, max(_ALL_STATES // max(1, self.problem.classes), _WIDER * states))
        self._add_pick([UNIT - self.reward * UNIT] * self.problem.shapes)
        self._sync()
        while self.picks:
            value, weights, level = self._solve()
            if self.more_than is None and value < _EPSILON:
                break
            added, weighing = self._add_patterns(weights, states)
            costs = [weight - self.reward * UNIT for weight in weighing.weights]
            lightest = self._add_pick(costs, level)
            if self._closes(weighing, lightest):
                return Mixed((), weighing)
            added += len(self.picks) > len(self._columns_of_picks)
            self._sync()
            if self.budget.is_used_up or (not added and states >= most_states):
                break
            if not added:
                states = min(_WIDER * states, most_states)
        return Mixed(self._shares())

    def _closes(self, weighing: Weighed, lightest: int) -> bool:
        room = capacity(self.problem, weighing.heaviest)
        if self.more_than is None:
            return lightest > room
        return room - lightest < (self.more_than + 1) * UNIT

    def _add_frame(self) -> None:
        """Rows: each class of pods (patterns - choices + missing ≥ 0), nodes of each class, one choice in all."""
        problem, infinity = self.problem, highspy.kHighsInf
        empty = np.zeros(0, dtype=np.int32), np.zeros(0)
        for _ in range(problem.shapes):
            self._highs.addRow(0.0, infinity, 0, *empty)
        for nodes in problem.nodes.tolist():
            self._highs.addRow(-infinity, float(nodes), 0, *empty)
        self._highs.addRow(1.0, 1.0, 0, *empty)
        missing = 1.0 if self.more_than is None else _DEAR
        for shape in range(problem.shapes):
            self._column(missing, {shape: 1.0})

    def _column(self, cost: float, entries: dict[int, float]) -> None:
        rows = np.array(list(entries), dtype=np.int32)
        self._highs.addCol(cost, 0.0, highspy.kHighsInf, len(rows), rows, np.array(list(entries.values())))

    def _sync(self) -> None:
        """Adds the choices and patterns that the model does not have yet."""
        shapes, classes = self.problem.shapes, self.problem.classes
        for pick in self.picks[len(self._columns_of_picks) :]:
            pods = pods_of(self.tree, pick, shapes)
            self._columns_of_picks.append(int(self._highs.getNumCol()))
            wanted = {shape: -float(count) for shape, count in enumerate(pods) if count}
            self._column(-float(self.reward * sum(pods)), {**wanted, shapes + classes: 1.0})
        for at, counts in zip(self.patterns.at[self._synced :], self.patterns.counts[self._synced :], strict=True):
            given = {shape: float(count) for shape, count in enumerate(counts) if count}
            self._column(0.0, {**given, shapes + at: 1.0})
        self._synced = len(self.patterns.at)

    def _solve(self) -> tuple[float, Ints, float]:
        """The value, the weights of the pods in units, and the level that a better choice is below."""
        self._highs.run()
        self.budget.spent += work_of(self._highs)
        duals = np.array(self._highs.getSolution().row_dual)
        shapes = self.problem.shapes
        weights = np.floor(np.maximum(duals[:shapes], 0.0) * UNIT).astype(np.int64)
        return float(self._highs.getInfo().objective_function_value), weights, float(duals[-1])

    def _add_patterns(self, weights: Ints, states: int) -> tuple[int, Weighed]:
        """Adds the best pattern of every class of nodes that weighs more than the known ones; how many, and bounds."""
        problem = self.problem
        table = np.tile(weights, (problem.classes, 1))
        known = self.patterns.heaviest(table)
        priced = price(problem, table, known, problem.caps, states)
        self.budget.spent += _WORK_PER_CALL + priced.work
        better = np.flatnonzero(priced.values > known)
        added = self.patterns.add(better.tolist(), list(map(tuple, priced.counts[better].tolist())))
        return added, Weighed(tuple(weights.tolist()), tuple(priced.bounds.tolist()))

    def _add_pick(self, costs: list[int], level: float = float("inf")) -> int:
        """Adds the cheapest choice if it costs less than the level; what it costs."""
        self.budget.spent += _WORK_PER_CHOICE
        found = cheapest(self.tree, costs)
        if found is None:
            return 0
        cost, pick = found
        pods = pods_of(self.tree, pick, self.problem.shapes)
        if cost < (level - _EPSILON) * UNIT and pods not in self._known:
            self._known.add(pods)
            self.picks.append(pick)
        return cost

    def _shares(self) -> tuple[tuple[Pick, float], ...]:
        values: Floats = np.array(self._highs.getSolution().col_value)
        shares = [
            (pick, float(values[column])) for pick, column in zip(self.picks, self._columns_of_picks, strict=False)
        ]
        used = [each for each in shares if each[1] > _EPSILON]
        return tuple(sorted(used, key=lambda each: -each[1]))
