"""What-if: running groups that end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import TypeAlias

import numpy as np

from muster.api.codec import Object
from muster.engine.explanation.question import Question, change

RunningGroup: TypeAlias = tuple[str, Sequence[str]]
"""A group's key and the keys of its pods."""

_MOST_GROUPS = 256
_MOST_ENDING = 8
_MOST_SETS = 300
"""So many sets of one size are tried at most."""


def ended_groups(question: Question, groups: Sequence[RunningGroup]) -> list[Object]:
    """The fewest running groups whose end would make room, of several such sets the one with the fewest pods.

    `minimal`: no set of fewer groups is enough. Where there are too many sets to look at all, a set from which none can
    be left out.
    """
    known = [group for group in groups if group[0] != question.target.key]
    candidates = _relevant(question, known)[:_MOST_GROUPS]
    if not candidates:
        return []
    chosen, minimal = _fewest(question, candidates)
    if not chosen:
        chosen, minimal = _irreducible(question, candidates), False
    if not chosen:
        return []
    names = [key for key, _ in chosen]
    text = f"wait until {' and '.join(names)} {'ends' if len(names) == 1 else 'end'}"
    return [change("endGroups", text, minimal, groups=names)]


def _relevant(question: Question, groups: Sequence[RunningGroup]) -> list[RunningGroup]:
    """The groups whose end frees something on a node that may matter, those that make most room first.

    Where pods have rules about other pods, any group may matter.
    """
    shapes, snapshot, profile = question.shapes, question.snapshot, question.profile
    coupled = any(profile.couplings(shape, snapshot) or shape.usage.volumes for shape in shapes)
    with snapshot.trial() as empty:
        empty.remove(pod for _, pods in groups for pod in pods)
        usable = np.logical_or.reduce([profile.count(shape, empty) > 0 for shape in shapes])
    ranked = []
    for place, (_, pods) in enumerate(groups):
        with snapshot.trial() as trial:
            trial.remove(pods)
            freed = (trial.requested != snapshot.requested).any(axis=1)
            room = int(profile.count(question.blocked, trial).sum())
        if coupled or (freed & usable).any():
            ranked.append((-room, -len(pods), place))
    return [groups[place] for _, _, place in sorted(ranked)]


def _fewest(question: Question, candidates: Sequence[RunningGroup]) -> tuple[list[RunningGroup], bool]:
    """The smallest set that is enough and whether that is proved. Of many, those that make most room are combined."""
    proved = question.proved
    for size in range(1, min(len(candidates), _MOST_ENDING) + 1):
        some = list(candidates)
        while comb(len(some), size) > _MOST_SETS:
            some.pop()
        answers = [(chosen, _without(question, chosen)) for chosen in combinations(some, size)]
        enough = [chosen for chosen, fits in answers if fits]
        if enough:
            return list(min(enough, key=_pods)), proved
        proved = proved and len(some) == len(candidates) and all(fits is False for _, fits in answers)
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
