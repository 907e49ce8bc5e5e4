"""Unsupported: a pod with a hard rule that no plugin knows yet waits and says so, instead of being placed against it.

Soft rules without a plugin (preferred pod affinity, ScheduleAnyway spread) are ignored: they cannot be violated.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.model import Status
from muster.engine.profile import limited_to
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


class Unsupported(Struct, frozen=True):
    """Rejects shapes with `unsupported` rules, naming them."""

    name: str = "Unsupported"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """None at all for such a shape."""
        return limited_to(np.full(len(snapshot), not shape.unsupported, dtype=np.bool_))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_status(self.name, shape)] * len(rows)

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """The rules that are not known."""
        return _status(self.name, shape) if shape.unsupported else None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None


def _status(plugin: str, shape: Shape) -> Status:
    rules = " and ".join(shape.unsupported)
    return Status(plugin, (f"the pod uses {rules}, not supported yet",), resolvable=False)
