"""The search: column generation for a bound, a dive and MIPs for a placement, branches for a proof.

All limits count work, about one unit a state of pricing (half a microsecond). The answer is the best placement found
and a bound with its proof; where they do not meet, the work allowed was not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.exact.assignment import assign_to_nodes
from muster.engine.exact.blocks import place_by_blocks
from muster.engine.exact.certificate import Full, Proof, Separate, Split, Weighing, branch, short
from muster.engine.exact.columns import Bounded, generate
from muster.engine.exact.dive import dive, dive_to_few
from muster.engine.exact.full import tightened
from muster.engine.exact.master import Master, Patterns, Relaxed, worth
from muster.engine.exact.pricing import Floats
from muster.engine.exact.problem import Problem, Use, in_a_mode, keeps_modes, keeps_rows
from muster.engine.exact.repair import repaired
from muster.engine.exact.work import Budget

_DIVES = (0.7, 0.95, 0.45)
"""From bold to cautious and bolder: each dive leaves patterns that the next can use."""
_ENDGAMES = ((0.7, 100), (0.95, 160), (0.7, 240))
"""Under rules over domains, dives seldom come to the end by themselves: the last cells are looked at as a whole."""
_FEW_CELLS = 300
_ENDGAME_TREE = 60
_MIP_PATTERNS = 2_000
_MIP_TREE = 200
_MOST_DEPTH = 200
_EPSILON = 1e-6


class Solved(Struct, frozen=True):
    """`uses`: the best placement found, worth `value`. No placement is worth more than `most`, by `proof`.

    `proof` is None where the bound is the one that was given.
    """

    uses: tuple[Use, ...]
    value: int
    most: int
    proof: Proof | None


def solve(problem: Problem, known: tuple[Use, ...], enough: int, most: int, budget: Budget) -> Solved:
    """The best placement, or a proof that none is worth `enough`.

    `known`: a placement to begin with. `most`: none is worth more, for reasons known elsewhere. Stops when the best
    is proved to be the best, when it is proved that none is worth `enough`, or when the budget is used up.
    """
    if enough < problem.value(problem.demand):
        return _solve(problem, known, enough, most, budget)
    value, all_but_one = worth(problem, known), enough - 1
    too_little = short(problem)
    if too_little is not None:
        return Solved(known, value, all_but_one, too_little)
    solved = _solve(tightened(problem), known, enough, most, budget)
    if solved.proof is None or solved.most > all_but_one:
        return Solved(solved.uses, solved.value, most, None)
    return Solved(solved.uses, solved.value, all_but_one, Full(solved.proof))


def _solve(problem: Problem, known: tuple[Use, ...], enough: int, most: int, budget: Budget) -> Solved:
    search = Search(problem, enough, budget, known, worth(problem, known))
    master = Master(problem, search.patterns)
    bounded = Bounded(most)
    generate(master, bounded, search.cutoff, budget)
    if bounded.most > search.cutoff:
        search.round_off(master, bounded.most, bounded.relaxed)
    if bounded.most <= search.cutoff or budget.is_used_up:
        return Solved(search.uses, search.value, bounded.most, bounded.weighing if bounded.most < most else None)
    proof = search.close(master, bounded, 0)
    if proof is None:
        return Solved(search.uses, search.value, bounded.most, bounded.weighing if bounded.most < most else None)
    return Solved(search.uses, search.value, search.cutoff, proof)


def filled(problem: Problem, patterns: Patterns, budget: Budget) -> tuple[tuple[Use, ...], Weighing | None]:
    """A placement of all pods of a problem, or of many; a proof if the relaxation shows that not all have a place."""
    target = problem.value(problem.demand)
    search = Search(problem, target, budget, (), 0, patterns)
    master, bounded = Master(problem, search.patterns), Bounded(target)
    generate(master, bounded, target - 1, budget)
    if bounded.most < target:
        return (), bounded.weighing
    search.round_off(master, target, bounded.relaxed)
    return search.uses, None


def _always(uses: tuple[Use, ...]) -> bool:
    return True


@dataclass(slots=True)
class Search:
    """The best placement so far (of the original problem) and the patterns known so far.

    `accepts`: whether a placement keeps rules that the problem does not have; `rejected`: the best that did not.
    """

    problem: Problem
    enough: int
    budget: Budget
    uses: tuple[Use, ...]
    value: int
    patterns: Patterns = field(default_factory=Patterns)
    origins: list[int] = field(default_factory=list)
    accepts: Callable[[tuple[Use, ...]], bool] = _always
    rejected: tuple[Use, ...] = ()
    rejected_value: int = 0

    def __post_init__(self) -> None:
        self.origins = list(range(self.problem.classes))
        self.patterns.add([use.at for use in self.uses], [use.counts for use in self.uses])
        if self.problem.spare is not None:
            self.patterns = self.patterns.fitting(self.problem)

    @property
    def cutoff(self) -> int:
        """A problem in which nothing is worth more than this is of no interest."""
        return max(self.value, self.enough - 1)

    def offer(self, uses: tuple[Use, ...]) -> None:
        """Takes the placement if it is better than the best."""
        original = tuple(Use(self.origins[use.at], use.counts, use.nodes) for use in uses)
        value = worth(self.problem, original)
        if value <= self.value or not (keeps_rows(self.problem, original) and keeps_modes(self.problem, original)):
            return
        if self.accepts(original):
            self.uses, self.value = original, value
        elif value > self.rejected_value:
            self.rejected, self.rejected_value = original, value

    def try_parts(self, master: Master, relaxed: Relaxed) -> None:
        """A placement by the parts that rules make, from a relaxation that may lack patterns."""
        share = self.budget.share(2)
        self.offer(self._by_parts(master, relaxed, share))
        self.budget.take(share)

    def round_off(self, master: Master, target: int, relaxed: Relaxed | None) -> None:
        """Placements from the relaxation: dives and their repairs, else a MIP over the patterns, else one over single
        nodes."""
        for found in self._placements(master, target, relaxed):
            self.offer(found)
            if max(self.value, self.rejected_value) >= target or self.budget.is_used_up:
                return

    def _placements(self, master: Master, target: int, relaxed: Relaxed | None) -> Iterator[tuple[Use, ...]]:
        problem, budget = master.problem, self.budget
        cells = int(problem.nodes.sum()) * problem.shapes
        is_small = bool(problem.rows) and cells <= _FEW_CELLS
        if problem.rows and relaxed is not None:
            blocks = self._by_parts(master, relaxed, budget)
            yield blocks
            if not is_small:
                yield repaired(problem, self.patterns, blocks, target, budget)
        for nearly_whole in _DIVES:
            found = dive(master, target, budget, nearly_whole)
            yield found
            if not is_small:
                yield repaired(problem, self.patterns, found, target, budget)
        for nearly_whole, most_cells in _ENDGAMES if problem.rows else ():
            yield dive_to_few(master, target, budget, nearly_whole, most_cells, _ENDGAME_TREE)
        if is_small:
            yield repaired(problem, self.patterns, found, target, budget)
        if len(self.patterns.at) <= _MIP_PATTERNS:
            before = master.work
            yield master.integral(target, _MIP_TREE, budget.remaining)
            budget.spent += master.work - before
        yield assign_to_nodes(problem, target, _MIP_TREE, budget)

    def _by_parts(self, master: Master, relaxed: Relaxed, budget: Budget) -> tuple[Use, ...]:
        return place_by_blocks(master.problem, self.patterns, totals_of(master, relaxed), budget, filled)

    def close(self, master: Master, bounded: Bounded, depth: int) -> Proof | None:
        """A proof that nothing here is worth more than the cutoff, which may rise meanwhile; None: gave up."""
        proof: Proof | None = None
        if bounded.most > self.cutoff and not self.budget.is_used_up and depth <= _MOST_DEPTH:
            proof = self._divide(master, bounded, depth)
        return bounded.weighing if bounded.most <= self.cutoff else proof

    def _divide(self, master: Master, bounded: Bounded, depth: int) -> Proof | None:
        relaxed = bounded.relaxed
        if relaxed is None:
            return None
        totals = totals_of(master, relaxed)
        fraction = np.abs(totals - np.rint(totals))
        if fraction.max(initial=0.0) > _EPSILON:
            at, shape = np.unravel_index(int(np.argmax(fraction)), fraction.shape)
            return self._split(master, bounded, int(at), int(shape), int(totals[at, shape]), depth)
        several = _fractional_class(master, relaxed)
        if several is not None:
            return self._separate(master, bounded, several, depth)
        whole = np.rint(totals).astype(np.int64)
        mixed = _mixed_up(master.problem, whole)
        if mixed is not None:
            return self._split(master, bounded, *mixed, depth)
        self.offer(_whole(master, relaxed, whole))
        return None

    def _split(self, master: Master, bounded: Bounded, at: int, shape: int, most: int, depth: int) -> Proof | None:
        proofs = []
        for problem in branch(master.problem, at, shape, most):
            proof = self._explore(problem, master.patterns, bounded.most, depth)
            if proof is None:
                return None
            proofs.append(proof)
        return Split(at, shape, most, *proofs)

    def _separate(self, master: Master, bounded: Bounded, at: int, depth: int) -> Proof | None:
        problem = master.problem.separated(at)
        self.origins = [*self.origins[: problem.classes - 1], self.origins[at]]
        proof = self._explore(problem, master.patterns.separated(at, problem.classes - 1), bounded.most, depth)
        return None if proof is None else Separate(at, proof)

    def _explore(self, problem: Problem, patterns: Patterns, most: int, depth: int) -> Proof | None:
        if problem.modes is not None:
            patterns = patterns.fitting(problem)
        master = Master(problem, patterns)
        bounded = Bounded(most)
        generate(master, bounded, self.cutoff, self.budget)
        return self.close(master, bounded, depth + 1)


def totals_of(master: Master, relaxed: Relaxed) -> Floats:
    """float64[C, G]: what the nodes of each class receive in all."""
    patterns, totals = master.patterns, np.zeros((master.problem.classes, master.problem.shapes))
    for pattern in np.flatnonzero(relaxed.amounts > _EPSILON / 10).tolist():
        totals[patterns.at[pattern]] += relaxed.amounts[pattern] * np.array(patterns.counts[pattern])
    return totals


def _fractional_class(master: Master, relaxed: Relaxed) -> int | None:
    """The first class of several nodes that uses a pattern a fraction of times."""
    fraction = np.abs(relaxed.amounts - np.rint(relaxed.amounts))
    classes = {master.patterns.at[pattern] for pattern in np.flatnonzero(fraction > _EPSILON).tolist()}
    return min((at for at in classes if master.problem.nodes[at] > 1), default=None)


def _mixed_up(problem: Problem, totals: Ints) -> tuple[int, int, int] | None:
    """A single node that receives more than each of its modes allows, a shape of which it receives too many for one
    of them, and how many that one allows."""
    if problem.modes is None:
        return None
    single = np.flatnonzero(problem.nodes == 1)
    for at in single[~in_a_mode(problem.modes, single, totals[single])].tolist():
        limits = np.minimum(problem.modes[:, at], problem.caps[at])
        beyond = np.maximum(totals[at] - limits, 0)
        mode = int(beyond.sum(axis=1).argmin())
        shape = int(beyond[mode].argmax())
        if beyond[mode, shape]:
            return at, shape, int(limits[mode, shape])
    return None


def _whole(master: Master, relaxed: Relaxed, totals: Ints) -> tuple[Use, ...]:
    """The placement of a relaxation that is whole: patterns as often as they are used, single nodes by their totals."""
    nodes, patterns = master.problem.nodes, master.patterns
    uses = [Use(at, tuple(totals[at].tolist()), 1) for at in np.flatnonzero(nodes == 1).tolist()]
    amounts = np.rint(relaxed.amounts).astype(np.int64)
    for pattern in np.flatnonzero(amounts > 0).tolist():
        if nodes[patterns.at[pattern]] > 1:
            uses.append(Use(patterns.at[pattern], patterns.counts[pattern], int(amounts[pattern])))
    return tuple(uses)
