"""NodeName: a pod that names its node goes there or nowhere."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.profile import limited_to, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_STATUS = Status("NodeName", ("node(s) didn't match the requested node name",), resolvable=False)


class NodeName(Struct, frozen=True):
    """Upstream `nodename/node_name.go`."""

    name: str = "NodeName"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number on the named node, or everywhere if none is named."""
        if not shape.node_name:
            return unlimited(snapshot)
        mask = np.zeros(len(snapshot), dtype=np.bool_)
        row = snapshot.table.index.get(shape.node_name)
        if row is not None:
            mask[row] = True
        return limited_to(mask)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)
