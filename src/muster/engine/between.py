"""Rules between the pods of a group, as numbers: what plugins that couple nodes say about several shapes at once.

Shapes are named by their positions in a list that the caller has. Every rule is over domains: `ids` int32 gives the
domain of each node, -1 where a node is in none. Rules about single nodes have a domain a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from muster.engine.arrays import Bools, Ints, Ints32

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from muster.engine.profile import Profile
    from muster.engine.shape import Shape
    from muster.engine.snapshot import Snapshot

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """No domain holds pods of both shapes of a pair (the smaller first; of a shape and itself: two of its pods)."""

    name: str
    ids: Ints32
    pairs: frozenset[Pair]


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """A pod of the `carriers` needs, for each term i, a pod of the `supporters` in its domain of that term before it.

    `ids` and `running` have an entry a term: the domains, and bool[D] where pods that run are such supporters. `first`:
    carriers of which one may come without, as the first of all supporters; none if one runs somewhere.
    """

    name: str
    ids: tuple[Ints32, ...]
    carriers: frozenset[int]
    supporters: frozenset[int]
    running: tuple[Bools, ...]
    first: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Even:
    """A pod of the `carriers` comes to a domain only if that then has at most `max_skew` more than the least one.

    `ids` by label; `counted_ids` the same where pods of the node count, else -1. `counts` int64[D] of pods that run,
    `present` bool[D] domains of which the least counts; `is_least_zero`: it counts as 0 (too few domains). `counted`:
    shapes whose pods count; `adds` 1 if carriers do for their own test, else 0.
    """

    name: str
    ids: Ints32
    counted_ids: Ints32
    carriers: frozenset[int]
    counted: frozenset[int]
    counts: Ints
    present: Bools
    max_skew: int
    is_least_zero: bool
    adds: int


@dataclass(frozen=True, slots=True, eq=False)
class AtMost:
    """Of these shapes so many pods are placed at all."""

    name: str
    shapes: frozenset[int]
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What a claim that waits for a node may get: the first of its volumes that is free and reaches the node, else a
    new one where one can be made.

    `volumes`: positions in `Volumes.reach`, in the order in which they are taken; `made` bool[N].
    """

    key: str
    volumes: tuple[int, ...]
    made: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Volumes:
    """A pod's claims get their volumes when it comes to a node; pods that have a claim in common follow the first.

    `claims`: those of each shape, positions in `choices`, in the order in which they choose. `reach` bool[V, N].
    `ids` int32[N]: a domain a node.
    """

    name: str
    ids: Ints32
    claims: Mapping[int, tuple[int, ...]]
    choices: tuple[Choice, ...]
    reach: Bools

    @property
    def carriers(self) -> frozenset[int]:
        """The shapes that have such claims."""
        return frozenset(self.claims)


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """On these nodes (bool[N]) the pods take, weighed by shape, at most so much. Follows from other rules."""

    name: str
    nodes: Bools
    weights: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The pods get devices, each on its node, whoever comes first.

    `ids` int32[N]: nodes that have the same devices have the same number. `nodes` [N]: their rows. `fits`: whether pods
    (shape, row of the node) → number all find theirs; None if that was not settled. `is_local`: nodes have no devices
    in common, nor pods claims, so that each node can be looked at by itself.
    """

    name: str
    ids: Ints32
    nodes: Ints
    carriers: frozenset[int]
    is_local: bool
    fits: Callable[[Mapping[tuple[int, int], int]], bool | None]

    def lets(self, placed: Mapping[tuple[int, int], int]) -> bool | None:
        """As `fits`, for places in `nodes`."""
        return self.fits(
            {(shape, int(self.nodes[at])): count for (shape, at), count in placed.items() if shape in self.carriers}
        )


Between: TypeAlias = Apart | Near | Even | AtMost | Volumes | Few | Devices


class BetweenPlugin(Protocol):
    """A plugin that says its rules between pods of several shapes as numbers."""

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """The rules that hold between pods of these shapes, with the pods that run now."""


def says_between(plugin: object) -> TypeIs[BetweenPlugin]:
    """Whether a plugin is a BetweenPlugin."""
    return hasattr(plugin, "between")


def rules_between(profile: Profile, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
    """All rules of a profile between pods of these shapes."""
    return [rule for plugin in profile.filters if says_between(plugin) for rule in plugin.between(shapes, snapshot)]


def on(rule: Between, rows: Ints) -> Between:
    """The rule with `ids` only for these nodes (or for classes of nodes, given a node of each)."""
    if isinstance(rule, AtMost):
        return rule
    if isinstance(rule, Few):
        return replace(rule, nodes=rule.nodes[rows])
    if isinstance(rule, Volumes):
        choices = tuple(replace(each, made=each.made[rows]) for each in rule.choices)
        return replace(rule, ids=rule.ids[rows], choices=choices, reach=rule.reach[:, rows])
    if isinstance(rule, Devices):
        return replace(rule, ids=rule.ids[rows], nodes=rule.nodes[rows])
    if isinstance(rule, Near):
        return replace(rule, ids=tuple(ids[rows] for ids in rule.ids))
    if isinstance(rule, Even):
        return replace(rule, ids=rule.ids[rows], counted_ids=rule.counted_ids[rows])
    return replace(rule, ids=rule.ids[rows])


def is_single(ids: Ints32) -> bool:
    """Whether every node is in a domain and no two in the same."""
    return bool((ids >= 0).all()) and len(np.unique(ids)) == len(ids)
