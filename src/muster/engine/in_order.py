"""Placing pods of several shapes one by one, in strict order.

The scores of each shape are kept, and only nodes that changed since it was last asked are scored again: there is a log
of touched nodes, and every shape knows how much of it it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from muster.engine.arrays import Bools, Ints
from muster.engine.evaluate import best_rows
from muster.engine.identical import fill
from muster.engine.model import ScoreError
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.profile import Normalisation, Profile, RowScorer, is_coupled, row_scorer, score_error
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial, add_usage

_INFEASIBLE = -(2**62)
_NEVER = _INFEASIBLE - 1
_FIRST = np.ones(1, dtype=np.int64)


def place_in_order(profile: Profile, snapshot: Snapshot, shapes: Sequence[Shape]) -> list[int]:
    """The row of the node that each pod gets, -1 where it fits on none; pods that come later do not wait for it.

    The result is that of deciding about one pod after the other. Raises ScoreError if a shape cannot be scored.
    """
    distinct = list(dict.fromkeys(shapes))
    with snapshot.trial() as trial:
        if all(_depends_on_resources_alone(profile, trial, shape) for shape in distinct):
            return _by_log(profile, trial, shapes)
        return _one_by_one(profile, trial, shapes)


def _depends_on_resources_alone(profile: Profile, snapshot: Snapshot, shape: Shape) -> bool:
    """Whether pods that are placed change nothing for the shape but what is left of resources on their nodes."""
    usage = shape.usage
    own_rules = usage.ports or usage.volumes or usage.devices or (usage.identity is not None and usage.identity.terms)
    return not own_rules and not snapshot.reserved and not profile.couplings(shape, snapshot)


class InOrder:
    """Pods that are placed one after the other in a trial, by a caller who chooses among the best nodes each time."""

    def __init__(self, profile: Profile, trial: Trial, shapes: Sequence[Shape]) -> None:
        self._profile, self._trial = profile, trial
        distinct = dict.fromkeys(shapes)
        self._by_log = all(_depends_on_resources_alone(profile, trial, shape) for shape in distinct)
        self._lines: dict[Shape, _Line] = {}
        self._log: list[int] = []

    def best(self, shape: Shape) -> Ints:
        """The rows of the nodes with the best score for the next pod of the shape; none if it fits nowhere."""
        if not self._by_log:
            return best_rows(self._profile, self._trial, shape)
        return self._line(shape).ties()

    def put(self, shape: Shape, row: int) -> None:
        """Places a pod of the shape on a node."""
        if not self._by_log:
            self._trial.place(shape.usage, row)
            return
        _add(self._trial, shape, row)
        self._log.append(row)

    def _line(self, shape: Shape) -> _Line:
        line = self._lines.get(shape)
        if line is None:
            line = self._lines[shape] = _Line(self._profile, self._trial, shape)
        else:
            line.catch_up(self._log)
        line.seen = len(self._log)
        return line


def _one_by_one(profile: Profile, trial: Trial, shapes: Sequence[Shape]) -> list[int]:
    placed = []
    for shape in shapes:
        received = np.flatnonzero(fill(profile, trial, shape, 1))
        placed.append(int(received[0]) if len(received) else -1)
        if len(received):
            trial.place(shape.usage, placed[-1])
    return placed


def _by_log(profile: Profile, trial: Trial, shapes: Sequence[Shape]) -> list[int]:
    lines: dict[Shape, _Line] = {}
    log: list[int] = []
    placed = []
    for shape in shapes:
        line = lines.get(shape)
        if line is None:
            line = lines[shape] = _Line(profile, trial, shape)
        else:
            line.catch_up(log)
        row = line.best()
        placed.append(row)
        line.seen = len(log)
        if row >= 0:
            _add(trial, shape, row)
            log.append(row)
    return placed


def _add(trial: Trial, shape: Shape, row: int) -> None:
    """Places a pod of a shape that nothing but resources is known of."""
    add_usage(trial.axis, trial.requested, trial.scored, trial.ports, row, shape.usage, 1)
    trial.counts.clear()
    trial.notes.clear()


class _Line:
    """What is known of one shape: `total` int64[N], what each node is worth to its next pod; `seen`: how much of the
    log is in it."""

    def __init__(self, profile: Profile, trial: Trial, shape: Shape) -> None:
        self._trial, self._error = trial, score_error(profile, shape)
        self._fits = _checker(profile, trial, shape)
        self._dynamic: list[tuple[RowScorer, int]] = []
        self._static: list[tuple[Normalisation, int, Ints]] = []
        everywhere = np.arange(len(trial))
        for weighted in profile.scores:
            if is_coupled(weighted.plugin):
                continue
            if weighted.plugin.static:
                raw = weighted.plugin.score(shape, trial, everywhere, np.ones_like(everywhere))
                self._static.append((weighted.plugin.normalisation, weighted.weight, raw))
            else:
                self._dynamic.append((row_scorer(weighted.plugin, shape, trial), weighted.weight))
        self.seen = 0
        self._rebuild()

    def best(self) -> int:
        """The row of the best node, the first at a tie; -1 if the shape fits nowhere."""
        return int(self.total.argmax()) if self._is_open() else -1

    def ties(self) -> Ints:
        """The rows of all nodes with the best score; none if the shape fits nowhere."""
        best: Ints = np.flatnonzero(self.total == (self.total.max() if self._is_open() else _NEVER))
        return best

    def _is_open(self) -> bool:
        """Whether there is a node at all."""
        if self._error and self._feasible > 1:
            raise ScoreError(self._error)
        return self._feasible > 0

    def catch_up(self, log: Sequence[int]) -> None:
        """Scores the nodes that received pods since the line was last asked."""
        touched = set(log[self.seen :])
        if not touched:
            return
        rows = np.fromiter(touched, dtype=np.int64, count=len(touched))
        fits = self._fits(rows)
        if fits.all():
            self.total[rows] = self._base.take(rows) + self._local(rows)
            return
        lost = rows[~fits & (self.total[rows] != _INFEASIBLE)]
        if len(lost):
            self._feasible -= len(lost)
            self.total[lost] = _INFEASIBLE
            if any((raw[lost] == highest).any() for raw, highest in self._scales):
                self._rebuild()
                return
        rows = rows[fits]
        if len(rows):
            self.total[rows] = self._base[rows] + self._local(rows)

    def _rebuild(self) -> None:
        """All nodes, with the scale that the feasible ones give to normalised scores."""
        rows = np.flatnonzero(self._fits(np.arange(len(self._trial))))
        self._feasible = len(rows)
        self._base = np.zeros(len(self._trial), dtype=np.int64)
        self._scales: list[tuple[Ints, int]] = []
        for normalisation, weight, raw in self._static:
            highest = int(raw[rows].max(initial=0))
            self._base += weight * normalisation.scale(raw, highest)
            if normalisation is not Normalisation.NONE and highest > 0:
                self._scales.append((raw, highest))
        self.total = np.full(len(self._trial), _INFEASIBLE, dtype=np.int64)
        self.total[rows] = self._base[rows] + self._local(rows)

    def _local(self, rows: Ints) -> Ints:
        total = np.zeros(len(rows), dtype=np.int64)
        for score, weight in self._dynamic:
            total += score(rows, _FIRST) if weight == 1 else weight * score(rows, _FIRST)
        return total


def _checker(profile: Profile, trial: Trial, shape: Shape) -> Callable[[Ints], Bools]:
    """bool[M] of rows: whether the shape fits on them now; all rules but NodeResourcesFit are asked once for all."""
    allowed = np.ones(len(trial), dtype=np.bool_)
    fit: NodeResourcesFit | None = None
    for plugin in profile.filters:
        if isinstance(plugin, NodeResourcesFit):
            fit = plugin
        else:
            allowed &= plugin.count(shape, trial) > 0
    return allowed.take if fit is None else fit.checker(shape, trial, allowed)
