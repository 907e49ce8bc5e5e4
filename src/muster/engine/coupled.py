"""Placing pods of one shape one after the other where each changes what the rules say to the next, on other nodes too.

The numbers of all nodes are kept in arrays: a step rescores the node that received a pod, asks the coupled rules, which
keep counts by domain, and takes the best node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Bools, Ints
from muster.engine.profile import (
    Coupling,
    Feasible,
    Normalisation,
    Profile,
    RowScorer,
    ScorePlugin,
    check_scores,
    is_coupled,
    row_scorer,
)
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_INFEASIBLE = -(2**62)


def fill_coupled(
    profile: Profile, snapshot: Snapshot, shape: Shape, number: int, couplings: Sequence[tuple[Coupling, int]]
) -> Ints:
    """int64[N]: how many of `number` pods of the shape each node receives; stops at the first that fits nowhere."""
    received = np.zeros(len(snapshot), dtype=np.int64)
    room = np.minimum(profile.ceiling(shape, snapshot), number)
    reserved = _reserved(profile, snapshot, shape)
    if reserved is not None:
        room[~reserved] = 0
    if not room.any():
        return received
    scores = _Scores(profile, snapshot, shape, room > 0)
    feasible: Feasible | None = None
    for _ in range(number):
        feasible = _feasible(room > 0, couplings, feasible)
        if not len(feasible.rows):
            break
        row = scores.best(feasible, couplings)
        received[row] += 1
        room[row] -= 1
        scores.place(row)
        for coupling, _ in couplings:
            coupling.place(row)
    return received


def _feasible(open_: Bools, couplings: Sequence[tuple[Coupling, int]], before: Feasible | None) -> Feasible:
    """The nodes that all rules let the next pod use."""
    for coupling, _ in couplings:
        mask = coupling.allowed()
        if mask is not None:
            open_ &= mask
    if before is not None and np.array_equal(open_, before.mask):
        return before if not before.changed else replace(before, changed=False)
    return Feasible(open_, np.flatnonzero(open_))


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
        self._local: list[tuple[RowScorer, int]] = []
        self._scaled: list[tuple[Normalisation, int, Ints]] = []
        self._constant = np.zeros(len(snapshot), dtype=np.int64)
        first = np.ones(len(self._rows), dtype=np.int64)
        for weighted in profile.scores:
            plugin = weighted.plugin
            if is_coupled(plugin):
                continue
            if not plugin.static:
                self._local.append((row_scorer(plugin, shape, snapshot), weighted.weight))
            else:
                self._add_static(plugin, weighted.weight, plugin.score(shape, snapshot, self._rows, first))
        self._columns: list[Ints] = []
        self._total = self._column(1).copy()
        self._extra = np.zeros(len(snapshot), dtype=np.int64)  # normalised scores, and what keeps the infeasible out
        self._base = self._total

    def best(self, feasible: Feasible, couplings: Sequence[tuple[Coupling, int]]) -> int:
        """The row of the best feasible node, the first at a tie; there must be one."""
        if feasible.changed:
            check_scores(self._profile, self._shape, len(feasible.rows))
            self._normalise(feasible)
        total = self._base
        for coupling, weight in couplings:
            scaled = coupling.scores(feasible) if weight else None
            if scaled is not None:
                total = total + weight * scaled.scores
        return int(total.argmax())

    def place(self, row: int) -> None:
        """Counts a pod on the node."""
        self._received[row] = self._received.get(row, 0) + 1
        self._total[row] = self._column(self._received[row] + 1)[row]
        self._base[row] = self._total[row] + self._extra[row]

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

    def _normalise(self, feasible: Feasible) -> None:
        self._extra = np.full(len(self._snapshot), _INFEASIBLE, dtype=np.int64)
        self._extra[feasible.rows] = 0
        for normalisation, weight, raw in self._scaled:
            values = raw[feasible.rows]
            self._extra[feasible.rows] += weight * normalisation.scale(values, int(values.max()))
        self._base = self._total + self._extra

    def _column(self, k: int) -> Ints:
        """int64[N]: the local scores of every candidate when it would receive its k-th pod; made when first needed."""
        while len(self._columns) < k:
            column = self._constant.copy()
            number = np.full(len(self._rows), len(self._columns) + 1, dtype=np.int64)
            for score, weight in self._local:
                column[self._rows] += weight * score(self._rows, number)
            self._columns.append(column)
        return self._columns[k - 1]
