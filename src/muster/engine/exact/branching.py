"""The search under rules between pods: cases are told apart where a relaxation or a placement breaks a rule.

Each case is a linear problem, for which `solver` finds placements and proofs. A proof about all cases is a tree of
choices with a proof at each leaf, and is checked like those: in integers, from the rules alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.exact.cases import Case, Choice, Rule, broken, first_case, problem_of, split
from muster.engine.exact.certificate import Full, Proof, short, verified
from muster.engine.exact.columns import Bounded, generate
from muster.engine.exact.full import tightened
from muster.engine.exact.master import Master, Patterns, worth
from muster.engine.exact.pricing import Floats
from muster.engine.exact.problem import Problem, Use
from muster.engine.exact.solver import Search, totals_of
from muster.engine.exact.work import Budget

_MOST_DEPTH = 250


class Alternative(Struct, frozen=True):
    """Either the first case of a choice, or the second."""

    choice: Choice
    first: CaseProof
    second: CaseProof


CaseProof: TypeAlias = Proof | Alternative


class SolvedCases(Struct, frozen=True):
    """`uses`: the best placement found, worth `value`. No placement is worth more than `most`, by `proof` for `case`.

    `proof` is None where the bound is the one that was given.
    """

    uses: tuple[Use, ...]
    value: int
    most: int
    proof: CaseProof | None
    case: Case


def solve_cases(
    base: Problem,
    rules: tuple[Rule, ...],
    known: tuple[Use, ...],
    enough: int,
    most: int,
    budget: Budget,
    accepts: Callable[[tuple[Use, ...]], bool],
) -> SolvedCases:
    """The best placement that keeps the rules, or a proof that none is worth `enough`; see `solver.solve`.

    `accepts`: whether pods can come to where a placement has them, in some order.
    """
    value = worth(base, known)
    need = max(enough, value + 1) - int(base.first.sum())
    search = _CaseSearch(base, rules, budget, accepts, enough, known, value)
    search.pool.add([use.at for use in known], [use.counts for use in known])
    case = first_case(base, rules, need)
    bounded = Bounded(most)
    proof = search.explore(case, bounded, 0)
    if proof is not None and search.cutoff < most:
        return SolvedCases(search.uses, search.value, search.cutoff, proof, case)
    is_full = enough >= base.value(base.demand)  # then the bound is one of a problem that was tightened
    if is_full or bounded.most >= most:
        return SolvedCases(search.uses, search.value, most, None, case)
    return SolvedCases(search.uses, search.value, bounded.most, bounded.weighing, case)


def verified_cases(base: Problem, rules: tuple[Rule, ...], case: Case, proof: CaseProof, most: int) -> bool:
    """Whether the proof shows that no placement of the case is worth more than `most`."""
    if not isinstance(proof, Alternative):
        return verified(problem_of(base, rules, case), proof, most)
    first, second = split(case, proof.choice)
    return verified_cases(base, rules, first, proof.first, most) and verified_cases(
        base, rules, second, proof.second, most
    )


@dataclass(slots=True)
class _CaseSearch:
    """The best placement so far, and all patterns seen in any case."""

    base: Problem
    rules: tuple[Rule, ...]
    budget: Budget
    accepts: Callable[[tuple[Use, ...]], bool]
    enough: int
    uses: tuple[Use, ...]
    value: int
    pool: Patterns = field(default_factory=Patterns)

    @property
    def cutoff(self) -> int:
        """A case in which nothing is worth more than this is of no interest."""
        return max(self.value, self.enough - 1)

    def explore(self, case: Case, bounded: Bounded, depth: int) -> CaseProof | None:
        """A proof that nothing in the case is worth more than the cutoff, which may rise meanwhile; None: gave up."""
        problem = problem_of(self.base, self.rules, case)
        if self.enough < self.base.value(self.base.demand):
            return self._explore(case, problem, bounded, depth)
        too_little = short(problem)
        if too_little is not None:
            bounded.most, bounded.weighing = self.enough - 1, too_little
            return too_little
        proof = self._explore(case, tightened(problem), bounded, depth)
        return proof if proof is None or isinstance(proof, Alternative) else Full(proof)

    def _explore(self, case: Case, problem: Problem, bounded: Bounded, depth: int) -> CaseProof | None:
        search = Search(problem, self.enough, self.budget, (), self.value, self.pool.fitting(problem))
        search.accepts = self.accepts
        master = Master(problem, search.patterns)
        early = self.budget.share(2)
        generate(master, bounded, self.cutoff, early)
        self.budget.take(early)
        if early.is_used_up and bounded.relaxed is not None and bounded.most > self.cutoff:
            search.try_parts(master, bounded.relaxed)
            self._take(search)
            generate(master, bounded, self.cutoff, self.budget)
        self.pool.add(search.patterns.at, search.patterns.counts)
        if bounded.most <= self.cutoff:
            return bounded.weighing
        if self.budget.is_used_up or depth > _MOST_DEPTH or bounded.relaxed is None:
            return None
        choice = broken(self.rules, case, totals_of(master, bounded.relaxed))
        proof: CaseProof | None = None
        if choice is None:
            proof, choice = self._round_off(case, search, master, bounded)
        if bounded.most <= self.cutoff:
            return bounded.weighing
        return proof if choice is None else self._alternatives(case, choice, bounded, depth)

    def _round_off(
        self, case: Case, search: Search, master: Master, bounded: Bounded
    ) -> tuple[CaseProof | None, Choice | None]:
        """Placements of a case whose relaxation breaks no rule: a proof that this is all, or what to tell apart."""
        search.round_off(master, bounded.most, bounded.relaxed)
        proof: CaseProof | None = None
        if bounded.most > search.cutoff and not search.rejected:
            proof = search.close(master, bounded, 0)
        self._take(search)
        self.pool.add(search.patterns.at, search.patterns.counts)
        if proof is not None or not search.rejected or bounded.most <= self.cutoff:
            return proof, None
        return None, broken(self.rules, case, _totals(self.base, search.rejected))

    def _take(self, search: Search) -> None:
        if search.value > self.value:
            self.uses, self.value = search.uses, search.value

    def _alternatives(self, case: Case, choice: Choice, bounded: Bounded, depth: int) -> CaseProof | None:
        proofs: list[CaseProof | None] = []
        for each in split(case, choice):
            proofs.append(self.explore(each, Bounded(bounded.most), depth + 1))
            if bounded.most <= self.cutoff:
                return bounded.weighing
        first, second = proofs
        return None if first is None or second is None else Alternative(choice, first, second)


def _totals(problem: Problem, uses: tuple[Use, ...]) -> Floats:
    """float64[C, G]: what the nodes of each class receive."""
    totals = np.zeros((problem.classes, problem.shapes))
    for use in uses:
        totals[use.at] += use.nodes * np.array(use.counts)
    return totals
