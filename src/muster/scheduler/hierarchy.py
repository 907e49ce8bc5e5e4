"""Trees of groups (CompositePodGroup): who is part of what, and what holds a whole tree back. Pure.

Groups name their parents, so a tree is known only as far as its objects are. Rules: workload-api.md 4.2, 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import Object
from muster.api.groups import CompositeTerms, GroupRef, GroupTerms, composite_terms_of
from muster.api.meta import name_of, namespace_of
from muster.scheduler.natural import natural

MOST_LEVELS = 3
"""Composite groups above a group (with the group itself a tree has four levels)."""

Child: TypeAlias = tuple[bool, str]
"""(whether it is a composite group, its key)."""


class Chain(Struct, frozen=True):
    """The composite groups above a group, by key, the root last. `missing`, `fault`: why it leads to no root."""

    above: tuple[str, ...] = ()
    missing: str = ""
    fault: str = ""

    @property
    def root(self) -> str | None:
        """The key of the root; None if the chain does not lead to one."""
        return self.above[-1] if self.above and not self.missing and not self.fault else None


@dataclass(slots=True)
class Hierarchy:
    """Composite groups by key, and the children of each (also of those that are not known yet)."""

    composites: dict[str, Object] = field(default_factory=dict)
    _children: dict[str, dict[Child, tuple[object, ...]]] = field(default_factory=dict)

    def terms(self, key: str) -> CompositeTerms | None:
        """What a composite group asks for."""
        found = self.composites.get(key)
        return None if found is None else composite_terms_of(found["spec"])

    def children(self, key: str) -> list[Child]:
        """The children of a composite group in the order of their creation."""
        found = self._children.get(key, {})
        return sorted(found, key=lambda child: (found[child], child))

    def set_composite(self, key: str, obj: Object | None) -> None:
        """A composite group is there, or gone (None)."""
        self.set_child((True, key), self.composites.get(key), None)
        if obj is None:
            self.composites.pop(key, None)
        else:
            self.composites[key] = obj
        self.set_child((True, key), None, obj)

    def set_child(self, child: Child, old: Object | None, new: Object | None) -> None:
        """A group that may have a parent is there, changed or gone."""
        parent = parent_key(old)
        if parent and parent in self._children:
            self._children[parent].pop(child, None)
            if not self._children[parent]:
                del self._children[parent]
        parent = parent_key(new)
        if parent and new is not None:
            age = (new["metadata"].get("creationTimestamp") or "", natural(name_of(new)))
            self._children.setdefault(parent, {})[child] = age

    def chain(self, parent: str) -> Chain:
        """The chain that begins with a parent (a key)."""
        above: list[str] = []
        key = parent
        while key:
            if key in above:
                return Chain(tuple(above), fault=f"the composite pod groups above it form a circle at {key}")
            if len(above) == MOST_LEVELS:
                return Chain(tuple(above), fault=f"it is more than {MOST_LEVELS} composite pod groups below its root")
            above.append(key)
            if key not in self.composites:
                return Chain(tuple(above), missing=key)
            key = parent_key(self.composites[key])
        return Chain(tuple(above))

    def leaves(self, key: str) -> Iterator[str]:
        """The keys of all groups below a composite group, whether that is known or not."""
        yield from self._leaves(key, 0)

    def composites_below(self, key: str, depth: int = 0) -> Iterator[str]:
        """The keys of a composite group and of all composite groups below it."""
        yield key
        if depth < MOST_LEVELS - 1:
            for is_composite, child in self.children(key):
                if is_composite:
                    yield from self.composites_below(child, depth + 1)

    def _leaves(self, key: str, depth: int) -> Iterator[str]:
        if depth < MOST_LEVELS:
            for is_composite, child in self.children(key):
                if is_composite:
                    yield from self._leaves(child, depth + 1)
                else:
                    yield child


def parent_key(obj: Object | None) -> str:
    """The key of the composite group that a PodGroup or CompositePodGroup is a part of; "" for none."""
    name = None if obj is None else (obj.get("spec") or {}).get("parentCompositePodGroupName")
    return f"{namespace_of(obj)}/{name}" if name and obj is not None else ""


class LeafFacts(Struct, frozen=True):
    """What holds look at in a group of a tree. `known`: its live members; `gated`: those with scheduling gates."""

    ref: GroupRef
    terms: GroupTerms | None
    known: int
    gated: tuple[str, ...] = ()
    scheduler_names: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether enough members exist."""
        return self.terms is not None and self.known >= self.terms.min_count


def ready_groups(hierarchy: Hierarchy, key: str, leaves: Mapping[str, LeafFacts]) -> int:
    """How many children of a composite group have enough members to be tried."""
    return sum(
        _is_ready(hierarchy, child, leaves) if is_composite else child in leaves and leaves[child].is_ready
        for is_composite, child in hierarchy.children(key)
    )


def _is_ready(hierarchy: Hierarchy, key: str, leaves: Mapping[str, LeafFacts]) -> bool:
    terms = hierarchy.terms(key)
    return terms is not None and ready_groups(hierarchy, key, leaves) >= terms.min_groups
