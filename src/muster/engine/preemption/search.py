"""The victim set that is least by cost, proved by HiGHS: one mixed integer program a criterion, each fixing the last.

Variables: a unit goes (0 or 1), pods of a shape on a node (integers), evictions beyond a budget. One thread, a fixed
seed and a limit that counts nodes of the search tree, so that equal problems have equal answers on every machine.
The model leaves out rules that it cannot express; `exclude` takes sets that the check refused out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.preemption.forms import Choice, Enough, Parts
from muster.engine.preemption.problem import Problem, fitting

Floats = NDArray[np.float64]


class Found(Struct, frozen=True):
    """`chosen` bool[U], None if nothing was found; `counts` [N, G] pods a node. `bound` ≤ the least objective.

    `proved`: the objective of `chosen` is the least, or, without `chosen`, there is no such set.
    """

    chosen: Bools | None
    counts: Ints | None
    bound: int
    proved: bool
    nodes: int


@dataclass(slots=True)
class Model:
    """The program over the units in `allowed` (bool[U]); the others stay."""

    problem: Problem
    allowed: Bools
    time_limit_s: float | None = None
    _highs: highspy.Highs = field(init=False)
    _units: Ints = field(init=False)
    _pairs: Ints = field(init=False)
    _columns: int = field(init=False, default=0)
    _impossible: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._units = np.flatnonzero(self.allowed)
        caps = np.where(_reachable(self.problem, self.allowed)[:, None], self.problem.caps, 0)
        rows, shapes = np.nonzero(caps)
        self._pairs = np.column_stack([rows, shapes])
        self._highs = _quiet()
        self._add_columns(caps[rows, shapes])
        self._add_rooms()
        self._add_counts()
        self._add_budgets()
        if isinstance(self.problem.form, Parts):
            self._add_parts(self.problem.form)
        elif self.problem.form is not None:
            self._add_choice(self.problem.form)

    # -- the program

    def _add_columns(self, caps: Ints) -> None:
        """Columns: units, then pairs of node and shape, then budgets."""
        budgets = len(self.problem.allowed)
        integers = len(self._units) + len(self._pairs)
        upper = np.concatenate(
            [np.ones(len(self._units)), caps.astype(np.float64), np.full(budgets, highspy.kHighsInf)]
        )
        self._columns = len(upper)
        empty = np.zeros(0, dtype=np.int32)
        zeros = np.zeros(self._columns)
        starts = np.zeros(self._columns, dtype=np.int32)
        self._highs.addCols(self._columns, zeros, zeros, upper, 0, starts, empty, np.zeros(0))
        kinds = np.full(integers, highspy.HighsVarType.kInteger)
        self._highs.changeColsIntegrality(integers, np.arange(integers, dtype=np.int32), kinds)

    def _add_rooms(self) -> None:
        """Rows: for each node and resource that can bind, what the pods ask ≤ what is free and what is released."""
        problem = self.problem
        column_of = np.full(len(problem.units), -1, dtype=np.int64)
        column_of[self._units] = np.arange(len(self._units))
        known = column_of[problem.at] >= 0
        entries = np.flatnonzero(known)
        by_row: dict[int, list[int]] = {}
        for entry in entries.tolist():
            by_row.setdefault(int(problem.rows[entry]), []).append(entry)
        pairs_of: dict[int, list[int]] = {}
        for place, (row, _) in enumerate(self._pairs.tolist()):
            pairs_of.setdefault(row, []).append(place)
        rows = _Rows()
        for row, pairs in pairs_of.items():
            shapes = self._pairs[pairs, 1]
            is_open = self._add_open(rows, row, pairs) if (problem.free[row] < 0).any() else -1
            most = (problem.caps[row, shapes][:, None] * problem.requests[shapes]).sum(axis=0)
            for resource in np.flatnonzero(most > problem.free[row]).tolist():
                # In parts of the largest request, so that bytes and cores are of one size.
                scale = float(max(1, problem.requests[shapes, resource].max()))
                columns = [len(self._units) + pair for pair in pairs]
                values = (problem.requests[shapes, resource] / scale).tolist()
                for entry in by_row.get(row, ()):
                    if problem.releases[entry, resource]:
                        columns.append(int(column_of[problem.at[entry]]))
                        values.append(-float(problem.releases[entry, resource]) / scale)
                free = float(problem.free[row, resource]) / scale
                if free < 0:
                    columns.append(is_open)
                    values.append(-free)
                rows.add(columns, values, -highspy.kHighsInf, max(0.0, free))
        for blocker in problem.blockers:
            pair = next(
                (p for p in pairs_of.get(blocker.row, ()) if self._pairs[p, 1] == blocker.shape),
                None,
            )
            if pair is not None:
                cap = int(problem.caps[blocker.row, blocker.shape])
                unit = int(column_of[blocker.unit])
                columns, values = [len(self._units) + pair], [1.0]
                if unit >= 0:
                    columns.append(unit)
                    values.append(-float(cap - blocker.most))
                rows.add(columns, values, -highspy.kHighsInf, float(blocker.most))
        rows.put(self._highs)

    def _add_open(self, rows: _Rows, row: int, pairs: Sequence[int]) -> int:
        """A column that is 1 if pods come to an overcommitted node: only then what is lacking has to be released."""
        column = self._add_integers([1.0])
        for pair in pairs:
            cap = float(self.problem.caps[row, self._pairs[pair, 1]])
            rows.add([len(self._units) + pair, column], [1.0, -cap], -highspy.kHighsInf, 0.0)
        return column

    def _add_counts(self) -> None:
        """Rows: enough pods in all, and no more of a shape than there are."""
        problem, rows = self.problem, _Rows()
        everything = [len(self._units) + place for place in range(len(self._pairs))]
        if not everything:
            self._impossible = problem.need > 0
            return
        rows.add(everything, [1.0] * len(everything), float(problem.need), highspy.kHighsInf)
        for shape in range(problem.shapes if problem.shapes > 1 else 0):
            columns = [len(self._units) + int(place) for place in np.flatnonzero(self._pairs[:, 1] == shape)]
            rows.add(columns, [1.0] * len(columns), -highspy.kHighsInf, float(problem.demand[shape]))
        rows.put(self._highs)

    def _add_budgets(self) -> None:
        """Rows: evictions beyond what a budget allows ≥ what is drawn on it - what it allows."""
        first, rows = len(self._units) + len(self._pairs), _Rows()
        for budget, allowed in enumerate(self.problem.allowed.tolist()):
            spent = self.problem.spent[self._units, budget]
            columns = np.flatnonzero(spent)
            rows.add(
                [*columns.tolist(), first + budget],
                [*spent[columns].astype(float).tolist(), -1.0],
                -highspy.kHighsInf,
                float(allowed),
            )
        rows.put(self._highs)

    def _add_parts(self, parts: Parts) -> None:
        """Columns: for each domain how many whole parts, and whether the last part, are there. Rows: pods for them."""
        ids = parts.ids[self._pairs[:, 0]]
        domains = [domain for domain in np.unique(ids).tolist() if domain >= 0]
        first = self._add_integers([float(parts.full)] * len(domains) + [1.0 if parts.rest else 0.0] * len(domains))
        whole = list(range(first, first + len(domains)))
        last = list(range(first + len(domains), first + 2 * len(domains)))
        rows = _Rows()
        for place, domain in enumerate(domains):
            columns = [len(self._units) + int(pair) for pair in np.flatnonzero(ids == domain)]
            values = [1.0] * len(columns) + [-float(parts.size), -float(parts.rest)]
            rows.add([*columns, whole[place], last[place]], values, 0.0, highspy.kHighsInf)
        each = [1.0] * len(domains)
        rows.add(whole, each, -highspy.kHighsInf, float(parts.full))
        rows.add(last, each, -highspy.kHighsInf, 1.0)
        sizes = [float(parts.size)] * len(domains) + [float(parts.rest)] * len(domains)
        rows.add([*whole, *last], sizes, float(self.problem.need), highspy.kHighsInf)
        rows.put(self._highs)

    def _add_choice(self, choice: Choice) -> None:
        """Columns: whether each group has enough, and with how many pods of each shape. Rows: enough of them, pods."""
        rows = _Rows()
        supplied: list[tuple[list[int], list[float]]] = [([], []) for _ in range(self.problem.shapes)]
        root = self._add_group(choice, rows, supplied)
        rows.add([root], [1.0], 1.0, 1.0)
        for shape, (columns, values) in enumerate(supplied):
            pods = [len(self._units) + int(pair) for pair in np.flatnonzero(self._pairs[:, 1] == shape)]
            rows.add([*pods, *columns], [*[1.0] * len(pods), *values], 0.0, highspy.kHighsInf)
        rows.put(self._highs)

    def _add_group(self, choice: Choice, rows: _Rows, supplied: list[tuple[list[int], list[float]]]) -> int:
        """The column that says whether the group has enough."""
        if isinstance(choice, Enough):
            first = self._add_integers([1.0, *map(float, choice.most)])
            taken = list(range(first + 1, first + 1 + len(choice.most)))
            rows.add([*taken, first], [*[1.0] * len(taken), -float(choice.need)], 0.0, highspy.kHighsInf)
            for (columns, values), column in zip(supplied, taken, strict=True):
                columns.append(column)
                values.append(-1.0)
            return first
        parts = [self._add_group(part, rows, supplied) for part in choice.parts]
        first = self._add_integers([1.0])
        rows.add([*parts, first], [*[1.0] * len(parts), -float(choice.least)], 0.0, highspy.kHighsInf)
        return first

    def _add_integers(self, upper: Sequence[float]) -> int:
        """Integer columns from 0 to these; the first of them."""
        first, number = self._columns, len(upper)
        zeros = np.zeros(number)
        starts = np.zeros(number, dtype=np.int32)
        self._highs.addCols(number, zeros, zeros, np.array(upper), 0, starts, np.zeros(0, dtype=np.int32), np.zeros(0))
        places = np.arange(first, first + number, dtype=np.int32)
        self._highs.changeColsIntegrality(number, places, np.full(number, highspy.HighsVarType.kInteger))
        self._columns += number
        return first

    # -- what is asked of it

    def require(self, costs: Ints, most: int) -> None:
        """From now on the costs (int64[U]) of the chosen units are at most this."""
        rows = _Rows()
        columns = np.flatnonzero(costs[self._units])
        rows.add(
            columns.tolist(), costs[self._units][columns].astype(float).tolist(), -highspy.kHighsInf, float(most) + 0.5
        )
        rows.put(self._highs)

    def require_violations(self, most: int) -> None:
        """From now on at most so many evictions exceed the budgets."""
        rows = _Rows()
        first = len(self._units) + len(self._pairs)
        budgets = len(self.problem.allowed)
        rows.add(list(range(first, first + budgets)), [1.0] * budgets, -highspy.kHighsInf, float(most) + 0.5)
        rows.put(self._highs)

    def exclude(self, chosen: Bools) -> None:
        """The chosen units, and any part of them, are not enough: at least one other must go."""
        others = np.flatnonzero(~chosen[self._units])
        if not len(others):
            self._impossible = True
            return
        rows = _Rows()
        rows.add(others.tolist(), [1.0] * len(others), 1.0, highspy.kHighsInf)
        rows.put(self._highs)

    def exclude_exactly(self, chosen: Bools) -> None:
        """The chosen units and no others are not enough; fewer or more of them may be."""
        ours = chosen[self._units]
        if (chosen & ~self.allowed).any():
            return
        if not len(ours):
            self._impossible = True
            return
        rows = _Rows()
        rows.add(list(range(len(ours))), np.where(ours, -1.0, 1.0).tolist(), 1.0 - float(ours.sum()), highspy.kHighsInf)
        rows.put(self._highs)

    def least(self, costs: Ints, start: Bools | None, nodes: int) -> Found:
        """Minimises the costs of the chosen units with a search of at most so many nodes."""
        objective = np.zeros(self._columns)
        objective[: len(self._units)] = costs[self._units]
        return self._solve(objective, start, nodes)

    def least_violations(self, start: Bools | None, nodes: int) -> Found:
        """Minimises the evictions beyond budgets."""
        objective = np.zeros(self._columns)
        first = len(self._units) + len(self._pairs)
        objective[first : first + len(self.problem.allowed)] = 1.0
        return self._solve(objective, start, nodes)

    def _solve(self, objective: Floats, start: Bools | None, nodes: int) -> Found:
        if self._impossible:
            return Found(None, None, 0, True, 0)
        known = None if start is None else self._complete(start)
        highs = self._run(objective, known, nodes)
        found = self._found(highs)
        if found.chosen is not None and abs(float(objective @ self._values(highs)) - self._objective(highs)) > 0.5:
            # HiGHS has returned the solution that it was started from together with the value of a better one.
            found = self._found(self._run(objective, None, nodes))
        return found

    def _run(self, objective: Floats, start: Floats | None, nodes: int) -> highspy.Highs:
        """A fresh solver each time: one that is asked again remembers what was true for other costs."""
        highs = _quiet()
        model = self._highs.getLp()
        model.col_cost_ = objective
        if highs.passModel(model) == highspy.HighsStatus.kError:
            raise AssertionError("the solver did not accept a model of our own")
        highs.setOptionValue("mip_max_nodes", max(0, nodes))
        if self.time_limit_s is not None:
            highs.setOptionValue("time_limit", self.time_limit_s)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start
            highs.setSolution(solution)
        highs.run()
        return highs

    def _complete(self, chosen: Bools) -> Floats | None:
        """The values of all columns for a choice of units; None where the pods cannot be counted without a search."""
        problem = self.problem
        if problem.shapes > 1 or problem.form is not None or (problem.free < 0).any():
            return None
        over = np.maximum(problem.spent[chosen].sum(axis=0) - problem.allowed, 0)
        room = problem.room(chosen)[self._pairs[:, 0]]
        return np.concatenate([chosen[self._units], room, over]).astype(np.float64)

    @staticmethod
    def _values(highs: highspy.Highs) -> Ints:
        values: Ints = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
        return values

    @staticmethod
    def _objective(highs: highspy.Highs) -> float:
        return float(highs.getInfo().objective_function_value)

    def _found(self, highs: highspy.Highs) -> Found:
        status, info = highs.getModelStatus(), highs.getInfo()
        spent = max(1, int(info.mip_node_count))
        if status == highspy.HighsModelStatus.kInfeasible:
            return Found(None, None, 0, True, spent)
        bound = int(np.ceil(info.mip_dual_bound - 1e-6)) if np.isfinite(info.mip_dual_bound) else 0
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Found(None, None, bound, False, spent)
        values = self._values(highs)
        chosen = np.zeros(len(self.problem.units), dtype=np.bool_)
        chosen[self._units] = values[: len(self._units)] > 0
        counts = np.zeros_like(self.problem.caps)
        counts[self._pairs[:, 0], self._pairs[:, 1]] = values[len(self._units) :][: len(self._pairs)]
        return Found(chosen, counts, bound, status == highspy.HighsModelStatus.kOptimal, spent)


class _Rows:
    """Rows that are added in one call."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []

    def add(self, columns: Sequence[int], values: Sequence[float], lower: float, upper: float) -> None:
        self._starts.append(len(self._columns))
        self._columns += columns
        self._values += values
        self._lower.append(lower)
        self._upper.append(upper)

    def put(self, highs: highspy.Highs) -> None:
        if not self._starts:
            return
        status = highs.addRows(
            len(self._starts),
            np.array(self._lower),
            np.array(self._upper),
            len(self._columns),
            np.array(self._starts, dtype=np.int32),
            np.array(self._columns, dtype=np.int32),
            np.array(self._values),
        )
        assert status != highspy.HighsStatus.kError, "the solver did not accept rows of our own"


def _reachable(problem: Problem, allowed: Bools) -> Bools:
    """bool[N]: nodes on which some pod fits once the allowed units are gone."""
    freed = problem.freed(allowed)
    fits = np.zeros(len(freed), dtype=np.bool_)
    for shape in range(problem.shapes):
        fits |= fitting(freed, problem.requests[shape], problem.caps[:, shape]) > 0
    return fits


class _Quiet(highspy.Highs):
    """HiGHS that prints nothing. The constructor enables callbacks, and that would print a banner."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # the package's own omission


def _quiet() -> _Quiet:
    highs = _Quiet()  # type: ignore[no-untyped-call]  # the package's own omission
    options = (
        ("threads", 1),
        ("random_seed", 0),
        ("parallel", "off"),
        ("presolve", "off"),  # probing took up to ten times as long as all else together
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 0.99),
    )
    for name, value in options:
        highs.setOptionValue(name, value)
    return highs
