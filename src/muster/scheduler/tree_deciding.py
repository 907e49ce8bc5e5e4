"""Decide about a tree of groups: which of them run, and where. Pure.

First all groups are tried in order of creation, as kube-scheduler does, or, with topology constraints, domains and
groups in order of preference. If that is not enough for the root, or leaves members over, the exact search chooses
among all groups, domains and members (`engine/exact/trees`): it places enough of the tree if any choice fits, and as
many members as it can; or it proves that no choice fits. The pass in order then goes on from what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.exact.trees.asked import Asked, AskedGroup, AskedTree
from muster.engine.exact.trees.deciding import TreeAnswer, place_tree
from muster.engine.exact.work import Remaining
from muster.engine.model import Decision, GroupRequest, Placed, Placement
from muster.engine.nodes import NodeTable
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import pinned_domain
from muster.scheduler.tree import Branch, Leaf, Tree, TreeDecision, leaves_of, put_leaves
from muster.scheduler.tree_domains import decide_in_domains, has_domains
from muster.scheduler.tree_in_order import InOrder


def decide_tree(
    snapshot: Snapshot,
    root: Branch,
    *,
    profile: Profile = DEFAULT_PROFILE,
    budget: int | None = None,
    remaining: Remaining | None = None,
    is_only_enough: bool = False,
) -> TreeDecision:
    """Which groups of a tree run now, and where. `budget` and `remaining` as for `decide`.

    `is_only_enough`: it is asked whether enough of it fits, not for places for as many members as possible.

    Raises DomainError for members that run in no one domain.
    """
    ask = partial(_decide, budget, remaining)
    is_bound = has_domains(root)
    first = decide_in_domains(snapshot, root, profile, ask) if is_bound else _in_order(snapshot, root, profile, ask)
    placed = sum(len(first.placements(leaf)) for leaf in leaves_of(root))
    if first.succeeded and (is_only_enough or placed == sum(len(leaf.members) for leaf in leaves_of(root))):
        return first
    known = placed if first.succeeded else None
    asked = as_exactly_asked(root, snapshot.table)
    answer = place_tree(
        profile,
        snapshot,
        asked,
        known=known,
        budget=budget,
        remaining=remaining,
        is_only_enough=is_only_enough,
    )
    if answer.found is None:
        return first if first.succeeded else _refused(root, first, answer, is_bound)
    found = {placement.pod: placement for places in answer.found.places.values() for placement in places}
    return _in_domains(root, first, found) if is_bound else _completed(snapshot, root, found, partial(ask, profile))


def as_exactly_asked(tree: Tree, table: NodeTable) -> Asked:
    """The tree as the exact search is asked about it. Raises DomainError for members that run in no one domain."""
    if isinstance(tree, Leaf):
        return _asked_group(tree)
    children = tuple(as_exactly_asked(child, table) for child in tree.children)
    placed = {pod: node for leaf in leaves_of(tree) for pod, node in leaf.placed}
    pinned = None if tree.topology_key is None else pinned_domain(table, tree.topology_key, placed)
    return AskedTree(tree.key, children, tree.min_groups, tree.topology_key, pinned)


def _asked_group(leaf: Leaf) -> AskedGroup:
    topology, need = leaf.topology, leaf.min_count - leaf.scheduled
    if topology is None:
        return AskedGroup(leaf.ref.key, leaf.members, max(0, need))
    topology.bind(GroupRequest(leaf.ref.key, leaf.members, leaf.min_count))  # raises for a fault
    layout = topology.layout
    in_parts = layout is not None and layout.terms.subgroups is not None
    return AskedGroup(leaf.ref.key, leaf.members, max(0, need), topology.key, topology.pinned, in_parts)


Ask = Callable[[Profile, Snapshot, GroupRequest], Decision]


def _decide(
    budget: int | None, remaining: Remaining | None, profile: Profile, snapshot: Snapshot, request: GroupRequest
) -> Decision:
    return decide(snapshot, request, budget=budget, profile=profile, remaining=remaining)


def _in_order(snapshot: Snapshot, root: Branch, profile: Profile, ask: Ask) -> TreeDecision:
    in_order = InOrder(partial(ask, profile))
    return TreeDecision(in_order.run(snapshot, root), in_order.outcomes, in_order.dropped)


def _refused(root: Branch, first: TreeDecision, answer: TreeAnswer, is_bound: bool) -> TreeDecision:
    needed = f"{root.min_groups} of its {len(root.children)} groups"
    if answer.is_proved:
        where = ", in whichever domains" if is_bound else ""
        reason = f"it needs {needed}, and so many do not fit at the same time, whichever are chosen{where}"
        reason += f": {answer.account}" if answer.account else ""
    else:
        reason = f"no placement for {needed} was found, and no proof that there is none"
    return replace(first, reason=reason, proved=answer.is_proved)


def _in_domains(root: Branch, first: TreeDecision, found: dict[str, Placement]) -> TreeDecision:
    outcomes, dropped = dict(first.outcomes), dict[str, str]()
    for leaf in leaves_of(root):
        key = leaf.ref.key
        placements = tuple(found[member.key] for member in leaf.members if member.key in found)
        outcome = outcomes[key]
        left = tuple(member.key for member in leaf.members if member.key not in found)
        if placements:
            outcomes[key] = Placed(placements, left, outcome.diagnosis)
        elif isinstance(outcome, Placed):
            dropped[key] = root.key
    return TreeDecision(True, outcomes, dropped)


def _completed(
    snapshot: Snapshot, root: Branch, found: dict[str, Placement], ask: Callable[[Snapshot, GroupRequest], Decision]
) -> TreeDecision:
    """With the groups and members that still have room beside those found."""
    rest = InOrder(ask)
    with snapshot.trial() as trial:
        put_leaves(trial, leaves_of(root), found.values())
        rest.run(trial, _without(root, found))
    outcomes = {leaf.ref.key: _joined(leaf, rest.outcomes[leaf.ref.key], found) for leaf in leaves_of(root)}
    chosen = {leaf.ref.key for leaf in leaves_of(root) if any(member.key in found for member in leaf.members)}
    return TreeDecision(True, outcomes, {key: why for key, why in rest.dropped.items() if key not in chosen})


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
