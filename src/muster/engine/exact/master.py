"""The master problem: which known patterns to use how often, as a linear program that grows, or in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.exact.highs import minimise_whole, quiet, work_of
from muster.engine.exact.pricing import Floats, prepared
from muster.engine.exact.problem import Problem, Use, in_a_mode, placed_by
from muster.engine.exact.work import Remaining

_DEAREST = 60.0
"""What it costs at most to break a rule by one: duals stay below the largest that `columns` uses."""


class Relaxed(Struct, frozen=True):
    """An optimum of the linear relaxation over the known patterns.

    `value` of the objective; `amounts` [P] how often each pattern; `weights` [G] duals of the shapes, `prices` of the
    problem's rows, `rents` [C] of the classes, all ≥ 0.
    """

    value: float
    amounts: Floats
    weights: Floats
    prices: Floats
    rents: Floats


@dataclass(slots=True)
class Patterns:
    """The patterns known so far: class and counts of each, none twice."""

    at: list[int] = field(default_factory=list)
    counts: list[tuple[int, ...]] = field(default_factory=list)
    _known: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    _at: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _counts: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def add(self, classes: list[int], counts: list[tuple[int, ...]]) -> int:
        """Adds those that are new and not empty; returns how many were."""
        before = len(self.at)
        for at, pattern in zip(classes, counts, strict=True):
            if any(pattern) and (at, pattern) not in self._known:
                self._known.add((at, pattern))
                self.at.append(at)
                self.counts.append(pattern)
        return len(self.at) - before

    def arrays(self, shapes: int) -> tuple[Ints, Ints]:
        """int64[P] classes and int64[P, G] counts of all patterns."""
        done = len(self._at)
        if done < len(self.at):
            counts = np.array(self.counts[done:], dtype=np.int64).reshape(-1, shapes)
            self._counts = np.vstack([self._counts, counts]) if done else counts
            self._at = np.append(self._at, np.array(self.at[done:], dtype=np.int64))
        return self._at, self._counts.reshape(-1, shapes)

    def heaviest(self, weights: Ints) -> Ints:
        """int64[C]: the weight of the heaviest known pattern of each class, for weights [C, G] of the shapes; ≥ 0."""
        found = np.zeros(len(weights), dtype=np.int64)
        at, counts = self.arrays(weights.shape[1])
        np.maximum.at(found, at, np.einsum("pg,pg->p", weights[at], counts))
        return found

    def fitting(self, problem: Problem) -> Patterns:
        """A copy with only those that fit into a problem with other limits."""
        if not self.at:
            return Patterns()
        at, counts = np.array(self.at, dtype=np.int64), np.array(self.counts, dtype=np.int64)
        left = problem.free[at] - counts @ problem.requests
        fits = (counts <= problem.caps[at]).all(axis=1) & (left >= 0).all(axis=1)
        if problem.spare is not None:
            fits &= (left <= np.array(problem.spare)).all(axis=1)
        if problem.modes is not None:
            fits &= in_a_mode(problem.modes, at, counts)
        kept, found = np.flatnonzero(fits).tolist(), Patterns()
        found.add([self.at[each] for each in kept], [self.counts[each] for each in kept])
        return found

    def separated(self, at: int, new: int) -> Patterns:
        """A copy in which class `new` has the patterns of class `at` too."""
        copy = Patterns(list(self.at), list(self.counts), set(self._known))
        same = [counts for each, counts in zip(self.at, self.counts, strict=True) if each == at]
        copy.add([new] * len(same), same)
        return copy


class Master:
    """The model: columns are 2·G numbers of placed pods (the first, the others) and then the patterns."""

    def __init__(self, problem: Problem, patterns: Patterns) -> None:
        self.problem = problem
        self.patterns = patterns
        self.work = 0
        self._columns = 0
        self._highs = quiet()
        self._within = [_mask(row.classes, problem.classes) for row in problem.rows]
        self.ready = prepared(problem)
        self._add_frame()
        self.sync()

    def _add_frame(self) -> None:
        """Rows: cover of each shape (patterns - placed ≥ 0), nodes of each class, the rules."""
        problem, infinity = self.problem, highspy.kHighsInf
        empty = np.zeros(0, dtype=np.int32), np.zeros(0)
        shapes = problem.shapes
        for _ in range(shapes):
            self._highs.addRow(0.0, infinity, 0, *empty)
        for nodes in problem.nodes.tolist():
            self._highs.addRow(-infinity, float(nodes), 0, *empty)
        for row in problem.rows:
            self._highs.addRow(-infinity, float(row.most), 0, *empty)
        upper = np.concatenate([problem.first, problem.demand - problem.first]).astype(np.float64)
        cost = np.repeat([-2.0, -1.0], shapes)
        starts = np.arange(2 * shapes, dtype=np.int32)
        rows = np.tile(np.arange(shapes, dtype=np.int32), 2)
        minus = np.full(2 * shapes, -1.0)
        self._highs.addCols(2 * shapes, cost, np.zeros(2 * shapes), upper, 2 * shapes, starts, rows, minus)
        way_out = max(2.0, min(_DEAREST, 1.0 + float(problem.value(problem.demand))))
        for place, row in enumerate(problem.rows):
            if row.most < 0:  # can be unreachable for the known patterns: a column that pays its way out of it
                at = np.array([shapes + problem.classes + place], dtype=np.int32)
                self._highs.addCol(way_out, 0.0, infinity, 1, at, np.array([-1.0]))
        self._frame = int(self._highs.getNumCol())

    def sync(self) -> None:
        """Adds the patterns that the model does not have yet."""
        patterns, problem = self.patterns, self.problem
        new = range(self._columns, len(patterns.at))
        if not new:
            return
        at, counts = patterns.arrays(problem.shapes)
        at, counts = at[self._columns :], counts[self._columns :]
        table = np.zeros((len(at), problem.shapes + 1 + len(problem.rows)), dtype=np.int64)
        table[:, : problem.shapes] = counts
        table[:, problem.shapes] = 1
        for column, (row, within) in enumerate(zip(problem.rows, self._within, strict=True), problem.shapes + 1):
            table[:, column] = np.where(within[at], counts @ np.array(row.weights), 0)
        pattern, place = np.nonzero(table)
        values = table[pattern, place].astype(np.float64)
        rows = np.where(place < problem.shapes, place, place - 1 + problem.classes)
        rows = np.where(place == problem.shapes, problem.shapes + at[pattern], rows)
        number = len(at)
        starts = np.concatenate([[0], np.cumsum(np.bincount(pattern, minlength=number))[:-1]])
        self._highs.addCols(
            number,
            np.zeros(number),
            np.zeros(number),
            np.full(number, highspy.kHighsInf),
            len(values),
            starts.astype(np.int32),
            rows.astype(np.int32),
            values,
        )
        self._columns = len(patterns.at)

    def limit(self, demand: Ints, nodes: Ints, mosts: Ints) -> None:
        """Leaves only so many pods of each shape, nodes of each class, and so much of the limit of each rule."""
        shapes = self.problem.shapes
        first = np.maximum(self.problem.first - (self.problem.demand - demand), 0)
        upper = np.concatenate([first, demand - first]).astype(np.float64)
        columns = np.arange(2 * shapes, dtype=np.int32)
        self._highs.changeColsBounds(2 * shapes, columns, np.zeros(2 * shapes), upper)
        bounds = np.concatenate([nodes, mosts]).astype(np.float64)
        rows = np.arange(shapes, shapes + len(bounds), dtype=np.int32)
        change = self._highs.changeRowsBounds  # type: ignore[attr-defined]  # missing in the stubs
        change(len(rows), rows, np.full(len(rows), -highspy.kHighsInf), bounds)

    def unlimit(self) -> None:
        """Leaves everything that there is."""
        mosts = np.array([row.most for row in self.problem.rows], dtype=np.int64)
        self.limit(self.problem.demand, self.problem.nodes, mosts)

    def relax(self) -> Relaxed:
        """Solves the linear relaxation from the last basis."""
        self._highs.run()
        self.work += work_of(self._highs)
        solution = self._highs.getSolution()
        duals = np.array(solution.row_dual)
        shapes, classes = self.problem.shapes, self.problem.classes
        return Relaxed(
            -float(self._highs.getInfo().objective_function_value),
            np.array(solution.col_value)[self._frame :],
            np.maximum(duals[:shapes], 0.0),
            np.maximum(-duals[shapes + classes :], 0.0),
            np.maximum(-duals[shapes : shapes + classes], 0.0),
        )

    def integral(self, target: int, tree_nodes: int, remaining: Remaining | None) -> tuple[Use, ...]:
        """The best placement by whole patterns that a search of so many nodes finds; stops at one worth `target`."""
        tree = minimise_whole(self._highs.getLp(), -target, tree_nodes, remaining)
        self.work += tree.work
        if tree.values is None:
            return ()
        return uses_of(self.patterns, tree.values[self._frame :].astype(np.int64))


def _mask(places: tuple[int, ...], size: int) -> Bools:
    mask = np.zeros(size, dtype=np.bool_)
    mask[list(places)] = True
    return mask


def uses_of(patterns: Patterns, amounts: Ints) -> tuple[Use, ...]:
    """The patterns that are used, with how often."""
    return tuple(
        Use(patterns.at[each], patterns.counts[each], int(amounts[each]))
        for each in np.flatnonzero(amounts > 0).tolist()
    )


def worth(problem: Problem, uses: tuple[Use, ...]) -> int:
    """The value of a placement."""
    return problem.value(placed_by(problem, uses))
