"""Placing pods of one shape one after the other where each changes what the rules say to the next, on other nodes too.

The numbers of all nodes are kept in arrays: a step rescores the node that received a pod, asks the coupled rules, which
keep counts by domain, and takes the best node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.arrays import Bools, Ints
from muster.engine.profile import Coupling, Normalisation, Profile, ScorePlugin, check_scores, is_coupled
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


def fill_coupled(
    profile: Profile, snapshot: Snapshot, shape: Shape, number: int, couplings: Sequence[tuple[Coupling, int]]
) -> Ints:
    """int64[N]: how many of `number` pods of the shape each node receives; stops at the first that fits nowhere."""
    received = np.zeros(len(snapshot), dtype=np.int64)
    room = np.minimum(profile.ceiling(shape, snapshot), number)
    reserved = _reserved(profile, snapshot, shape)
    scores = _Scores(profile, snapshot, shape, room > 0)
    feasible = np.zeros(0, dtype=np.bool_)
    for _ in range(number):
        allowed = room > received
        for coupling, _ in couplings:
            mask = coupling.allowed()
            if mask is not None:
                allowed &= mask
        if reserved is not None:
            allowed &= reserved
        changed = not np.array_equal(allowed, feasible)
        feasible = allowed
        row = scores.best(feasible, changed, couplings)
        if row < 0:
            break
        received[row] += 1
        scores.place(row)
        for coupling, _ in couplings:
            coupling.place(row)
    return received


def _reserved(profile: Profile, snapshot: Snapshot, shape: Shape) -> Bools | None:
    """bool[N]: nodes where pods of the shape fit beside those nominated to it; None if no room is reserved."""
    if not snapshot.reserved:
        return None
    mask = np.ones(len(snapshot), dtype=np.bool_)
    counts = profile.count(shape, snapshot)
    for node in snapshot.reserved:
        row = snapshot.table.index[node]
        mask[row] = counts[row] > 0
    return mask


class _Scores:
    """The scores of all nodes for the next pod, but for those of coupled rules."""

    def __init__(self, profile: Profile, snapshot: Snapshot, shape: Shape, candidates: Bools) -> None:
        self._profile = profile
        self._snapshot = snapshot
        self._shape = shape
        self._rows = np.flatnonzero(candidates)
        self._received: dict[int, int] = {}
        self._local: list[tuple[ScorePlugin, int]] = []
        self._scaled: list[tuple[Normalisation, int, Ints]] = []
        self._constant = np.zeros(len(snapshot), dtype=np.int64)
        first = np.ones(len(self._rows), dtype=np.int64)
        for weighted in profile.scores:
            plugin = weighted.plugin
            if is_coupled(plugin):
                continue
            if not plugin.static:
                self._local.append((plugin, weighted.weight))
            else:
                self._add_static(plugin, weighted.weight, plugin.score(shape, snapshot, self._rows, first))
        self._columns: list[Ints] = []
        self._total = self._column(1).copy()
        self._normalised = np.zeros(len(snapshot), dtype=np.int64)

    def best(self, feasible: Bools, changed: bool, couplings: Sequence[tuple[Coupling, int]]) -> int:
        """The row of the best feasible node, the first at a tie; -1 if there is none."""
        if changed:
            rows = np.flatnonzero(feasible)
            if not len(rows):
                return -1
            check_scores(self._profile, self._shape, len(rows))
            self._normalise(rows)
        total = self._total + self._normalised
        for coupling, weight in couplings:
            scaled = coupling.scores(feasible, changed) if weight else None
            if scaled is not None:
                total += weight * scaled.scores
        total[~feasible] = -1
        return int(total.argmax())

    def place(self, row: int) -> None:
        """Counts a pod on the node."""
        self._received[row] = self._received.get(row, 0) + 1
        self._total[row] = self._column(self._received[row] + 1)[row]

    def _add_static(self, plugin: ScorePlugin, weight: int, raw: Ints) -> None:
        """Scores that only depend on the node: added once for all if no normalisation can change them."""
        whole = np.zeros(len(self._snapshot), dtype=np.int64)
        whole[self._rows] = raw
        if plugin.normalisation is Normalisation.NONE:
            self._constant += weight * whole
        elif len(raw) and (raw == raw[0]).all():
            scaled = plugin.normalisation.scale(raw, int(raw[0]))
            self._constant[self._rows] += weight * scaled
        elif len(raw):
            self._scaled.append((plugin.normalisation, weight, whole))

    def _normalise(self, rows: Ints) -> None:
        if not self._scaled:
            return
        self._normalised = np.zeros(len(self._snapshot), dtype=np.int64)
        for normalisation, weight, raw in self._scaled:
            self._normalised[rows] += weight * normalisation.scale(raw[rows], int(raw[rows].max()))

    def _column(self, k: int) -> Ints:
        """int64[N]: the local scores of every candidate when it would receive its k-th pod; made when first needed."""
        while len(self._columns) < k:
            column = self._constant.copy()
            number = np.full(len(self._rows), len(self._columns) + 1, dtype=np.int64)
            for plugin, weight in self._local:
                column[self._rows] += weight * plugin.score(self._shape, self._snapshot, self._rows, number)
            self._columns.append(column)
        return self._columns[k - 1]
