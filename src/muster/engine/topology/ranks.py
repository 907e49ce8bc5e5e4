"""Which of equal pods goes to which of the chosen seats: pods of consecutive ranks close together.

Distance is the number of hops in the tree of the levels: two for each level at which two nodes are in different
domains, the node itself being the lowest. For pods that are all alike, each to the nearest seat that is left is a walk
through the tree that leaves no domain before it is full, and every such walk has the least sum of distances: it crosses
each edge of the tree of the seats twice, but for the way back from the last seat to the first, and these two are as far
apart as any. With pods of several shapes it is a heuristic, kept if it is better than what was there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.model import GroupRequest, Placed, Placement
from muster.engine.nodes import NodeTable
from muster.engine.topology.layout import Layout

Code: TypeAlias = tuple[int, ...]
"""Where a node is: its domain at each level, the widest first, and its row. Neighbours in the tree sort together."""


class Seat(Struct, frozen=True):
    """A pod that gets one of the seats of its pool, or, with `code` set and no pool, one that stays where it is."""

    rank: int
    code: Code
    pool: Hashable = None


def codes_of(table: NodeTable, keys: Sequence[str], rows: Sequence[int]) -> list[Code]:
    """The codes of rows. A node without a label is in a domain of its own at that level."""
    columns = [table.column(key).ids for key in keys]
    size = len(table)
    return [(*(int(ids[row]) if ids[row] >= 0 else size + row for ids in columns), row) for row in rows]


def distance(one: Code, other: Code) -> int:
    """How many hops two seats are apart."""
    return 2 * (len(one) - _common(one, other))


def walk_length(codes: Sequence[Code]) -> int:
    """The sum of the distances between neighbours."""
    return sum(distance(one, other) for one, other in pairwise(codes))


def reseated(seats: Sequence[Seat]) -> list[Code]:
    """A code for each seat in order of rank: those of a pool dealt anew among its pods, each the nearest left."""
    left: dict[Hashable, list[Code]] = {}
    for seat in seats:
        if seat.pool is not None:
            left.setdefault(seat.pool, []).append(seat.code)
    for codes in left.values():
        codes.sort()
    before = [seat.code for seat in seats]
    found: list[Code] = []
    for seat in seats:
        codes = left.get(seat.pool, [seat.code]) if seat.pool is not None else [seat.code]
        found.append(codes.pop(_nearest(codes, found[-1] if found else None)))
    return found if walk_length(found) <= walk_length(before) else before


def in_rank_order(
    table: NodeTable, request: GroupRequest, layout: Layout, placed: Placed, part_of: Callable[[int], Hashable]
) -> Placed:
    """The same nodes for the same shapes, dealt anew. `part_of`: the part of a rank that keeps its seats (see Seat)."""
    index, keys = table.index, layout.terms.tree
    nodes = {placement.pod: placement.node for placement in placed.placements}
    moving = [(rank, member) for rank, member in zip(layout.ranks, request.members, strict=True) if member.key in nodes]
    resting = [(rank, index[node]) for rank, node in layout.running if node in index]
    codes = codes_of(table, keys, [index[nodes[member.key]] for _, member in moving])
    seats = [
        Seat(rank, code, (member.shape, part_of(rank))) for (rank, member), code in zip(moving, codes, strict=True)
    ]
    seats += [
        Seat(rank, code)
        for (rank, _), code in zip(resting, codes_of(table, keys, [row for _, row in resting]), strict=True)
    ]
    order = sorted(range(len(seats)), key=lambda at: (seats[at].rank, at))
    dealt = dict(zip(order, reseated([seats[at] for at in order]), strict=True))
    chosen = {member.key: table.records[dealt[at][-1]].name for at, (_, member) in enumerate(moving)}
    placements = tuple(Placement(member.key, chosen[member.key]) for member in request.members if member.key in chosen)
    return replace(placed, placements=placements)


def _nearest(codes: Sequence[Code], current: Code | None) -> int:
    """The place of the code that has most in common with the current one; the first without one."""
    if current is None:
        return 0
    after = bisect_left(codes, current)
    if after == len(codes):
        return after - 1
    if after and _common(codes[after - 1], current) > _common(codes[after], current):
        return after - 1
    return after


def _common(one: Code, other: Code) -> int:
    """At how many levels, from the widest on, two codes are the same."""
    number = 0
    for mine, its in zip(one, other, strict=True):
        if mine != its:
            break
        number += 1
    return number
