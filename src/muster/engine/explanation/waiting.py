"""What-if: running groups that end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np

from muster.api.codec import Object
from muster.engine.explanation.question import Question, change
from muster.engine.words import insufficient

RunningGroup: TypeAlias = tuple[str, Sequence[str]]
"""A group's key and the keys of its pods."""

_MOST_GROUPS = 256
_MOST_ENDING = 8
_MOST_SETS = 300
"""So many sets of one size are tried at most."""
_LARGE_SET = 3
"""Before sets of so many groups are looked at, those that make most room are tried all together."""


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
    names = [key for key, _ in chosen]
    text = f"wait until {' and '.join(names)} {'ends' if len(names) == 1 else 'end'}"
    return [change("endGroups", text, minimal, groups=names)]


def _relevant(question: Question, groups: Sequence[RunningGroup]) -> tuple[list[RunningGroup], bool]:
    """The groups whose end frees something on a node that may matter, those that make most room first.

    Where pods have rules about other pods, any group may matter. Of very many groups, those that hold most of what is
    short are looked at; the second value says whether none was left out.
    """
    shapes, snapshot, profile = question.shapes, question.snapshot, question.profile
    coupled = any(profile.couplings(shape, snapshot) or shape.usage.volumes for shape in shapes)
    with snapshot.trial() as empty:
        empty.remove(pod for _, pods in groups for pod in pods)
        usable = np.logical_or.reduce([profile.count(shape, empty) > 0 for shape in shapes])
    some, blocked, ranked = _holding_most(question, groups), question.blocked, []
    for place, (_, pods) in enumerate(some):
        with snapshot.trial() as trial:
            trial.remove(pods)
            freed = (trial.requested != snapshot.requested).any(axis=1)
            if coupled or (freed & usable).any():
                ranked.append((-int(profile.count(blocked, trial).sum()), -len(pods), place))
    return [some[place] for _, _, place in sorted(ranked)], len(some) == len(groups)


def _holding_most(question: Question, groups: Sequence[RunningGroup]) -> list[RunningGroup]:
    """At most _MOST_GROUPS of the groups."""
    if len(groups) <= _MOST_GROUPS:
        return list(groups)
    short = insufficient(question.diagnosis.reasons) or tuple(name for name, _ in question.blocked.usage.requests)
    held: dict[str, tuple[int, ...]] = {}
    for pods in question.snapshot.placed.values():
        for key, usage in pods.items():
            amounts = dict(usage.requests)
            held[key] = tuple(amounts.get(name, 0) for name in short)
    none = (0,) * len(short)
    sums = [
        tuple(-sum(each) for each in zip(none, *(held.get(key, none) for key in keys), strict=True))
        for _, keys in groups
    ]
    order = sorted(range(len(groups)), key=lambda place: (sums[place], place))
    return [groups[place] for place in order[:_MOST_GROUPS]]


def _fewest(question: Question, candidates: Sequence[RunningGroup], is_whole: bool) -> tuple[list[RunningGroup], bool]:
    """The smallest set that is enough and whether that is proved. Of many, those that make most room are combined.

    `is_whole`: no group that may matter was left out.
    """
    proved = question.proved
    for size in range(1, min(len(candidates), _MOST_ENDING) + 1):
        some = list(candidates)
        while comb(len(some), size) > _MOST_SETS:
            some.pop()
        if size == _LARGE_SET and not _without(question, candidates[:_MOST_ENDING]):
            break
        answers = [(chosen, _without(question, chosen)) for chosen in combinations(some, size)]
        enough = [chosen for chosen, fits in answers if fits]
        if enough:
            return list(min(enough, key=_pods)), proved
        proved = proved and is_whole and len(some) == len(candidates) and all(fits is False for _, fits in answers)
        if question.effort.left <= 0:
            break
    return [], False


def _pods(chosen: Iterable[RunningGroup]) -> int:
    return sum(len(pods) for _, pods in chosen)


def _irreducible(question: Question, candidates: Sequence[RunningGroup]) -> list[RunningGroup]:
    """A set of groups whose end is enough, without any that is not needed for that; large ones are spared first.

    Empty if more than _MOST_ENDING groups would have to end: that is no advice.
    """
    by_size = sorted(candidates, key=lambda group: -len(group[1]))
    few = next((each for each in _growing(by_size) if _without(question, each)), [])
    for group in list(few):
        fewer = [each for each in few if each is not group]
        if fewer and _without(question, fewer):
            few = fewer
    return few


def _growing(by_size: Sequence[RunningGroup]) -> Iterator[list[RunningGroup]]:
    """The first two of the groups, three and so on."""
    for number in range(2, min(len(by_size), _MOST_ENDING) + 1):
        yield list(by_size[:number])


def _without(question: Question, groups: Iterable[RunningGroup]) -> bool | None:
    with question.snapshot.trial() as trial:
        trial.remove(key for _, keys in groups for key in keys)
        return question.fits(snapshot=trial)
