"""Blocks: where rules over domains part the nodes, the pods of each shape are first dealt to the parts.

The relaxation says how many pods of each shape come to each part. In whole numbers, each part is a problem of its own,
smaller and with fewer rules, so that dives and repairs find their way in it.
"""

from __future__ import annotations

import highspy
import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.certificate import short
from muster.engine.exact.columns import Bounded, generate
from muster.engine.exact.dive import dive
from muster.engine.exact.highs import add_row, minimise_whole, quiet
from muster.engine.exact.master import Master, Patterns, worth
from muster.engine.exact.pricing import Floats
from muster.engine.exact.problem import Problem, Row, Use
from muster.engine.exact.repair import repaired, within
from muster.engine.exact.work import Budget

_NEARLY_WHOLE = 0.7
_DEAL_TREE = 100
_EPSILON = 1e-6


def place_by_blocks(problem: Problem, patterns: Patterns, totals: Floats, budget: Budget) -> tuple[Use, ...]:
    """A placement that has in each part what `totals` [C, G] say, rounded; () if rules do not part the nodes, or if a
    part cannot hold what it was dealt."""
    blocks = _blocks(problem)
    if len(blocks) < 2 or problem.first.any():
        return ()
    shares = np.array([totals[block].sum(axis=0) for block in blocks])
    parts = _parts(problem, _rounded(problem, shares, blocks), blocks)
    if not parts:
        evenly = _evenly(problem, shares, blocks, budget)
        parts = [] if evenly is None else _parts(problem, evenly, blocks)
    found: list[Use] = []
    for block, part in zip(blocks, parts, strict=False):
        uses = _filled(part, within(patterns, block, part), budget)
        found += [replace(use, at=int(block[use.at])) for use in uses]
    return tuple(found)


def _parts(problem: Problem, dealt: Ints, blocks: list[Ints]) -> list[Problem]:
    """The part of each block; none if one of them cannot hold what it was dealt, by sums alone."""
    parts = [_part(problem, block, demand) for block, demand in zip(blocks, dealt, strict=True)]
    return [] if any(short(part) is not None for part in parts) else parts


def _filled(part: Problem, patterns: Patterns, budget: Budget) -> tuple[Use, ...]:
    master, target = Master(part, patterns), part.value(part.demand)
    generate(master, Bounded(target), target - 1, budget)
    uses = dive(master, target, budget, _NEARLY_WHOLE)
    return uses if worth(part, uses) >= target else repaired(part, master.patterns, uses, target, budget)


def _blocks(problem: Problem) -> list[Ints]:
    """The classes, ascending, in parts such that every rule that is not about all classes is within one of them."""
    block = np.arange(problem.classes)
    usable = np.flatnonzero(problem.caps.any(axis=1))
    for row in problem.rows:
        classes = np.intersect1d(np.array(row.classes, dtype=np.int64), usable)
        if len(classes) < 2 or len(classes) == len(usable):
            continue
        joined = np.unique(block[classes])
        block[np.isin(block, joined)] = joined[0]
    parts = [np.flatnonzero(block == each) for each in np.unique(block[usable])]
    return parts if len(parts) <= len(problem.rows) else []


def _rounded(problem: Problem, totals: Floats, blocks: list[Ints]) -> Ints:
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


def _evenly(problem: Problem, totals: Floats, blocks: list[Ints], budget: Budget) -> Ints | None:
    """int64[B, G]: the totals rounded up or down so that each part can hold its share, if only its sums are looked at,
    with as much as can be left free in the fullest part; None if none is found.

    Columns: what is left free of each part, in thousandths, then the shares. Rules about whole parts are kept.
    """
    number, shapes, infinity = len(blocks), problem.shapes, highspy.kHighsInf
    free = np.array([problem.nodes[block] @ problem.free[block] for block in blocks], dtype=np.float64)
    highs, none = quiet(), np.zeros(0, dtype=np.int32)
    lower = np.concatenate([[0.0], np.floor(totals + _EPSILON).ravel()])
    upper = np.concatenate([[1000.0], np.ceil(totals - _EPSILON).ravel()])
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
    tree = minimise_whole(highs.getLp(), -1000, _DEAL_TREE, budget.remaining)
    budget.spent += tree.work
    return None if tree.values is None else tree.values[1:].reshape(number, shapes).astype(np.int64)


def _part(problem: Problem, block: Ints, demand: Ints) -> Problem:
    place = {int(at): index for index, at in enumerate(block.tolist())}
    rows = []
    for row in problem.rows:
        classes = tuple(place[at] for at in row.classes if at in place)
        if len(classes) == len([at for at in row.classes if problem.caps[at].any()]):
            rows.append(Row(classes, row.weights, row.most))
    return replace(
        problem,
        demand=demand,
        free=problem.free[block],
        caps=np.minimum(problem.caps[block], demand),
        nodes=problem.nodes[block],
        first=np.zeros_like(demand),
        rows=tuple(row for row in rows if not _follows(row, block, demand)),
    )


def _follows(row: Row, block: Ints, demand: Ints) -> bool:
    """Whether a rule about a whole part holds for the pods that it was dealt: then it need not be looked at again."""
    return len(row.classes) == len(block) and int(demand @ np.array(row.weights, dtype=np.int64)) <= row.most
