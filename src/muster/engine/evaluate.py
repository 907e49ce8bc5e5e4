"""evaluate: everything that the rules say about one pod and every node: why not, and every score. For explanations,
checks and comparisons; `decide` works out only what it needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.diagnose import node_statuses, shape_verdict
from muster.engine.model import Status
from muster.engine.profile import (
    Profile,
    Weighted,
    can_skip,
    check_scores,
    feasible_rows,
    is_coupled,
    score_error,
)
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


class Evaluation(Struct, frozen=True):
    """`verdict`: why the pod fits nowhere whatever the nodes are. `statuses`: why it does not fit on a node, by name.

    `scores`: feasible node → plugin → its weighted score; a plugin that leaves the pod out is absent. `error`: why the
    pod cannot be scored, which matters only if several nodes are feasible.
    """

    verdict: Status | None
    statuses: Mapping[str, Status]
    scores: Mapping[str, Mapping[str, int]]
    error: str = ""

    @property
    def best(self) -> list[str]:
        """The feasible nodes with the highest total, in NodeTable order."""
        totals = {node: sum(parts.values()) for node, parts in self.scores.items()}
        most = max(totals.values(), default=0)
        return [node for node, total in totals.items() if total == most]


def evaluate(profile: Profile, snapshot: Snapshot, shape: Shape, *, nominated: str = "") -> Evaluation:
    """What the profile says. `nominated`: the node that is tried first, and alone scored if it is feasible."""
    verdict = shape_verdict(profile, snapshot, shape)
    statuses = node_statuses(profile, snapshot, shape)
    rows = np.array([row for row, name in enumerate(snapshot.table.names) if name not in statuses], dtype=np.int64)
    if nominated and (row := snapshot.table.index.get(nominated)) is not None and row in rows:
        rows = np.array([row], dtype=np.int64)
    error = score_error(profile, shape)
    scores: dict[str, dict[str, int]] = {snapshot.table.records[row].name: {} for row in rows.tolist()}
    for weighted in profile.scores if len(rows) else ():
        values = _scores(weighted, snapshot, shape, rows)
        if values is not None:
            for parts, value in zip(scores.values(), values.tolist(), strict=True):
                parts[weighted.plugin.name] = weighted.weight * value
    return Evaluation(verdict, statuses, scores, error)


def best_rows(profile: Profile, snapshot: Snapshot, shape: Shape) -> Ints:
    """The rows of the feasible nodes with the highest total, ascending; none if the pod fits nowhere.

    Raises ScoreError if there is a choice and the pod cannot be scored.
    """
    rows = np.flatnonzero(profile.count(shape, snapshot) > 0)
    if len(rows) < 2:
        return rows
    check_scores(profile, shape, len(rows))
    total = np.zeros(len(rows), dtype=np.int64)
    for weighted in profile.scores:
        values = _scores(weighted, snapshot, shape, rows)
        if values is not None:
            total += weighted.weight * values
    best: Ints = rows[total == total.max()]
    return best


def _scores(weighted: Weighted, snapshot: Snapshot, shape: Shape, rows: Ints) -> Ints | None:
    """int64[M] without the weight; None if the plugin leaves the shape out."""
    plugin = weighted.plugin
    if is_coupled(plugin):
        coupling = plugin.coupling(shape, snapshot)
        scaled = None if coupling is None else coupling.scores(feasible_rows(rows, len(snapshot)))
        return None if scaled is None else scaled.scores[rows]
    if can_skip(plugin) and plugin.skips(shape):
        return None
    raw = plugin.score(shape, snapshot, rows, np.ones(len(rows), dtype=np.int64))
    return plugin.normalisation.scale(raw, int(raw.max(initial=0)))
