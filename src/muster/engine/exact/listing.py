"""All patterns of a problem, where nodes leave so little over that there are few of them.

Half of the shapes are put on a node, and what they leave over of resources that are used up entirely is exactly what
the other half has to use: both halves are listed, and those that go together are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.exact.problem import Problem

_MOST = 60_000
"""Halves and patterns that are listed at most."""
_BITS = 62


class Listed(Struct, frozen=True):
    """Every pattern that is not empty: class [P] and counts [P, G]. `work`: what it cost, in states."""

    at: Ints
    counts: Ints
    work: int

    def best(self, weights: Ints, thresholds: Ints, caps: Ints) -> tuple[Ints, Ints]:
        """The values [C] above the thresholds and counts [C, G] of the heaviest patterns, with at most `caps` [C, G].

        `weights` [C, G]. A class with nothing above its threshold has that as value, and counts of zero.
        """
        values, counts = thresholds.copy(), np.zeros_like(caps)
        within = np.flatnonzero((self.counts <= caps[self.at]).all(axis=1))
        at = self.at[within]
        weighed = np.einsum("pg,pg->p", weights[at], self.counts[within])
        order = np.lexsort((-weighed, at))
        classes, first = np.unique(at[order], return_index=True)
        chosen = order[first]
        better = weighed[chosen] > thresholds[classes]
        values[classes[better]] = weighed[chosen[better]]
        counts[classes[better]] = self.counts[within[chosen[better]]]
        return values, counts


class _Half(Struct, frozen=True):
    """Nodes that received pods of some shapes: class [S], what is left free [S, R], counts [S, G]."""

    at: Ints
    free: Ints
    counts: Ints

    def picked(self, which: Ints | Bools) -> _Half:
        """Those at these places."""
        return _Half(self.at[which], self.free[which], self.counts[which])


def listed(problem: Problem, requests: Ints, order: Ints, usable: Sequence[Sequence[Ints | None]]) -> Listed | None:
    """All patterns; None if nothing is used up entirely, or there are too many halves.

    `requests` [G, R] and `order`, the shapes that fit somewhere; `usable` for each of these and each resource, the most
    of each amount that this shape and those after it can use.
    """
    if problem.spare is None:
        return None
    spare, most_free = np.array(problem.spare, dtype=np.int64), problem.free.max(axis=0, initial=0)
    exact = np.flatnonzero((spare == 0) & (most_free > 0))
    if not len(exact) or _bits(most_free[exact]) + _bits(np.array([problem.classes])) > _BITS:
        return None
    nobody = np.zeros((problem.classes, problem.shapes), dtype=np.int64)
    front = back = _Half(np.arange(problem.classes), problem.free, nobody)
    low, high, work = 0, len(order), 0
    while low < high:
        is_front = len(front.at) <= len(back.at)
        shape = int(order[low if is_front else high - 1])
        more = _with(front if is_front else back, problem.caps[:, shape], requests[shape], shape)
        if more is None:
            return None
        work += len(more.at)
        if is_front:
            low, front = low + 1, more
            if low < len(order):
                front = front.picked(_can_be_used(front.free, usable[low], spare))
        else:
            high, back = high - 1, more
    return _joined(problem, front, back, exact, spare, work)


def _bits(most: Ints) -> int:
    return sum(int(each).bit_length() for each in most)


def _with(half: _Half, caps: Ints, request: Ints, shape: int) -> _Half | None:
    """With every number of pods of one more shape; None if that is too much."""
    most = caps[half.at]
    for resource in np.flatnonzero(request).tolist():
        most = np.minimum(most, half.free[:, resource] // request[resource])
    width = most + 1
    if int(width.sum()) > _MOST:
        return None
    more = half.picked(np.repeat(np.arange(len(most)), width))
    taken = np.arange(len(more.at)) - np.repeat(np.cumsum(width) - width, width)
    more.counts[:, shape] = taken
    return _Half(more.at, more.free - taken[:, None] * request, more.counts)


def _can_be_used(free: Ints, usable: Sequence[Ints | None], spare: Ints) -> Bools:
    """bool[S]: whether the shapes that are left can use all but what may be left over, one resource at a time."""
    found = np.ones(len(free), dtype=np.bool_)
    for left, table, may_be_left in zip(free.T, usable, spare.tolist(), strict=True):
        if table is not None:
            found &= left - table[left] <= may_be_left
    return found


def _joined(problem: Problem, front: _Half, back: _Half, exact: Ints, spare: Ints, work: int) -> Listed | None:
    """The halves that fit on a node together and leave over no more than they may."""
    used = problem.free[back.at] - back.free
    sizes = problem.free.max(axis=0)[exact] + 1
    left_keys, used_keys = _keys(front.at, front.free[:, exact], sizes), _keys(back.at, used[:, exact], sizes)
    order = np.argsort(used_keys, kind="stable")
    start = np.searchsorted(used_keys[order], left_keys, side="left")
    number = np.searchsorted(used_keys[order], left_keys, side="right") - start
    total = int(number.sum())
    if total > _MOST:
        return None
    one = np.repeat(np.arange(len(front.at)), number)
    other = order[np.arange(total) - np.repeat(np.cumsum(number) - number - start, number)]
    left, counts = front.free[one] - used[other], front.counts[one] + back.counts[other]
    fits = (left >= 0).all(axis=1) & (left <= spare).all(axis=1) & counts.any(axis=1)
    return Listed(front.at[one][fits], counts[fits], work + total)


def _keys(at: Ints, amounts: Ints, sizes: Ints) -> Ints:
    """int64[S]: one number for a class and amounts below `sizes`."""
    keys = at.copy()
    for column, size in zip(amounts.T, sizes.tolist(), strict=True):
        keys = keys * size + column
    return keys
