"""Which members are placed when not all can be: of the placements of the most members, that of the lowest positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.exact.problem import Problem, Use, placed_by

Better: TypeAlias = Callable[[Problem, tuple[Use, ...]], tuple[Use, ...]]
"""The best placement of a problem, from one to begin with, within the budget."""


def prefer_first(
    problem: Problem, uses: tuple[Use, ...], places: Sequence[Sequence[int]], better: Better
) -> tuple[Use, ...]:
    """A placement of as many members as `uses` places, whose placed positions come first in lexicographic order.

    `places` are the positions of the members of each shape. Runs of members of one shape are taken one after the other,
    each gets as many placed as can be with all earlier ones placed as well. What `better` cannot decide is not insisted
    on.
    """
    count = int(placed_by(problem, uses).sum())
    first, closed = np.zeros_like(problem.demand), set[int]()
    for shape, length in _runs(places):
        if shape in closed:
            continue
        most = int(first[shape]) + length
        uses = _most_of(problem, uses, count, first, shape, most, better)
        first[shape] = min(most, int(placed_by(problem, uses)[shape]))
        if first[shape] < most:
            closed.add(shape)
    return uses


def _most_of(
    problem: Problem, uses: tuple[Use, ...], count: int, first: Ints, shape: int, most: int, better: Better
) -> tuple[Use, ...]:
    """A placement of as many, with all of `first`, that has the most pods of the shape up to `most`."""
    low, high = _have(problem, uses, shape, most), most
    wanted = first.copy()
    wanted[shape] = most
    while low < high:
        preferring = problem.with_first(wanted)
        found = better(preferring, uses)
        placed = placed_by(problem, found)
        if placed.sum() >= count and (placed >= wanted).all():
            uses, low = found, _have(problem, found, shape, most)
        else:
            high = int(wanted[shape]) - 1
        wanted[shape] = (low + high + 1) // 2
    return uses


def _have(problem: Problem, uses: tuple[Use, ...], shape: int, most: int) -> int:
    return min(int(placed_by(problem, uses)[shape]), most)


def _runs(places: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """(shape, length) of the runs of members of one shape, in the order of the group."""
    by_place = sorted((place, shape) for shape, found in enumerate(places) for place in found)
    for shape, run in groupby(by_place, key=lambda item: item[1]):
        yield shape, sum(1 for _ in run)
