"""Decide about a tree of groups: which of them run, and where. Pure.

First every group is tried in order of creation, as kube-scheduler does. If that is not enough for the root, the needs
of its groups (minCount each) are searched: children are chosen one after the other, every choice is judged by the
engine as one request, and what does not fit is taken back. The pass in order then goes on from what was found. So a
tree is placed if some choice of its groups fits, not just the first. Semantics: workload-api.md 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.api.groups import GroupRef
from muster.engine.identical import put
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Placement
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial
from muster.scheduler.changes import NODE_LOCAL_PLUGINS
from muster.scheduler.domains import OneDomain

MOST_QUESTIONS = 200
"""How many requests to the engine the search for one tree may make."""

Decide: TypeAlias = Callable[[Snapshot, GroupRequest], Decision]


class Leaf(Struct, frozen=True):
    """A group of the tree with its pending members; `scheduled` members have a node already.

    `topology`: it must be in one domain. `placed`: (pod, node) of its scheduled members, where domains matter.
    """

    ref: GroupRef
    members: tuple[Member, ...]
    min_count: int
    scheduled: int = 0
    topology: OneDomain | None = None
    placed: tuple[tuple[str, str], ...] = ()

    @property
    def need(self) -> tuple[Member, ...]:
        """The first members, as many as have to be placed."""
        return self.members[: max(0, self.min_count - self.scheduled)]

    @property
    def is_complete(self) -> bool:
        """Whether enough members exist."""
        return len(self.members) + self.scheduled >= self.min_count

    @property
    def is_elastic(self) -> bool:
        """Whether other members than the first ones might fit instead of them."""
        return len(self.need) < len(self.members) and len({member.shape for member in self.members}) > 1

    @property
    def question(self) -> Hashable:
        """What it asks, whoever it is."""
        bound = self.topology, self.placed
        return tuple(member.shape for member in self.members), self.min_count, self.scheduled, bound


class Branch(Struct, frozen=True):
    """A composite group: `min_groups` of its children must succeed; all of it in one domain of `topology_key`."""

    key: str
    children: tuple[Leaf | Branch, ...]
    min_groups: int
    topology_key: str | None = None

    @property
    def question(self) -> Hashable:
        """What it asks, whoever it is."""
        return self.min_groups, self.topology_key, tuple(child.question for child in self.children)


Tree: TypeAlias = Leaf | Branch
Placements: TypeAlias = tuple[Placement, ...]


class TreeDecision(Struct, frozen=True):
    """What was decided about each group, by its key (`outcomes`), and what comes of it.

    `dropped`: groups that would fit, but are left out since a composite group above them failed (its key). Placements
    of the others are to be carried out if `succeeded` says that the root has enough. Else `reason` says why it has not;
    `proved`: that is certain.
    """

    succeeded: bool
    outcomes: dict[str, Decision]
    dropped: dict[str, str]
    reason: str = ""
    proved: bool = False

    def placements(self, leaf: Leaf) -> Placements:
        """The placements of a group that are to be carried out."""
        key = leaf.ref.key
        return _placements(self.outcomes[key]) if self.succeeded and key not in self.dropped else ()


def leaves_of(tree: Tree) -> Iterator[Leaf]:
    """The groups of a tree in order."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for child in tree.children:
            yield from leaves_of(child)


def smallest_need(tree: Tree) -> tuple[Member, ...] | None:
    """The fewest pending members with which a tree succeeds, as far as their number says; None if too few exist."""
    if isinstance(tree, Leaf):
        return tree.need if tree.is_complete else None
    found = [need for child in tree.children if (need := smallest_need(child)) is not None]
    if len(found) < tree.min_groups:
        return None
    return tuple(member for need in sorted(found, key=len)[: tree.min_groups] for member in need)


