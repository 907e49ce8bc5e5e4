"""Trees of groups as values: groups and composite groups, and what was decided about them. Pure.

Semantics: workload-api.md 4.3. Decisions are made in `tree_deciding`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.api.groups import GroupRef
from muster.engine.identical import put
from muster.engine.model import Decision, Member, Placed, Placement
from muster.engine.shape import Shape
from muster.engine.snapshot import Trial
from muster.scheduler.domains import OneDomain


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
    def question(self) -> Hashable:
        """What it asks, whoever it is."""
        bound = self.topology, self.placed
        return tuple(member.shape for member in self.members), self.min_count, self.scheduled, bound


class Branch(Struct, frozen=True):
    """A composite group: `min_groups` of its children must succeed; all of it in one domain of `topology_key`.

    `preferred`: labels of which one domain should hold all of it, in the order of trial.
    """

    key: str
    children: tuple[Leaf | Branch, ...]
    min_groups: int
    topology_key: str | None = None
    preferred: tuple[str, ...] = ()

    @property
    def question(self) -> Hashable:
        """What it asks, whoever it is."""
        return self.min_groups, self.topology_key, self.preferred, tuple(child.question for child in self.children)


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
        return placements_in(self.outcomes[key]) if self.succeeded and key not in self.dropped else ()


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


def placements_in(decision: Decision) -> Placements:
    """What a decision places."""
    return decision.placements if isinstance(decision, Placed) else ()


def put_placements(trial: Trial, members: Iterable[Member], placements: Iterable[Placement]) -> None:
    """Put members where they were placed into a trial."""
    shapes = {member.key: member.shape for member in members}
    received: dict[Shape, list[int]] = {}
    for placement in placements:
        received.setdefault(shapes[placement.pod], []).append(trial.table.index[placement.node])
    for shape, rows in received.items():
        put(trial, shape, np.bincount(rows, minlength=len(trial)).astype(np.int64))


def put_leaves(trial: Trial, leaves: Iterable[Leaf], placements: Iterable[Placement]) -> None:
    """Put the members of groups where they were placed into a trial."""
    put_placements(trial, (member for leaf in leaves for member in leaf.members), placements)
