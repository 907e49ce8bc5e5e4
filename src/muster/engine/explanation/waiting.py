"""What-if: running groups that end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.api.codec import Object
from muster.engine.explanation.question import Question, change
from muster.engine.requests import Usage
from muster.engine.words import insufficient

RunningGroup: TypeAlias = tuple[str, Sequence[str]]
"""A group's key and the keys of its pods."""

_MOST_GROUPS = 256
_MOST_ENDING = 8
_MOST_SETS = 300
"""So many sets of one size are tried at most."""
_LARGE_SET = 3
"""Before sets of so many groups are looked at, those that make most room are tried all together."""


class _Ending(Struct, frozen=True):
    """A group that might end. `gain`: how many more pods of the shape that is short then fit on its nodes."""

    group: RunningGroup
    gain: int
    nodes: frozenset[str]


def ended_groups(question: Question, groups: Sequence[RunningGroup]) -> list[Object]:
    """The fewest running groups whose end would make room, of several such sets the one with the fewest pods.

    `minimal`: no set of fewer groups is enough. Where there are too many sets to look at all, a set from which none can
    be left out.
    """
    known = [group for group in groups if group[0] != question.target.key]
    candidates, is_whole = _relevant(question, known)
    if not candidates or not _without(question, candidates):
        return []
    chosen, minimal = _fewest(question, candidates, is_whole)
    if not chosen:
        chosen, minimal = _irreducible(question, candidates), False
    if not chosen:
        return []
    names = [each.group[0] for each in chosen]
    text = f"wait until {' and '.join(names)} {'ends' if len(names) == 1 else 'end'}"
    return [change("endGroups", text, minimal, groups=names)]


def _relevant(question: Question, groups: Sequence[RunningGroup]) -> tuple[list[_Ending], bool]:
    """The groups whose end frees something on a node that may matter, those that make most room first.

    Where pods have rules about other pods, any group may matter. Of very many groups, those that hold most of what is
    short are looked at; the second value says whether none was left out.
    """
    nodes = {key: node for node, pods in question.snapshot.placed.items() for key in pods}
    some = _holding_most(question, groups, nodes)
    where = [_by_node(pods, nodes) for _, pods in some]
    gains, usable = _gains(question, where), _usable(question, some)
    endings = [_Ending(group, gain, frozenset(pods)) for group, gain, pods in zip(some, gains, where, strict=True)]
    is_coupled = _is_coupled(question)
    found = [each for each in endings if is_coupled or not usable.isdisjoint(each.nodes)]
    # A stable sort: of equal ones the first names come first.
    return sorted(found, key=lambda each: (-each.gain, -len(each.group[1]))), len(some) == len(groups)


def _is_coupled(question: Question) -> bool:
    """Whether what ends on one node may matter on others."""
    profile, snapshot = question.profile, question.snapshot
    return any(profile.couplings(shape, snapshot) or shape.usage.volumes for shape in question.shapes)


def _usable(question: Question, groups: Sequence[RunningGroup]) -> set[str]:
    """The nodes on which some of the pods fit once all the groups have ended."""
    with question.snapshot.trial() as empty:
        empty.remove(pod for _, pods in groups for pod in pods)
        fits = np.logical_or.reduce([question.profile.count(shape, empty) > 0 for shape in question.shapes])
        names = empty.table.names
    return {names[row] for row in np.flatnonzero(fits).tolist()}