def decide_tree(snapshot: Snapshot, root: Branch, decide: Decide) -> TreeDecision:
    """Which groups of a tree run now, and where."""
    in_order = _InOrder(decide)
    if in_order.run(snapshot, root):
        return TreeDecision(True, in_order.outcomes, in_order.dropped)
    search = _Search(snapshot, decide)
    found = search.run(root)
    if found is None:
        return TreeDecision(False, in_order.outcomes, in_order.dropped, search.reason(root), search.is_proof)
    first = {placement.pod: placement for placement in found}
    rest = _InOrder(decide)
    with snapshot.trial() as trial:
        _put(trial, leaves_of(root), found)
        rest.run(trial, _without(root, first))
    outcomes = {leaf.ref.key: _joined(leaf, rest.outcomes[leaf.ref.key], first) for leaf in leaves_of(root)}
    chosen = {leaf.ref.key for leaf in leaves_of(root) if any(member.key in first for member in leaf.members)}
    return TreeDecision(True, outcomes, {key: why for key, why in rest.dropped.items() if key not in chosen})


@dataclass(slots=True)
class _InOrder:
    """Tries all groups in order, each with those before it in place; what failed leaves nothing behind."""

    decide: Decide
    outcomes: dict[str, Decision] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def run(self, snapshot: Snapshot, root: Branch) -> bool:
        """Whether the root has enough."""
        with snapshot.trial() as trial:
            return self._try(trial, root)

    def _try(self, trial: Trial, tree: Tree) -> bool:
        if isinstance(tree, Branch):
            return self._try_branch(trial, tree)
        decision = self.decide(trial, GroupRequest(tree.ref.key, tree.members, tree.min_count, tree.scheduled))
        self.outcomes[tree.ref.key] = decision
        _put(trial, (tree,), _placements(decision))
        return isinstance(decision, Placed)

    def _try_branch(self, trial: Trial, branch: Branch) -> bool:
        with trial.trial() as inner:
            succeeded = sum(self._try(inner, child) for child in branch.children)
        fitting = [leaf for leaf in leaves_of(branch) if leaf.ref.key not in self.dropped]
        if succeeded < branch.min_groups:
            fallen = (leaf.ref.key for leaf in fitting if isinstance(self.outcomes[leaf.ref.key], Placed))
            self.dropped.update(dict.fromkeys(fallen, branch.key))
            return False
        _put(trial, fitting, [each for leaf in fitting for each in _placements(self.outcomes[leaf.ref.key])])
        return True


