"""Prices of resources at which as many shapes are worth exactly what they use as there are prices above zero.

They are the vertices among which the linear relaxation of a knapsack has its dual optimum, whatever is free: for any
weights of the shapes they follow from matrices that are inverted once.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from muster.engine.arrays import Ints

Floats = NDArray[np.float64]

_MOST_OF_A_SIZE = 1_500
_LARGEST = 3


class _Systems(Struct, frozen=True):
    """`shapes` [V, s] and `columns` [V, s] of V systems of s equations, and their `inverses` [V, s, s]."""

    shapes: Ints
    columns: Ints
    inverses: Floats


class Vertices(Struct, frozen=True):
    """The systems of all sizes, over R resources."""

    resources: int
    systems: tuple[_Systems, ...]

    def at(self, weights: Floats) -> Floats:
        """float64[V, R] ≥ 0: the vertices for weights [G] of the shapes, and zero."""
        found = [np.zeros((1, self.resources))]
        for each in self.systems:
            solved = np.einsum("vij,vj->vi", each.inverses, weights[each.shapes])
            kept = (solved >= 0).all(axis=1) & (solved > 0).any(axis=1)
            full = np.zeros((int(kept.sum()), self.resources))
            np.put_along_axis(full, each.columns[kept], solved[kept], axis=1)
            found.append(full)
        return np.vstack(found)


def vertices_of(requests: Ints, shapes: Ints) -> Vertices:
    """Those of some of the shapes, `requests` [G, R]."""
    resources, systems = requests.shape[1], []
    for size in range(1, min(_LARGEST, resources, len(shapes)) + 1):
        columns = np.array(list(combinations(range(resources), size)), dtype=np.int64)
        chosen = shapes[np.array(list(combinations(range(len(shapes)), size)), dtype=np.int64)]
        if len(columns) * len(chosen) > _MOST_OF_A_SIZE:
            break
        rows = np.repeat(chosen, len(columns), axis=0)
        places = np.tile(columns, (len(chosen), 1))
        matrices = requests[rows[:, :, None], places[:, None, :]].astype(np.float64)
        regular = np.abs(np.linalg.det(matrices)) > 1e-9
        systems.append(_Systems(rows[regular], places[regular], np.linalg.inv(matrices[regular])))
    return Vertices(resources, tuple(systems))
