"""Rules between members that are about single nodes become limits of what a node receives: resources of which it has
few, and shapes that are never there together. Whatever else is left over tells classes of nodes apart by domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.between import Apart, AtMost, Between, Even, Few, Near, Volumes, is_single
from muster.engine.exact.cases import cliques
from muster.engine.exact.claims import limits_of, told_apart
from muster.engine.exact.problem import Counts

_MOST_MODES = 24
_MOST_SINGLE = 300
"""On more nodes than this, rules with a domain a node are not told apart by node: that would be too many classes."""


class Local(Struct, frozen=True):
    """`requests` [G, P] and `free` [N, P] of the added resources, with `names`; `modes` of the problem; the rules that
    are left, and `domains` int64[N, K]: what tells nodes apart for them."""

    requests: Ints
    free: Ints
    names: tuple[str, ...]
    modes: tuple[Counts, ...]
    rest: tuple[Between, ...]
    domains: Ints


def on_nodes(rules: Sequence[Between], caps: Ints, demand: Ints) -> Local:
    """`rules` over the N nodes that matter, `caps` int64[N, G] the most of each shape on each of them."""
    number, shapes = caps.shape
    columns, free, names = list[Ints](), list[Ints](), list[str]()
    rest, edges = list[Between](), set[tuple[int, int]]()
    for rule in rules:
        if isinstance(rule, Apart) and is_single(rule.ids):
            for clique in cliques(rule):
                columns.append(_among(clique, shapes))
                free.append(np.ones(number, dtype=np.int64))
                names.append(rule.name)
            edges |= {pair for pair in rule.pairs if pair[0] != pair[1]}
        elif isinstance(rule, Even) and is_single(rule.ids) and number > _MOST_SINGLE:
            columns.append(_among(sorted(rule.carriers & rule.counted), shapes))
            free.append(np.maximum(0, rule.max_skew + _highest(rule, caps, demand) - rule.counts[rule.ids]))
            names.append(rule.name)
        elif isinstance(rule, Volumes):
            rest += [rule, *limits_of(rule, demand)]
        elif not (isinstance(rule, Near) and number > _MOST_SINGLE and all(map(is_single, rule.ids))):
            rest.append(rule)
    told_apart = [ids.astype(np.int64) for rule in rest for ids in _ids(rule)]
    return Local(
        np.array(columns, dtype=np.int64).reshape(len(columns), shapes).T,
        np.array(free, dtype=np.int64).reshape(len(free), number).T,
        tuple(names),
        _modes(edges, shapes),
        tuple(rest),
        np.array(told_apart, dtype=np.int64).reshape(len(told_apart), number).T,
    )


def _ids(rule: Between) -> list[np.ndarray]:
    if isinstance(rule, AtMost | Few):
        return []
    if isinstance(rule, Volumes):
        return [told_apart(rule)]
    if isinstance(rule, Near):
        return list(rule.ids)
    return [rule.ids, rule.counted_ids] if isinstance(rule, Even) else [rule.ids]


def _among(shapes: Sequence[int], number: int) -> Ints:
    column = np.zeros(number, dtype=np.int64)
    column[list(shapes)] = 1
    return column


def _highest(rule: Even, caps: Ints, demand: Ints) -> int:
    """The most pods that the node with the fewest can have in the end."""
    if rule.is_least_zero:
        return 0
    counted = sorted(rule.counted)
    most = rule.counts.copy()
    inside = rule.counted_ids >= 0
    most[rule.counted_ids[inside]] += np.minimum(caps[inside][:, counted], demand[counted]).sum(axis=1)
    return int(most[rule.present].min())


def _modes(edges: set[tuple[int, int]], shapes: int) -> tuple[Counts, ...]:
    """The largest sets of shapes without an edge; none if there are too many of them to look at each."""
    if not edges:
        return ()
    found = [frozenset(range(shapes))]
    for one, other in sorted(edges):
        parts = [part for mode in found for part in _parted(mode, one, other)]
        found = [each for at, each in enumerate(parts) if not _is_covered(each, parts, at)]
        if len(found) > _MOST_MODES:
            return ()
    return tuple(tuple(int(shape in mode) for shape in range(shapes)) for mode in found)


def _parted(mode: frozenset[int], one: int, other: int) -> list[frozenset[int]]:
    return [mode - {one}, mode - {other}] if one in mode and other in mode else [mode]


def _is_covered(each: frozenset[int], parts: Sequence[frozenset[int]], at: int) -> bool:
    return any(each < other or (each == other and place < at) for place, other in enumerate(parts))
