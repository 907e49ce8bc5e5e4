"""What a tree of groups leaves to choose, in numbers: which groups run, in which domains, and how many pods of each.

A `Part` is a group in one region: so many pods of each class, enough together. A `Choose` is a composite group: enough
of its children. Children that are equal are one `Kind`, and each domain that a child may run in is a `Slot` of it, so
that a choice says *how many* of equal children go to each domain, not which. A flat group is a tree of one Part.

Everything that can be chosen has bounds from `low` to `high`; the search narrows them (see `bounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct


class Part(Struct, frozen=True):
    """At least `need` pods together, between `low` and `high` of each class."""

    classes: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    need: int


class Slot(Struct, frozen=True):
    """Between `low` and `high` children of a kind run like this."""

    of: Node
    low: int
    high: int


class Kind(Struct, frozen=True):
    """Equal children, by their positions among all children, and the ways in which each may run."""

    members: tuple[int, ...]
    slots: tuple[Slot, ...]


class Choose(Struct, frozen=True):
    """At least `least` of the children run."""

    kinds: tuple[Kind, ...]
    least: int


Node: TypeAlias = Part | Choose


class Filled(Struct, frozen=True):
    """So many pods of each class of a Part."""

    amounts: tuple[int, ...]


class Copies(Struct, frozen=True):
    """So many children run in this way, all with the same choices inside; None where no child can."""

    number: int
    of: Pick | None


class Chosen(Struct, frozen=True):
    """For each kind and slot of a Choose how many children run."""

    copies: tuple[tuple[Copies, ...], ...]


Pick: TypeAlias = Filled | Chosen


def cheapest(node: Node, costs: Sequence[int]) -> tuple[int, Pick] | None:
    """The choice whose pods cost least, and what they cost; None if there is no choice. `costs` of a pod of each class.

    Exact: children do not depend on each other, and bounds on equal children are nested, so that taking the cheapest
    first is right. What costs nothing more than it has to is not chosen; what costs less than nothing always is.
    """
    return _fill(node, costs) if isinstance(node, Part) else _choose(node, costs)


def _fill(part: Part, costs: Sequence[int]) -> tuple[int, Pick] | None:
    own = [costs[each] for each in part.classes]
    amounts, total = list(part.low), sum(part.low)
    for at in sorted(range(len(own)), key=lambda at: own[at]):
        room = part.high[at] - amounts[at]
        taken = room if own[at] < 0 else min(room, max(0, part.need - total))
        amounts[at] += taken
        total += taken
    if total < part.need:
        return None
    return sum(cost * amount for cost, amount in zip(own, amounts, strict=True)), Filled(tuple(amounts))


def _choose(choose: Choose, costs: Sequence[int]) -> tuple[int, Pick] | None:
    inside = [[cheapest(slot.of, costs) if slot.high else None for slot in kind.slots] for kind in choose.kinds]
    numbers = [[slot.low for slot in kind.slots] for kind in choose.kinds]
    free = [len(kind.members) - sum(found) for kind, found in zip(choose.kinds, numbers, strict=True)]
    if min(free, default=0) < 0:
        return None
    total, order = sum(map(sum, numbers)), list[tuple[int, int, int]]()
    for at, kind in enumerate(choose.kinds):
        for place, slot in enumerate(kind.slots):
            way = inside[at][place]
            if way is not None:
                order.append((way[0], at, place))
            elif slot.low:
                return None
    for cost, at, place in sorted(order):
        slot = choose.kinds[at].slots[place]
        room = min(slot.high - slot.low, free[at])
        taken = room if cost < 0 else min(room, max(0, choose.least - total))
        numbers[at][place] += taken
        free[at] -= taken
        total += taken
    if total < choose.least:
        return None
    whole, copies = 0, []
    for ways, found in zip(inside, numbers, strict=True):
        whole += sum(number * way[0] for number, way in zip(found, ways, strict=True) if way is not None)
        copies.append(
            tuple(Copies(number, None if way is None else way[1]) for number, way in zip(found, ways, strict=True))
        )
    return whole, Chosen(tuple(copies))


def pods_of(node: Node, pick: Pick, classes: int) -> tuple[int, ...]:
    """How many pods of each class a choice has in all."""
    found = [0] * classes
    _count(node, pick, 1, found)
    return tuple(found)


def _count(node: Node, pick: Pick, times: int, found: list[int]) -> None:
    if isinstance(node, Part):
        assert isinstance(pick, Filled), "parts are filled"
        for each, amount in zip(node.classes, pick.amounts, strict=True):
            found[each] += times * amount
        return
    assert isinstance(pick, Chosen), "of children some are chosen"
    for kind, ways in zip(node.kinds, pick.copies, strict=True):
        for slot, copies in zip(kind.slots, ways, strict=True):
            if copies.number and copies.of is not None:
                _count(slot.of, copies.of, times * copies.number, found)
