"""The cheapest choice of one option from each of many lists such that enough is gained in all, exactly. Pure.

By the linear relaxation (lower hulls of the lists, the best rate first), which is the answer where its last step ends
just at what is wanted, as it mostly does; else by dynamic programming over the lists, with what the relaxation says
about the rest as the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct

Option: TypeAlias = tuple[int, int]
"""A gain and its cost, both positive. Those of a list are in order of the gain, and of the cost."""


class Relaxed(Struct, frozen=True):
    """The relaxation's answer: whole steps of hulls, of which the last may gain too much.

    `rate`: the cost of a gain of one at the margin; `cost`: that of `picks`; no choice costs less than `bound`.
    `picks`: the place of the option taken from each list, -1 for none.
    """

    picks: tuple[int, ...]
    cost: int
    rate: Fraction
    bound: Fraction


def relaxed(lists: Sequence[Sequence[Option]], wanted: int) -> Relaxed | None:
    """The relaxation's answer for a gain of `wanted` ≥ 1; None if all together gain less."""
    steps = [step for at, options in enumerate(lists) for step in _hull(at, options)]
    steps.sort()
    picks, cost, lacking = [-1] * len(lists), 0, wanted
    for rate, at, place, gain, more in steps:
        picks[at], cost, lacking = place, cost + more, lacking - gain
        if lacking <= 0:
            return Relaxed(tuple(picks), cost, rate, cost + lacking * rate)
    return None


def _hull(at: int, options: Sequence[Option]) -> Iterable[tuple[Fraction, int, int, int, int]]:
    """The steps of the lower hull of a list: rate, list, place of the option that it leads to, gain and cost more."""
    gained, paid, place = 0, 0, 0
    while place < len(options):
        rates = [Fraction(cost - paid, gain - gained) for gain, cost in options[place:]]
        rate = min(rates)
        place += len(rates) - 1 - rates[::-1].index(rate)
        gain, cost = options[place]
        yield rate, at, place, gain - gained, cost - paid
        gained, paid, place = gain, cost, place + 1


def cheapest(lists: Sequence[Sequence[Option]], wanted: int, first: Relaxed) -> tuple[int, ...]:
    """The place of the option to take from each list, -1 for none. `first`: the relaxation's answer."""
    return first.picks if first.cost == first.bound else _searched(lists, wanted, first)


def _searched(lists: Sequence[Sequence[Option]], wanted: int, first: Relaxed) -> tuple[int, ...]:
    """A choice that costs less than the relaxation's, if there is any, list by list.

    An option that alone lifts the bound to what is known is left out; most lists have then only the one that the
    relaxation takes. Costs are in parts of the rate, so that all numbers are whole.
    """
    scale, rate = first.rate.denominator, first.rate.numerator
    all_options = [((0, 0), *options) for options in lists]
    lifts = [[cost * scale - gain * rate for gain, cost in options] for options in all_options]
    gap = first.cost * scale - wanted * rate - sum(map(min, lifts))
    best, best_cost = first.picks, first.cost
    lacking, paid, path, free = wanted, 0, _NOWHERE, list[tuple[int, list[int], int]]()
    for at, (options, lift) in enumerate(zip(all_options, lifts, strict=True)):
        least = min(lift)
        places = [place for place, each in enumerate(lift) if each - least < gap]
        if len(places) > 1:
            free.append((at, places, least))
        elif places[0]:
            gain, cost = options[places[0]]
            lacking, paid, path = max(0, lacking - gain), paid + cost, (path, at, places[0] - 1)
    if not lacking and paid < best_cost:
        best, best_cost = _as_picks(path, len(lists)), paid
    rest = [0, *accumulate(least for _, _, least in reversed(free))][::-1]
    states: dict[int, tuple[int, _Path]] = {lacking: (paid, path)}
    for number, (at, places, _) in enumerate(free, start=1):
        found: dict[int, tuple[int, _Path]] = {}
        for lacking, (paid, path) in states.items():
            for place in places:
                gain, cost = all_options[at][place]
                left, total = max(0, lacking - gain), paid + cost
                if total * scale + left * rate + rest[number] >= best_cost * scale:
                    continue
                known = found.get(left)
                if known is not None and known[0] <= total:
                    continue
                found[left] = total, (path, at, place - 1) if place else path
                if left == 0:
                    best, best_cost = _as_picks(found[left][1], len(lists)), total
        states = found
    return best


_Path: TypeAlias = "tuple[_Path, int, int] | None"
_NOWHERE: _Path = None


def _as_picks(path: _Path, number: int) -> tuple[int, ...]:
    picks = [-1] * number
    while path is not None:
        path, at, place = path
        picks[at] = place
    return tuple(picks)
