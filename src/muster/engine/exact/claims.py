"""What claims choose as pods come one after the other: the state of a Volumes rule, and what follows for any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints
from muster.engine.between import Few, Volumes

Item: TypeAlias = tuple[int, tuple[int, ...]]
"""(shape, what tells its node apart)."""

_MADE = -1
_MOST_SETS = 128


class ClaimState:
    """The claims that have a volume, or one that is being made for a node. `at`: where the node is in what is seen."""

    def __init__(self, rule: Volumes, at: int) -> None:
        self.rule, self.at = rule, at
        self._reach: list[list[bool]] = rule.reach.tolist()
        self._made: list[list[bool]] = [each.made.tolist() for each in rule.choices]
        self._row = {int(node): row for row, node in enumerate(rule.ids.tolist())}
        self._has: dict[int, tuple[int, int]] = {}
        self._taken: set[int] = set()
        self._log: dict[Item, list[tuple[dict[int, tuple[int, int]], set[int]]]] = {}

    def lets(self, item: Item) -> bool:
        """Whether all claims of the pod have, or find, a volume on its node."""
        return item[0] not in self.rule.claims or self._picks(item) is not None

    def move(self, item: Item, sign: int) -> None:
        """The pod came, or was taken back: the last of its kind first."""
        if item[0] not in self.rule.claims:
            return
        if sign > 0:
            picks = self._picks(item)
            assert picks is not None
            self._log.setdefault(item, []).append((dict(self._has), set(self._taken)))
            self._has |= picks
            self._taken |= {volume for volume, _ in picks.values() if volume != _MADE}
            return
        self._has, self._taken = self._log[item].pop()

    def chosen(self) -> Iterator[tuple[int, int]]:
        """(claim, volume, or the node of one that is made); and the volumes that are taken."""
        for claim, (volume, row) in sorted(self._has.items()):
            yield claim, volume if volume != _MADE else -2 - row
        for volume in sorted(self._taken):
            yield -1, volume

    def urgency(self, item: Item) -> int:
        """How many volumes the claim with the least choice can choose from."""
        row, counts = self._row[item[1][self.at]] if item[0] in self.rule.claims else 0, [len(self._reach) + 1]
        for claim in self.rule.claims.get(item[0], ()):
            if claim not in self._has and not self._made[claim][row]:
                free = [v for v in self.rule.choices[claim].volumes if v not in self._taken and self._reach[v][row]]
                counts.append(len(free))
        return min(counts)

    def _picks(self, item: Item) -> dict[int, tuple[int, int]] | None:
        """What claims that have nothing yet would choose; None if one finds nothing."""
        row, picks = self._row[item[1][self.at]], dict[int, tuple[int, int]]()
        picked: set[int] = set()
        for claim in self.rule.claims[item[0]]:
            made = self._made[claim][row]
            if claim in self._has:
                volume, where = self._has[claim]
                if volume == _MADE and where != row:
                    return None
                if volume != _MADE and not self._reach[volume][row]:  # not bound yet: one may still be made elsewhere
                    if not made:
                        return None
                    picks[claim] = (_MADE, row)
                continue
            free = (v for v in self.rule.choices[claim].volumes if v not in self._taken and v not in picked)
            found = next((v for v in free if self._reach[v][row]), _MADE)
            if found == _MADE and not made:
                return None
            picks[claim] = (found, row)
            picked.add(found)
        return picks


class Kind(Struct, frozen=True):
    """Claims of one pod each that can only have some volumes on the nodes `must` bool[N], where none is made.

    `weights` int64[G]: how many of these claims a pod of each shape has; `reach` bool[V, N] of the volumes.
    """

    weights: Ints
    must: Bools
    reach: Bools

    @property
    def on_each(self) -> Ints:
        """int64[N]: no more of the claims come to a node than volumes that reach it, where none is made."""
        found: Ints = self.reach.sum(axis=0, dtype=np.int64)
        return found


def kinds_of(rule: Volumes, demand: Ints) -> Iterator[Kind]:
    """What holds in whatever order pods come: on nodes where no volume is made, claims that can only have volumes of a
    set are no more than these."""
    alone = _of_one_pod(rule, demand)
    for volumes, made in dict.fromkeys((each.volumes, each.made.tobytes()) for each in rule.choices):
        must = ~np.frombuffer(made, dtype=np.bool_)
        kind = [
            at
            for at, each in enumerate(rule.choices)
            if at in alone and set(each.volumes) <= set(volumes) and not (each.made & must).any()
        ]
        weights = [sum(claim in kind for claim in rule.claims.get(shape, ())) for shape in range(len(demand))]
        reach = rule.reach[list(volumes)] if volumes else np.zeros((0, len(rule.ids)), dtype=np.bool_)
        if any(weights) and must.any():
            yield Kind(np.array(weights, dtype=np.int64), must, reach)


def limits_of(kind: Kind, name: str) -> Iterator[Few]:
    """Limits of several nodes together that do not follow from those of each: for the volumes that claims find on
    single nodes, and unions of them."""
    for some in _sets(kind.reach[:, kind.must]):
        nodes = kind.must & ~kind.reach[~some].any(axis=0)
        if int(kind.on_each[nodes].sum()) > some.sum():
            yield Few(name, nodes, tuple(kind.weights.tolist()), int(some.sum()))


def _of_one_pod(rule: Volumes, demand: Ints) -> set[int]:
    users: dict[int, int] = {}
    for shape, claims in rule.claims.items():
        for claim in claims:
            users[claim] = users.get(claim, 0) + int(demand[shape])
    return {claim for claim, number in users.items() if number == 1}


def _sets(reach: Bools) -> Sequence[Bools]:
    """bool[V] each: the different columns, and their unions while there are few."""
    columns = list(map(tuple, np.unique(reach, axis=1).T.tolist())) if reach.size else [(False,) * len(reach)]
    found: dict[tuple[bool, ...], None] = dict.fromkeys(columns[:_MOST_SETS])
    found.setdefault(tuple(bool(row.any()) for row in reach))
    for one in list(found):
        for other in list(found):
            if len(found) >= _MOST_SETS:
                break
            union = tuple(a or b for a, b in zip(one, other, strict=True))
            found.setdefault(union)
    return [np.array(each, dtype=np.bool_) for each in found]


def told_apart(rule: Volumes) -> Ints:
    """int64[N]: nodes that are the same to all claims have the same number."""
    made = np.array([each.made for each in rule.choices], dtype=np.bool_).reshape(-1, len(rule.ids))
    seen = np.vstack([rule.reach, made])
    _, numbers = np.unique(seen, axis=1, return_inverse=True)
    same: Ints = numbers.reshape(-1).astype(np.int64)
    return same
