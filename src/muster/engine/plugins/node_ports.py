"""NodePorts: a host port can be held once on a node."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.profile import unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_STATUS = Status("NodePorts", ("node(s) didn't have free ports for the requested pod ports",))


class NodePorts(Struct, frozen=True):
    """Upstream `nodeports/node_ports.go`."""

    name: str = "NodePorts"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """One where all wanted ports are free: a second pod of the shape would want the same ports."""
        wanted = shape.usage.ports
        if not wanted:
            return unlimited(snapshot)
        return np.where(snapshot.ports.conflicts(wanted), np.int32(0), np.int32(1))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)
