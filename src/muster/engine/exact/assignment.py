"""The assignment model: how many pods of each shape each single node receives. Larger and weaker than patterns, but
for small groups it finds what the patterns that happen to be known do not contain."""

from __future__ import annotations

import highspy
import numpy as np

from muster.engine.arrays import Ints
from muster.engine.exact.highs import add_row, minimise_whole, quiet
from muster.engine.exact.problem import Problem, Use
from muster.engine.exact.work import Budget

MOST_CELLS = 800
"""Nodes times shapes."""


def assign_to_nodes(problem: Problem, target: int, tree_nodes: int, budget: Budget) -> tuple[Use, ...]:
    """The best placement that a search of so many nodes finds; stops at one worth `target`.

    () if it is too large, or if nodes have modes, which it does not know.
    """
    classes = np.repeat(np.arange(problem.classes), problem.nodes)
    if len(classes) * problem.shapes > MOST_CELLS or problem.modes is not None:
        return ()
    tree = minimise_whole(_model(problem, classes), -target, tree_nodes, budget.remaining)
    budget.spent += tree.work
    if tree.values is None:
        return ()
    counts = tree.values[2 * problem.shapes :].astype(np.int64).reshape(len(classes), problem.shapes)
    return tuple(Use(at, tuple(row), 1) for at, row in zip(classes.tolist(), counts.tolist(), strict=True) if any(row))


def _model(problem: Problem, classes: Ints) -> highspy.HighsLp:
    """Columns: placed pods of each shape (the first, the others), then the cells node by node."""
    shapes, infinity = problem.shapes, highspy.kHighsInf
    highs = quiet()
    upper = np.concatenate([problem.first, problem.demand - problem.first, problem.caps[classes].ravel()])
    cost = np.concatenate([np.repeat([-2.0, -1.0], shapes), np.zeros(len(classes) * shapes)])
    number = len(upper)
    none = np.zeros(0, dtype=np.int32)
    highs.addCols(number, cost, np.zeros(number), upper.astype(np.float64), 0, none, none, np.zeros(0))
    cells = 2 * shapes + np.arange(len(classes) * shapes).reshape(len(classes), shapes)
    for shape in range(shapes):  # what is placed is on nodes
        columns = np.concatenate([[shape, shapes + shape], cells[:, shape]])
        add_row(highs, columns, np.concatenate([[-1, -1], np.ones(len(classes))]), 0.0, infinity)
    for at, columns in zip(classes.tolist(), cells, strict=True):
        for resource, free in enumerate(problem.free[at].tolist()):
            add_row(highs, columns, problem.requests[:, resource], -infinity, float(free))
    for rule in problem.rows:
        within = cells[np.isin(classes, rule.classes)]
        add_row(highs, within.ravel(), np.tile(rule.weights, len(within)), -infinity, float(rule.most))
    return highs.getLp()
