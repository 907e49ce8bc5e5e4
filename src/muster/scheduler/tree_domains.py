"""The first try for a tree of groups of which some must run in one topology domain: the tree, a part, or its groups.

Domains are tried in the engine's order of preference, and given up again where the groups after them find no room:
children of a composite group are chosen, and their domains with them, until enough of them fit. Every single question
is the engine's, by the rules of a profile that closes all nodes outside of the domain. Pure.
Semantics: workload-scheduling.md 1.7 (a domain of a composite group holds all below it; domains nest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from muster.engine.model import Decision, GroupRequest, Placed
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.topology.domains import Within, candidates, limited, pinned_domain
from muster.engine.upstream.model import CompositeGroup, Group, PodGroup
from muster.scheduler.tree import Branch, Leaf, Tree, TreeDecision, leaves_of, placements_in, put_leaves, smallest_need

MOST_QUESTIONS = 60
"""How many requests to the engine the first try for one tree may make."""

DecideBy: TypeAlias = Callable[[Profile, Snapshot, GroupRequest], Decision]
"""Decides about one group by the rules of a profile."""

Outcomes: TypeAlias = dict[str, Decision]


def has_domains(tree: Tree) -> bool:
    """Whether some group of the tree must run in one topology domain."""
    if isinstance(tree, Leaf):
        return tree.topology is not None
    is_bound = tree.topology_key is not None or bool(tree.preferred)
    return is_bound or any(has_domains(child) for child in tree.children)


def decide_in_domains(snapshot: Snapshot, root: Branch, profile: Profile, decide: DecideBy) -> TreeDecision:
    """Which groups of a tree run now, and where.

    Raises DomainError for members that run in no one domain. Nothing is proved about a tree that is not placed.
    """
    search = _Search(profile, decide)
    with snapshot.trial() as trial:
        found = next(search.ways(root, trial, profile), None)
    alone = {leaf.ref.key: search.alone(leaf, snapshot) for leaf in leaves_of(root)}
    if found is None:
        return TreeDecision(False, alone, {})
    dropped = {key: root.key for key, outcome in alone.items() if key not in found and isinstance(outcome, Placed)}
    return TreeDecision(True, {**alone, **found}, dropped)


def as_asked(tree: Tree) -> Group:
    """The tree as the greedy group cycle is asked about it."""
    if isinstance(tree, Branch):
        return CompositeGroup(tree.key, tuple(map(as_asked, tree.children)), tree.min_groups, tree.topology_key)
    key, placed = None if tree.topology is None else tree.topology.key, dict(tree.placed)
    return PodGroup(tree.ref.key, tree.members, tree.min_count, placed, key, tree.scheduled - len(placed))


@dataclass(slots=True)
class _Search:
    """Goes through choices of groups and domains; `questions`: how many requests to the engine it took."""

    profile: Profile
    decide: DecideBy
    questions: int = 0

    def alone(self, leaf: Leaf, snapshot: Snapshot) -> Decision:
        """The answer about a group without the others."""
        return self.decide(self.profile, snapshot, _request(leaf))

    def ways(self, tree: Tree, trial: Trial, profile: Profile) -> Iterator[Outcomes]:
        """The ways to place a group, or enough of the groups below a composite group, the preferred ones first."""
        if isinstance(tree, Leaf):
            yield from self._leaf_ways(tree, trial, profile)
            return
        for scope in self._scopes(tree, trial, profile):
            yield from self._children(tree, 0, tree.min_groups, trial, scope)

    def _leaf_ways(self, leaf: Leaf, trial: Trial, profile: Profile) -> Iterator[Outcomes]:
        for asked in _portions(leaf):
            left = tuple(member.key for member in leaf.members[len(asked.members) :])
            for one in self._requests(_request(asked), asked, trial, profile):
                if self.questions >= MOST_QUESTIONS:
                    return
                self.questions += 1
                decision = self.decide(profile, trial, one)
                if isinstance(decision, Placed):
                    yield {leaf.ref.key: replace(decision, unplaced=(*decision.unplaced, *left))}

    def _requests(self, request: GroupRequest, leaf: Leaf, trial: Trial, profile: Profile) -> Iterator[GroupRequest]:
        """The request, once for each domain that may hold enough of the group."""
        if request.topology_key is None or request.topology_domain is not None or not leaf.members:
            yield request
            return
        need = max(request.min_count - request.scheduled, 1)
        for each in candidates(profile, trial, request, request.topology_key):
            if each.most >= need:
                yield replace(request, topology_domain=each.value)

    def _scopes(self, branch: Branch, trial: Trial, profile: Profile) -> Iterator[Profile]:
        """The rules of the profile on all nodes in scope, or on those of one domain after the other.

        Preferred labels first: one domain of them, too, where counting says that enough may fit.
        """
        for key in branch.preferred:
            for scope in self._required_scopes(branch, trial, profile):
                yield from self._preferred_scopes(branch, trial, scope, key)
        yield from self._required_scopes(branch, trial, profile)

    def _preferred_scopes(self, branch: Branch, trial: Trial, profile: Profile, key: str) -> Iterator[Profile]:
        """Rules about pods elsewhere go on to see all nodes: the domain is not required."""
        members = tuple(member for leaf in leaves_of(branch) for member in leaf.members)
        needed = smallest_need(branch)
        if key == branch.topology_key or not members or needed is None:
            return
        for each in candidates(profile, trial, GroupRequest(branch.key, members, 1), key):
            if each.most >= max(1, len(needed)):
                yield replace(profile, filters=(Within(key, each.value), *profile.filters))

    def _required_scopes(self, branch: Branch, trial: Trial, profile: Profile) -> Iterator[Profile]:
        if branch.topology_key is None:
            yield profile
            return
        members = tuple(member for leaf in leaves_of(branch) for member in leaf.members)
        placed = {pod: node for leaf in leaves_of(branch) for pod, node in leaf.placed}
        pinned = pinned_domain(trial.table, branch.topology_key, placed)
        if not members:
            return
        request = GroupRequest(branch.key, members, 1, topology_key=branch.topology_key, topology_domain=pinned)
        for each in candidates(profile, trial, request, branch.topology_key):
            yield limited(profile, branch.topology_key, each.value)

    def _children(self, branch: Branch, at: int, missing: int, trial: Trial, profile: Profile) -> Iterator[Outcomes]:
        """The ways to place `missing` of the children from `at` on; as many as can be, if more fit."""
        if at == len(branch.children):
            if missing <= 0:
                yield {}
            return
        child = branch.children[at]
        for way in self.ways(child, trial, profile):
            with trial.trial() as inner:
                _put(inner, child, way)
                for rest in self._children(branch, at + 1, missing - 1, inner, profile):
                    yield {**way, **rest}
        if len(branch.children) - at - 1 >= missing:
            yield from self._children(branch, at + 1, missing, trial, profile)


def _portions(leaf: Leaf) -> tuple[Leaf, ...]:
    """The group with all its members, then with as many as it needs, which leaves more room for others."""
    return (leaf,) if len(leaf.need) in (0, len(leaf.members)) else (leaf, replace(leaf, members=leaf.need))


def _request(leaf: Leaf) -> GroupRequest:
    request = GroupRequest(leaf.ref.key, leaf.members, leaf.min_count, leaf.scheduled)
    return request if leaf.topology is None else leaf.topology.bind(request)


def _put(trial: Trial, tree: Tree, way: Outcomes) -> None:
    put_leaves(trial, leaves_of(tree), [each for outcome in way.values() for each in placements_in(outcome)])
