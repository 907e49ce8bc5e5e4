"""The best pattern of every class for given weights of the shapes: a knapsack for each class, all classes at once.

A breadth-first branch and bound in int64: a state is a class and the counts of the shapes decided so far; a level
decides one more shape for all states of all classes. States are cut by bounds of the form

    value so far + u · (what is free) + sum over shapes still open of cap · max(0, w - u · request)

which hold for any u ≥ 0, so that rounding u costs tightness, never truth. The bound is linear in the count of the next
shape: the counts that can still beat the best are an interval, and no state is made that would be cut at once.
Where a class has too many states, some are dropped and their bound is reported: `bounds` are upper bounds in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from muster.engine.arrays import Ints
from muster.engine.exact.problem import Problem

_MULTIPLIERS = 4
_MOST_CANDIDATES = 1_500
_BITS = 60
"""Sums stay below 2**_BITS, so that int64 never wraps."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Priced:
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


@dataclass(frozen=True, slots=True)
class _States:
    """S open states: class [S], what is free [S, R], value [S], counts [S, G]."""

    at: Ints
    free: Ints
    value: Ints
    counts: Ints


@dataclass(frozen=True, slots=True)
class _Search:
    """Everything a level needs. `order` [C, G]: the shapes of each class, the densest first.

    `scale`: the bounds are computed in units of 1/scale. `multipliers` [C, K, R] are the u of each class times scale,
    `slack` [C, G+1, K] the sums over open shapes of cap · max(0, w - u · request) after each level, times scale.
    """

    problem: Problem
    weights: Ints
    caps: Ints
    order: Ints
    scale: int
    multipliers: Ints
    slack: Ints

    @staticmethod
    def prepare(problem: Problem, weights: Ints, caps: Ints) -> _Search:
        """Chooses multipliers and the order of the shapes for each class."""
        scale = _scale(weights, caps)
        multipliers = _multipliers(problem, weights, caps, scale)
        used = multipliers @ problem.requests.T  # [C, K, G]
        density = weights / np.maximum(used[:, 0, :], 1)
        order = np.argsort(-density, axis=1, kind="stable")
        excess = caps[:, None, :] * np.maximum(scale * weights[:, None, :] - used, 0)
        ordered = np.take_along_axis(excess, order[:, None, :], axis=2)
        slack = np.zeros((len(weights), problem.shapes + 1, multipliers.shape[1]), dtype=np.int64)
        slack[:, :-1, :] = np.cumsum(ordered[:, :, ::-1], axis=2)[:, :, ::-1].transpose(0, 2, 1)
        return _Search(problem, weights, caps, order, scale, multipliers, slack)

    def fill_greedily(self, best: _Best) -> None:
        """Offers the pattern that takes as many as fit of the densest shape, then of the next, and so on."""
        every = np.arange(len(self.weights))
        for skip in range(min(2, self.problem.shapes)):
            free, value = self.problem.free.copy(), np.zeros(len(every), dtype=np.int64)
            counts = np.zeros_like(self.caps)
            for level in (*range(skip, self.problem.shapes), *range(skip)):
                shape = self.order[:, level]
                request = self.problem.requests[shape]
                most = np.minimum(self.caps[every, shape], _times(free, request))
                free -= most[:, None] * request
                value += most * self.weights[every, shape]
                counts[every, shape] = most
            best.offer(every, value, counts)

    def run(self, best: _Best, limit: int) -> int:
        """Goes through the levels; returns the number of states made."""
        alive = np.flatnonzero(self._root_bounds() > best.values)
        states = _States(
            alive,
            self.problem.free[alive],
            np.zeros(len(alive), dtype=np.int64),
            np.zeros((len(alive), self.problem.shapes), dtype=np.int64),
        )
        work = len(self.weights) + len(alive)
        for level in range(self.problem.shapes):
            states = self._next(states, level, best)
            work += len(states.at)
            if not len(states.at):
                return work
            if level + 1 < self.problem.shapes:
                states = self._limited(states, level + 1, best, limit)
        best.offer(states.at, states.value, states.counts)
        return work

    def _root_bounds(self) -> Ints:
        bounds = np.einsum("ckr,cr->ck", self.multipliers, self.problem.free) + self.slack[:, 0, :]
        smallest: Ints = bounds.min(axis=1) // self.scale
        return smallest

    def _next(self, states: _States, level: int, best: _Best) -> _States:
        """The states after one more shape: for each count that can still beat the best of its class."""
        at = states.at
        shape = self.order[at, level]
        request, weight = self.problem.requests[shape], self.weights[at, shape]
        most = np.minimum(self.caps[at, shape], _times(states.free, request))
        low, high = np.zeros_like(most), most
        if level + 1 == self.problem.shapes:
            low = most  # nothing comes after: as many as fit
        else:
            low, high = self._interval(states, level, request, weight, most, best)
        width = np.maximum(high - low + 1, 0)
        source = np.repeat(np.arange(len(at)), width)
        taken = low[source] + np.arange(len(source)) - np.repeat(np.cumsum(width) - width, width)
        counts = states.counts[source]
        counts[np.arange(len(source)), shape[source]] = taken
        free = states.free[source] - taken[:, None] * request[source]
        return _States(at[source], free, states.value[source] + taken * weight[source], counts)

    def _interval(
        self, states: _States, level: int, request: Ints, weight: Ints, most: Ints, best: _Best
    ) -> tuple[Ints, Ints]:
        """The counts k with value + k·w + u·(free - k·request) + slack > best, for all u: each u gives an end of it."""
        at = states.at
        multipliers = self.multipliers[at]
        needed = self.scale * (best.values[at] + 1 - states.value)
        have = np.einsum("skr,sr->sk", multipliers, states.free) + self.slack[at, level + 1] - needed[:, None]
        gain = self.scale * weight[:, None] - np.einsum("skr,sr->sk", multipliers, request)
        step = np.maximum(np.abs(gain), 1)
        # have + k·gain ≥ 0
        lows = np.where(gain > 0, -(have // step), np.where((gain == 0) & (have < 0), most[:, None] + 1, 0))
        highs = np.where(gain < 0, np.where(have < 0, -1, have // step), most[:, None])
        return np.maximum(lows.max(axis=1), 0), np.minimum(highs.min(axis=1), most)

    def _limited(self, states: _States, level: int, best: _Best, limit: int) -> _States:
        """Without the states beyond the limit of their class, those of the lowest bounds, which are noted."""
        sizes = np.bincount(states.at, minlength=len(self.weights))
        if sizes.max() <= limit:
            return states
        room = np.einsum("skr,sr->sk", self.multipliers[states.at], states.free) + self.slack[states.at, level]
        bounds = states.value + room.min(axis=1) // self.scale
        order = np.lexsort((np.arange(len(bounds)), -bounds, states.at))
        starts = np.cumsum(sizes) - sizes
        beyond = np.arange(len(order)) - starts[states.at[order]] >= limit
        dropped, kept = order[beyond], np.sort(order[~beyond])
        np.maximum.at(best.dropped, states.at[dropped], bounds[dropped])
        return _States(states.at[kept], states.free[kept], states.value[kept], states.counts[kept])


def _times(free: Ints, requests: Ints) -> Ints:
    """int64[S]: how often each request fits. Every shape requests something: a pod takes a slot."""
    times = np.where(requests > 0, free // np.maximum(requests, 1), np.iinfo(np.int64).max)
    fits: Ints = times.min(axis=1)
    return fits


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
