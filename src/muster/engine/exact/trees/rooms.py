"""How many equal groups each domain holds at most, were they alone: bounds that make the search for all short."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from msgspec.structs import replace

from muster.engine.decide import decide
from muster.engine.exact.placing import WORK_PER_PASS
from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.reduce import reduce
from muster.engine.exact.trees.asked import Asked
from muster.engine.exact.trees.building import Built, Region, build
from muster.engine.exact.trees.choices import pods_of
from muster.engine.exact.work import Budget
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot

_PASSES_PER_QUESTION = 16
_PASSES_PER_DOMAIN = 4


def decide_flat(profile: Profile, snapshot: Snapshot, request: GroupRequest, budget: Budget) -> Decision:
    """The engine's answer about a flat group, within what is left of the budget."""
    passes = max(1, min(_PASSES_PER_QUESTION, (budget.work - budget.spent) // WORK_PER_PASS))
    decision = decide(snapshot, request, budget=passes, profile=profile, remaining=budget.remaining)
    budget.spent += WORK_PER_PASS // 4
    return decision


@dataclass(slots=True)
class Rooms:
    """Bounds for the domains of a cluster; domains that are alike have the same. `scope`: where all of it is."""

    profile: Profile
    snapshot: Snapshot
    scope: Region
    budget: Budget
    _known: dict[Hashable, int] = field(default_factory=dict)

    def most_copies(self, asked: Asked, region: Region, number: int) -> int:
        """At most so many of `number` equal groups run in the region at once, by proof."""
        built = build(
            self.profile,
            self.snapshot,
            asked,
            self.scope,
            region=region,
            copies=number,
            most_copies=self.most_copies,
        )
        if built is None or self.snapshot.reserved:
            return number
        if not built.tree.kinds:
            return 0
        if not any(built.rooms):
            return number
        problem = reduce(self.profile, self.snapshot, built.demands).problem
        key = asked.question, number, *_bytes(problem), built.tree
        if key not in self._known:
            self._known[key] = self._count(built, problem, number)
        return self._known[key]

    def _count(self, built: Built, problem: Problem, number: int) -> int:
        """The first number that is proved to be too many, less one."""
        from muster.engine.exact.trees.proof import verified  # these load HiGHS, which takes a while
        from muster.engine.exact.trees.search import Selection, TreeSearch

        def fits(selection: Selection) -> bool | None:
            return self._fits(built, pods_of(selection.tree, selection.pick, problem.shapes))

        for copies in range(1, number + 1):
            if self.budget.is_used_up:
                break
            tree = replace(built.tree, least=copies)
            own = Budget(_PASSES_PER_DOMAIN * WORK_PER_PASS, self.budget.remaining)
            search = TreeSearch(problem, fits, own, is_least=True)
            proof = search.any_choice(tree)
            self.budget.spent += own.spent
            if proof is not None and verified(problem, tree, proof, frozenset(search.too_many), True):
                return copies - 1
        return number

    def _fits(self, built: Built, pods: Counts) -> bool | None:
        shapes = [each.pinned for each, number in zip(built.classes, pods, strict=True) for _ in range(number)]
        members = tuple(Member(f"{at}", shape) for at, shape in enumerate(shapes))
        decision = decide_flat(self.profile, self.snapshot, GroupRequest("", members, len(members)), self.budget)
        if isinstance(decision, Infeasible):
            return False
        return True if isinstance(decision, Placed) and not decision.unplaced else None


def _bytes(problem: Problem) -> tuple[bytes, ...]:
    """What the problem is, for comparisons."""
    modes = () if problem.modes is None else (problem.modes,)
    arrays = problem.requests, problem.demand, problem.free, problem.caps, problem.nodes, *modes
    return tuple(array.tobytes() for array in arrays)
