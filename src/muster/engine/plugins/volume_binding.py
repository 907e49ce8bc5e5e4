"""VolumeBinding: the volumes of a pod's claims must be reachable from its node, or be found or made there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.between import Between
from muster.engine.model import Status
from muster.engine.profile import UNLIMITED, Feasible, Scaled, limited_to, noted, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.storage.choosing import claims_that_choose
from muster.engine.storage.claims import Claims, claims_of
from muster.engine.storage.finding import TEXTS, Found, find_volumes
from muster.engine.storage.reserving import Reservations, reservation_at


class VolumeBinding(Struct, frozen=True):
    """Upstream `volumebinding/{volume_binding,binder}.go`. Pods with one claim in common follow each other."""

    name: str = "VolumeBinding"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where all claims have or can get their volumes."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        if claims is None:
            return unlimited(snapshot)
        if isinstance(claims, str) or claims.immediate:
            return np.zeros(len(snapshot), dtype=np.int32)
        return limited_to(self._found(shape, snapshot, claims).satisfied)

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """All that is missing."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        assert isinstance(claims, Claims)
        failed = self._found(shape, snapshot, claims).failed[rows].tolist()
        statuses = {
            pattern: Status(
                self.name, tuple(text for text, bad in zip(TEXTS, pattern, strict=True) if bad), resolvable=False
            )
            for pattern in set(map(tuple, failed))
        }
        return [statuses[tuple(pattern)] for pattern in failed]

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Claims that cannot be used, or that should have been bound already."""
        claims = claims_of(shape.usage.volumes, snapshot.objects)
        if isinstance(claims, str):
            return Status(self.name, (claims,), resolvable=False)
        if claims is not None and claims.immediate:
            return Status(self.name, ("pod has unbound immediate PersistentVolumeClaims",), resolvable=False)
        return None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """All nodes."""
        return None

    def coupling(self, shape: Shape, snapshot: Snapshot) -> _Shared | None:
        """Where the next pods of the shape can go once the first has chosen the volumes; None if nothing is chosen."""
        claims = claims_of(shape.usage.volumes, snapshot.objects) if shape.usage.volumes else None
        return _Shared(shape, snapshot) if isinstance(claims, Claims) and claims.waiting else None

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether the shape has claims."""
        return any(use.is_claim for use in shape.usage.volumes)

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """As `count`: pods that are placed take volumes away and bring none."""
        return self.count(shape, snapshot)

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """Claims that wait for a node and may want one volume, or that several pods may have in common."""
        return claims_that_choose([shape.usage.volumes for shape in shapes], snapshot.table, snapshot.objects)

    def _found(self, shape: Shape, snapshot: Snapshot, claims: Claims) -> Found:
        return noted(
            snapshot, (self, shape.usage.volumes), lambda: find_volumes(claims, snapshot.table, snapshot.objects)
        )


class _Shared:
    """Claims that wait for a node and that all pods of a shape mount: the first pod chooses for the others."""

    steady = False
    binding = True

    def __init__(self, shape: Shape, snapshot: Snapshot) -> None:
        self._uses, self._table, self._objects = shape.usage.volumes, snapshot.table, snapshot.objects
        self._reservations = Reservations()
        self._allowed: Bools | None = None

    def most(self, usable: Bools) -> int:
        """Not said."""
        return UNLIMITED

    def allowed(self) -> Bools | None:
        """The nodes from which the volumes can be reached that the first pod chose."""
        return self._allowed

    def scores(self, feasible: Feasible) -> Scaled | None:
        """None: capacity is not scored."""
        return None

    def place(self, row: int) -> None:
        """A pod goes to that node, and the others see the volumes that it needs there as chosen."""
        if row in self._reservations.by_pod:
            return
        if self._allowed is None:
            self._objects = self._objects.copy()
        found = reservation_at(self._uses, row, self._table, self._objects)
        self._reservations.add(row, found, self._objects)
        claims = claims_of(self._uses, self._objects)
        assert isinstance(claims, Claims)
        self._allowed = find_volumes(claims, self._table, self._objects).satisfied
