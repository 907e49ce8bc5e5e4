"""Trees of groups as preemptors: what of them is enough, and where the engine puts it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from muster.engine.model import Member
from muster.engine.preemption.forms import Choice, Enough, SomeOf, fewest
from muster.engine.preemption.wanted import Answer, TreePreemptor
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import DomainError
from muster.scheduler.tree import Branch, Leaf, Tree, leaves_of
from muster.scheduler.tree_deciding import decide_tree


def tree_preemptor(key: str, tree: Branch, profile: Profile, priority: int, may_preempt: bool) -> TreePreemptor:
    """The tree as the planner asks about it; one that runs preempts for one more of its groups."""
    members = tuple(member for leaf in leaves_of(tree) for member in leaf.members)
    shapes = list(dict.fromkeys(member.shape for member in members))
    choice = _choice(tree, shapes)
    if fewest(choice) == 0:
        choice = SomeOf(tuple(_more(leaf, shapes) for leaf in leaves_of(tree) if leaf.members), 1)
    return TreePreemptor(key, members, choice, partial(_place, tree, profile), priority, may_preempt)


def _choice(tree: Tree, shapes: Sequence[Shape]) -> Choice:
    if isinstance(tree, Leaf):
        return Enough(max(0, tree.min_count - tree.scheduled), _numbers(tree.members, shapes))
    return SomeOf(tuple(_choice(child, shapes) for child in tree.children), tree.min_groups)


def _more(leaf: Leaf, shapes: Sequence[Shape]) -> Enough:
    """What places something of a group."""
    return Enough(max(1, leaf.min_count - leaf.scheduled), _numbers(leaf.members, shapes))


def _numbers(members: Sequence[Member], shapes: Sequence[Shape]) -> tuple[int, ...]:
    numbers = Counter(member.shape for member in members)
    return tuple(numbers[shape] for shape in shapes)


def _place(tree: Branch, profile: Profile, snapshot: Snapshot) -> Answer:
    """Where the groups go of which enough fit."""
    try:
        decision = decide_tree(snapshot, tree, profile=profile)
    except DomainError:
        return Answer()  # its members run where they may not: nobody's eviction helps
    placements = tuple(placement for leaf in leaves_of(tree) for placement in decision.placements(leaf))
    return Answer(placements, decision.proved) if decision.succeeded else Answer((), decision.proved)
