"""A proof about a tree of groups in words: which pods compete for which resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.exact.pricing import binding
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.trees.building import Class
from muster.engine.exact.trees.proof import Divided, Nothing, TooMany, TreeProof, Unfolded, Weighed
from muster.engine.snapshot import Snapshot
from muster.engine.words import shape_text

_SHARE = 0.05
_MOST_KINDS = 4


def account(
    problem: Problem, classes: Sequence[Class], proof: TreeProof, words: Mapping[Counts, str], snapshot: Snapshot
) -> str:
    """`pods of 2 cpu and pods of 3 cpu compete for cpu (5 cases were told apart)`; "" if there is nothing to say.

    `words`: the proofs about single choices as flat groups.
    """
    cases = list(_cases(proof))
    heaviest = next((each for each in cases if isinstance(each, Weighed)), None)
    told_apart = f" ({len(cases)} cases were told apart)" if len(cases) > 1 else ""
    if isinstance(proof, Nothing):
        return "its domains, each by itself, have room for too few of its groups"
    single = next((each for each in cases if isinstance(each, TooMany)), None)
    if heaviest is None:
        return f"of the pods of one choice, {words.get(single.pods, '')}{told_apart}" if single is not None else ""
    weights = np.array(heaviest.weights, dtype=np.int64)
    heavy = np.flatnonzero(weights > _SHARE * weights.max(initial=0)).tolist()
    names = _binding(problem, weights) or _scarcest(problem, classes, heavy, snapshot)
    texts = (shape_text(classes[each].shape, names) for each in heavy if _asks(problem, each, names))
    kinds = [f"pods of {text}" for text in dict.fromkeys(texts)]
    more = [f"{len(kinds) - _MOST_KINDS} more kinds"] if len(kinds) > _MOST_KINDS else []
    resources = ["pod slots" if name == "pods" else name for name in names]
    return f"{_joined(kinds[:_MOST_KINDS] + more)} compete for {_joined(resources)}{told_apart}"


def _binding(problem: Problem, weights: Ints) -> tuple[str, ...]:
    """The resources of whose room the weighing makes use."""
    shares = binding(problem, np.tile(weights, (problem.classes, 1)))
    order = np.argsort(-shares, kind="stable").tolist()
    return tuple(problem.names[each] for each in order if shares[each] > _SHARE)


def _scarcest(problem: Problem, classes: Sequence[Class], heavy: Sequence[int], snapshot: Snapshot) -> tuple[str, ...]:
    """For pods of which each node takes so many, whatever else there is: the resources that allow the fewest."""
    found, free = [], np.maximum(snapshot.free(), 0)
    for each in heavy:
        asked = {name: units for name, units in classes[each].shape.usage.requests if units and name in problem.names}
        room = {name: int((free[:, snapshot.axis.columns[name]] // units).sum()) for name, units in asked.items()}
        found.append(min(room, key=lambda name: (room[name], name), default="pods"))
    return tuple(dict.fromkeys(found))


def _asks(problem: Problem, each: int, names: Sequence[str]) -> bool:
    return any(problem.requests[each, at] for at, name in enumerate(problem.names) if name in names)


def _cases(proof: TreeProof) -> Iterator[TreeProof]:
    if isinstance(proof, Divided):
        yield from _cases(proof.fewer)
        yield from _cases(proof.more)
    elif isinstance(proof, Unfolded):
        yield from _cases(proof.proof)
    else:
        yield proof


def _joined(parts: Sequence[str]) -> str:
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"
