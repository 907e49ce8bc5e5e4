"""NodeDeclaredFeatures: a pod that needs a feature of the kubelet goes to nodes that declare it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.profile import of_table, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_STATUS = Status("NodeDeclaredFeatures", ("node(s) didn't match Pod's required features",), resolvable=False)


class NodeDeclaredFeatures(Struct, frozen=True):
    """Upstream `nodedeclaredfeatures/nodedeclaredfeatures.go`."""

    name: str = "NodeDeclaredFeatures"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number on nodes that declare all that the pod needs."""
        wanted = frozenset(shape.features)
        if not wanted:
            return unlimited(snapshot)
        return of_table(
            snapshot,
            (self, "count", wanted),
            lambda table: np.array([wanted <= record.features for record in table.records], dtype=np.bool_),
        )

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)
