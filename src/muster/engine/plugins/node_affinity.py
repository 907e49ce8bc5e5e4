"""NodeAffinity: node selectors and node affinity, required and preferred."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from muster.api.selectors import NodeSelectorTerm, Operator
from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.profile import Normalisation, of_table, remembered
from muster.engine.shape import NodeRules, Shape
from muster.engine.snapshot import Snapshot

_STATUS = Status("NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",), resolvable=False)
_ENFORCED = Status("NodeAffinity", ("node(s) didn't match scheduler-enforced node affinity",), resolvable=False)
_CONFLICT = Status("NodeAffinity", ("pod affinity terms conflict",), resolvable=False)
NO_RULES = NodeRules()


class NodeAffinity(Struct, frozen=True):
    """Upstream `nodeaffinity/node_affinity.go`. `added`: the affinity that the profile adds to every pod."""

    added: NodeRules = NO_RULES
    name: str = "NodeAffinity"
    static: bool = True
    normalisation: Normalisation = Normalisation.HIGHEST

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where selector, required affinity and added affinity all match."""
        key = self, "count", shape.nodes
        return of_table(snapshot, key, lambda table: matching(table, self.added) & matching(table, shape.nodes))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The profile's affinity is tested first."""
        allowed = matching(snapshot.table, self.added)[rows].tolist()
        return [_STATUS if fits else _ENFORCED for fits in allowed]

    def verdict(self, shape: Shape, snapshot: Snapshot) -> Status | None:
        """A pod whose terms pin nodes by contradicting names fits nowhere."""
        pinned = pinned_names(shape.nodes)
        return _CONFLICT if pinned is not None and not pinned else None

    def node_set(self, shape: Shape, snapshot: Snapshot) -> Bools | None:
        """The nodes that the terms name, if every term names some."""
        pinned = pinned_names(shape.nodes)
        if not pinned:
            return None
        return _named(snapshot.table, pinned)

    def skips(self, shape: Shape) -> bool:
        """Without preferred terms there is nothing to score."""
        return not (shape.nodes.preferred or self.added.preferred)

    def score(self, shape: Shape, snapshot: Snapshot, rows: Ints, k: Ints) -> Ints:
        """The sum of the weights of the preferred terms that match."""
        table = snapshot.table

        def compute() -> Ints:
            total = np.zeros(len(table), dtype=np.int64)
            for preferred in (*shape.nodes.preferred, *self.added.preferred):
                total += preferred.weight * matching_term(table, preferred.term)
            return total

        return remembered(table, (self, "score", shape.nodes), compute)[rows]


def matching(table: NodeTable, rules: NodeRules) -> Bools:
    """bool[N]: nodes that satisfy the selector and one of the required terms, if there are any."""
    mask = np.ones(len(table), dtype=np.bool_)
    for requirement in rules.selector:
        mask &= table.column(requirement.key).accepted(requirement)
    if rules.required is not None:
        any_term = np.zeros(len(table), dtype=np.bool_)
        for term in rules.required:
            any_term |= matching_term(table, term)
        mask &= any_term
    return mask


def matching_term(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    """bool[N]: nodes that satisfy all of the term; an empty term matches none."""
    mask = np.full(len(table), bool(term.labels or term.fields), dtype=np.bool_)
    for requirement in term.labels:
        mask &= table.column(requirement.key).accepted(requirement)
    for requirement in term.fields:
        named = _named(table, requirement.values)
        mask &= named if requirement.operator is Operator.IN else ~named
    return mask


def pinned_names(rules: NodeRules) -> frozenset[str] | None:
    """The node names to which the required terms restrict a pod; None if one of the terms pins none."""
    if not rules.required:
        return None
    names: set[str] = set()
    for term in rules.required:
        sets = [frozenset(each.values) for each in term.fields if each.operator is Operator.IN]
        if not sets:
            return None
        names |= frozenset.intersection(*sets)
    return frozenset(names)


def _named(table: NodeTable, names: Iterable[str]) -> Bools:
    mask = np.zeros(len(table), dtype=np.bool_)
    mask[[table.index[name] for name in names if name in table.index]] = True
    return mask
