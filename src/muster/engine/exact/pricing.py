"""The best pattern of every class for given weights of the shapes: a knapsack for each class, all classes at once.

A breadth-first branch and bound over whole numbers: a state is a class and the counts of the shapes decided so far; a
level decides one more shape for all states of all classes. States are cut by bounds of the form

    value so far + u · (what is free) + sum over shapes still open of cap · max(0, w - u · request)

which hold for any u ≥ 0, so that rounding u costs tightness, never truth. The bound is linear in the count of the next
shape: the counts that can still beat the best are an interval, and no state is made that would be cut at once.
Where a class has too many states, some are dropped and their bound is reported: `bounds` are upper bounds in any case.
What does not depend on weights is worked out once a problem (`Prepared`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from muster.engine.arrays import Bools, Ints
from muster.engine.exact.listing import Listed, listed
from muster.engine.exact.problem import Problem
from muster.engine.exact.vertices import Vertices, vertices_of

_MULTIPLIERS = 4
_MOST_ROWS = 16
_SAMPLE = 40
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


class Prepared(Struct, frozen=True):
    """What every search for patterns of a problem needs. `requests` [G, R], 0 for shapes that fit nowhere, which may
    ask for more than all that is free, so that sums would wrap. `order`: the other shapes as they are decided; `usable`
    for each of them and each resource, see `_usable`. `listed`: all patterns, where they are few.
    """

    requests: Ints
    order: Ints
    usable: list[list[Ints | None]]
    vertices: Vertices
    listed: Listed | None


def prepared(problem: Problem) -> Prepared:
    """Once for all searches."""
    fits = problem.caps.max(axis=0, initial=0) > 0
    requests = np.where(fits[:, None], problem.requests, 0)
    share = requests / np.maximum(problem.free.max(axis=0, initial=1), 1)
    # The smallest first: what large shapes can use of the rest is told best by `_usable`.
    order = np.argsort(share.max(axis=1), kind="stable")
    order = order[fits[order]]
    most_free = problem.free.max(axis=0, initial=0)
    usable = _usable(requests[order], most_free)
    every = listed(problem, requests, order, usable)
    return Prepared(requests, order, usable, vertices_of(requests, np.flatnonzero(fits)), every)


def price(
    problem: Problem, weights: Ints, thresholds: Ints, caps: Ints, limit: int, ready: Prepared | None = None
) -> Priced:
    """The best patterns of value above the thresholds.

    `weights` [C, G] int64: pods of negative weight are left out, unless they are needed to fill a node; `caps` [C, G]:
    at most those of the problem; `limit`: the most states of a class on a level; `ready`: what was prepared for the
    problem.
    """
    weights = np.maximum(weights, 0) if problem.spare is None else weights
    ready = prepared(problem) if ready is None else ready
    if problem.modes is None:
        return _price(problem, ready, weights, thresholds, caps, limit)
    best = Priced(thresholds, np.zeros_like(caps), thresholds, 0)
    for mode in problem.modes:
        found = _price(problem, ready, weights, best.values, np.minimum(caps, mode), limit)
        better = found.values > best.values
        counts = np.where(better[:, None], found.counts, best.counts)
        bounds = np.maximum(found.bounds, best.bounds)
        best = Priced(np.maximum(found.values, best.values), counts, bounds, best.work + found.work)
    return best


def _price(problem: Problem, ready: Prepared, weights: Ints, thresholds: Ints, caps: Ints, limit: int) -> Priced:
    if ready.listed is not None:
        values, counts = ready.listed.best(weights, thresholds, caps)
        return Priced(values, counts, values, len(ready.listed.at))
    if problem.spare is None:
        caps = np.where(weights > 0, caps, 0)
    search = _Search.prepare(problem, ready, weights, caps)
    best = _Best(thresholds.copy(), np.zeros_like(caps), thresholds.copy())
    search.fill_greedily(best)
    work = search.run(best, limit)
    return Priced(best.values, best.counts, np.maximum(best.values, best.dropped), work)


def binding(problem: Problem, weights: Ints) -> Floats:
    """float64[R]: which share of what bounds the patterns of all nodes comes from each resource; the rest from caps."""
    weights = np.maximum(weights, 0)
    caps = np.where(weights > 0, problem.caps, 0)
    scale = _scale(weights, caps)
    chosen = _multipliers(problem, prepared(problem), weights, caps, scale)[:, 0, :]
    parts = (chosen / scale) * problem.free * problem.nodes[:, None]
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
    `spare` a resource: so much may be left over at most, None for any amount.
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
    spare: list[int | None]

    @staticmethod
    def prepare(problem: Problem, ready: Prepared, weights: Ints, caps: Ints) -> _Search:
        """Chooses multipliers and the order of the shapes."""
        scale = _scale(weights, caps)
        multipliers = _multipliers(problem, ready, weights, caps, scale).transpose(1, 2, 0)  # [K, R, C]
        levels = np.flatnonzero(caps.max(axis=0, initial=0)[ready.order] > 0)
        order = ready.order[levels]
        requests, weights, most = ready.requests[order], weights.T[order], caps.T[order]
        gains = scale * weights[:, None, :] - np.einsum("lr,krc->lkc", requests, multipliers)
        slack = np.zeros((len(order) + 1, *gains.shape[1:]), dtype=np.int64)
        slack[:-1] = np.cumsum((most[:, None, :] * np.maximum(gains, 0))[::-1], axis=0)[::-1]
        free = np.ascontiguousarray(problem.free.T)
        usable = [ready.usable[level] for level in levels.tolist()]
        spare = _binding_spare(problem)
        return _Search(scale, order, requests, weights, most, free, multipliers, gains, slack, usable, spare)

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
            value[self._wasteful(free)] = -1
            best.offer(np.arange(classes), value, counts)

    def _wasteful(self, left: Ints) -> Bools:
        """bool[S]: whether more is left over of some resource than may be."""
        found = np.zeros(left.shape[1], dtype=np.bool_)
        for row, spare in zip(left, self.spare, strict=True):
            if spare is not None:
                found |= row > spare
        return found

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
        better = states.picked(np.flatnonzero((states.value > best.values[states.at]) & ~self._wasteful(states.free)))
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
        kept = bounds >= self.scale * (best.values[at] + 1)
        if any(spare is not None for spare in self.spare):  # what is left over has to be known to the end
            kept &= ~self._wasteful(states.free - free)
            free = states.free
        useful = np.flatnonzero(kept)
        return _States(at, free, states.value, states.counts).picked(useful), _Promises(worth, bounds).picked(useful)

    def _next(self, states: _States, promises: _Promises, level: int, best: _Best) -> _States:
        """The states after one more shape: for each count that can still beat the best of its class."""
        most = np.minimum(self.most[level, states.at], self._times(level, states.free))
        low, high = most, most  # at the last level as many as fit
        if level + 1 < len(self.weights) or any(spare is not None for spare in self.spare):
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


def _binding_spare(problem: Problem) -> list[int | None]:
    if problem.spare is None:
        return [None] * problem.free.shape[1]
    most = problem.free.max(axis=0, initial=0).tolist()
    return [spare if spare < free else None for spare, free in zip(problem.spare, most, strict=True)]


def _usable(requests: Ints, most_free: Ints) -> list[list[Ints | None]]:
    """For each level and resource: table[f] is the most of f that counts of the shapes from that level on use up."""
    tables: list[list[Ints | None]] = []
    reachable = [None if most > _TABLE else np.arange(most + 1) == 0 for most in most_free.tolist()]
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
    largest = max(1, int((np.abs(weights) * caps).sum(axis=1).max(initial=1)))
    return 1 << max(0, min(20, _BITS - 2 - largest.bit_length()))


def _multipliers(problem: Problem, ready: Prepared, weights: Ints, caps: Ints, scale: int) -> Ints:
    """int64[C, K, R]: for each class the u that bound its patterns best, times scale."""
    typical = np.where(caps.max(axis=0, initial=0) > 0, weights.max(axis=0, initial=0), 0)
    candidates = ready.vertices.at(typical.astype(np.float64))
    most_free = np.maximum(problem.free.max(axis=0), 1)
    limit = 2.0**_BITS / scale / (4 * len(most_free) * most_free)
    candidates = np.minimum(candidates, limit)
    used = candidates @ ready.requests.T.astype(np.float64)
    free, some = problem.free.T.astype(np.float64), _sample(len(weights))
    if some is not None:  # candidates that are good for some classes are good for others
        few = _best(candidates @ free[:, some] + _from_caps(weights[some], caps[some], used))
        kept = np.unique(few)
        candidates, used = candidates[kept], used[kept]
    chosen = _best(candidates @ free + _from_caps(weights, caps, used))
    multipliers: Ints = np.rint(candidates * scale).astype(np.int64)[chosen.T]
    return multipliers


def _sample(classes: int) -> Ints | None:
    """Some of many classes, from all over the table."""
    return None if classes <= 2 * _SAMPLE else np.arange(0, classes, classes // _SAMPLE)


def _best(bounds: Floats) -> Ints:
    """int64[K, C]: the candidates of the lowest `bounds` [V, C], the best first."""
    number = min(_MULTIPLIERS, len(bounds))
    chosen = np.argpartition(bounds, number - 1, axis=0)[:number]
    order = np.argsort(np.take_along_axis(bounds, chosen, axis=0), axis=0, kind="stable")
    return np.take_along_axis(chosen, order, 0)


def _from_caps(weights: Ints, caps: Ints, used: Floats) -> Floats:
    """float64[V, C]: the sums of cap · max(0, w - used), for `used` [V, G]. Mostly few rows of weights differ."""
    rows, which = np.unique(weights, axis=0, return_inverse=True)
    which, limits = which.reshape(-1), caps.astype(np.float64)
    if len(rows) == 1:
        only: Floats = np.maximum(rows[0] - used, 0) @ limits.T
        return only
    found = np.zeros((len(used), len(weights)))
    if len(rows) <= _MOST_ROWS:
        for at, row in enumerate(rows):
            found[:, which == at] = np.maximum(row - used, 0) @ limits[which == at].T
        return found
    for shape in range(weights.shape[1]):
        found += np.maximum(weights[:, shape] - used[:, shape : shape + 1], 0) * limits[:, shape]
    return found
