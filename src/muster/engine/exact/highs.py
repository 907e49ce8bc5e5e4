"""HiGHS as this package uses it: silent, one thread, a fixed seed, limits that count work.

So equal models have equal answers on every machine. Only this module and those that build models import it.
"""

from __future__ import annotations

import highspy
import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.exact.pricing import Floats
from muster.engine.exact.work import Remaining

WORK_PER_CALL = 500
WORK_PER_ITERATION = 10
WORK_PER_NODE = 8_000
WORK_PER_TREE = 60_000
"""What calls, simplex iterations (of a small model), nodes of a search tree and its root cost in states of pricing."""


class Quiet(highspy.Highs):
    """HiGHS that prints nothing. The constructor enables callbacks, and that would print a banner."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # the package's own omission


class Tree(Struct, frozen=True):
    """The best solution that a search tree found, None if none, and the work."""

    values: Floats | None
    work: int


def quiet() -> Quiet:
    """A solver without a model. The number of threads may not change within a process."""
    highs = Quiet()  # type: ignore[no-untyped-call]  # the package's own omission
    for name, value in (("threads", 1), ("random_seed", 0), ("parallel", "off")):
        highs.setOptionValue(name, value)
    return highs


def add_row(highs: Quiet, columns: Ints, values: np.ndarray, lower: float, upper: float) -> None:
    """A row of a model: the columns, weighted, are between the two."""
    used = np.flatnonzero(values)
    highs.addRow(lower, upper, len(used), columns[used].astype(np.int32), np.asarray(values[used], dtype=np.float64))


def work_of(highs: Quiet) -> int:
    """The work of the last run."""
    size = int(highs.getNumRow()) + int(highs.getNumCol())
    info = highs.getInfo()
    nodes = max(0, int(info.mip_node_count))
    iterations = max(0, int(info.simplex_iteration_count))
    return WORK_PER_CALL + iterations * (WORK_PER_ITERATION + size // 20) + nodes * WORK_PER_NODE


def minimise_whole(model: highspy.HighsLp, enough: int, nodes: int, remaining: Remaining | None) -> Tree:
    """Solves a model whose columns and costs are whole numbers, by a tree of so many nodes; stops at cost `enough`."""
    highs = quiet()
    model.integrality_ = [highspy.HighsVarType.kInteger] * int(model.num_col_)
    if highs.passModel(model) == highspy.HighsStatus.kError:
        raise AssertionError("the solver did not accept a model of our own")
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.99)
    highs.setOptionValue("mip_max_nodes", nodes)
    highs.setOptionValue("objective_target", enough + 0.5)
    if remaining is not None:
        highs.setOptionValue("time_limit", max(0.0, remaining()))
    highs.run()
    found = highs.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Tree(np.rint(np.array(highs.getSolution().col_value)) if found else None, WORK_PER_TREE + work_of(highs))
