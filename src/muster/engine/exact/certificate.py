"""Proofs that no more than so many pods fit, in integers, and their check, which trusts no solver.

Weigh the pods of shape g with w_g / unit each. If no pattern of class c weighs more than v_c / unit, all nodes together
hold at most sum of nodes_c · v_c / unit of weight, which bounds what any placement is worth (see `bound`). Where that
is not enough, the problem is split in two or more that cover it, and each has a proof of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.full import tightened, usable_of
from muster.engine.exact.pricing import price
from muster.engine.exact.problem import Counts, Problem, Row

UNIT = 1 << 20
"""Weights are in units of 1/UNIT pods."""

_EVERY_STATE = 1 << 17


class Weighing(Struct, frozen=True):
    """`weights` [G] of the shapes, `prices` of the rows, all ≥ 0; `heaviest` [C]: no pattern of a class weighs more."""

    weights: Counts
    prices: Counts
    heaviest: Counts


class Split(Struct, frozen=True):
    """Either the nodes of class `at` receive at most `most` pods of the shape together, or more."""

    at: int
    shape: int
    most: int
    fewer: Proof
    more: Proof


class Separate(Struct, frozen=True):
    """One node of class `at` is looked at as a class of its own."""

    at: int
    proof: Proof


class Full(Struct, frozen=True):
    """Not all pods fit, since not even those placements of all of them exist that `tightened` leaves."""

    proof: Proof


Proof: TypeAlias = Weighing | Split | Separate | Full


def verified(problem: Problem, proof: Proof, most: int) -> bool:
    """Whether the proof shows that no placement is worth more than `most`. All integers; patterns are searched anew."""
    if isinstance(proof, Weighing):
        return _well_formed(problem, proof) and bound(problem, proof) <= most and _heaviest_holds(problem, proof)
    if isinstance(proof, Full):
        all_but_one = problem.value(problem.demand) - 1
        return most >= all_but_one and verified(tightened(problem), proof.proof, all_but_one)
    if isinstance(proof, Separate):
        return 0 <= proof.at < problem.classes and verified(problem.separated(proof.at), proof.proof, most)
    fewer, more = branch(problem, proof.at, proof.shape, proof.most)
    return verified(fewer, proof.fewer, most) and verified(more, proof.more, most)


def short(problem: Problem) -> Weighing | None:
    """A proof that not all pods fit: of one resource the nodes can use less than the pods ask for, with what is left
    over of it on each node by the sizes of the pods; None if there is none.

    Pods are weighed by what they ask for of that resource.
    """
    usable, asked = usable_of(problem), problem.demand @ problem.requests
    for resource in np.flatnonzero(problem.nodes @ usable < asked).tolist():
        unit = UNIT // max(1, int(problem.requests[:, resource].max()))
        if unit:
            weights, heaviest = unit * problem.requests[:, resource], unit * usable[:, resource]
            return Weighing(tuple(weights.tolist()), (0,) * len(problem.rows), tuple(heaviest.tolist()))
    return None


def branch(problem: Problem, at: int, shape: int, most: int) -> tuple[Problem, Problem]:
    """The two cases of a Split; every placement belongs to one of them."""
    one = tuple(int(each == shape) for each in range(problem.shapes))
    minus = tuple(-each for each in one)
    fewer, more = problem.with_row(Row((at,), one, most)), problem.with_row(Row((at,), minus, -(most + 1)))
    if problem.modes is None or problem.nodes[at] != 1:
        return fewer, more
    caps, modes = problem.caps.copy(), problem.modes.copy()  # of a single node, its pattern is all that it receives
    caps[at, shape] = min(caps[at, shape], most)
    modes[modes[:, at, shape] <= most, at] = 0
    return replace(fewer, caps=caps), replace(more, modes=modes)


def bound(problem: Problem, weighing: Weighing) -> int:
    """The most that a placement can be worth if `heaviest` holds.

    The worth of x_g pods of shape g is at most their weight plus what the worth of a pod exceeds its weight.
    """
    total = sum(int(nodes) * weight for nodes, weight in zip(problem.nodes.tolist(), weighing.heaviest, strict=True))
    total += sum(price * row.most for price, row in zip(weighing.prices, problem.rows, strict=True))
    for weight, demand, first in zip(weighing.weights, problem.demand.tolist(), problem.first.tolist(), strict=True):
        total += max(0, 2 * UNIT - weight) * first + max(0, UNIT - weight) * (demand - first)
    return total // UNIT


def pattern_weights(problem: Problem, weights: Ints, prices: Ints) -> Ints:
    """int64[C, G]: what a pod of each shape counts on each class: its weight less the prices of the rows it is in."""
    table = np.tile(weights, (problem.classes, 1))
    for charged, row in zip(prices, problem.rows, strict=True):
        if charged:
            table[list(row.classes)] -= charged * np.array(row.weights, dtype=np.int64)
    return table


def _well_formed(problem: Problem, weighing: Weighing) -> bool:
    sizes = (len(weighing.weights), len(weighing.prices), len(weighing.heaviest))
    if sizes != (problem.shapes, len(problem.rows), problem.classes):
        return False
    return min((*weighing.weights, *weighing.prices, *weighing.heaviest), default=0) >= 0


def _heaviest_holds(problem: Problem, weighing: Weighing) -> bool:
    weights = pattern_weights(problem, _array(weighing.weights), _array(weighing.prices))
    priced = price(problem, weights, _array(weighing.heaviest), problem.caps, _EVERY_STATE)
    return bool((priced.bounds <= _array(weighing.heaviest)).all())


def _array(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
