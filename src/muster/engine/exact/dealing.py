"""How many pods of each shape each part of the nodes is to have, in whole numbers, where a relaxation says it in
fractions."""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.exact.highs import add_row, minimise_whole, quiet
from muster.engine.exact.pricing import Floats
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.work import Budget

_TREE_NODES = 100
_EPSILON = 1e-6


class Cut(Struct, frozen=True):
    """Of the pods of a part, weighted by shape, no more than `most` have a place there."""

    part: int
    weights: Counts
    most: int


def rounded(problem: Problem, totals: Floats, blocks: list[Ints]) -> Ints:
    """int64[B, G]: the totals in whole numbers, as many of each shape as there are. What is left over by rounding down
    goes where most was cut off, and of these to the part that has most room for what it was dealt."""
    dealt = np.floor(totals + _EPSILON).astype(np.int64)
    free = np.array([problem.nodes[block] @ problem.free[block] for block in blocks], dtype=np.float64)
    cut = totals - dealt
    for shape in np.argsort(-problem.requests.max(axis=1), kind="stable").tolist():
        for _ in range(int(problem.demand[shape] - dealt[:, shape].sum())):
            room = (1 - dealt @ problem.requests / np.maximum(free, 1)).min(axis=1)
            at = int(np.lexsort((np.arange(len(blocks)), -room, cut[:, shape] <= _EPSILON))[0])
            dealt[at, shape] += 1
            cut[at, shape] = 0.0
    return dealt


def dealt_evenly(
    problem: Problem, totals: Floats, blocks: list[Ints], cuts: Sequence[Cut], budget: Budget
) -> Ints | None:
    """int64[B, G]: the totals, or one more or less, so that each part can hold its share by its sums and by the cuts,
    with as much left free in the fullest part as can be; None if there is no such deal, or none was found.

    Columns: what is left free of each part, in thousandths, then the shares. Rules about whole parts are kept.
    """
    number, shapes, infinity = len(blocks), problem.shapes, highspy.kHighsInf
    free = np.array([problem.nodes[block] @ problem.free[block] for block in blocks], dtype=np.float64)
    highs, none = quiet(), np.zeros(0, dtype=np.int32)
    lower = np.concatenate([[0.0], np.maximum(np.floor(totals + _EPSILON) - 1, 0).ravel()])
    upper = np.concatenate([[1000.0], np.ceil(totals - _EPSILON).ravel() + 1])
    cost = np.concatenate([[-1.0], np.zeros(number * shapes)])
    highs.addCols(len(cost), cost, lower, upper, 0, none, none, np.zeros(0))
    cells = 1 + np.arange(number * shapes).reshape(number, shapes)
    for shape, demand in enumerate(problem.demand.tolist()):
        add_row(highs, cells[:, shape], np.ones(number), float(demand), float(demand))
    for at, resource in np.ndindex(*free.shape):
        columns, amount = np.concatenate([[0], cells[at]]), float(free[at, resource])
        values = np.concatenate([[amount / 1000], problem.requests[:, resource]])
        add_row(highs, columns, values, -infinity, amount)
    for rule in problem.rows:
        inside = np.isin(np.arange(problem.classes), rule.classes)
        whole = [at for at, block in enumerate(blocks) if inside[block].all()]
        if sum(len(blocks[at]) for at in whole) == int(inside[np.concatenate(blocks)].sum()):
            add_row(highs, cells[whole].ravel(), np.tile(rule.weights, len(whole)), -infinity, float(rule.most))
    for cut in cuts:
        add_row(highs, cells[cut.part], np.array(cut.weights), -infinity, float(cut.most))
    tree = minimise_whole(highs.getLp(), -1000, _TREE_NODES, budget.remaining)
    budget.spent += tree.work
    return None if tree.values is None else tree.values[1:].reshape(number, shapes).astype(np.int64)
