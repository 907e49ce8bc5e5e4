"""LateBinding: a pod whose claims are to be bound for its node waits and says so: nobody here binds them yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.claims import Claims, claims_of
from muster.engine.model import Status
from muster.engine.profile import limited_to
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_STATUS = Status(
    "LateBinding",
    ("the pod's persistent volume claims wait for its node (WaitForFirstConsumer), not supported yet",),
    resolvable=False,
)


@dataclass(frozen=True, slots=True)
class LateBinding:
    """A rule of ours: without it pods would be bound whose volumes never come."""

    name: str = "LateBinding"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """None while a claim waits for a node."""
        return limited_to(np.full(len(snapshot), self.verdict(shape, snapshot) is None, dtype=np.bool_))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all nodes."""
        return [_STATUS] * len(rows)

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """That some claim waits, if so."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        return _STATUS if isinstance(claims, Claims) and claims.waiting else None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None
