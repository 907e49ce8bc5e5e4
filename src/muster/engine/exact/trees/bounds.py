"""Bounds of choices: what follows from them, and how they are narrowed until one choice is left.

A case of the search is a tree with narrower bounds; two cases that `divide` makes cover the one they are made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.exact.trees.choices import Choose, Chosen, Filled, Kind, Node, Part, Pick, Slot

Where: TypeAlias = tuple[tuple[int, ...], ...]
"""The way to something that is chosen: (kind, slot) level by level, at last (kind, slot) or (place in a Part,)."""


class Open(Struct, frozen=True):
    """Something that may still be chosen in several ways."""

    where: Where
    low: int
    high: int


def tightened(node: Node, is_least: bool) -> Node | None:
    """The same choices with bounds that follow from the others; None if there is no choice.

    `is_least`: nothing is chosen beyond what is enough, which is no loss where fewer pods fit wherever more do.
    """
    return _tightened_part(node, is_least) if isinstance(node, Part) else _tightened_choose(node, is_least)


def _tightened_part(part: Part, is_least: bool) -> Part | None:
    least = max(part.need, sum(part.low))
    most = least if is_least else sum(part.high)
    low, high = _within(part.low, part.high, least, most)
    if sum(high) < part.need or any(one > other for one, other in zip(low, high, strict=True)):
        return None
    return replace(part, low=tuple(low), high=tuple(high))


def _within(low: Sequence[int], high: Sequence[int], least: int, most: int) -> tuple[list[int], list[int]]:
    """The bounds of numbers whose sum is between `least` and `most`."""
    lows, highs = sum(low), sum(high)
    lower = [max(each, least - (highs - top)) for each, top in zip(low, high, strict=True)]
    upper = [min(top, most - (lows - each)) for each, top in zip(low, high, strict=True)]
    return lower, upper


def _tightened_choose(choose: Choose, is_least: bool) -> Choose | None:
    kinds = []
    for kind in choose.kinds:
        slots = []
        for slot in kind.slots:
            of = tightened(slot.of, is_least) if slot.high else None
            if of is None and slot.low:
                return None
            if of is not None:
                slots.append(replace(slot, of=of, high=min(slot.high, len(kind.members))))
        if slots:
            kinds.append(replace(kind, slots=tuple(slots)))
    numbers = _slot_bounds(kinds, choose.least, is_least)
    if numbers is None:
        return None
    rebuilt = []
    for kind, bounds in zip(kinds, numbers, strict=True):
        kept = [replace(slot, low=low, high=high) for slot, (low, high) in zip(kind.slots, bounds, strict=True) if high]
        if kept:
            rebuilt.append(replace(kind, slots=tuple(kept)))
    return replace(choose, kinds=tuple(rebuilt))


def _slot_bounds(kinds: Sequence[Kind], enough: int, is_least: bool) -> list[list[tuple[int, int]]] | None:
    """(low, high) of each slot of each kind; None if these do not leave enough."""
    lows = [sum(slot.low for slot in kind.slots) for kind in kinds]
    tops = [min(len(kind.members), sum(slot.high for slot in kind.slots)) for kind in kinds]
    if sum(tops) < enough or any(low > top for low, top in zip(lows, tops, strict=True)):
        return None
    least = max(enough, sum(lows))
    kind_low, kind_high = _within(lows, tops, least, least if is_least else sum(tops))
    found = []
    for kind, low, high in zip(kinds, kind_low, kind_high, strict=True):
        lower, upper = _within([slot.low for slot in kind.slots], [slot.high for slot in kind.slots], low, high)
        if any(one > other for one, other in zip(lower, upper, strict=True)):
            return None
        found.append(list(zip(lower, upper, strict=True)))
    return found


def is_settled(node: Node) -> bool:
    """Whether one choice is left."""
    if isinstance(node, Part):
        return node.low == node.high
    slots = [slot for kind in node.kinds for slot in kind.slots]
    return all(slot.low == slot.high and (not slot.low or is_settled(slot.of)) for slot in slots)


def opened(node: Node, above: Where = ()) -> Iterator[Open]:
    """What may still be chosen, outside in: inside of children only where one is certain to run in that way."""
    if isinstance(node, Part):
        for at, (low, high) in enumerate(zip(node.low, node.high, strict=True)):
            if low < high:
                yield Open((*above, (at,)), low, high)
        return
    for at, kind in enumerate(node.kinds):
        for place, slot in enumerate(kind.slots):
            where = (*above, (at, place))
            if slot.low < slot.high:
                yield Open(where, slot.low, slot.high)
            elif slot.low == 1:
                yield from opened(slot.of, where)


def crowded(node: Node, above: Where = ()) -> Where | None:
    """Where several children are certain to run in one way, with something to choose inside of each."""
    if isinstance(node, Part):
        return None
    for at, kind in enumerate(node.kinds):
        for place, slot in enumerate(kind.slots):
            where = (*above, (at, place))
            if slot.low == slot.high and slot.low and not is_settled(slot.of):
                found = where if slot.low > 1 else crowded(slot.of, where)
                if found is not None:
                    return found
    return None


def number_at(pick: Pick, where: Where) -> int:
    """What a choice says about something opened."""
    for at, place in where[:-1]:
        assert isinstance(pick, Chosen), "the way leads through composite groups"
        below = pick.copies[at][place].of
        assert below is not None, "it is certain to run"
        pick = below
    last = where[-1]
    if isinstance(pick, Filled):
        return pick.amounts[last[0]]
    return pick.copies[last[0]][last[1]].number


def divide(node: Node, where: Where, most: int) -> tuple[Node, Node]:
    """The case with at most so many of something, and the case with more."""
    return _bounded(node, where, None, most), _bounded(node, where, most + 1, None)


def _bounded(node: Node, where: Where, low: int | None, high: int | None) -> Node:
    step = where[0]
    if isinstance(node, Part):
        at = step[0]
        lows, highs = list(node.low), list(node.high)
        lows[at], highs[at] = lows[at] if low is None else low, highs[at] if high is None else high
        return replace(node, low=tuple(lows), high=tuple(highs))
    slot = node.kinds[step[0]].slots[step[1]]
    if len(where) == 1:
        slot = replace(slot, low=slot.low if low is None else low, high=slot.high if high is None else high)
    else:
        slot = replace(slot, of=_bounded(slot.of, where[1:], low, high))
    return _with_slot(node, step[0], step[1], slot)


def _with_slot(choose: Choose, at: int, place: int, slot: Slot) -> Choose:
    kind = choose.kinds[at]
    changed = replace(kind, slots=(*kind.slots[:place], slot, *kind.slots[place + 1 :]))
    return replace(choose, kinds=(*choose.kinds[:at], changed, *choose.kinds[at + 1 :]))


def unfolded(node: Node, where: Where) -> Node:
    """The same choices with children that run in one way told apart, so that each may choose otherwise inside."""
    assert isinstance(node, Choose), "the way leads through composite groups"
    at, place = where[0]
    kind = node.kinds[at]
    slot = kind.slots[place]
    if len(where) > 1:
        return _with_slot(node, at, place, replace(slot, of=unfolded(slot.of, where[1:])))
    each = [Kind((member,), (replace(slot, low=1, high=1),)) for member in kind.members[: slot.low]]
    rest = Kind(kind.members[slot.low :], (*kind.slots[:place], *kind.slots[place + 1 :]))
    left = [rest] if rest.members and rest.slots else []
    return replace(node, kinds=(*node.kinds[:at], *each, *left, *node.kinds[at + 1 :]))
