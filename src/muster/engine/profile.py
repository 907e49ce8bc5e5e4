"""Which rules decide, in which order and with which weight: a scheduler profile, and the protocols of its plugins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from muster.engine.arrays import Bools, Ints, Ints32, frozen
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

UNLIMITED = int(np.iinfo(np.int32).max)
"""The count of a rule that does not limit how many pods a node takes."""

MAX_NODE_SCORE = 100

T = TypeVar("T")


class FilterPlugin(Protocol):
    """A rule that says how many more pods of a shape fit on each node."""

    @property
    def name(self) -> str:
        """Upstream's name."""

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """int32[N]: how many more fit, 0 = none, UNLIMITED = any number."""

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """Why not, for each of the rows; only asked for rows whose count is 0."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    """A rule that can reject a shape, or all nodes but some, before nodes are looked at one by one."""

    @property
    def name(self) -> str:
        """Upstream's name."""

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """Why the shape fits nowhere at all, if so."""

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """bool[N]: the nodes to look at; None for all."""


class Normalisation(Enum):
    """How raw scores become 0..100 over the feasible nodes (upstream `helper.DefaultNormalizeScore`)."""

    NONE = "none"
    HIGHEST = "highest"
    REVERSE = "reverse"

    def scale(self, raw: Ints, highest: int) -> Ints:
        """The scores for raw scores of which `highest` is the largest among the feasible nodes."""
        if self is Normalisation.NONE:
            return raw
        if highest == 0:
            return raw if self is Normalisation.HIGHEST else np.full_like(raw, MAX_NODE_SCORE)
        scaled = raw * MAX_NODE_SCORE // highest
        return scaled if self is Normalisation.HIGHEST else MAX_NODE_SCORE - scaled


class ScorePlugin(Protocol):
    """A rule that prefers some nodes.

    `static`: the score does not depend on k. Normalised plugins must be static.
    """

    @property
    def name(self) -> str:
        """Upstream's name."""

    @property
    def static(self) -> bool:
        """Whether the score does not depend on the pods of the group that a node has already."""

    @property
    def normalisation(self) -> Normalisation:
        """How the raw scores are normalised."""

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """int64[M] raw scores of nodes rows[j] when they would receive their k[j]-th pod of this shape (k ≥ 1)."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A score plugin and its weight in the profile."""

    plugin: ScorePlugin
    weight: int


@dataclass(frozen=True, slots=True)
class Profile:
    """The rules of one scheduler name. `filters` in the order in which the first failure is reported."""

    filters: tuple[FilterPlugin, ...]
    scores: tuple[Weighted, ...]

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints:
        """int64[N], read-only: how many more pods of this shape fit on each node by all rules."""
        known = snapshot.counts.get((self.filters, shape))
        if known is not None:
            return known
        total = np.full(len(snapshot), UNLIMITED, dtype=np.int64)
        for plugin in self.filters:
            np.minimum(total, plugin.count(shape, snapshot), out=total)
        frozen(total)
        if len(snapshot.counts) < _COUNTS_LIMIT:
            snapshot.counts[self.filters, shape] = total
        return total


def limited_to(mask: Bools) -> Ints32:
    """The count of a rule that only says yes or no."""
    return np.where(mask, np.int32(UNLIMITED), np.int32(0))


def remembered(table: NodeTable, key: object, compute: Callable[[], T]) -> T:
    """What `compute` gives, computed once for this table and key, which must name the plugin and all that it reads."""
    found = table.memo.get(key)
    if found is None:
        if len(table.memo) >= _MEMO_LIMIT:
            table.memo.clear()
        found = table.memo[key] = compute()
    return cast(T, found)  # the key names the function, so the type is the one that it returns


_MEMO_LIMIT = 2_000
_COUNTS_LIMIT = 100
