"""Exact placement as `decide` asks for it: from members and nodes to the problem in numbers and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.between import Between, on
from muster.engine.exact.account import account
from muster.engine.exact.exhaust import exhaust
from muster.engine.exact.order import in_order
from muster.engine.exact.preference import prefer_first
from muster.engine.exact.problem import Problem, Use, placed_by
from muster.engine.exact.reduce import Reduced, reduce
from muster.engine.exact.work import Budget, Remaining
from muster.engine.identical import put
from muster.engine.mixed import Attempt, Demand
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial

if TYPE_CHECKING:
    from muster.engine.exact.branching import SolvedCases
    from muster.engine.exact.solver import Solved

    Solution: TypeAlias = Solved | SolvedCases

WORK_PER_PASS = 40_000
"""Units of work here that cost about as much as one greedy pass over a large cluster."""


_TRIED = "every way in which pods of the group can come to nodes one after the other was tried"


@dataclass(frozen=True, slots=True)
class Exact:
    """`attempt`: the best placement known. No more than `most` members fit at all, and `proof` says why in words.

    `proof` is "" where `most` is the bound that was known before. `passes`: what it cost.
    """

    attempt: Attempt
    most: int
    proof: str
    passes: int


def place_exactly(
    profile: Profile,
    snapshot: Snapshot,
    demands: Sequence[Demand],
    best: Attempt,
    *,
    needed: int,
    most: int,
    passes: int,
    remaining: Remaining | None = None,
) -> Exact:
    """Places as many members as can be placed, the lowest positions first; or proves that `needed` do not fit.

    `best`: a placement to begin with. `most`: no more fit, for reasons known before. Every proof was checked again in
    integers. `remaining` gives the seconds that are left, for callers with a clock; without it only work counts.
    """
    reduced = reduce(profile, snapshot, demands)
    budget = Budget(passes * WORK_PER_PASS, remaining)
    asked = _Asked(reduced, demands, budget)
    solved = asked.solve(reduced.problem, _uses(reduced, demands, best), needed, most)
    proof = ""
    if solved.most < most and asked.is_verified(solved):
        most, proof = solved.most, account(reduced, demands, solved.proof, solved.most)
    uses = solved.uses
    found = None
    if reduced.between and solved.value < int(reduced.problem.demand.sum()):
        rules = [on(rule, np.concatenate(reduced.rows)) for rule in reduced.between]
        found = exhaust(reduced.problem, rules, [each.places for each in demands], Budget(budget.work, remaining))
    if found is not None and found.is_complete:
        uses = found.uses
        if solved.value < most:
            most, proof = int(placed_by(reduced.problem, uses).sum()), _TRIED
    elif max(needed, 1) <= solved.value == most < int(reduced.problem.demand.sum()):
        uses = prefer_first(reduced.problem, uses, [each.places for each in demands], asked.better)
    attempt = _attempt(reduced, demands, uses)
    if attempt.rank < best.rank and holds_in_order(profile, snapshot, demands, reduced.between, attempt):
        best = attempt
    return Exact(best, most, proof, -(-budget.spent // WORK_PER_PASS))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The problem and its rules, if any, with what may be spent on all questions about it."""

    reduced: Reduced
    demands: Sequence[Demand]
    budget: Budget

    def solve(self, problem: Problem, known: tuple[Use, ...], enough: int, most: int) -> Solution:
        """The best placement, or a proof that none is worth `enough`."""
        from muster.engine.exact.branching import solve_cases  # these load HiGHS, which takes a while
        from muster.engine.exact.solver import solve

        if not self.reduced.between:
            return solve(problem, known, enough, most, self.budget)
        return solve_cases(problem, self.reduced.rules, known, enough, most, self.budget, self._accepts)

    def better(self, preferring: Problem, known: tuple[Use, ...]) -> tuple[Use, ...]:
        """A placement with more of the preferred pods; all placements known are worth less than full."""
        full = int(placed_by(preferring, known).sum()) + int(preferring.first.sum())
        return known if self.budget.is_used_up else self.solve(preferring, known, full, full).uses

    def is_verified(self, solved: Solution) -> bool:
        """Whether there is a proof, and it is one."""
        from muster.engine.exact.branching import SolvedCases, verified_cases
        from muster.engine.exact.certificate import verified

        if solved.proof is None:
            return False
        if isinstance(solved, SolvedCases):
            return verified_cases(self.reduced.problem, self.reduced.rules, solved.case, solved.proof, solved.most)
        return verified(self.reduced.problem, solved.proof, solved.most)

    def _accepts(self, uses: tuple[Use, ...]) -> bool:
        attempt = _attempt(self.reduced, self.demands, uses)
        return in_order(self.reduced.between, _placed(self.demands, attempt)) is not None


