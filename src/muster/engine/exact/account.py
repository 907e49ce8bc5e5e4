"""A proof in words: which shapes compete for which resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from muster.engine.exact.certificate import UNIT, Full, Separate, Split, Weighing, pattern_weights
from muster.engine.exact.pricing import Floats, binding
from muster.engine.exact.problem import Problem
from muster.engine.exact.reduce import Reduced
from muster.engine.mixed import Demand
from muster.engine.words import pods, shape_text

if TYPE_CHECKING:
    from muster.engine.exact.branching import CaseProof

_SHARE = 0.05
_MOST_KINDS = 4


def account(reduced: Reduced, demands: Sequence[Demand], proof: CaseProof | None, most: int) -> str:
    """One sentence that says how many fit and what binds: the shapes that carry weight and the resources they fill,
    and the rules between members."""
    problem = reduced.problem
    leaves = list(_weighings(proof))
    whole = leaves[0]
    weights = np.array(whole.weights, dtype=np.int64)
    heavy = [each for each in range(problem.shapes) if weights[each] > _SHARE * UNIT]
    shares = binding(problem, pattern_weights(problem, weights, np.zeros(len(problem.rows), dtype=np.int64)))
    names = _binding_names(problem, shares)
    number = int(problem.nodes.sum())
    takes = "node that takes" if number == 1 else "nodes that take"
    start = f"at most {most} of the {pods(int(problem.demand.sum()))} fit on the {number} {takes} any of them"
    kept = _joined([*dict.fromkeys(rule.name for rule in reduced.between)])
    start = f"{start} with {kept}" if reduced.between else start
    cause = f"{_kinds(demands, heavy, names)} compete for {_joined(names)}" if names else "each node takes only so many"
    cases = f" ({len(leaves)} cases were told apart)" if len(leaves) > 1 else ""
    return f"{start}, however they are combined: {cause}{cases}"


def _weighings(proof: CaseProof | None) -> Iterator[Weighing]:
    if isinstance(proof, Weighing):
        yield proof
    elif isinstance(proof, Split):
        yield from _weighings(proof.fewer)
        yield from _weighings(proof.more)
    elif isinstance(proof, Separate | Full):
        yield from _weighings(proof.proof)
    elif proof is not None:
        yield from _weighings(proof.first)
        yield from _weighings(proof.second)


def _binding_names(problem: Problem, shares: Floats) -> list[str]:
    order = np.argsort(-shares, kind="stable").tolist()
    names = [problem.names[each] for each in order if shares[each] > _SHARE]
    return ["pod slots" if name == "pods" else name for name in names]


def _kinds(demands: Sequence[Demand], heavy: Sequence[int], names: Sequence[str]) -> str:
    kinds = [
        f"{len(demands[each].places)} of {shape_text(demands[each].shape, tuple(names))}"
        for each in heavy[:_MOST_KINDS]
    ]
    more = len(heavy) - len(kinds)
    return _joined([*kinds, f"{more} more kinds"] if more > 0 else kinds)


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "the pods"
