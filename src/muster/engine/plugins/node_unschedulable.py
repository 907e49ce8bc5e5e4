"""NodeUnschedulable: cordoned nodes take only pods that tolerate it."""

from __future__ import annotations

from msgspec import Struct

from muster.engine.arrays import Ints, Ints32
from muster.engine.model import Status
from muster.engine.profile import of_table, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.tolerations import NO_SCHEDULE, Taint

CORDON = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)
_STATUS = Status("NodeUnschedulable", ("node(s) were unschedulable",), resolvable=False)


class NodeUnschedulable(Struct, frozen=True):
    """Upstream `nodeunschedulable/node_unschedulable.go`."""

    name: str = "NodeUnschedulable"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number unless the node is cordoned and the pod does not tolerate that."""
        if any(each.tolerates(CORDON) for each in shape.tolerations):
            return unlimited(snapshot)
        return of_table(snapshot, (self, "count"), lambda table: ~table.unschedulable)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)
