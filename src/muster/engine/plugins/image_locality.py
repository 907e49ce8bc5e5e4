"""ImageLocality: prefers nodes that have the pod's images already."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.nodes import NodeTable
from muster.engine.profile import MAX_NODE_SCORE, Normalisation, remembered
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_MIB = 1024 * 1024
_LEAST = 23 * _MIB
_MOST_EACH = 1000 * _MIB


class ImageLocality(Struct, frozen=True):
    """Upstream `imagelocality/image_locality.go`."""

    name: str = "ImageLocality"
    static: bool = True
    normalisation: Normalisation = Normalisation.NONE

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The size of the images that are there, each weighted by the share of nodes that have it, between limits."""
        table = snapshot.table

        def compute() -> Ints:
            total = np.zeros(len(table), dtype=np.int64)
            for image in shape.images:
                total += _contribution(table, image)
            most = _MOST_EACH * shape.image_containers
            clipped = np.clip(total, _LEAST, max(most, _LEAST))
            return MAX_NODE_SCORE * (clipped - _LEAST) // max(most - _LEAST, 1)

        return remembered(table, (self, "score", shape.images, shape.image_containers), compute)[rows]


def _contribution(table: NodeTable, image: str) -> Ints:
    """int64[N]: what an image adds on the nodes that have it."""
    sizes = np.array([dict(images).get(image, -1) for images in table.images], dtype=np.int64)[table.image_ids]
    present = sizes >= 0
    spread = float(np.count_nonzero(present)) / max(len(table), 1)
    return np.where(present, (sizes * spread).astype(np.int64), 0)
