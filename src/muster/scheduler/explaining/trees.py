"""A tree of groups as a target of what-if questions: its edits, and whether it would run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Objects
from muster.engine.exact.trees.asked import AskedTree
from muster.engine.exact.trees.deciding import place_tree
from muster.engine.explanation.question import QUESTION_BUDGET, Quota, Reshape, Target, reshaped
from muster.engine.model import GroupRequest, Member
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domain_text, domains_of
from muster.scheduler.explaining.room import MOST_DOMAINS
from muster.scheduler.tree import Branch, Leaf, Tree, leaves_of
from muster.scheduler.tree_deciding import as_exactly_asked, decide_tree

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
        return next(iter(_keys(self.root)), None)

    @property
    def domain_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_keys(self.root)))

    @property
    def request(self) -> GroupRequest:
        """All members as one group, by which domains are ranked."""
        return GroupRequest(self.key, self.members, self.needed, topology_key=self.topology_key)

    def reshaped(self, change: Reshape) -> TreeTarget:
        return TreeTarget(_edited(self.root, lambda leaf: replace(leaf, members=reshaped(leaf.members, change))))

    def quotas(self) -> list[Quota]:
        return list(_quotas(self.root, lambda tree: TreeTarget(tree)))[:_MOST_QUOTAS]

    def relaxed(self) -> list[tuple[str, str | None, Target]]:
        found = list[tuple[str, str | None, Target]]()
        for key in dict.fromkeys(_keys(self.root)):
            found.append((key, None, TreeTarget(_rekeyed(self.root, key, None))))
        return found

    def other_domain(self, key: str) -> TreeTarget | None:
        old = self.topology_key
        if old is None or any(leaf.placed for leaf in leaves_of(self.root)):
            return None
        return TreeTarget(_rekeyed(self.root, old, key))

    def cost(self, snapshot: Snapshot, profile: Profile) -> int:
        leaves = sum(1 for _ in leaves_of(self.root))
        return leaves * QUESTION_BUDGET * (1 + len(self.members) // _MEMBERS_PER_UNIT)

    def verdict(self, snapshot: Snapshot, profile: Profile) -> bool | None:
        decision = decide_tree(snapshot, self.root, budget=QUESTION_BUDGET, profile=profile, is_only_enough=True)
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


def _keys(tree: Tree) -> Iterator[str]:
    """The topology labels of a tree, from the root on."""
    if isinstance(tree, Leaf):
        if tree.topology is not None and tree.topology.key is not None:
            yield tree.topology.key
        return
    if tree.topology_key is not None:
        yield tree.topology_key
    for child in tree.children:
        yield from _keys(child)


def _rekeyed(branch: Branch, old: str, new: str | None) -> Branch:
    """The tree with another label, or none, wherever one is asked for."""
    children: list[Tree] = []
    for child in branch.children:
        if isinstance(child, Branch):
            children.append(_rekeyed(child, old, new))
        elif child.topology is not None and child.topology.key == old:
            children.append(replace(child, topology=replace(child.topology, key=new, pinned=None)))
        else:
            children.append(child)
    key = new if branch.topology_key == old else branch.topology_key
    return replace(branch, children=tuple(children), topology_key=key)


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


def domains_of_tree(profile: Profile, snapshot: Snapshot, root: Branch) -> Objects:
    """For each domain of the root's topology label: whether it holds enough of the tree, and the proof if not."""
    key, asked = root.topology_key, as_exactly_asked(root, snapshot.table)
    if key is None or not isinstance(asked, AskedTree):
        return []
    found = []
    for value in sorted(domains_of(snapshot.table, key).values)[:MOST_DOMAINS]:
        if asked.pinned in (None, value):
            answer = place_tree(
                profile, snapshot, replace(asked, pinned=value), budget=QUESTION_BUDGET, is_only_enough=True
            )
            state = "Fits" if answer.found is not None else "Infeasible" if answer.is_proved else "Undecided"
            proof = answer.account.removeprefix(f"in {domain_text(key, value)}, ")
            found.append({"key": key, "domain": value, "state": state, "proof": proof})
    return found
