"""Rules between members that are about single nodes become limits of what a node receives: resources of which it has
few, and shapes that are never there together. Whatever else is left over tells classes of nodes apart by domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Ints
from muster.engine.between import Apart, AtMost, Between, Devices, Even, Few, Near, Volumes, is_single
from muster.engine.exact.cases import cliques
from muster.engine.exact.claims import kinds_of, limits_of, told_apart
from muster.engine.exact.equipped import devices_as_modes
from muster.engine.exact.problem import Counts

_MOST_MODES = 24
_MOST_SINGLE = 300
"""On more nodes than this, rules with a domain a node are not told apart by node: that would be too many classes."""


class Local(Struct, frozen=True):
    """`requests` [G, P] and `free` [N, P] of the added resources, with `names`; `modes` [M, N, G] of the nodes, as a
    problem has them of classes; the rules that are left, and `domains` int64[N, K]: what tells nodes apart for them."""

    requests: Ints
    free: Ints
    names: tuple[str, ...]
    modes: Ints | None
    rest: tuple[Between, ...]
    domains: Ints


def on_nodes(rules: Sequence[Between], caps: Ints, demand: Ints) -> Local:
    """`rules` over the N nodes that matter, `caps` int64[N, G] the most of each shape on each of them."""
    number, shapes = caps.shape
    columns, free, names = list[Ints](), list[Ints](), list[str]()
    rest, edges, modes = list[Between](), set[tuple[int, int]](), list[Ints]()
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
        elif isinstance(rule, Devices) and rule.is_local:
            found = devices_as_modes(rule, np.minimum(caps, demand))
            if found is None:
                rest.append(rule)
            else:
                modes.append(found)
        elif isinstance(rule, Volumes):
            rest.append(rule)
            for kind in kinds_of(rule, demand):
                columns.append(kind.weights)
                free.append(np.where(kind.must, kind.on_each, kind.weights @ demand))
                names.append(rule.name)
                rest += limits_of(kind, rule.name)
        elif not (isinstance(rule, Near) and number > _MOST_SINGLE and all(map(is_single, rule.ids))):
            rest.append(rule)
    told_apart = [ids.astype(np.int64) for rule in rest for ids in _ids(rule)]
    return Local(
        np.array(columns, dtype=np.int64).reshape(len(columns), shapes).T,
        np.array(free, dtype=np.int64).reshape(len(free), number).T,
        tuple(names),
        _all_of([*_excluding(edges, caps), *modes]),
        tuple(rest),
        np.array(told_apart, dtype=np.int64).reshape(len(told_apart), number).T,
    )


def _ids(rule: Between) -> list[np.ndarray]:
    if isinstance(rule, AtMost | Few):
        return []
    if isinstance(rule, Volumes):
        return [told_apart(rule)]
    if isinstance(rule, Devices):
        return [rule.ids]
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


def _all_of(modes: Sequence[Ints]) -> Ints | None:
    """The modes that keep all of these; None if nothing is said."""
    if not modes:
        return None
    found = modes[0]
    for more in modes[1:]:
        found = np.minimum(found[:, None], more[None, :]).reshape(-1, *found.shape[1:])
    return found


def _excluding(edges: set[tuple[int, int]], caps: Ints) -> Iterator[Ints]:
    """The largest sets of shapes without an edge, as modes; nothing if there are too many of them to look at each."""
    sets = _sets_without(edges, caps.shape[1]) if edges else []
    if sets:
        yield np.array(sets, dtype=np.int64)[:, None, :] * caps[None, :, :]


def _sets_without(edges: set[tuple[int, int]], shapes: int) -> list[Counts]:
    found = [frozenset(range(shapes))]
    for one, other in sorted(edges):
        parts = [part for mode in found for part in _parted(mode, one, other)]
        found = [each for at, each in enumerate(parts) if not _is_covered(each, parts, at)]
        if len(found) > _MOST_MODES:
            return []
    return [tuple(int(shape in mode) for shape in range(shapes)) for mode in found]


def _parted(mode: frozenset[int], one: int, other: int) -> list[frozenset[int]]:
    return [mode - {one}, mode - {other}] if one in mode and other in mode else [mode]


def _is_covered(each: frozenset[int], parts: Sequence[frozenset[int]], at: int) -> bool:
    return any(each < other or (each == other and place < at) for place, other in enumerate(parts))