@dataclass(slots=True)
class _Search:
    """Chooses groups so that the root succeeds; every choice must fit together with those before it.

    `is_proof`: no choice was left out and every answer was certain.
    """

    snapshot: Snapshot
    decide: Decide
    questions: int = 0
    is_proof: bool = True
    _failed: dict[Hashable, bool] = field(default_factory=dict)
    """What did not fit, and whether more groups could change that."""
    _last: tuple[tuple[Member, ...], Placements] = ((), ())

    def run(self, root: Branch) -> Placements | None:
        """Where the needed members of the chosen groups go; None if no choice was found that fits."""
        return self._choose(root, (), self._fit)

    def reason(self, root: Branch) -> str:
        """Why nothing was found."""
        needed = f"{root.min_groups} of its {len(root.children)} groups"
        if self.is_proof:
            return f"it needs {needed}, and so many do not fit at the same time, whichever are chosen"
        return f"no placement for {needed} was found in {self.questions} attempts, and no proof that there is none"

    def _choose(self, tree: Tree, chosen: tuple[Leaf, ...], then: _Then) -> Placements | None:
        """Extend a choice so that `tree` succeeds, and go on with `then`; the first that comes through."""
        if isinstance(tree, Branch):
            return self._pick(tree, 0, tree.min_groups, chosen, then)
        extended = (*chosen, tree)
        if self._fit(extended) is None and not self._may_need_others(extended):
            return None
        return then(extended)

    def _pick(
        self, branch: Branch, start: int, missing: int, chosen: tuple[Leaf, ...], then: _Then
    ) -> Placements | None:
        """Choose so many more of the children from `start` on."""
        if missing <= 0:
            return then(chosen)
        for at in range(start, len(branch.children) - missing + 1):

            def go_on(extended: tuple[Leaf, ...], following: int = at + 1) -> Placements | None:
                return self._pick(branch, following, missing - 1, extended, then)

            found = self._choose(branch.children[at], chosen, go_on)
            if found is not None:
                return found
        return None

    def _fit(self, chosen: tuple[Leaf, ...]) -> Placements | None:
        """Where the needed members of these groups go together; None if they do not fit, or nobody knows."""
        if not all(leaf.is_complete for leaf in chosen):
            return None
        members = _needed(chosen)
        if members == self._last[0]:
            return self._last[1]
        question = _question(members)
        if question in self._failed:
            return None
        if self.questions >= MOST_QUESTIONS:
            self.is_proof = False
            return None
        self.questions += 1
        decision = self.decide(self.snapshot, GroupRequest(chosen[-1].ref.key, members, len(members)))
        if isinstance(decision, Placed):
            self._last = members, decision.placements
            return decision.placements
        self._failed[question] = not decision.diagnosis.plugins <= NODE_LOCAL_PLUGINS
        if not isinstance(decision, Infeasible) or any(leaf.is_elastic for leaf in chosen):
            self.is_proof = False
        return None

    def _may_need_others(self, chosen: tuple[Leaf, ...]) -> bool:
        """Whether rules between pods keep these groups away, which other groups of the tree may satisfy."""
        return all(leaf.is_complete for leaf in chosen) and self._failed.get(_question(_needed(chosen)), False)


def _needed(chosen: Iterable[Leaf]) -> tuple[Member, ...]:
    return tuple(member for leaf in chosen for member in leaf.need)


def _question(members: Iterable[Member]) -> Hashable:
    return frozenset(Counter(member.shape for member in members).items())


_Then: TypeAlias = Callable[[tuple[Leaf, ...]], Placements | None]


def _placements(decision: Decision) -> Placements:
    return decision.placements if isinstance(decision, Placed) else ()


def _put(trial: Trial, leaves: Iterable[Leaf], placements: Iterable[Placement]) -> None:
    put_placements(trial, (member for leaf in leaves for member in leaf.members), placements)


def put_placements(trial: Trial, members: Iterable[Member], placements: Iterable[Placement]) -> None:
    """Put members where they were placed into a trial."""
    shapes = {member.key: member.shape for member in members}
    received: dict[Shape, list[int]] = {}
    for placement in placements:
        received.setdefault(shapes[placement.pod], []).append(trial.table.index[placement.node])
    for shape, rows in received.items():
        put(trial, shape, np.bincount(rows, minlength=len(trial)).astype(np.int64))


def _without(branch: Branch, placed: dict[str, Placement]) -> Branch:
    """The tree with the placed members counted as scheduled."""
    children = [
        _without(child, placed) if isinstance(child, Branch) else _rest(child, placed) for child in branch.children
    ]
    return replace(branch, children=tuple(children))


def _rest(leaf: Leaf, placed: dict[str, Placement]) -> Leaf:
    rest = tuple(member for member in leaf.members if member.key not in placed)
    return replace(leaf, members=rest, scheduled=leaf.scheduled + len(leaf.members) - len(rest))


def _joined(leaf: Leaf, decision: Decision, first: dict[str, Placement]) -> Decision:
    """What was decided about a group of which some members had been placed before."""
    earlier = tuple(first[member.key] for member in leaf.members if member.key in first)
    if not earlier:
        return decision
    if isinstance(decision, Placed):
        return replace(decision, placements=(*earlier, *decision.placements))
    return Placed(earlier, tuple(each.key for each in leaf.members if each.key not in first), decision.diagnosis)