def _placed(demands: Sequence[Demand], attempt: Attempt) -> Counter[tuple[int, int]]:
    """(shape, row) → pods."""
    shape_of = {place: shape for shape, each in enumerate(demands) for place in each.places}
    return Counter((shape_of[place], row) for place, row in attempt.rows)


def holds_in_order(
    profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], rules: Sequence[Between], attempt: Attempt
) -> bool:
    """Whether the rules themselves let the members onto their nodes: with rules between them one after the other, in
    an order in which that is possible.

    The problem in numbers does not know every rule: room that is kept for nominated pods, for one.
    """
    placed = _placed(demands, attempt)
    order = in_order(rules, placed)
    if order is None:
        return False
    with snapshot.trial() as trial:
        if not rules:
            return all(_let_at_once(profile, trial, demand.shape, at, placed) for at, demand in enumerate(demands))
        return all(
            _let(profile, trial, demands[at].shape, [row for _, row in run])
            for at, run in groupby(order, key=lambda each: each[0])
        )


def _let(profile: Profile, trial: Trial, shape: Shape, rows: Sequence[int]) -> bool:
    """Whether pods of the shape can come to these rows, one after the other; they are put there."""
    if trial.reserved:  # room that is kept depends on what came before in more ways than couplings know
        for row in rows:
            if profile.count(shape, trial)[row] < 1:
                return False
            trial.place(shape.usage, row)
        return True
    received = np.bincount(np.array(rows, dtype=np.int64), minlength=len(trial)).astype(np.int64)
    if (received > profile.ceiling(shape, trial)).any():
        return False
    couplings = [coupling for coupling, _ in profile.couplings(shape, trial)]
    for row in rows:
        if not all(allowed is None or allowed[row] for allowed in (each.allowed() for each in couplings)):
            return False
        for coupling in couplings:
            coupling.place(row)
        if shape.usage.volumes:  # which of them claims get depends on who comes first
            trial.place(shape.usage, row)
    if not shape.usage.volumes:
        put(trial, shape, received)
    return True


def _let_at_once(profile: Profile, trial: Trial, shape: Shape, at: int, placed: Counter[tuple[int, int]]) -> bool:
    received = np.zeros(len(trial), dtype=np.int64)
    for (each, row), number in placed.items():
        if each == at:
            received[row] = number
    if (received > profile.count(shape, trial)).any():
        return False
    if all(coupling.steady for coupling, _ in profile.couplings(shape, trial)):
        put(trial, shape, received)
        return True
    return _let(profile, trial, shape, np.repeat(np.arange(len(trial)), received).tolist())


def _uses(reduced: Reduced, demands: Sequence[Demand], attempt: Attempt) -> tuple[Use, ...]:
    """The patterns of an attempt."""
    shape_of = {place: shape for shape, each in enumerate(demands) for place in each.places}
    class_of = {row: at for at, rows in enumerate(reduced.rows) for row in rows.tolist()} if attempt.rows else {}
    counts: dict[int, list[int]] = {}
    for place, row in attempt.rows:
        counts.setdefault(row, [0] * len(demands))[shape_of[place]] += 1
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    for row in sorted(counts):
        key = class_of[row], tuple(counts[row])
        numbers[key] = numbers.get(key, 0) + 1
    return tuple(Use(at, pattern, number) for (at, pattern), number in numbers.items())


def _attempt(reduced: Reduced, demands: Sequence[Demand], uses: tuple[Use, ...]) -> Attempt:
    """The members on rows: of equal nodes the first take the first shapes, and the first members the first rows."""
    received: dict[int, Ints] = {}
    free = {at: iter(rows.tolist()) for at, rows in enumerate(reduced.rows)}
    for use in sorted(uses, key=lambda use: (use.at, tuple(-count for count in use.counts))):
        for _ in range(use.nodes):
            received[next(free[use.at])] = np.array(use.counts, dtype=np.int64)
    rows = sorted(received)
    placed: list[tuple[int, int]] = []
    for shape, demand in enumerate(demands):
        on = [row for row in rows for _ in range(int(received[row][shape]))]
        placed += list(zip(demand.places, on, strict=False))
    return Attempt(tuple(sorted(placed)))
