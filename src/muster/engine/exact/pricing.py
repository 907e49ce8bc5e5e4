"""The best pattern of every class for given weights of the shapes: a knapsack for each class, all classes at once.

A breadth-first branch and bound over whole numbers: a state is a class and the counts of the shapes decided so far; a
level decides one more shape for all states of all classes. States are cut by bounds of the form

    value so far + u · (what is free) + sum over shapes still open of cap · max(0, w - u · request)

which hold for any u ≥ 0, so that rounding u costs tightness, never truth. The bound is linear in the count of the next
shape: the counts that can still beat the best are an interval, and no state is made that would be cut at once.
Where a class has too many states, some are dropped and their bound is reported: `bounds` are upper bounds in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from muster.engine.arrays import Ints
from muster.engine.exact.problem import Problem

_MULTIPLIERS = 4
_MOST_CANDIDATES = 1_500
_BITS = 60
"""Sums stay below 2**_BITS, so that int64 never wraps."""

_TABLE = 1 << 16

Floats = NDArray[np.float64]


class Priced(Struct, frozen=True):
    """`values` [C] of the best patterns found, `counts` [C, G], `bounds` [C] ≥ value of any pattern, `work` in states.

    A class with no pattern above its threshold has the threshold as value and bound, and counts of zero.
    """

    values: Ints
    counts: Ints
    bounds: Ints
    work: int


def price(problem: Problem, weights: Ints, thresholds: Ints, caps: Ints, limit: int) -> Priced:
    """The best patterns of value above the thresholds.

    `weights` [C, G] int64, where a negative weight counts as 0; `caps` [C, G] at most those of the problem; `limit`:
    the most states of a class on a level.
    """
    weights = np.maximum(weights, 0)
    if not problem.modes:
        return _price(problem, weights, thresholds, caps, limit)
    best = Priced(thresholds, np.zeros_like(caps), thresholds, 0)
    for mode in problem.modes:
        found = _price(problem, weights, best.values, np.where(np.array(mode) > 0, caps, 0), limit)
        better = found.values > best.values
        counts = np.where(better[:, None], found.counts, best.counts)
        bounds = np.maximum(found.bounds, best.bounds)
        best = Priced(np.maximum(found.values, best.values), counts, bounds, best.work + found.work)
    return best


def _price(problem: Problem, weights: Ints, thresholds: Ints, caps: Ints, limit: int) -> Priced:
    caps = np.where(weights > 0, caps, 0)
    # Requests of shapes that fit nowhere may be larger than all that is free, and sums with them would wrap.
    fitting = np.flatnonzero(caps.max(axis=0, initial=0))
    requests = np.zeros_like(problem.requests)
    requests[fitting] = problem.requests[fitting]
    problem = replace(problem, requests=requests)
    search = _Search.prepare(problem, weights, caps)
    best = _Best(thresholds.copy(), np.zeros_like(caps), thresholds.copy())
    search.fill_greedily(best)
    work = search.run(best, limit)
    return Priced(best.values, best.counts, np.maximum(best.values, best.dropped), work)


def binding(problem: Problem, weights: Ints) -> Floats:
    """float64[R]: which share of what bounds the patterns of all nodes comes from each resource; the rest from caps."""
    weights = np.maximum(weights, 0)
    caps = np.where(weights > 0, problem.caps, 0)
    scale = _scale(weights, caps)
    parts = (_multipliers(problem, weights, caps, scale)[:, 0, :] / scale) * problem.free * problem.nodes[:, None]
    shares: Floats = parts.sum(axis=0) / max(1.0, float(parts.sum()))
    return shares


@dataclass(slots=True)
class _Best:
    """The best pattern of each class so far, and the highest bound among states that were dropped."""

    values: Ints
    counts: Ints
    dropped: Ints

    def offer(self, classes: Ints, values: Ints, counts: Ints) -> None:
        """Takes those that are better; of several for one class the best."""
        better = np.flatnonzero(values > self.values[classes])
        if not len(better):
            return
        order = better[np.lexsort((better, -values[better], classes[better]))]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = classes[order][1:] != classes[order][:-1]
        chosen = order[first]
        self.values[classes[chosen]] = values[chosen]
        self.counts[classes[chosen]] = counts[chosen]


class _States(Struct, frozen=True):
    """S open states: class [S], what is free [R, S], value [S], counts [L, S] by level."""

    at: Ints
    free: Ints
    value: Ints
    counts: NDArray[np.int32]

    def picked(self, which: Ints) -> _States:
        """Those at these places."""
        return _States(self.at[which], self.free[:, which], self.value[which], self.counts[:, which])


class _Promises(Struct, frozen=True):
    """For each state and multiplier u of its class `worth` [K, S]: scale · value + u · free; `bounds` [S] from them."""

    worth: Ints
    bounds: Ints

    def picked(self, which: Ints) -> _Promises:
        """Those at these places."""
        return _Promises(self.worth[:, which], self.bounds[which])


class _Search(Struct, frozen=True):
    """Everything a level needs, for each class and level, where level l decides shape `order[l]`.

    Shapes that fit nowhere have no level. `scale`: bounds are in units of 1/scale. `requests` [L, R]. `weights` and
    `most` [L, C]: of the shape, and at most so many. `multipliers` [K, R, C]: the u of each class. `gains` [L, K, C]:
    scale · w - u · request. `slack` [L + 1, K, C]: the sums over the shapes still open of cap · max(0, gain). `usable`
    for each level and resource: what can be used of so much by the shapes still open, or None where it is not known.
    """

    scale: int
    order: Ints
    requests: Ints
    weights: Ints
    most: Ints
    free: Ints
    multipliers: Ints
    gains: Ints
    slack: Ints
    usable: list[list[Ints | None]]

    @staticmethod
    def prepare(problem: Problem, weights: Ints, caps: Ints) -> _Search:
        """Chooses multipliers and the order of the shapes."""
        scale = _scale(weights, caps)
        multipliers = _multipliers(problem, weights, caps, scale).transpose(1, 2, 0)  # [K, R, C]
        order = _order(problem)
        order = order[caps.max(axis=0, initial=0)[order] > 0]
        requests, weights, most = problem.requests[order], weights.T[order], caps.T[order]
        gains = scale * weights[:, None, :] - np.einsum("lr,krc->lkc", requests, multipliers)
        slack = np.zeros((len(order) + 1, *gains.shape[1:]), dtype=np.int64)
        slack[:-1] = np.cumsum((most[:, None, :] * np.maximum(gains, 0))[::-1], axis=0)[::-1]
        free = np.ascontiguousarray(problem.free.T)
        return _Search(scale, order, requests, weights, most, free, multipliers, gains, slack, _usable(requests, free))

    def fill_greedily(self, best: _Best) -> None:
        """Offers the patterns that take as many as fit of the densest shape, then of the next, and so on."""
        levels, classes = len(self.weights), len(self.free[0])
        for skip in range(min(2, levels)):
            free, value = self.free.copy(), np.zeros(classes, dtype=np.int64)
            counts = np.zeros_like(best.counts)
            for level in (*range(skip, levels), *range(skip)):
                most = np.minimum(self.most[level], self._times(level, free))
                free -= most * self.requests[level][:, None]
                value += most * self.weights[level]
                counts[:, self.order[level]] = most
            best.offer(np.arange(classes), value, counts)

    def run(self, best: _Best, limit: int) -> int:
        """Goes through the levels; returns the number of states made."""
        levels, classes = len(self.weights), len(self.free[0])
        start = np.zeros(classes, dtype=np.int64)
        states = _States(np.arange(classes), self.free, start, np.zeros((levels, classes), dtype=np.int32))
        work: int = classes
        for level in range(levels):
            states, promises = self._useful(states, level, best)
            states, promises = self._limited(states, promises, best, limit)
            states = self._next(states, promises, level, best)
            work += len(states.at)
            if not len(states.at):
                return work
        self._finish(states, best)
        return work

    def _finish(self, states: _States, best: _Best) -> None:
        better = states.picked(np.flatnonzero(states.value > best.values[states.at]))
        counts = np.zeros((len(better.at), best.counts.shape[1]), dtype=np.int64)
        counts[:, self.order] = better.counts.T
        best.offer(better.at, better.value, counts)

    def _useful(self, states: _States, level: int, best: _Best) -> tuple[_States, _Promises]:
        """The states that can still beat the best of their class, without what is free but cannot be used."""
        at, free, tables = states.at, states.free, self.usable[level]
        if any(table is not None for table in tables):
            free = np.array([row if table is None else table[row] for row, table in zip(free, tables, strict=True)])
        worth = np.tile(self.scale * states.value, (len(self.multipliers), 1))
        for total, multipliers in zip(worth, self.multipliers, strict=True):
            for multiplier, row in zip(multipliers, free, strict=True):
                total += multiplier[at] * row
        bounds = (worth + self.slack[level][:, at]).min(axis=0)
        useful = np.flatnonzero(bounds >= self.scale * (best.values[at] + 1))
        return _States(at, free, states.value, states.counts).picked(useful), _Promises(worth, bounds).picked(useful)

    def _next(self, states: _States, promises: _Promises, level: int, best: _Best) -> _States:
        """The states after one more shape: for each count that can still beat the best of its class."""
        most = np.minimum(self.most[level, states.at], self._times(level, states.free))
        low, high = most, most  # at the last level as many as fit
        if level + 1 < len(self.weights):
            low, high = self._interval(states.at, promises.worth, level, most, best)
        width = np.maximum(high - low + 1, 0)
        source = np.repeat(np.arange(len(most)), width)
        taken = np.arange(len(source)) - np.repeat(np.cumsum(width) - width - low, width)
        after = states.picked(source)
        after.counts[level] = taken
        after.free[:] -= taken * self.requests[level][:, None]
        after.value[:] += taken * self.weights[level, after.at]
        return after

    def _interval(self, at: Ints, worth: Ints, level: int, most: Ints, best: _Best) -> tuple[Ints, Ints]:
        """The counts k with worth + k · gain + slack ≥ scale · (best + 1) for all u: each gives an end of it.

        Ends are rounded outwards by more than the error of a division in float64.
        """
        needed = self.scale * (best.values[at] + 1)
        low, high = np.zeros(len(at)), most.astype(np.float64)
        for total, gains, slack in zip(worth, self.gains[level], self.slack[level + 1], strict=True):
            have = total + slack[at] - needed
            step = gains[at]
            ends = have / np.where(step == 0, 1, -step)  # have + k·step ≥ 0
            margin = 1e-9 + 1e-12 * np.abs(ends)
            np.maximum(low, np.where(step > 0, np.ceil(ends - margin), 0.0), out=low)
            np.minimum(high, np.where(step < 0, np.floor(ends + margin), high), out=high)
            high[(step == 0) & (have < 0)] = -1.0
        return np.minimum(low, most + 1.0).astype(np.int64), np.maximum(high, -1.0).astype(np.int64)

    def _limited(self, states: _States, promises: _Promises, best: _Best, limit: int) -> tuple[_States, _Promises]:
        """Without the states beyond the limit of their class, those of the lowest bounds, which are noted."""
        sizes = np.bincount(states.at, minlength=len(best.values))
        if sizes.max(initial=0) <= limit:
            return states, promises
        bounds = promises.bounds
        order = np.lexsort((-bounds, states.at))  # a stable sort: equal bounds stay in order
        starts = np.cumsum(sizes) - sizes
        beyond = np.arange(len(order)) - starts[states.at[order]] >= limit
        dropped, kept = order[beyond], np.sort(order[~beyond])
        np.maximum.at(best.dropped, states.at[dropped], bounds[dropped] // self.scale)
        return states.picked(kept), promises.picked(kept)

    def _times(self, level: int, free: Ints) -> Ints:
        """int64[S]: how often the request of the level's shape fits."""
        fits = np.full(free.shape[1], np.iinfo(np.int64).max)
        for row, request in zip(free, self.requests[level].tolist(), strict=True):
            if request:
                np.minimum(fits, row // request, out=fits)
        return fits


def _order(problem: Problem) -> Ints:
    """int64[L]: the shapes in the order in which they are decided.

    The smallest first: what large shapes can use of the rest is told best by `_usable`.
    """
    share = problem.requests / np.maximum(problem.free.max(axis=0, initial=1), 1)
    return np.argsort(share.max(axis=1), kind="stable")


def _usable(requests: Ints, free: Ints) -> list[list[Ints | None]]:
    """For each level and resource: table[f] is the most of f that counts of the shapes from that level on use up."""
    largest = free.max(axis=1, initial=0).tolist()
    tables: list[list[Ints | None]] = []
    reachable = [None if most > _TABLE else np.arange(most + 1) == 0 for most in largest]
    for level in reversed(range(len(requests))):
        row: list[Ints | None] = []
        for reach, request in zip(reachable, requests[level].tolist(), strict=True):
            if reach is None:
                row.append(None)
                continue
            step = request
            while 0 < step < len(reach):
                reach[step:] |= reach[:-step]
                step *= 2
            row.append(np.maximum.accumulate(np.where(reach, np.arange(len(reach)), 0)))
        tables.append(row)
    return tables[::-1]


def _scale(weights: Ints, caps: Ints) -> int:
    """A power of two by which values may be multiplied."""
    largest = max(1, int((weights * caps).sum(axis=1).max(initial=1)))
    return 1 << max(0, min(20, _BITS - 2 - largest.bit_length()))


def _multipliers(problem: Problem, weights: Ints, caps: Ints, scale: int) -> Ints:
    """int64[C, K, R]: for each class the u that bound its patterns best, times scale."""
    typical = np.where(caps.max(axis=0, initial=0) > 0, weights.max(axis=0, initial=0), 0)
    candidates = _candidates(problem.requests[typical > 0].astype(np.float64), typical[typical > 0].astype(np.float64))
    most_free = np.maximum(problem.free.max(axis=0), 1)
    limit = 2.0**_BITS / scale / (4 * len(most_free) * most_free)
    candidates = np.minimum(candidates, limit)
    requests = problem.requests.astype(np.float64)
    bounds = candidates @ problem.free.T.astype(np.float64)  # [V, C]
    used = candidates @ requests.T  # [V, G]
    if (weights[:, typical > 0] == typical[typical > 0]).all():
        bounds += np.maximum(typical - used, 0) @ caps.T.astype(np.float64)
    else:
        for shape in range(problem.shapes):
            bounds += np.maximum(weights[:, shape] - used[:, shape : shape + 1], 0) * caps[:, shape]
    number = min(_MULTIPLIERS, len(candidates))
    chosen = np.argpartition(bounds, number - 1, axis=0)[:number] if number < len(candidates) else None
    if chosen is None:
        chosen = np.repeat(np.arange(len(candidates))[:, None], bounds.shape[1], axis=1)
    ranked = np.take_along_axis(
        chosen, np.argsort(np.take_along_axis(bounds, chosen, axis=0), axis=0, kind="stable"), 0
    )
    multipliers: Ints = np.rint(candidates * scale).astype(np.int64)[ranked.T]
    return multipliers


def _candidates(requests: Floats, weights: Floats) -> Floats:
    """float64[V, R]: the u ≥ 0 at which as many shapes are worth exactly what they use as u has positive entries.

    They are the vertices among which the linear relaxation of the knapsack has its dual optimum, whatever is free.
    """
    resources = requests.shape[1]
    found = [np.zeros((1, resources))]
    for size in range(1, min(3, resources, len(requests)) + 1):
        columns = np.array(list(combinations(range(resources), size)))
        shapes = np.array(list(combinations(range(len(requests)), size)))
        if len(columns) * len(shapes) > _MOST_CANDIDATES:
            break
        matrices = requests[shapes[:, None, :, None], columns[None, :, None, :]].reshape(-1, size, size)
        right = np.broadcast_to(weights[shapes][:, None, :], (len(shapes), len(columns), size)).reshape(-1, size, 1)
        regular = np.abs(np.linalg.det(matrices)) > 1e-9
        solved = np.linalg.solve(matrices[regular], right[regular])[:, :, 0]
        places = np.broadcast_to(columns[None, :, :], (len(shapes), len(columns), size)).reshape(-1, size)[regular]
        full = np.zeros((len(solved), resources))
        np.put_along_axis(full, places, solved, axis=1)
        found.append(full[(solved >= 0).all(axis=1)])
    return np.unique(np.vstack(found), axis=0)
