"""TaintToleration: untolerated taints keep a pod away, or make a node less wanted."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.profile import Normalisation, of_table, remembered
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.tolerations import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, Toleration, untolerated

_STATUS = Status("TaintToleration", ("node(s) had untolerated taint(s)",), resolvable=False)


class TaintToleration(Struct, frozen=True):
    """Upstream `tainttoleration/taint_toleration.go`. Works once a distinct set of taints, not once a node."""

    name: str = "TaintToleration"
    static: bool = True
    normalisation: Normalisation = Normalisation.REVERSE

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where all NoSchedule and NoExecute taints are tolerated."""
        key = self, "count", shape.tolerations
        return of_table(snapshot, key, lambda table: tolerated(table, shape.tolerations))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The number of PreferNoSchedule taints that are not tolerated."""
        table = snapshot.table

        def compute() -> Ints:
            soft = [[taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE] for taints in table.taint_sets]
            counts = np.array([len(untolerated(taints, shape.tolerations)) for taints in soft], dtype=np.int64)
            return counts[table.taint_ids]

        return remembered(table, (self, "score", shape.tolerations), compute)[rows]


def tolerated(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Bools:
    """bool[N]: nodes whose NoSchedule and NoExecute taints are all tolerated."""

    def compute() -> Bools:
        hard = [[taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)] for taints in table.taint_sets]
        fits = np.array([not untolerated(taints, tolerations) for taints in hard], dtype=np.bool_)
        return fits[table.taint_ids]

    return remembered(table, (tolerated, tolerations), compute)
