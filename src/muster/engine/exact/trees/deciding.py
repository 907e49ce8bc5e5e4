"""Exact placement of a tree of groups: where enough of it goes, or a proof that no choice fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.decide import DEFAULT_BUDGET
from muster.engine.exact.placing import WORK_PER_PASS
from muster.engine.exact.problem import Counts
from muster.engine.exact.reduce import reduce
from muster.engine.exact.trees.asked import Asked, AskedTree, FoundPlaces, groups_of, requiring
from muster.engine.exact.trees.bounds import tightened
from muster.engine.exact.trees.building import Built, Region, build, chosen_members
from muster.engine.exact.trees.choices import Node, Pick, cheapest, pods_of
from muster.engine.exact.trees.rooms import Rooms, decide_flat
from muster.engine.exact.work import Budget, Remaining
from muster.engine.model import GroupRequest, Infeasible, Placed, Placement
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import candidates, domain_text, limited

_SHARE_FOR_MORE = 4
"""Where enough has a place, the search for places for more of it gets this part of the budget."""
_MOST_SCOPES_FOR_MORE = 8


class TreeAnswer(Struct, frozen=True):
    """`found`: where the chosen members go, None if nothing (better) was found. `is_proved`: there is nothing.

    `account`: what binds, in words.
    """

    found: FoundPlaces | None
    is_proved: bool
    account: str = ""


def place_tree(
    profile: Profile,
    snapshot: Snapshot,
    asked: Asked,
    *,
    known: int | None = None,
    budget: int | None = None,
    remaining: Remaining | None = None,
    is_only_enough: bool = False,
) -> TreeAnswer:
    """Places enough of a tree, and of that as many members as can be placed; or proves that no choice of it fits.

    `known`: so many members have a place by other means; then only more are looked for. `budget` in greedy passes.
    `is_only_enough`: more than enough is not looked for.
    """
    passes = DEFAULT_BUDGET if budget is None else budget
    work = Budget(passes * WORK_PER_PASS, remaining)
    scopes = [_Scope(within, snapshot, asked, region, work) for within, region in _scopes(profile, snapshot, asked)]
    best: FoundPlaces | None = None
    is_proved = True
    if known is None:
        for scope in scopes:
            is_proved = scope.find() and is_proved
            if scope.found is not None:
                best, is_proved = scope.found, False
                break
        if best is not None and is_only_enough:
            return TreeAnswer(best, False)
        if best is None:
            return TreeAnswer(None, is_proved, _account(asked, scopes) if is_proved else "")
    more = Budget(max(1, passes // _SHARE_FOR_MORE) * WORK_PER_PASS, remaining)
    for scope in scopes[:_MOST_SCOPES_FOR_MORE]:
        size = known if best is None else best.size
        assert size is not None, "one of both is known"
        best = scope.find_more(size, more) or best
    if best is not None and isinstance(asked, AskedTree):
        best = _earliest(profile, snapshot, asked, best, more)
    return TreeAnswer(best, False)


def _earliest(profile: Profile, snapshot: Snapshot, asked: AskedTree, best: FoundPlaces, budget: Budget) -> FoundPlaces:
    """Of the choices with as many members one that takes the first of the groups, then the next, as far as can be."""
    chosen = list[int]()
    for at, child in enumerate(asked.children):
        if _runs(child, best):
            chosen.append(at)
            continue
        if not any(_runs(later, best) for later in asked.children[at + 1 :]):
            break
        with_it = requiring(asked, [*chosen, at])
        for within, region in list(_scopes(profile, snapshot, asked))[:_MOST_SCOPES_FOR_MORE]:
            found = _Scope(within, snapshot, with_it, region, budget).find_more(best.size - 1, budget)
            if found is not None:
                best = found
                chosen.append(at)
                break
    return best


def _runs(child: Asked, found: FoundPlaces) -> bool:
    return any(group.name in found.places for group in groups_of(child))


def _account(asked: Asked, scopes: Sequence[_Scope]) -> str:
    """What binds, in the domain that comes first."""
    if asked.key is None:
        return scopes[0].account if scopes else ""
    if not scopes:
        return f"no node has the label {asked.key}" if asked.pinned is None else ""
    said = scopes[0].account
    return f"in {domain_text(*scopes[0].region[0])}, {said}" if said else ""


def _scopes(profile: Profile, snapshot: Snapshot, asked: Asked) -> Iterator[tuple[Profile, Region]]:
    """The domains in which the whole tree may run, the preferred ones first; the whole cluster without any."""
    if asked.key is None:
        yield profile, ()
        return
    members = tuple(member for group in groups_of(asked) for member in group.members)
    if not members:
        return
    request = GroupRequest(asked.name, members, 1, topology_key=asked.key, topology_domain=asked.pinned)
    for each in candidates(profile, snapshot, request, asked.key):
        yield limited(profile, asked.key, each.value), ((asked.key, each.value),)


@dataclass(slots=True)
class _Scope:
    """A tree inside of one domain, or anywhere."""

    profile: Profile
    snapshot: Snapshot
    asked: Asked
    region: Region
    budget: Budget
    found: FoundPlaces | None = None
    account: str = ""
    _built: Built | None = None
    _is_built: bool = False
    _too_many: set[Counts] = field(default_factory=set)
    _words: dict[Counts, str] = field(default_factory=dict)

    def find(self) -> bool:
        """Looks for a choice that fits; whether it is proved that there is none."""
        built = self._build()
        if built is None:
            return False
        if not built.tree.kinds:
            self.account = built.short
            return True
        return self._search(built, None, self.budget)

    def find_more(self, size: int, budget: Budget) -> FoundPlaces | None:
        """A choice with more members than so many that fits; None if none was found."""
        built = self._build()
        if built is None or not built.tree.kinds:
            return None
        self.found = None
        self._search(built, size, budget)
        return self.found

    def _build(self) -> Built | None:
        if not self._is_built:
            rooms = Rooms(self.profile, self.snapshot, self.region, self.budget)
            self._built = build(self.profile, self.snapshot, self.asked, self.region, most_copies=rooms.most_copies)
            self._is_built = True
        return self._built

    def _search(self, built: Built, more_than: int | None, budget: Budget) -> bool:
        from muster.engine.exact.trees.account import account  # these load HiGHS, which takes a while
        from muster.engine.exact.trees.proof import Weighed, lean, verified
        from muster.engine.exact.trees.search import Selection, TreeSearch

        nothing = cheapest(built.tree, [1] * len(built.classes))
        if nothing is not None and nothing[0] == 0 and more_than is None:
            self.found = FoundPlaces({})
            return False
        if not any(room for room in built.rooms):
            return True

        def fits(selection: Selection) -> bool | None:
            return self._fits(built, selection.tree, selection.pick, budget)

        reduced = reduce(self.profile, self.snapshot, built.demands)
        search = TreeSearch(reduced.problem, fits, budget, is_least=not built.is_coupled, too_many=self._too_many)
        if more_than is not None:
            return search.most_pods(built.tree, more_than)
        proof = search.any_choice(built.tree)
        if proof is None or search.found is not None:
            return False
        if isinstance(proof, Weighed):
            proof = lean(reduced.problem, tightened(built.tree, search.is_least) or built.tree, proof)
        self.account = account(reduced.problem, built.classes, proof, self._words, self.snapshot)
        return verified(reduced.problem, built.tree, proof, frozenset(self._too_many), search.is_least)

    def _fits(self, built: Built, tree: Node, pick: Pick, budget: Budget) -> bool | None:
        """Asks about the members of a choice as one flat group, by all rules."""
        chosen = chosen_members(built, self.asked, tree, pick)
        members = tuple(replace(each.member, shape=each.pinned) for each in chosen)
        request = GroupRequest(self.asked.name, members, len(members))
        decision = decide_flat(self.profile, self.snapshot, request, budget)
        if isinstance(decision, Infeasible):
            self._words[pods_of(tree, pick, len(built.classes))] = decision.proof
            return False
        if not isinstance(decision, Placed) or decision.unplaced:
            return None
        partly = {group.name for group in groups_of(self.asked) if group.is_partly_known}
        if any(each.group in partly for each in chosen):
            return None
        node_of = {placement.pod: placement for placement in decision.placements}
        places: dict[str, list[Placement]] = {}
        for each in chosen:
            places.setdefault(each.group, []).append(node_of[each.member.key])
        self.found = FoundPlaces({name: tuple(found) for name, found in places.items()})
        return True
