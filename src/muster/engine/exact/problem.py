"""The problem in numbers: how many pods of each shape fit onto classes of equal nodes.

A *pattern* is what one node receives: a number of pods for each shape. It fits a node of class c if it is at most
`caps[c]` and its requests are at most `free[c]`. Every rule about the pods on one node is in these two: a rule "at most
k of these shapes on a node" (host ports, anti-affinity by hostname) is a resource of its own. Rules over domains of
several nodes are `Row`s over what the nodes of some classes receive together; the search adds rows as well.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Bools, Ints

Counts: TypeAlias = tuple[int, ...]
"""A number of pods for each shape."""


class Row(Struct, frozen=True):
    """A rule: the pods that the nodes of these classes receive together, weighted by shape, are at most `most`.

    With negative weights it says "at least".
    """

    classes: tuple[int, ...]
    weights: Counts
    most: int


class Problem(Struct, frozen=True):
    """G shapes, C classes of nodes, R resources; all arrays int64 and never written.

    `requests` [G, R], `demand` [G] pods of each shape, `free` [C, R] ≥ 0, `caps` [C, G] the most of each shape on one
    node, `nodes` [C] how many nodes are of each class. `first` [G] ≤ demand: so many pods of each shape are worth twice
    as much; see `value`. `names` of the R resources, for people. `modes` [M, C, G]: what a node of a class receives is
    at most one of the M limits of the class; None: all that fits. `spare` [R]: a node that receives pods leaves at most
    so much of each resource; None: any amount.
    """

    requests: Ints
    demand: Ints
    free: Ints
    caps: Ints
    nodes: Ints
    first: Ints
    names: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    modes: Ints | None = None
    spare: Counts | None = None

    @property
    def shapes(self) -> int:
        """G."""
        return len(self.demand)

    @property
    def classes(self) -> int:
        """C."""
        return len(self.nodes)

    def value(self, placed: Ints) -> int:
        """What a placement of so many pods of each shape is worth: the pods, and the pods among the `first` again.

        With M the most pods that can be placed at all, M + sum(first) is reached exactly by placements of M pods that
        have all of the first.
        """
        return int(np.minimum(placed, self.demand).sum() + np.minimum(placed, self.first).sum())

    def with_row(self, row: Row) -> Problem:
        """The problem with one more rule."""
        return replace(self, rows=(*self.rows, row))

    def with_first(self, first: Ints) -> Problem:
        """The same pods, with others of them preferred."""
        return replace(self, first=first)

    def separated(self, at: int) -> Problem:
        """The same problem with one node of class `at` as a class of its own, the last."""
        nodes = np.append(self.nodes, 1)
        nodes[at] -= 1
        rows = tuple(
            replace(row, classes=(*row.classes, self.classes)) if at in row.classes else row for row in self.rows
        )
        return replace(
            self,
            free=np.vstack([self.free, self.free[at]]),
            caps=np.vstack([self.caps, self.caps[at]]),
            nodes=nodes,
            rows=rows,
            modes=None if self.modes is None else np.concatenate([self.modes, self.modes[:, at : at + 1]], axis=1),
        )

    def modes_of(self, classes: Ints) -> Ints | None:
        """The modes of these classes."""
        return None if self.modes is None else self.modes[:, classes]


class Use(Struct, frozen=True):
    """`nodes` nodes of class `at` receive `counts` pods of each shape."""

    at: int
    counts: Counts
    nodes: int


def used_of(problem: Problem, use: Use) -> Ints:
    """int64[number of rows]: what the use takes of each rule's limit."""
    weighed = [use.nodes * _weighed(row, use) for row in problem.rows]
    return np.array(weighed, dtype=np.int64)


def keeps_rows(problem: Problem, uses: tuple[Use, ...]) -> bool:
    """Whether the placement keeps the rules over domains."""
    return all(sum(use.nodes * _weighed(row, use) for use in uses) <= row.most for row in problem.rows)


def _weighed(row: Row, use: Use) -> int:
    if use.at not in row.classes:
        return 0
    return sum(weight * count for weight, count in zip(row.weights, use.counts, strict=True))


def keeps_modes(problem: Problem, uses: tuple[Use, ...]) -> bool:
    """Whether each node receives no more than one of its modes allows."""
    if problem.modes is None:
        return True
    at = np.array([use.at for use in uses], dtype=np.int64)
    counts = np.array([use.counts for use in uses], dtype=np.int64).reshape(len(uses), problem.shapes)
    return bool(in_a_mode(problem.modes, at, counts).all())


def in_a_mode(modes: Ints, at: Ints, counts: Ints) -> Bools:
    """bool[P]: whether patterns `counts` [P, G] of the classes `at` [P] are within one of their modes."""
    within: Bools = np.logical_and.reduce(counts <= modes[:, at], axis=2)
    found: Bools = np.logical_or.reduce(within, axis=0)
    return found


def placed_by(problem: Problem, uses: tuple[Use, ...]) -> Ints:
    """int64[G]: how many pods of each shape the uses place, never more than there are."""
    total = np.zeros(problem.shapes, dtype=np.int64)
    for use in uses:
        total += use.nodes * np.array(use.counts, dtype=np.int64)
    return np.minimum(total, problem.demand)
