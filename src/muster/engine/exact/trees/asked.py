"""A tree of groups as the exact search is asked about it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.model import Member, Placement


class AskedGroup(Struct, frozen=True):
    """A group: at least `need` of its pending members, all in one domain of the label `key` (None: anywhere).

    `pinned`: the domain of the members that run. `is_partly_known`: it asks for more than the search knows of, so that
    what does not fit is certain, and what fits is not.
    """

    name: str
    members: tuple[Member, ...]
    need: int
    key: str | None = None
    pinned: str | None = None
    is_partly_known: bool = False

    @property
    def question(self) -> Hashable:
        """What it asks, whoever it is: groups that ask the same stand for each other."""
        shapes = tuple(member.shape for member in self.members)
        return shapes, self.need, self.key, self.pinned, self.is_partly_known


class AskedTree(Struct, frozen=True):
    """A composite group: at least `least` of its children, all in one domain of the label `key`; see AskedGroup."""

    name: str
    children: tuple[AskedGroup | AskedTree, ...]
    least: int
    key: str | None = None
    pinned: str | None = None

    @property
    def question(self) -> Hashable:
        """What it asks, whoever it is."""
        return self.least, self.key, self.pinned, tuple(child.question for child in self.children)


Asked: TypeAlias = AskedGroup | AskedTree


def groups_of(asked: Asked) -> Iterator[AskedGroup]:
    """The groups in order."""
    if isinstance(asked, AskedGroup):
        yield asked
        return
    for child in asked.children:
        yield from groups_of(child)


class FoundPlaces(Struct, frozen=True):
    """Where the chosen members of each chosen group go, by its name. A group that needs nobody may have none."""

    places: dict[str, tuple[Placement, ...]]

    @property
    def size(self) -> int:
        """How many members are placed."""
        return sum(map(len, self.places.values()))


def requiring(tree: AskedTree, chosen: Sequence[int]) -> AskedTree:
    """The tree with these children (by position) among those that run."""
    musts = tuple(tree.children[at] for at in chosen)
    others = tuple(child for at, child in enumerate(tree.children) if at not in chosen)
    rest = AskedTree(tree.name, others, max(0, tree.least - len(chosen)))
    return replace(tree, children=(*musts, rest), least=len(musts) + 1)
