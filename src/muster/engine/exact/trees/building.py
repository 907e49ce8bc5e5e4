"""From a tree of groups to numbers, and from a choice back to members.

Pods of one shape that may go to the same nodes are a class: a shape in a region, which is a value for each topology
label that binds them. A class is a shape of its own, which asks for these labels by a node selector, so that everything
else in the engine decides about it as about any pod.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from msgspec import Struct, structs

from muster.api.selectors import Operator, Requirement
from muster.engine.arrays import Ints, Ints32
from muster.engine.exact.trees.asked import Asked, AskedGroup, AskedTree, groups_of
from muster.engine.exact.trees.choices import Choose, Chosen, Filled, Kind, Node, Part, Pick, Slot
from muster.engine.mixed import Demand, binding, demands_of
from muster.engine.model import Member
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domains_of

Region: TypeAlias = tuple[tuple[str, str], ...]
"""(label, value) for each topology label that binds, the widest first."""

MOST_CLASSES = 300
"""Of more classes of pods no relaxation is made: it would take longer than trying."""


class Class(Struct, frozen=True):
    """Pods of a shape in a region. `pinned`: the shape that asks for the region as well."""

    shape: Shape
    pinned: Shape


class Built(Struct, frozen=True):
    """`tree` in numbers, over `demands` of the classes (as many pods as there can be), of which each alone has
    so much room (`rooms`). `is_coupled`: some pods have rules about other pods, so that fewer may not fit where more
    do. `short`: a composite group that counting alone leaves too few groups, in words."""

    tree: Choose
    classes: tuple[Class, ...]
    demands: tuple[Demand, ...]
    rooms: tuple[int, ...]
    is_coupled: bool
    short: str


MostCopies: TypeAlias = Callable[[Asked, Region, int], int]
"""How many of so many equal groups may run in a region at most, were they alone."""


def build(
    profile: Profile,
    snapshot: Snapshot,
    asked: Asked,
    scope: Region = (),
    *,
    region: Region | None = None,
    copies: int = 1,
    most_copies: MostCopies | None = None,
) -> Built | None:
    """The choices of a tree, or of several equal ones (`copies`), of which all run.

    `scope`: the region in which the profile already keeps all of it; `region`: that in which all of it is to be (the
    scope). None if there are too many choices. The tree has no kinds if counting says that none of them can fit.
    """
    members = [member for group in groups_of(asked) for member in group.members]
    coupled = binding(profile, snapshot, demands_of(members))
    alike = _Alike(*_alike(profile, snapshot, asked), copies * sum(1 for _ in groups_of(asked)))
    can_swap = not (coupled or snapshot.reserved or _is_pinned(asked))
    builder = _Builder(profile, snapshot, coupled, scope, None if coupled else most_copies, alike if can_swap else None)
    ways = builder.ways(asked, scope if region is None else region)
    slots = tuple(Slot(way, 0, copies) for _, way in ways)
    tree = Choose((Kind(tuple(range(copies)), slots),) if slots else (), copies)
    most = _most(tree, len(builder.classes))
    used = [at for at, number in enumerate(most) if number]
    if len(used) > MOST_CLASSES:
        return None
    demands = tuple(Demand(builder.classes[at].pinned, tuple(range(most[at]))) for at in used)
    classes, rooms = tuple(builder.classes[at] for at in used), tuple(builder.rooms[at] for at in used)
    tree = _renumbered(tree, {at: place for place, at in enumerate(used)})
    return Built(tree, classes, demands, rooms, coupled, builder.short)


class _Alike(Struct, frozen=True):
    """Domains that stand for each other: whatever a choice puts into them may change places. A choice uses no more
    domains than it has groups, so that no more of equal ones are needed.

    `nodes` int64[N]: a number for all that take the same pods; `keys`: the labels that bind groups; `most` groups.
    """

    nodes: Ints
    keys: tuple[str, ...]
    most: int

    def first_of_each(self, snapshot: Snapshot, key: str, ids: Ints32, domains: set[int]) -> set[int]:
        """Of the domains `ids` int32[N] of the label those that are needed."""
        others = [snapshot.table.column(each).ids for each in self.keys if each != key]
        _, kinds = np.unique(np.column_stack([self.nodes, *others]), axis=0, return_inverse=True)
        order = np.lexsort((kinds.reshape(-1), ids))
        values, starts = np.unique(ids[order], return_index=True)
        found: dict[bytes, list[int]] = {}
        for value, inside in zip(values.tolist(), np.split(kinds.reshape(-1)[order], starts[1:]), strict=True):
            if value in domains:
                found.setdefault(inside.tobytes(), []).append(value)
        return {value for equal in found.values() for value in equal[: self.most]}


def _alike(profile: Profile, snapshot: Snapshot, asked: Asked) -> tuple[Ints, tuple[str, ...]]:
    """Nodes of one number have the same room, for all that may come together and for each shape alone."""
    shapes = dict.fromkeys(member.shape for group in groups_of(asked) for member in group.members)
    counts = [profile.count(shape, snapshot) for shape in shapes]
    _, nodes = np.unique(np.column_stack([snapshot.free(), *counts]), axis=0, return_inverse=True)
    return nodes.reshape(-1).astype(np.int64), tuple(sorted(_keys(asked)))


def _keys(asked: Asked) -> set[str]:
    inside = set[str]().union(*map(_keys, asked.children)) if isinstance(asked, AskedTree) else set[str]()
    return inside | ({asked.key} if asked.key is not None else set())


def _is_pinned(asked: Asked) -> bool:
    return asked.pinned is not None or (isinstance(asked, AskedTree) and any(map(_is_pinned, asked.children)))


@dataclass(slots=True)
class _Builder:
    profile: Profile
    snapshot: Snapshot
    is_coupled: bool
    scope: Region
    most_copies: MostCopies | None
    alike: _Alike | None
    classes: list[Class] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)
    short: str = ""
    _places: dict[tuple[Shape, Region], int] = field(default_factory=dict)

    def ways(self, asked: Asked, region: Region) -> list[tuple[Region, Node]]:
        """The ways in which a group, or a composite group, may run inside of a region, one a domain."""
        found = list[tuple[Region, Node]]()
        for inside in self._regions(asked, region):
            way = self._part(asked, inside) if isinstance(asked, AskedGroup) else self._choose(asked, inside)
            if way is not None:
                found.append((inside, way))
        return found

    def _regions(self, asked: Asked, region: Region) -> list[Region]:
        if asked.key is None:
            return [region]
        known = dict(region).get(asked.key)
        if known is not None:
            return [region] if asked.pinned in (None, known) else []
        table = self.snapshot.table
        values: Sequence[str] = domains_of(table, asked.key).values if asked.pinned is None else (asked.pinned,)
        open_ = np.ones(len(table), dtype=np.bool_)
        for key, value in region:
            column = table.column(key)
            open_ &= column.ids == column.values.get(value, -2)
        column = table.column(asked.key)
        there = set(column.ids[open_].tolist())
        if self.alike is not None:
            there = self.alike.first_of_each(self.snapshot, asked.key, column.ids, there)
        return [(*region, (asked.key, value)) for value in values if column.values.get(value, -2) in there]

    def _part(self, group: AskedGroup, region: Region) -> Part | None:
        numbers: dict[Shape, int] = {}
        for member in group.members:
            numbers[member.shape] = numbers.get(member.shape, 0) + 1
        classes = [self._class(shape, region) for shape in numbers]
        high = [min(number, self.rooms[at]) for at, number in zip(classes, numbers.values(), strict=True)]
        if sum(high) < group.need:
            return None
        kept = [place for place, number in enumerate(high) if number]
        return Part(
            tuple(classes[place] for place in kept), (0,) * len(kept), tuple(high[place] for place in kept), group.need
        )

    def _choose(self, branch: AskedTree, region: Region) -> Choose | None:
        equal: dict[Hashable, list[int]] = {}
        for place, child in enumerate(branch.children):
            equal.setdefault(child.question, []).append(place)
        kinds = []
        for members in equal.values():
            slots = self._slots(branch.children[members[0]], region, len(members))
            if slots:
                kinds.append(Kind(tuple(members), slots))
        possible = sum(len(kind.members) for kind in kinds)
        if possible < branch.least:
            number = f"only {possible}" if possible else "none"
            self.short = self.short or f"{number} of the groups of {branch.name} would have room alone"
            return None
        return Choose(tuple(kinds), branch.least)

    def _slots(self, child: Asked, region: Region, number: int) -> tuple[Slot, ...]:
        ways = self.ways(child, region)
        if self.most_copies is None or child.key is None or len(ways) < 2:
            return tuple(Slot(way, 0, number) for _, way in ways)
        highs = [self.most_copies(child, inside, number) for inside, _ in ways]
        return tuple(Slot(way, 0, high) for (_, way), high in zip(ways, highs, strict=True) if high)

    def _class(self, shape: Shape, region: Region) -> int:
        at = self._places.get((shape, region))
        if at is None:
            at = self._places[shape, region] = len(self.classes)
            pinned = pinned_shape(shape, region, self.scope)
            self.classes.append(Class(shape, pinned))
            count = self.profile.ceiling if self.is_coupled else self.profile.count
            self.rooms.append(int(count(pinned, self.snapshot).sum(dtype=np.int64)))
        return at


def pinned_shape(shape: Shape, region: Region, scope: Region = ()) -> Shape:
    """The shape with a node selector for what a region says beyond the scope."""
    pins = [Requirement(key, Operator.IN, (value,)) for key, value in region if (key, value) not in scope]
    if not pins:
        return shape
    return replace(shape, nodes=structs.replace(shape.nodes, selector=(*shape.nodes.selector, *pins)))


def _renumbered(choose: Choose, places: Mapping[int, int]) -> Choose:
    """The choices with other numbers for their classes."""

    def renumbered(node: Node) -> Node:
        if isinstance(node, Part):
            return structs.replace(node, classes=tuple(places[each] for each in node.classes))
        return _renumbered(node, places)

    kinds = [
        structs.replace(kind, slots=tuple(structs.replace(slot, of=renumbered(slot.of)) for slot in kind.slots))
        for kind in choose.kinds
    ]
    return structs.replace(choose, kinds=tuple(kinds))


def _most(node: Node, classes: int) -> list[int]:
    """[G]: how many pods of each class there can be at most."""
    found = [0] * classes
    if isinstance(node, Part):
        for at, high in zip(node.classes, node.high, strict=True):
            found[at] += high
        return found
    for kind in node.kinds:
        each = np.zeros(classes, dtype=np.int64)
        for slot in kind.slots:
            each = np.maximum(each, _most(slot.of, classes))
        for at, number in enumerate((each * len(kind.members)).tolist()):
            found[at] += number
    return found


class ChosenMember(Struct, frozen=True):
    """A member of a group that is chosen, with the shape that asks for its domain as well."""

    group: str
    member: Member
    pinned: Shape


def chosen_members(built: Built, asked: Asked, tree: Node, pick: Pick) -> list[ChosenMember]:
    """The members of a choice, group by group in order; of equal children and of equal members the first."""
    found: dict[str, list[ChosenMember]] = {}
    _collect(built, AskedTree("", (asked,), 1), tree, pick, found)
    return [each for group in groups_of(asked) for each in found.get(group.name, ())]


def _collect(built: Built, asked: Asked, node: Node, pick: Pick, found: dict[str, list[ChosenMember]]) -> None:
    if isinstance(node, Part):
        assert isinstance(asked, AskedGroup) and isinstance(pick, Filled), "a part is a group"
        found[asked.name] = _first_members(built, asked, node, pick)
        return
    assert isinstance(asked, AskedTree) and isinstance(pick, Chosen), "children are chosen of a composite group"
    for kind, ways in zip(node.kinds, pick.copies, strict=True):
        members = iter(kind.members)
        for slot, copies in zip(kind.slots, ways, strict=True):
            for _ in range(copies.number):
                assert copies.of is not None, "what runs has a way to run"
                _collect(built, asked.children[next(members)], slot.of, copies.of, found)


def _first_members(built: Built, group: AskedGroup, part: Part, pick: Filled) -> list[ChosenMember]:
    left = {built.classes[at].shape: amount for at, amount in zip(part.classes, pick.amounts, strict=True)}
    pinned = {built.classes[at].shape: built.classes[at].pinned for at in part.classes}
    found = []
    for member in group.members:
        if left.get(member.shape, 0) > 0:
            left[member.shape] -= 1
            found.append(ChosenMember(group.name, member, pinned[member.shape]))
    return found
