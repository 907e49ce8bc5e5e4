"""What devices let single nodes receive, as limits: the largest numbers of pods that find devices there together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from muster.engine.arrays import Ints
from muster.engine.between import Devices
from muster.engine.exact.problem import Counts

_MOST_MODES = 24
_MOST_LOOKS = 4_000
"""So many questions whether pods find devices are asked about all kinds of nodes together."""


class _TooMany(Exception):
    """There are too many limits, or questions, or one that cannot be settled."""


def devices_as_modes(rule: Devices, caps: Ints) -> Ints | None:
    """int64[M, N, G]: what each node receives is at most one of M limits; None if there are too many to look at each.

    `caps` [N, G]: the most of each shape on each node.
    """
    looks = _Looks(rule)
    of_kind: dict[int, list[Counts]] = {}
    try:
        for kind in np.unique(rule.ids).tolist():
            same = np.flatnonzero(rule.ids == kind)
            of_kind[kind] = looks.largest(int(same[0]), caps[same].max(axis=0))
    except _TooMany:
        return None
    most = max(map(len, of_kind.values()), default=0)
    if not 0 < most <= _MOST_MODES:
        return None
    table = {kind: [*found, *found[-1:] * (most - len(found))] for kind, found in of_kind.items()}
    modes = np.array([table[kind] for kind in rule.ids.tolist()], dtype=np.int64).transpose(1, 0, 2)
    return np.minimum(modes, caps)


class _Looks:
    def __init__(self, rule: Devices) -> None:
        self._rule = rule
        self._left = _MOST_LOOKS

    def largest(self, at: int, caps: Ints) -> list[Counts]:
        """The largest numbers of pods of each shape that find devices on the node; shapes without devices at `caps`."""
        carriers = [shape for shape in sorted(self._rule.carriers) if caps[shape]]
        found: list[Counts] = []
        for numbers in self._extended(at, carriers, caps, {}):
            if not any(_covers(other, numbers) for other in found):
                found = [other for other in found if not _covers(numbers, other)] + [numbers]
                if len(found) > _MOST_MODES:
                    raise _TooMany
        full = [dict(zip(carriers, numbers, strict=True)) for numbers in found]
        return [tuple(each.get(shape, int(cap)) for shape, cap in enumerate(caps.tolist())) for each in full]

    def _extended(self, at: int, carriers: list[int], caps: Ints, numbers: Mapping[int, int]) -> Iterator[Counts]:
        """All that begin with these numbers and take as many as possible of the last shape."""
        shape = carriers[len(numbers)] if len(numbers) < len(carriers) else -1
        if shape < 0:
            yield tuple(numbers.values())
            return
        is_last = len(numbers) + 1 == len(carriers)
        for number in range(int(caps[shape]) + 1):
            more = {**numbers, shape: number}
            if number and not self._fits(at, more):
                if is_last:
                    yield tuple({**numbers, shape: number - 1}.values())
                return
            if not is_last:
                yield from self._extended(at, carriers, caps, more)
        if is_last:
            yield tuple({**numbers, shape: int(caps[shape])}.values())

    def _fits(self, at: int, numbers: Mapping[int, int]) -> bool:
        self._left -= 1
        fits = self._rule.lets({(shape, at): number for shape, number in numbers.items() if number})
        if fits is None or self._left < 0:
            raise _TooMany
        return fits


def _covers(one: Counts, other: Counts) -> bool:
    return all(have >= want for have, want in zip(one, other, strict=True))
