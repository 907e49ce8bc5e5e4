"""PodTopologySpread: pods of a kind in even numbers over domains, as a rule (hard) or as a wish (soft)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from muster.api.selectors import LabelSelector
from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.between import Between, Even
from muster.engine.model import Status
from muster.engine.plugins.node_affinity import matching
from muster.engine.plugins.taint_toleration import tolerated
from muster.engine.profile import MAX_NODE_SCORE, UNLIMITED, Feasible, Scaled, limited_to, noted, unlimited
from muster.engine.selecting import default_selector
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.spreading import SpreadConstraint, SpreadRule

HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    SpreadConstraint(HOSTNAME, 3, hard=False),
    SpreadConstraint("topology.kubernetes.io/zone", 5, hard=False),
)

_SKEWED = Status("PodTopologySpread", ("node(s) didn't match pod topology spread constraints",))
_UNLABELLED = Status(
    "PodTopologySpread",
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
    resolvable=False,
)

Floats = NDArray[np.float64]
FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)


class PodTopologySpread(Struct, frozen=True):
    """Upstream `podtopologyspread/{filtering,scoring,common}.go`.

    `defaults`: constraints of pods without any of their own; None: the system's, without whose keys nodes count too.
    `inside`: labels with the values that nodes must have to count. Pods that must be in a topology domain are spread
    over what it has, as upstream does it, where nodes outside do not exist meanwhile.
    """

    defaults: tuple[SpreadConstraint, ...] | None = None
    name: str = "PodTopologySpread"
    inside: tuple[tuple[str, str], ...] = ()

    def within(self, key: str, value: str) -> PodTopologySpread:
        """The rule for pods that must be in this domain."""
        return structs.replace(self, inside=(*self.inside, (key, value)))

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where one more pod leaves all hard constraints satisfied."""
        spread = self._noted(shape, snapshot)
        if spread is None or not spread.hard:
            return unlimited(snapshot)
        return limited_to(spread.allowed_now())

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """By the first constraint that fails: preemption cannot give a node a label."""
        spread = self._noted(shape, snapshot)
        assert spread is not None
        unlabelled = spread.lacks_label_first()[rows].tolist()
        return [_UNLABELLED if lacks else _SKEWED for lacks in unlabelled]

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where all hard constraints have their label: other pods may raise the minimum."""
        spread = self._noted(shape, snapshot)
        if spread is None:
            return unlimited(snapshot)
        return limited_to(spread.labelled())

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Only hard constraints filter."""
        spread = self._noted(shape, snapshot)
        return spread is not None and bool(spread.hard)

    def couples(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether pods elsewhere matter for where the pod may go."""
        return self.acts(shape, snapshot)

    def coupling(self, shape: Shape, snapshot: Snapshot) -> Spread | None:
        """The constraints of the pod, or the default ones."""
        rules = self._rules(shape, snapshot)
        if not rules:
            return None
        require_all = bool(shape.spread) or self.defaults is not None
        return Spread(shape, snapshot, rules, self._open(snapshot), require_all=require_all)

    def _open(self, snapshot: Snapshot) -> Bools:
        """bool[N]: the nodes that count at all."""
        mask = np.ones(len(snapshot), dtype=np.bool_)
        for key, value in self.inside:
            column = snapshot.table.column(key)
            mask &= column.ids == column.values.get(value, -2)
        return mask

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """One rule for all shapes that have the same hard constraint and see the same domains."""
        found: dict[Hashable, Even] = {}
        for at, shape in enumerate(shapes):
            spread = self._noted(shape, snapshot)
            if spread is None:
                continue
            hard = [rule for rule in self._rules(shape, snapshot) if rule.constraint.hard]
            for rule, domains in zip(hard, spread.hard, strict=True):
                counted = frozenset(other for other, each in enumerate(shapes) if _counts(shape, rule.selector, each))
                key = (rule, counted, domains.self_match, domains.adds, domains.eligible.tobytes())
                known = found.get(key)
                if known is None:
                    known = _even(domains, counted)
                found[key] = replace(known, carriers=known.carriers | {at})
        return list(found.values())

    def _noted(self, shape: Shape, snapshot: Snapshot) -> Spread | None:
        """The coupling for the snapshot as it is, which nobody places on; for questions about one more pod."""
        found = noted(snapshot, (self, shape), lambda: (self.coupling(shape, snapshot),))
        return found[0]

    def _rules(self, shape: Shape, snapshot: Snapshot) -> tuple[SpreadRule, ...]:
        if shape.spread or shape.usage.identity is None:
            return shape.spread
        constraints = SYSTEM_DEFAULTS if self.defaults is None else self.defaults
        identity, owner = shape.usage.identity, shape.owner
        (selector,) = noted(
            snapshot,
            (default_selector, identity.namespace, identity.labels, owner),
            lambda: (default_selector(snapshot.objects, identity, owner),),
        )
        if selector is None:
            return ()
        return tuple(SpreadRule(constraint, selector) for constraint in constraints)


class Spread:
    """The constraints of one shape over a snapshot, and how many pods each domain has of those that they count."""

    def __init__(
        self, shape: Shape, snapshot: Snapshot, rules: Sequence[SpreadRule], open_: Bools, *, require_all: bool
    ) -> None:
        hard = [rule for rule in rules if rule.constraint.hard]
        soft = [rule for rule in rules if not rule.constraint.hard]
        self.hard = _domains_of(shape, snapshot, hard, open_, require_all=True)
        self.soft = _domains_of(shape, snapshot, soft, open_, require_all=require_all)
        self._size = len(snapshot)
        self._require_all = require_all
        self._soft = SoftSpread(self.soft, len(snapshot), require_all) if soft else None

    @property
    def steady(self) -> bool:
        """Only without soft constraints, whose weights depend on the nodes that are left."""
        return not self.soft and not any(domains.adds for domains in self.hard)

    @property
    def binding(self) -> bool:
        """Hard constraints are."""
        return bool(self.hard)

    def most(self, usable: Bools) -> int:
        """Not said: it depends on where pods can go in all domains at once."""
        return UNLIMITED

    def allowed(self) -> Bools | None:
        return self.allowed_now() if self.hard else None

    def allowed_now(self) -> Bools:
        """bool[N]: nodes on which one more pod violates nothing."""
        mask = np.ones(self._size, dtype=np.bool_)
        for domains in self.hard:
            mask &= domains.within_skew()
        return mask

    def labelled(self) -> Bools:
        """bool[N]: nodes that have the label of every hard constraint."""
        mask = np.ones(self._size, dtype=np.bool_)
        for domains in self.hard:
            mask &= domains.labelled
        return mask

    def lacks_label_first(self) -> Bools:
        """bool[N]: nodes whose first failing constraint is one whose label they lack."""
        lacks = np.zeros(self._size, dtype=np.bool_)
        open_ = np.ones(self._size, dtype=np.bool_)
        for domains in self.hard:
            lacks |= open_ & ~domains.labelled
            open_ &= domains.within_skew()
        return lacks

    def scores(self, feasible: Feasible) -> Scaled | None:
        return None if self._soft is None else self._soft.scores(feasible)

    def place(self, row: int) -> None:
        for domains in self.hard:
            domains.place(row)
        if self._soft is not None:
            self._soft.place(row)


class Domains:
    """The domains of one constraint: `ids` int32[N] of each node (-1: no label), `counts` int64[D] of eligible nodes.

    `on_node` int64[N]: the counted pods of each node itself, eligible or not.
    """

    def __init__(self, shape: Shape, snapshot: Snapshot, rule: SpreadRule, eligible: Bools) -> None:
        constraint = rule.constraint
        column = self.column = snapshot.table.column(constraint.topology_key)
        self.key = constraint.topology_key
        self.ids = column.ids
        self.labelled: Bools = column.ids >= 0
        self.eligible = eligible & self.labelled
        self.on_node = counted_pods(snapshot, shape, rule.selector)
        self.max_skew = constraint.max_skew
        self.self_match = int(_matches_itself(shape, rule.selector))
        self.adds = self.self_match if rule.selector.requirements else 0  # see counted_pods
        rows = np.flatnonzero(self.eligible)
        self.counts = _sums(self.ids[rows], self.on_node[rows], len(column.values))
        present = np.bincount(self.ids[rows], minlength=len(column.values)) > 0
        self.present = present
        self.is_least_zero = int(present.sum()) < (constraint.min_domains or 1) or not present.any()

    def within_skew(self) -> Bools:
        """bool[N]: labelled nodes whose domain may get one more pod."""
        known = self.counts[self.present]
        least = 0 if self.is_least_zero else int(known.min())
        fits = self.counts + (self.self_match - least) <= self.max_skew
        return np.append(fits, False)[self.ids]  # the last place, which -1 reaches, is "no label"

    def place(self, row: int) -> None:
        """Counts a pod of the shape, if the constraint counts it."""
        self.on_node[row] += self.adds
        if self.eligible[row]:
            self.counts[self.ids[row]] += self.adds


class SoftSpread:
    """The score of soft constraints, kept up to date pod by pod."""

    def __init__(self, constraints: Sequence[Domains], size: int, require_all: bool) -> None:
        self._constraints = constraints
        self._weights: list[float] = []
        self._parts: list[Floats] = []
        self._raw: Ints = np.zeros(size, dtype=np.int64)
        self._fresh = False
        ignored = np.zeros(size, dtype=np.bool_)
        for domains in constraints if require_all else ():
            ignored |= ~domains.labelled
        self._ignored = np.flatnonzero(ignored)
        self._counted = np.zeros(0, dtype=np.int64)

    def scores(self, feasible: Feasible) -> Scaled:
        """The fewer pods of the kind in a node's domains, the better; nodes that lack a label that they need get 0."""
        if feasible.changed or not self._weights:
            counted = feasible.mask.copy()
            counted[self._ignored] = False
            self._counted = np.flatnonzero(counted)
            self._weigh()
        if not self._fresh:
            self._raw, self._fresh = _rounded(self._parts), True
        raw = self._raw
        values = raw if len(self._counted) == len(raw) else raw[self._counted]
        least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if most == 0:
            scores = np.full(len(raw), MAX_NODE_SCORE, dtype=np.int64)
        else:  # exact: the product is far below 2**53
            scores = ((most + least - raw) * MAX_NODE_SCORE / most).astype(np.int64)
        scores[self._ignored] = 0
        return Scaled(scores, raw)

    def place(self, row: int) -> None:
        """Counts a pod, and values the nodes of its domains anew."""
        for place, domains in enumerate(self._constraints):
            domains.place(row)
            value = int(domains.ids[row])
            if not domains.adds or not self._parts or value < 0:
                continue
            self._fresh = False
            hostname = domains.key == HOSTNAME
            rows = row if hostname else domains.column.rows_of(value)
            count = domains.on_node[row] if hostname else domains.counts[value]
            self._parts[place][rows] = _worth(float(count), domains, self._weights[place])

    def _weigh(self) -> None:
        """The weight of each constraint by the number of domains among the nodes that count."""
        weights = []
        for domains in self._constraints:
            if domains.key == HOSTNAME:
                size = len(self._counted)
            else:  # nodes without the label, if they count at all, are one domain more
                size = int(np.count_nonzero(np.bincount(domains.ids[self._counted] + 1)))
            weights.append(float(np.log(float(size + 2))))
        if weights == self._weights:
            return
        self._weights, self._fresh = weights, False
        self._parts = [self._part(domains, weight) for domains, weight in zip(self._constraints, weights, strict=True)]

    def _part(self, domains: Domains, weight: float) -> Floats:
        """What a constraint adds to the raw score of each node; nothing where it lacks the label."""
        counts = domains.on_node if domains.key == HOSTNAME else np.append(domains.counts, 0)[domains.ids]
        return np.where(domains.labelled, _worth(counts.astype(np.float64), domains, weight), 0.0)


def _worth(count: FloatOrFloats, domains: Domains, weight: float) -> FloatOrFloats:
    """What so many pods are worth, as upstream's `scoreForCount` computes it."""
    return count * weight + float(domains.max_skew - 1)


def _even(domains: Domains, counted: frozenset[int]) -> Even:
    return Even(
        f"spread over {domains.key}",
        domains.ids,
        np.where(domains.eligible, domains.ids, np.int32(-1)).astype(np.int32),
        frozenset(),
        counted,
        domains.counts.copy(),
        domains.present,
        domains.max_skew,
        domains.is_least_zero,
        domains.self_match,
    )


def _counts(shape: Shape, selector: LabelSelector, other: Shape) -> bool:
    """Whether a constraint of the shape counts pods of the other one; see `counted_pods`."""
    own, identity = shape.usage.identity, other.usage.identity
    if own is None or identity is None or own.namespace != identity.namespace:
        return False
    return bool(selector.requirements) and selector.matches(identity.label_map)


def counted_pods(snapshot: Snapshot, shape: Shape, selector: LabelSelector) -> Ints:
    """int64[N]: the pods of the shape's namespace that a constraint counts on each node. A selector that selects
    everything counts none (upstream `countPodsMatchSelector`).
    """
    total = np.zeros(len(snapshot), dtype=np.int64)
    identity = shape.usage.identity
    if identity is None:
        return total
    if not (selector.requirements or selector.nothing):
        for node, usages in snapshot.guests.items():  # these are added one by one upstream, by another rule
            guests = [usage.identity for usage in usages if usage.identity is not None]
            total[snapshot.table.index[node]] += sum(guest.namespace == identity.namespace for guest in guests)
        return total
    for other in snapshot.population.in_namespace(identity.namespace):
        if not other.leaving and selector.matches(other.label_map):
            total += snapshot.population.column(other)
    return total


def _domains_of(
    shape: Shape, snapshot: Snapshot, rules: Sequence[SpreadRule], open_: Bools, *, require_all: bool
) -> tuple[Domains, ...]:
    """The domains of each rule; pods of nodes that lack one of the labels do not count if all are required."""
    table = snapshot.table
    complete = open_.copy()
    if require_all:
        for rule in rules:
            complete &= table.column(rule.constraint.topology_key).ids >= 0
    found = []
    for rule in rules:
        eligible = complete
        if rule.constraint.honor_affinity:
            eligible = eligible & matching(table, shape.nodes)
        if rule.constraint.honor_taints:
            eligible = eligible & tolerated(table, shape.tolerations)
        found.append(Domains(shape, snapshot, rule, eligible))
    return tuple(found)


def _matches_itself(shape: Shape, selector: LabelSelector) -> bool:
    identity = shape.usage.identity
    return identity is not None and selector.matches(identity.label_map)


def _sums(ids: Ints32, amounts: Ints, size: int) -> Ints:
    """int64[size]: the sum of the amounts of each id."""
    return np.bincount(ids, weights=amounts, minlength=size).astype(np.int64)


def _rounded(parts: Sequence[Floats]) -> Ints:
    """The sum in order, rounded half up (all are ≥ 0)."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return (total + 0.5).astype(np.int64)
