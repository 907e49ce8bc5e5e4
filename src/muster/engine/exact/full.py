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
    spare = np.maximum(problem.nodes @ usable - problem.demand @ problem.requests, 0)
    return replace(problem, free=usable, spare=tuple(spare.tolist()) if _is_telling(problem, spare) else None)


def _is_telling(problem: Problem, spare: Ints) -> bool:
    """Whether less is spare than the smallest pod asks for, of all resources that are asked for in different amounts.

    Otherwise the search for patterns is slowed by more than the missing patterns save.
    """
    asked = problem.requests[problem.demand > 0]
    varied = [(column[column > 0].min(), left) for column, left in zip(asked.T, spare, strict=True) if column.max() > 1]
    return bool(varied) and all(left <= smallest for smallest, left in varied)


def usable_of(problem: Problem) -> Ints:
    """int64[C, R]: the most of what is free on a node that pods that may be there can use up, a resource at a time."""
    usable: Ints = np.minimum(problem.free, problem.caps @ problem.requests)
    tables = prepared(problem).usable
    for resource, table in enumerate(tables[0] if tables else ()):
        if table is not None:
            usable[:, resource] = table[usable[:, resource]]
    return usable
