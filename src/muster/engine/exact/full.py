"""All or nothing: what must hold on every node if all pods are placed, which is more than what fits on it.

What all nodes leave unused together is what they have less what the pods ask for, so no node leaves more than that.
Where a resource is nearly used up, few patterns are left; where even all that nodes can use is too little, that is the
proof.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.pricing import prepared
from muster.engine.exact.problem import Problem


def tightened(problem: Problem) -> Problem:
    """The problem for placements of all pods; the same placements of all pods are possible."""
    usable = usable_of(problem)
    spare = problem.nodes @ usable - problem.demand @ problem.requests
    return replace(problem, free=usable, spare=tuple(np.maximum(spare, 0).tolist()))


def usable_of(problem: Problem) -> Ints:
    """int64[C, R]: the most of what is free on a node that pods that may be there can use up, a resource at a time."""
    usable: Ints = np.minimum(problem.free, problem.caps @ problem.requests)
    tables = prepared(problem).usable
    for resource, table in enumerate(tables[0] if tables else ()):
        if table is not None:
            usable[:, resource] = table[usable[:, resource]]
    return usable
