"""DynamicResources: scores 0 for pods without claims; pods with claims are kept waiting by a rule of their own."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.profile import Normalisation
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


class DynamicResources(Struct, frozen=True):
    """Upstream `dynamicresources/dynamicresources.go`, of which only the score of pods without claims is here."""

    name: str = "DynamicResources"
    static: bool = True
    normalisation: Normalisation = Normalisation.NONE

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """0 everywhere."""
        return np.zeros(len(rows), dtype=np.int64)
