"""Blocks: where rules over domains part the nodes, the pods of each shape are first dealt to the parts.

The relaxation says how many pods of each shape come to each part. In whole numbers, each part is a problem of its own,
smaller and with fewer rules, so that dives and repairs find their way in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Ints
from muster.engine.exact.certificate import Weighing, short
from muster.engine.exact.dealing import Cut, dealt_evenly, rounded
from muster.engine.exact.master import Patterns, worth
from muster.engine.exact.pricing import Floats
from muster.engine.exact.problem import Counts, Problem, Row, Use
from muster.engine.exact.repair import within
from muster.engine.exact.work import Budget

_DEALS = 8
_PARTS_OF_FREE = 10_000
_SHARE = 3
"""A part gets this part of the work that is left."""

Fill: TypeAlias = Callable[[Problem, Patterns, Budget], tuple[tuple[Use, ...], Weighing | None]]
"""A placement of a problem's pods, and a proof that not all of them have a place if there is one."""


def place_by_blocks(
    problem: Problem, patterns: Patterns, totals: Floats, budget: Budget, fill: Fill
) -> tuple[Use, ...]:
    """A placement that has in each part about what `totals` [C, G] say; () if rules do not part the nodes, or if parts
    cannot hold what they are dealt.

    What is learnt of a part that cannot hold its share is kept for the next deal (Benders' decomposition).
    """
    blocks = _blocks(problem)
    if len(blocks) < 2 or problem.first.any():
        return ()
    parting = _Parting(problem, blocks, patterns, budget, fill)
    shares = np.array([totals[block].sum(axis=0) for block in blocks])
    deal, cuts, best = rounded(problem, shares, blocks), list[Cut](), tuple[Use, ...]()
    for _ in range(_DEALS):
        found, learnt = parting.place(deal)
        best = max(best, found, key=lambda uses: worth(problem, uses))
        if not learnt or budget.is_used_up:
            break
        cuts += learnt
        again = dealt_evenly(problem, shares, blocks, cuts, budget)
        if again is None:
            break
        deal = again
    return best


@dataclass(frozen=True, slots=True)
class _Parting:
    """The parts, and the shares with which they were filled."""

    problem: Problem
    blocks: list[Ints]
    patterns: Patterns
    budget: Budget
    fill: Fill
    _filled: dict[tuple[int, Counts], tuple[Use, ...]] = field(default_factory=dict)

    def place(self, deal: Ints) -> tuple[tuple[Use, ...], list[Cut]]:
        """A placement of all parts; or of some or none, and what shows that parts cannot hold their shares."""
        parts = [_part(self.problem, block, demand) for block, demand in zip(self.blocks, deal, strict=True)]
        proofs = [short(part) for part in parts]
        cuts = [_cut(at, part, proof) for at, (part, proof) in enumerate(zip(parts, proofs, strict=True)) if proof]
        found: list[Use] = []
        for at, part in enumerate(parts if not cuts else ()):
            uses, proof = self._fill(at, part)
            found += [replace(use, at=int(self.blocks[at][use.at])) for use in uses]
            if proof is not None:
                return tuple(found), [*cuts, _cut(at, part, proof)]
            if worth(part, uses) < part.value(part.demand):
                cuts.append(_less(at, part))
        return tuple(found), cuts

    def _fill(self, at: int, part: Problem) -> tuple[tuple[Use, ...], Weighing | None]:
        key = at, tuple(part.demand.tolist())
        if key in self._filled:
            return self._filled[key], None
        own, known = self.budget.share(_SHARE), within(self.patterns, self.blocks[at], part)
        uses, proof = self.fill(part, known, own)
        self.budget.take(own)
        self.patterns.add([int(self.blocks[at][each]) for each in known.at], known.counts)
        if worth(part, uses) == part.value(part.demand):
            self._filled[key] = uses
        return uses, proof


def _less(at: int, part: Problem) -> Cut:
    """A guess: the part is to have a little less of everything than what it was dealt."""
    free = np.maximum(part.nodes @ part.free, 1)
    weights = np.ceil(part.requests / free * _PARTS_OF_FREE).sum(axis=1).astype(np.int64)
    return Cut(at, tuple(weights.tolist()), int(part.demand @ weights - weights[part.demand > 0].min(initial=0)))


def _cut(at: int, part: Problem, proof: Weighing) -> Cut:
    """What a weighing says of any share: together the pods weigh no more than the heaviest patterns of the nodes."""
    most = sum(int(nodes) * heaviest for nodes, heaviest in zip(part.nodes.tolist(), proof.heaviest, strict=True))
    most += sum(price * row.most for price, row in zip(proof.prices, part.rows, strict=True))
    return Cut(at, proof.weights, most)


def _blocks(problem: Problem) -> list[Ints]:
    """The classes, ascending, in parts such that every rule that is not about all classes is within one of them."""
    block = np.arange(problem.classes)
    usable = np.flatnonzero(problem.caps.any(axis=1))
    for row in problem.rows:
        classes = np.intersect1d(np.array(row.classes, dtype=np.int64), usable)
        if len(classes) < 2 or len(classes) == len(usable):
            continue
        joined = np.unique(block[classes])
        block[np.isin(block, joined)] = joined[0]
    parts = [np.flatnonzero(block == each) for each in np.unique(block[usable])]
    return parts if len(parts) <= len(problem.rows) else []


def _part(problem: Problem, block: Ints, demand: Ints) -> Problem:
    place = {int(at): index for index, at in enumerate(block.tolist())}
    rows = []
    for row in problem.rows:
        classes = tuple(place[at] for at in row.classes if at in place)
        if len(classes) == len([at for at in row.classes if problem.caps[at].any()]):
            rows.append(Row(classes, row.weights, row.most))
    return replace(
        problem,
        demand=demand,
        free=problem.free[block],
        caps=np.minimum(problem.caps[block], demand),
        nodes=problem.nodes[block],
        first=np.zeros_like(demand),
        modes=problem.modes_of(block),
        rows=tuple(row for row in rows if not _follows(row, block, demand)),
    )


def _follows(row: Row, block: Ints, demand: Ints) -> bool:
    """Whether a rule about a whole part holds for the pods that it was dealt: then it need not be looked at again."""
    return len(row.classes) == len(block) and int(demand @ np.array(row.weights, dtype=np.int64)) <= row.most
