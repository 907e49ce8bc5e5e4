"""The search for a choice of groups, domains and pods that fits, or for a proof that there is none.

A relaxation bounds each case and names promising choices; each is asked about as one flat group, by everything the
engine knows. Where that settles nothing, cases are told apart by how many of something there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from muster.engine.exact.master import Patterns
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.trees.bounds import Open, crowded, divide, is_settled, number_at, opened, tightened, unfolded
from muster.engine.exact.trees.choices import Node, Pick, pods_of
from muster.engine.exact.trees.proof import (
    Divided,
    Nothing,
    TooMany,
    TreeProof,
    Unfolded,
    least_pods,
)
from muster.engine.exact.trees.relaxation import relax_tree
from muster.engine.exact.work import Budget

_MOST_DEPTH = 120
_MOST_ASKED = 4
"""So many choices of a relaxation are asked about, those with the largest shares."""
_WHOLE = 1e-4


class Selection(Struct, frozen=True):
    """A choice, and the tree that it is a choice of."""

    tree: Node
    pick: Pick


Fits = Callable[[Selection], bool | None]
"""Whether a choice fits as a flat group; None: nobody knows."""


@dataclass(slots=True)
class TreeSearch:
    """`is_least`: fewer pods fit wherever more do, so that nothing has to be tried beyond what is enough.

    `found`: the choice that fits, the best so far; `size` its pods. `too_many`: pods that were proved not to fit.
    """

    problem: Problem
    fits: Fits
    budget: Budget
    is_least: bool
    patterns: Patterns = field(default_factory=Patterns)
    found: Selection | None = None
    size: int = -1
    too_many: set[Counts] = field(default_factory=set)
    _unknown: set[Counts] = field(default_factory=set)

    def any_choice(self, tree: Node) -> TreeProof | None:
        """Looks for a choice that fits: it is `found` then. Else a proof that there is none; None: gave up."""
        return self._explore(tree, 0, None)

    def most_pods(self, tree: Node, more_than: int) -> bool:
        """Looks for the choice with the most pods, more than so many: it is `found` then. Whether that is certain."""
        self.size = max(self.size, more_than)
        return self._explore(tree, 0, more_than) is not None

    def _explore(self, tree: Node, depth: int, more_than: int | None) -> TreeProof | None:
        """A proof that no choice here is (better than) what is found in the end; None: found one, or gave up."""
        bounded = tightened(tree, self.is_least and more_than is None)
        if bounded is None:
            return Nothing()
        known = self._too_many(bounded)
        if known is not None:
            return known
        if self.budget.is_used_up or depth > _MOST_DEPTH:
            return None
        mixed = relax_tree(self.problem, bounded, self.patterns, self.budget, None if more_than is None else self.size)
        if mixed.weighing is not None:
            return mixed.weighing
        self._ask(bounded, mixed.picks, more_than)
        if self.found is not None and more_than is None:
            return None
        if is_settled(bounded):
            return self._settled(bounded, mixed.picks, more_than)
        return self._divide(bounded, mixed.picks, depth, more_than)

    def _ask(self, tree: Node, picks: tuple[tuple[Pick, float], ...], more_than: int | None) -> None:
        """Asks about the choices of a mixture until one fits."""
        for pick, _ in picks[:_MOST_ASKED]:
            pods = pods_of(tree, pick, self.problem.shapes)
            if sum(pods) <= self.size or pods in self.too_many or pods in self._unknown:
                continue
            if self.budget.is_used_up:
                return
            answer = self.fits(Selection(tree, pick))
            if answer:
                self.found, self.size = Selection(tree, pick), sum(pods)
                if more_than is None:
                    return
            elif answer is None:
                self._unknown.add(pods)
            else:
                self.too_many.add(pods)

    def _too_many(self, tree: Node) -> TooMany | None:
        """What is known not to fit and is part of every choice here."""
        if not self.too_many:
            return None
        least, settled = least_pods(tree, self.problem.shapes), is_settled(tree)
        for pods in sorted(self.too_many):
            if (self.is_least or (settled and pods == least)) and all(map(int.__ge__, least, pods)):
                return TooMany(pods, settled)
        return None

    def _settled(self, tree: Node, picks: tuple[tuple[Pick, float], ...], more_than: int | None) -> TreeProof | None:
        """One choice is left, and it was asked about."""
        if more_than is not None:
            pods = [pods_of(tree, pick, self.problem.shapes) for pick, _ in picks]
            return Nothing() if all(sum(each) <= self.size or each in self.too_many for each in pods) else None
        return self._too_many(tree)

    def _divide(
        self, tree: Node, picks: tuple[tuple[Pick, float], ...], depth: int, more_than: int | None
    ) -> TreeProof | None:
        chosen, where = _most_mixed(tree, picks), crowded(tree)
        if where is not None and (chosen is None or _is_whole(chosen[1])):
            proof = self._explore(unfolded(tree, where), depth + 1, more_than)
            return None if proof is None else Unfolded(where, proof)
        if chosen is None:
            return None
        one, amount = chosen
        most = _between(one, amount)
        fewer, more = divide(tree, one.where, most)
        proofs: list[TreeProof | None] = [None, None]
        for at in (1, 0) if amount - most >= 0.5 else (0, 1):
            proofs[at] = self._explore((fewer, more)[at], depth + 1, more_than)
            if proofs[at] is None and (more_than is None and self.found is not None):
                return None
        first, second = proofs
        return None if first is None or second is None else Divided(one.where, most, first, second)


def _most_mixed(tree: Node, picks: tuple[tuple[Pick, float], ...]) -> tuple[Open, float] | None:
    """Of what may still be chosen, what the mixture is least sure about, and how many of it it has."""
    total = sum(share for _, share in picks) or 1.0
    best: tuple[float, Open, float] | None = None
    for one in opened(tree):
        amount = sum(share * number_at(pick, one.where) for pick, share in picks) / total
        doubt = abs(amount - round(amount))
        if best is None or doubt > best[0] + _WHOLE:
            best = doubt, one, amount
    return None if best is None else (best[1], best[2])


def _is_whole(amount: float) -> bool:
    return abs(amount - round(amount)) <= _WHOLE


def _between(one: Open, amount: float) -> int:
    """Where to tell cases apart: around a fraction, else so that the whole number leaves one of them."""
    nearest = round(amount)
    if not _is_whole(amount):
        return min(max(int(amount), one.low), one.high - 1)
    return nearest - 1 if nearest > one.low else nearest
