"""Proofs that no choice of a tree of groups fits, in integers, and their check, which trusts no solver.

Weigh the pods of class g with w_g. The lightest choice of groups, domains and pods weighs at least L, which `cheapest`
says exactly; all nodes together hold patterns of weight V at most. If L > V, no choice fits. Where that is not enough,
choices are told apart by how many of something there are, down to single ones, of which the pods were proved not to fit
as a flat group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.exact.pricing import price
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.trees.bounds import Where, divide, tightened, unfolded
from muster.engine.exact.trees.choices import Node, cheapest

UNIT = 1 << 20
"""Weights are in units of 1/UNIT pods."""

_EVERY_STATE = 1 << 17
_MOST_TO_LEAVE_OUT = 16


class Nothing(Struct, frozen=True):
    """The bounds leave no choice."""


class Weighed(Struct, frozen=True):
    """`weights` [G] ≥ 0 of the classes of pods; `heaviest` [C]: no pattern of a class of nodes weighs more."""

    weights: Counts
    heaviest: Counts


class TooMany(Struct, frozen=True):
    """Every choice has at least these pods [G], and they do not fit together. `is_all`: this is the only choice."""

    pods: Counts
    is_all: bool


class Divided(Struct, frozen=True):
    """Either at most `most` of something, or more."""

    where: Where
    most: int
    fewer: TreeProof
    more: TreeProof


class Unfolded(Struct, frozen=True):
    """Children that run in one way are told apart."""

    where: Where
    proof: TreeProof


TreeProof: TypeAlias = Nothing | Weighed | TooMany | Divided | Unfolded


def capacity(problem: Problem, heaviest: Sequence[int]) -> int:
    """What all nodes together hold at most."""
    return sum(nodes * weight for nodes, weight in zip(problem.nodes.tolist(), heaviest, strict=True))


def least_pods(tree: Node, classes: int) -> Counts:
    """[G]: so many pods of each class every choice has at least."""
    found = []
    for each in range(classes):
        way = cheapest(tree, [int(at == each) for at in range(classes)])
        found.append(0 if way is None else way[0])
    return tuple(found)


def verified(problem: Problem, tree: Node, proof: TreeProof, too_many: frozenset[Counts], is_least: bool) -> bool:
    """Whether the proof shows that no choice of the tree fits.

    `too_many`: pods that were proved, as flat groups, not to fit. `is_least`: fewer pods fit wherever more do.
    """
    bounded = tightened(tree, is_least)
    if bounded is None:
        return True
    if isinstance(proof, Weighed):
        return _outweighs(problem, bounded, proof)
    if isinstance(proof, TooMany):
        least = least_pods(bounded, problem.shapes)
        covered = all(have >= want for have, want in zip(least, proof.pods, strict=True))
        return proof.pods in too_many and covered and (is_least or proof.is_all)
    if isinstance(proof, Unfolded):
        return verified(problem, unfolded(bounded, proof.where), proof.proof, too_many, is_least)
    if isinstance(proof, Divided):
        parts = zip(divide(bounded, proof.where, proof.most), (proof.fewer, proof.more), strict=True)
        return all(verified(problem, part, each, too_many, is_least) for part, each in parts)
    return False


def lean(problem: Problem, tree: Node, weighed: Weighed) -> Weighed:
    """The same proof, or one that weighs fewer classes of pods: what is left out has nothing to do with it."""
    if problem.shapes > _MOST_TO_LEAVE_OUT:
        return weighed
    for at in range(problem.shapes):
        weights = tuple(0 if each == at else weight for each, weight in enumerate(weighed.weights))
        table = np.tile(np.array(weights, dtype=np.int64), (problem.classes, 1))
        nothing = np.zeros(problem.classes, dtype=np.int64)
        heaviest = price(problem, table, nothing, problem.caps, _EVERY_STATE).bounds
        fewer = Weighed(weights, tuple(heaviest.tolist()))
        if weighed.weights[at] and _outweighs(problem, tree, fewer):
            weighed = fewer
    return weighed


def _outweighs(problem: Problem, tree: Node, weighed: Weighed) -> bool:
    if (len(weighed.weights), len(weighed.heaviest)) != (problem.shapes, problem.classes):
        return False
    if min((*weighed.weights, *weighed.heaviest), default=0) < 0:
        return False
    lightest = cheapest(tree, weighed.weights)
    table = np.tile(np.array(weighed.weights, dtype=np.int64), (problem.classes, 1))
    heaviest = np.array(weighed.heaviest, dtype=np.int64)
    priced = price(problem, table, heaviest, problem.caps, _EVERY_STATE)
    holds = bool((priced.bounds <= heaviest).all())
    return holds and lightest is not None and lightest[0] > capacity(problem, weighed.heaviest)
