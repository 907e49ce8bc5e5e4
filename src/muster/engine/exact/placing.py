"""Exact placement as `decide` asks for it: from members and nodes to the problem in numbers and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.exact.account import account
from muster.engine.exact.certificate import verified
from muster.engine.exact.preference import prefer_first
from muster.engine.exact.problem import Problem, Use
from muster.engine.exact.reduce import Reduced, reduce
from muster.engine.exact.work import Budget, Remaining
from muster.engine.identical import put
from muster.engine.mixed import Attempt, Demand
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot

WORK_PER_PASS = 40_000
"""Units of work here that cost about as much as one greedy pass over a large cluster."""


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
    from muster.engine.exact.solver import solve  # loads HiGHS, which takes a while

    def better(preferring: Problem, known: tuple[Use, ...]) -> tuple[Use, ...]:
        full = solved.value + int(preferring.first.sum())
        return known if budget.is_used_up else solve(preferring, known, full, full, budget).uses

    reduced = reduce(profile, snapshot, demands)
    problem, budget = reduced.problem, Budget(passes * WORK_PER_PASS, remaining)
    solved = solve(problem, _uses(reduced, demands, best), needed, most, budget)
    proof = ""
    if solved.most < most and solved.proof is not None and verified(problem, solved.proof, solved.most):
        most, proof = solved.most, account(problem, demands, solved.proof, solved.most)
    uses = solved.uses
    if max(needed, 1) <= solved.value == most < int(problem.demand.sum()):
        uses = prefer_first(problem, uses, [each.places for each in demands], better)
    attempt = _attempt(reduced, demands, uses)
    if attempt.rank < best.rank and _holds(profile, snapshot, demands, attempt):
        best = attempt
    return Exact(best, most, proof, -(-budget.spent // WORK_PER_PASS))


def _holds(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], attempt: Attempt) -> bool:
    """Whether the rules themselves let the members onto their nodes, one shape after the other.

    The problem in numbers does not know every rule: room that is kept for nominated pods, for one.
    """
    rows = dict(attempt.rows)
    with snapshot.trial() as trial:
        for demand in demands:
            on = np.array([rows[place] for place in demand.places if place in rows], dtype=np.int64)
            received = np.bincount(on, minlength=len(snapshot)).astype(np.int64)
            if (received > profile.count(demand.shape, trial)).any():
                return False
            put(trial, demand.shape, received)
    return True


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
