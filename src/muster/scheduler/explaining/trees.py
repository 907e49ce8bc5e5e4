"""A tree of groups as a target of what-if questions: its edits, and whether it would run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.explanation.question import QUESTION_BUDGET, Quota, Reshape, Target, reshaped
from muster.engine.model import Member
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.scheduler.tree import Branch, Leaf, Tree, leaves_of
from muster.scheduler.tree_deciding import decide_tree

_MOST_QUOTAS = 16
_MEMBERS_PER_UNIT = 64


class TreeTarget(Struct, frozen=True):
    """A composite group with all groups below it."""

    root: Branch

    @property
    def key(self) -> str:
        return self.root.key

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(member for leaf in leaves_of(self.root) for member in leaf.members)

    @property
    def needed(self) -> int:
        return max(1, _needed(self.root))

    @property
    def is_complete(self) -> bool:
        return _is_complete(self.root)

    @property
    def topology_key(self) -> str | None:
        return None

    def reshaped(self, change: Reshape) -> TreeTarget:
        return TreeTarget(_edited(self.root, lambda leaf: replace(leaf, members=reshaped(leaf.members, change))))

    def quotas(self) -> list[Quota]:
        return list(_quotas(self.root, lambda tree: TreeTarget(tree)))[:_MOST_QUOTAS]

    def relaxed(self) -> list[tuple[str, str | None, Target]]:
        return []

    def other_domain(self, key: str) -> None:
        return None

    def cost(self, snapshot: Snapshot, profile: Profile) -> int:
        leaves = sum(1 for _ in leaves_of(self.root))
        return leaves * QUESTION_BUDGET * (1 + len(self.members) // _MEMBERS_PER_UNIT)

    def verdict(self, snapshot: Snapshot, profile: Profile) -> bool | None:
        decision = decide_tree(snapshot, self.root, budget=QUESTION_BUDGET, profile=profile)
        if decision.succeeded:
            return True
        return False if decision.proved else None


def _needed(tree: Tree) -> int:
    """How many pods must be placed at least, whichever groups are chosen."""
    if isinstance(tree, Leaf):
        return max(0, tree.min_count - tree.scheduled)
    return sum(sorted(_needed(child) for child in tree.children)[: tree.min_groups])


def _is_complete(tree: Tree) -> bool:
    if isinstance(tree, Leaf):
        return tree.is_complete
    return sum(_is_complete(child) for child in tree.children) >= tree.min_groups


def _edited(branch: Branch, edit: Callable[[Leaf], Leaf]) -> Branch:
    children = tuple(_edited(each, edit) if isinstance(each, Branch) else edit(each) for each in branch.children)
    return replace(branch, children=children)


def _quotas(branch: Branch, rebuilt: Callable[[Branch], TreeTarget]) -> Iterator[Quota]:
    """The numbers of a branch, its own first; `rebuilt` puts a changed branch into its place."""
    if branch.min_groups > 1:
        yield Quota(
            "minGroupCount", branch.key, branch.min_groups, 1, lambda to: rebuilt(replace(branch, min_groups=to))
        )
    for place, child in enumerate(branch.children):
        if isinstance(child, Branch):
            yield from _quotas(child, partial(_put_back, branch, place, rebuilt))
        elif child.min_count - 1 > child.scheduled:
            yield Quota(
                "minCount",
                child.ref.key,
                child.min_count,
                child.scheduled + 1,
                partial(_with_min_count, branch, place, rebuilt),
            )


def _put_back(branch: Branch, place: int, rebuilt: Callable[[Branch], TreeTarget], child: Tree) -> TreeTarget:
    children = (*branch.children[:place], child, *branch.children[place + 1 :])
    return rebuilt(replace(branch, children=children))


def _with_min_count(branch: Branch, place: int, rebuilt: Callable[[Branch], TreeTarget], value: int) -> TreeTarget:
    leaf = branch.children[place]
    assert isinstance(leaf, Leaf)
    return _put_back(branch, place, rebuilt, replace(leaf, min_count=value))