def _by_node(pods: Iterable[str], nodes: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in pods:
        if pod in nodes:
            found.setdefault(nodes[pod], []).append(pod)
    return found


def _gains(question: Question, where: Sequence[Mapping[str, Sequence[str]]]) -> list[int]:
    """How many more pods of the blocked shape fit where each group (its pods by node) is, if that one ends.

    One group of every node is looked at in one go, then the next of every node.
    """
    snapshot, profile, blocked = question.snapshot, question.profile, question.blocked
    index, now = snapshot.table.index, profile.count(blocked, snapshot)
    waiting: dict[str, list[int]] = {}
    for place, pods in enumerate(where):
        for node in pods:
            waiting.setdefault(node, []).append(place)
    gains = [0] * len(where)
    with snapshot.trial() as trial:
        while waiting:
            ending = {node: places.pop() for node, places in waiting.items()}
            keys = [key for node, place in ending.items() for key in where[place][node]]
            trial.remove(keys)
            then = profile.count(blocked, trial)
            for node, place in ending.items():
                row = index.get(node)
                gains[place] += 0 if row is None else int(then[row] - now[row])
            trial.restore(keys)
            waiting = {node: places for node, places in waiting.items() if places}
    return gains


def _holding_most(question: Question, groups: Sequence[RunningGroup], nodes: Mapping[str, str]) -> list[RunningGroup]:
    """At most _MOST_GROUPS of the groups. `nodes`: that of each pod."""
    if len(groups) <= _MOST_GROUPS:
        return list(groups)
    short = insufficient(question.diagnosis.reasons) or tuple(name for name, _ in question.blocked.usage.requests)
    placed, known_as = question.snapshot.placed, dict[int, tuple[int, ...]]()

    def amounts(usage: Usage) -> tuple[int, ...]:
        """What it takes of what is short; pods share usages, so each is looked at once."""
        if id(usage) not in known_as:
            requests = dict(usage.requests)
            known_as[id(usage)] = tuple(requests.get(name, 0) for name in short)
        return known_as[id(usage)]

    def held(pods: Iterable[str]) -> tuple[int, ...]:
        return tuple(map(sum, zip(*(amounts(placed[nodes[key]][key]) for key in pods if key in nodes), strict=True)))

    sums = [tuple(-each for each in held(pods)) for _, pods in groups]
    order = sorted(range(len(groups)), key=lambda place: (sums[place] or (0,) * len(short), place))
    return [groups[place] for place in order[:_MOST_GROUPS]]


def _fewest(question: Question, candidates: Sequence[_Ending], is_whole: bool) -> tuple[list[_Ending], bool]:
    """The smallest set that is enough and whether that is proved. Of many, those that make most room are combined.

    `is_whole`: no group that may matter was left out.
    """
    proved, lacking = question.proved, _lacking(question)
    for size in range(1, min(len(candidates), _MOST_ENDING) + 1):
        some = list(candidates)
        while comb(len(some), size) > _MOST_SETS:
            some.pop()
        if size == _LARGE_SET and not _without(question, candidates[:_MOST_ENDING]):
            break
        refused = True
        for chosen in sorted(combinations(some, size), key=_pods):
            fits = _may_suffice(chosen, lacking) and _without(question, chosen)
            if fits:
                return list(chosen), proved
            refused = refused and fits is False
        proved = proved and refused and is_whole and len(some) == len(candidates)
        if question.effort.left <= 0:
            break
    return [], False


def _lacking(question: Question) -> int:
    """How many pods have no room yet; 0 where that is not a matter of counting."""
    if len(question.shapes) > 1 or _is_coupled(question):
        return 0
    return question.target.needed - int(question.profile.count(question.blocked, question.snapshot).sum())


def _may_suffice(chosen: Sequence[_Ending], lacking: int) -> bool:
    """False if it is certain that their ends make too little room: those on different nodes add up."""
    shares_nodes = len(frozenset().union(*(each.nodes for each in chosen))) < sum(len(each.nodes) for each in chosen)
    return shares_nodes or sum(each.gain for each in chosen) >= lacking


def _pods(chosen: Iterable[_Ending]) -> int:
    return sum(len(each.group[1]) for each in chosen)


def _irreducible(question: Question, candidates: Sequence[_Ending]) -> list[_Ending]:
    """A set of groups whose end is enough, without any that is not needed for that; large ones are spared first.

    Empty if more than _MOST_ENDING groups would have to end: that is no advice.
    """
    by_size = sorted(candidates, key=lambda each: -len(each.group[1]))
    few = next((each for each in _growing(by_size) if _without(question, each)), [])
    for group in list(few):
        fewer = [each for each in few if each is not group]
        if fewer and _without(question, fewer):
            few = fewer
    return few


def _growing(by_size: Sequence[_Ending]) -> Iterator[list[_Ending]]:
    """The first two of the groups, three and so on."""
    for number in range(2, min(len(by_size), _MOST_ENDING) + 1):
        yield list(by_size[:number])


def _without(question: Question, endings: Iterable[_Ending]) -> bool | None:
    with question.snapshot.trial() as trial:
        trial.remove(key for each in endings for key in each.group[1])
        return question.fits(snapshot=trial)
