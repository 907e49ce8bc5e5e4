"""Scorer: the weighted sum of a profile's scores for one shape, as the closed rule of identical pods needs it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.profile import (
    CoupledPlugin,
    Normalisation,
    Profile,
    RowScorer,
    feasible_rows,
    is_coupled,
    row_scorer,
)
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


class Peak(Struct, frozen=True):
    """The nodes that hold an extreme raw score of a normalised plugin: when all are full, the scale changes."""

    rows: Ints


class Scorer:
    """Scores of one shape over the feasible nodes `rows` of a snapshot, valid while these stay feasible."""

    def __init__(self, profile: Profile, shape: Shape, snapshot: Snapshot, rows: Ints) -> None:
        self._shape = shape
        self._snapshot = snapshot
        self._dynamic: list[tuple[RowScorer, int]] = []
        self._static = np.zeros(len(snapshot), dtype=np.int64)
        self._constant = 0
        self.peaks: list[Peak] = []
        first = np.ones(len(rows), dtype=np.int64)
        for weighted in profile.scores:
            plugin = weighted.plugin
            if is_coupled(plugin):
                self._add_static(weighted.weight * self._coupled(plugin, rows), rows)
            elif plugin.static:
                raw = plugin.score(shape, snapshot, rows, first)
                self._add_static(weighted.weight * self._normalised(plugin.normalisation, raw, rows), rows)
            else:
                self._dynamic.append((row_scorer(plugin, shape, snapshot), weighted.weight))

    def score(self, rows: Ints, k: Ints) -> Ints:
        """int64[M]: the total of node rows[j] when it would receive its k[j]-th pod."""
        total: Ints = self._static.take(rows)
        total += self._constant
        for score, weight in self._dynamic:
            total += score(rows, k) if weight == 1 else weight * score(rows, k)
        return total

    def _add_static(self, scores: Ints, rows: Ints) -> None:
        if len(scores) and (scores == scores[0]).all():
            self._constant += int(scores[0])
        else:
            self._static[rows] += scores

    def _coupled(self, plugin: CoupledPlugin, rows: Ints) -> Ints:
        """The scores of a rule that couples nodes but that the pods of this shape leave as it is."""
        coupling = plugin.coupling(self._shape, self._snapshot)
        scaled = None if coupling is None else coupling.scores(feasible_rows(rows, len(self._snapshot)))
        if scaled is None:
            return np.zeros(len(rows), dtype=np.int64)
        raw = scaled.raw[rows]
        for extreme in (int(raw.min()), int(raw.max())):
            if (raw != extreme).any():
                self.peaks.append(Peak(rows[raw == extreme]))
        return scaled.scores[rows]

    def _normalised(self, normalisation: Normalisation, raw: Ints, rows: Ints) -> Ints:
        if normalisation is Normalisation.NONE or not len(raw):
            return raw
        highest = int(raw.max())
        if highest > 0 and (raw != highest).any():
            self.peaks.append(Peak(rows[raw == highest]))
        return normalisation.scale(raw, highest)
