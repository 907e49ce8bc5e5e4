"""Placing identical pods as a loop over them would, without the loop: the exact closed rule.

Let s_i(k) be the score of node i when it would receive its k-th pod and m_i(k) the running minimum of s_i(1..k). The
sequential greedy (each pod to the best node, the first at a tie) picks the first n pairs (i, k) sorted by m_i(k)
descending, i ascending, k ascending: once picked at a level, a node stays the best while its score does not fall below.
It holds for any scores that depend on the node's own pods only. Normalised scores
depend on which nodes are feasible as well; they stay as they are until all nodes with the highest raw score are full,
where the pass is cut and begun anew with the new scale.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.coupled import fill_coupled
from muster.engine.plugins.dynamic_resources import has_choices
from muster.engine.profile import Profile, check_scores
from muster.engine.scoring import Scorer
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial

_BLOCK = 16_384
"""About how many (node, k) pairs are scored in one go: their temporaries stay in the cache."""
_FEW = 1_024
"""So many pairs are sorted in less time than it takes to find out which matter."""


class Pairs(Struct, frozen=True):
    """Chosen (node, k) pairs in no particular order: node rows, k, and the level m_i(k) at which each was taken."""

    rows: Ints
    k: Ints
    levels: Ints


def fill(profile: Profile, snapshot: Snapshot, shape: Shape, number: int) -> Ints:
    """int64[N]: how many of `number` pods of the shape each node receives; as many are placed as fit."""
    couplings = profile.couplings(shape, snapshot)
    if number > 1 and has_choices(shape, snapshot):
        return _one_after_another(profile, snapshot, shape, number)
    if not all(coupling.steady for coupling, _ in couplings):
        return fill_coupled(profile, snapshot, shape, number, couplings)
    received, done = _one_scale(profile, snapshot, shape, number)
    if done:
        return received
    with snapshot.trial() as trial:
        put(trial, shape, received)
        while not done:
            added, done = _one_scale(profile, trial, shape, number - int(received.sum()))
            put(trial, shape, added)
            received += added
    return received


def _one_after_another(profile: Profile, snapshot: Snapshot, shape: Shape, number: int) -> Ints:
    """As `fill`, with all scores worked out anew for each pod: what one takes is no choice of others any more."""
    received = np.zeros(len(snapshot), dtype=np.int64)
    with snapshot.trial() as trial:
        for _ in range(number):
            added = fill(profile, trial, shape, 1)
            if not added.any():
                break
            put(trial, shape, added)
            received += added
    return received


def put(trial: Trial, shape: Shape, received: Ints) -> None:
    """Places received[i] pods of the shape on each node."""
    rows = np.flatnonzero(received)
    trial.place_many(shape.usage, rows, received[rows])


def _one_scale(profile: Profile, snapshot: Snapshot, shape: Shape, number: int) -> tuple[Ints, bool]:
    """What each node receives while the normalised scores keep their scale, and whether that is all."""
    counts = np.minimum(profile.count(shape, snapshot), number)
    rows = np.flatnonzero(counts)
    caps = counts[rows]
    placing = min(number, int(caps.sum()))
    if placing == 0:
        return np.zeros(len(snapshot), dtype=np.int64), True
    check_scores(profile, shape, len(rows))
    scorer = Scorer(profile, shape, snapshot, rows)
    pairs = best_pairs(scorer.score, rows, caps, placing)
    chosen = _until_scale_changes(scorer, pairs, counts)
    return np.bincount(chosen, minlength=len(snapshot)).astype(np.int64), len(chosen) == placing


def best_pairs(score: Callable[[Ints, Ints], Ints], rows: Ints, caps: Ints, number: int) -> Pairs:
    """The first `number` pairs by (level descending, row ascending, k ascending); needs 1 ≤ number ≤ sum(caps).

    `rows` ascend and caps are positive; scores are ≥ 0. Columns k = 1, 2, … are swept over the nodes that can still
    contribute: a node drops out when its level falls below the one at which `number` pairs exist already. Where there
    are few pairs, all of them are scored at once.
    """
    most = min(int(caps.max()), number)
    if len(rows) * most <= _FEW:
        return _of_all_pairs(score, rows, caps, number, most)
    level = _in_blocks(score, rows)
    found = _Levels(int(level.max()) + 1, number)
    found.add(rows, np.ones(len(rows), dtype=np.int64), level)
    rows, caps, level = _contenders(rows, caps, level, found)
    if len(rows) * most <= _FEW:
        return _of_all_pairs(score, rows, caps, number, most)
    k, width = 1, 1
    while True:
        active = (caps > k) & (level >= found.threshold)
        if not active.any():
            return found.best()
        rows, caps, level = rows[active], caps[active], level[active]
        table, level = _running_minimum(score, rows, level, k, width)
        valid = (np.arange(k + 1, k + width + 1) <= caps[:, None]) & (table >= found.threshold)
        row_at, k_at = np.nonzero(valid)
        found.add(rows[row_at], k_at + (k + 1), table[valid])
        k += width
        width = max(1, min(2 * width, _BLOCK // len(rows)))


def _of_all_pairs(score: Callable[[Ints, Ints], Ints], rows: Ints, caps: Ints, number: int, most: int) -> Pairs:
    """`best_pairs` by sorting all pairs; `most`: the largest k."""
    columns = np.arange(1, most + 1, dtype=np.int64)
    scores = score(np.repeat(rows, most), np.tile(columns, len(rows))).reshape(len(rows), most)
    table = np.minimum.accumulate(scores, axis=1)
    row_at, k_at = np.nonzero(columns <= caps[:, None])  # by row, then by k
    levels = table[row_at, k_at]
    best = np.argsort(-levels, kind="stable")[:number]
    return Pairs(rows[row_at[best]], k_at[best] + 1, levels[best])


class _Levels:
    """The pairs found so far, and the highest level with at least `number` pairs at or above it (0 before)."""

    def __init__(self, levels: int, number: int) -> None:
        self._histogram = np.zeros(levels, dtype=np.int64)
        self.number = number
        self._parts: list[Pairs] = []
        self.threshold = 0

    def add(self, rows: Ints, k: Ints, levels: Ints) -> None:
        self._histogram += np.bincount(levels, minlength=len(self._histogram))
        at_or_above = np.cumsum(self._histogram[::-1])[::-1]
        enough = np.flatnonzero(at_or_above >= self.number)
        self.threshold = int(enough[-1]) if len(enough) else 0
        self._parts.append(Pairs(rows, k, levels))

    def above(self) -> int:
        """How many pairs lie above the threshold."""
        return int(self._histogram[self.threshold + 1 :].sum())

    def best(self) -> Pairs:
        rows = np.concatenate([part.rows for part in self._parts])
        k = np.concatenate([part.k for part in self._parts])
        levels = np.concatenate([part.levels for part in self._parts])
        tied = np.flatnonzero(levels == self.threshold)
        tied = tied[np.lexsort((k[tied], rows[tied]))][: self.number - self.above()]
        taken = np.concatenate([np.flatnonzero(levels > self.threshold), tied])
        return Pairs(rows[taken], k[taken], levels[taken])


def _contenders(rows: Ints, caps: Ints, level: Ints, found: _Levels) -> tuple[Ints, Ints, Ints]:
    """The nodes that can be chosen at all: at most `number` of them, the first in order at the threshold."""
    above = level > found.threshold
    tied = np.flatnonzero(level == found.threshold)
    above[tied[: found.number - found.above()]] = True
    return rows[above], caps[above], level[above]


def _running_minimum(
    score: Callable[[Ints, Ints], Ints], rows: Ints, level: Ints, k: int, width: int
) -> tuple[Ints, Ints]:
    """int64[M, width] of the levels m(k+1..k+width), and the last of them for each node."""
    columns = np.arange(k + 1, k + width + 1, dtype=np.int64)
    scores = score(np.repeat(rows, width), np.tile(columns, len(rows))).reshape(len(rows), width)
    scores[:, 0] = np.minimum(scores[:, 0], level)
    table = np.minimum.accumulate(scores, axis=1)
    return table, table[:, -1]


def _in_blocks(score: Callable[[Ints, Ints], Ints], rows: Ints) -> Ints:
    parts = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    return np.concatenate([score(part, np.ones(len(part), dtype=np.int64)) for part in parts])


def _until_scale_changes(scorer: Scorer, pairs: Pairs, counts: Ints) -> Ints:
    """The rows of the pairs up to the one that fills the last node of a peak (all, if no scale changes before the end).

    `counts` int64[N]: what each node can take.
    """
    cut = len(pairs.rows)
    taken = np.bincount(pairs.rows, minlength=len(counts)) if scorer.peaks else None
    order = None
    for peak in scorer.peaks:
        if taken is None or (taken[peak.rows] < counts[peak.rows]).any():
            continue
        if order is None:
            order = np.lexsort((pairs.k, pairs.rows, -pairs.levels))
        in_peak = np.isin(pairs.rows[order], peak.rows)
        cut = min(cut, int(np.flatnonzero(in_peak)[-1]) + 1)
    if order is None or cut == len(pairs.rows):
        return pairs.rows
    chosen: Ints = pairs.rows[order][:cut]
    return chosen
