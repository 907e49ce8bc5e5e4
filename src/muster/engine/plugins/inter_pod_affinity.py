"""InterPodAffinity: pods near to others, or away from them, as a rule or as a wish, of either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from muster.engine.arrays import Bools, Ints, Ints32
from muster.engine.between import Apart, Between, Near
from muster.engine.identity import Identity, PodTerm
from muster.engine.model import Status
from muster.engine.nodes import NodeTable
from muster.engine.objects import ObjectStore
from muster.engine.profile import MAX_NODE_SCORE, UNLIMITED, Feasible, Scaled, noted, unlimited
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

_AFFINITY = Status("InterPodAffinity", ("node(s) didn't match pod affinity rules",), resolvable=False)
_ANTI_AFFINITY = Status("InterPodAffinity", ("node(s) didn't match pod anti-affinity rules",))
_EXISTING = Status("InterPodAffinity", ("node(s) didn't satisfy existing pods anti-affinity rules",))
_NO_LABELS: Mapping[str, str] = {}


class InterPodAffinity(Struct, frozen=True):
    """Upstream `interpodaffinity/{filtering,scoring}.go`.

    `hard_weight`: how much a required term of a running pod that the pod matches attracts it; `ignore_existing`:
    preferences of running pods do not count for pods without any.
    """

    hard_weight: int = 1
    ignore_existing: bool = False
    name: str = "InterPodAffinity"

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number where all rules hold; one if pods of the shape keep each other off the node."""
        affinity = self._noted(shape, snapshot)
        if affinity is None:
            return unlimited(snapshot)
        return np.where(affinity.allowed_now(), affinity.caps, np.int32(0))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The pod's affinity first, then its anti-affinity, then that of others: the first that fails."""
        affinity = self._noted(shape, snapshot)
        assert affinity is not None
        near, apart = affinity.near()[rows].tolist(), affinity.apart()[rows].tolist()
        return [
            _AFFINITY if not is_near else _ANTI_AFFINITY if not is_apart else _EXISTING
            for is_near, is_apart in zip(near, apart, strict=True)
        ]

    def ceiling(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """What keeps pods away stays; what is missing nearby may come."""
        affinity = self._noted(shape, snapshot)
        if affinity is None:
            return unlimited(snapshot)
        possible = affinity.near_labelled() & affinity.apart() & affinity.unopposed()
        return np.where(possible, affinity.caps, np.int32(0))

    def acts(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Only required terms filter, those of the pod and those of others that match it."""
        affinity = self._noted(shape, snapshot)
        return affinity is not None and affinity.allowed() is not None

    def couples(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether pods elsewhere matter for where the pod may go."""
        return self.acts(shape, snapshot)

    def coupling(self, shape: Shape, snapshot: Snapshot) -> Affinity | None:
        """The terms of the pod and those of running pods that concern it."""
        identity = shape.usage.identity
        if identity is None or not (identity.terms or _with_terms(snapshot)):
            return None
        affinity = Affinity(self, identity, snapshot)
        return affinity if affinity.matters else None

    def between(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """Who may not share a domain with whom, and who needs whom."""
        return [*_apart(shapes, snapshot), *self._nearness(shapes, snapshot)]

    def _nearness(self, shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
        """One rule for all shapes with the same terms of required affinity."""
        by_terms: dict[tuple[PodTerm, ...], list[int]] = {}
        for at, shape in enumerate(shapes):
            if shape.usage.identity is not None and shape.usage.identity.terms.affinity:
                by_terms.setdefault(shape.usage.identity.terms.affinity, []).append(at)
        found: list[Between] = []
        for terms, carriers in by_terms.items():
            supporters = _matched_by_all(terms, shapes, snapshot)
            affinity = self._noted(shapes[carriers[0]], snapshot)
            assert affinity is not None
            ids, running = affinity.supporting()
            first = supporters & set(carriers) if not any(each.any() for each in running) else frozenset[int]()
            name = f"affinity by {' and '.join(dict.fromkeys(term.topology_key for term in terms))}"
            found.append(Near(name, ids, frozenset(carriers), supporters, running, first))
        return found

    def _noted(self, shape: Shape, snapshot: Snapshot) -> Affinity | None:
        """The coupling for the snapshot as it is, which nobody places on; for questions about one more pod."""
        found = noted(snapshot, (self, shape.usage.identity), lambda: (self.coupling(shape, snapshot),))
        return found[0]


class Affinity:
    """What the terms say to pods of one identity.

    `caps` int32[N]: 1 where a pod of the shape keeps the next one off its own node, else UNLIMITED.
    """

    def __init__(self, plugin: InterPodAffinity, identity: Identity, snapshot: Snapshot) -> None:
        self._identity = identity
        self._snapshot = snapshot
        self._size = len(snapshot)
        terms = identity.terms
        self._towards = [Pairs(snapshot.table, term.topology_key) for term in terms.affinity]
        self._away = [Pairs(snapshot.table, term.topology_key) for term in terms.anti_affinity]
        self._others: dict[str, Pairs] = {}
        self._score = _AffinityScore(plugin, identity, snapshot)
        self._self_near = bool(terms.affinity) and all(self._own(term, identity) for term in terms.affinity)
        self._self_apart = [self._own(term, identity) for term in terms.anti_affinity]
        self._self_opposed = [self._of_others(term) for term in terms.anti_affinity]
        self._count_existing()
        self.caps = self._caps()

    @property
    def matters(self) -> bool:
        """Whether any term, of the pod or of others, concerns the pod."""
        return bool(self._towards or self._away or self._others or self._score.matters or self._score.moves)

    @property
    def steady(self) -> bool:
        """Unless a pod of the shape attracts the next one, or keeps it off nodes besides its own."""
        repels = [
            pairs
            for pairs, apart, opposed in zip(self._away, self._self_apart, self._self_opposed, strict=True)
            if apart or opposed
        ]
        return not self._self_near and not self._score.moves and all(pairs.single for pairs in repels)

    @property
    def binding(self) -> bool:
        """Required terms are."""
        return bool(self._towards or self._away)

    def most(self, usable: Bools) -> int:
        """One pod for each domain of a term by which pods of the shape repel each other; where it is absent, any."""
        least = UNLIMITED
        for pairs, apart, opposed in zip(self._away, self._self_apart, self._self_opposed, strict=True):
            if (apart or opposed) and not (usable & (pairs.ids < 0)).any():
                least = min(least, len(np.unique(pairs.ids[usable])))
        return least

    def allowed(self) -> Bools | None:
        if not (self._towards or self._away or self._others):
            return None
        return self.allowed_now()

    def allowed_now(self) -> Bools:
        """bool[N]: nodes on which one more pod violates nothing."""
        return self.near() & self.apart() & self.unopposed()

    def near(self) -> Bools:
        """bool[N]: the pod's required affinity holds. The first of pods that want to be together may go anywhere."""
        mask = self.near_labelled()
        if not self._towards:
            return mask
        if self._self_near and not any(pairs.any for pairs in self._towards):
            return mask
        for pairs in self._towards:
            mask &= pairs.positive()
        return mask

    def near_labelled(self) -> Bools:
        """bool[N]: nodes with the labels of all terms of required affinity."""
        mask = np.ones(self._size, dtype=np.bool_)
        for pairs in self._towards:
            mask &= pairs.ids >= 0
        return mask

    def apart(self) -> Bools:
        """bool[N]: the pod's required anti-affinity holds."""
        mask = np.ones(self._size, dtype=np.bool_)
        for pairs in self._away:
            mask &= ~pairs.positive()
        return mask

    def unopposed(self) -> Bools:
        """bool[N]: no running pod's required anti-affinity is against it."""
        mask = np.ones(self._size, dtype=np.bool_)
        for pairs in self._others.values():
            mask &= ~pairs.positive()
        return mask

    def supporting(self) -> tuple[tuple[Ints32, ...], tuple[Bools, ...]]:
        """For each term of required affinity the domains of the nodes, and bool[D] which of them have a pod it asks
        for."""
        pairs = self._towards
        return tuple(each.ids for each in pairs), tuple(each.sums > 0 for each in pairs)

    def scores(self, feasible: Feasible) -> Scaled | None:
        return self._score.scores(feasible) if self._score.matters else None

    def place(self, row: int) -> None:
        if self._self_near:
            for pairs in self._towards:
                pairs.add(row, 1)
        terms = self._identity.terms.anti_affinity
        for term, pairs, apart, opposed in zip(terms, self._away, self._self_apart, self._self_opposed, strict=True):
            if apart:
                pairs.add(row, 1)
            if opposed:
                self._opposing(term.topology_key).add(row, 1)
        self._score.place(row)

    def _count_existing(self) -> None:
        population, terms = self._snapshot.population, self._identity.terms
        for other in _concerned(self._snapshot, self._identity):
            if terms.affinity and all(self._own(term, other) for term in terms.affinity):
                for pairs in self._towards:
                    pairs.add_all(population.column(other), 1)
            for term, pairs in zip(terms.anti_affinity, self._away, strict=True):
                if self._own(term, other):
                    pairs.add_all(population.column(other), 1)
            for term in other.terms.anti_affinity:
                if self._of_others(term):
                    self._opposing(term.topology_key).add_all(population.column(other), 1)

    def _opposing(self, key: str) -> Pairs:
        pairs = self._others.get(key)
        if pairs is None:
            pairs = self._others[key] = Pairs(self._snapshot.table, key)
        return pairs

    def _caps(self) -> Ints32:
        caps = np.full(self._size, UNLIMITED, dtype=np.int32)
        for pairs, apart, opposed in zip(self._away, self._self_apart, self._self_opposed, strict=True):
            if apart or opposed:
                caps[pairs.ids >= 0] = 1
        return caps

    def _own(self, term: PodTerm, other: Identity) -> bool:
        return own_term_matches(term, other, self._snapshot.objects)

    def _of_others(self, term: PodTerm) -> bool:
        return other_term_matches(term, self._identity, self._snapshot.objects)


class _AffinityScore:
    """Sums of weights by domain for each topology key; `matters`: something contributes to them.

    `moves`: a pod of the shape contributes for the next one.
    """

    def __init__(self, plugin: InterPodAffinity, identity: Identity, snapshot: Snapshot) -> None:
        self._plugin = plugin
        self._identity = identity
        self._snapshot = snapshot
        self._keys: dict[str, Pairs] = {}
        self.matters = False
        terms = identity.terms
        self._off = plugin.ignore_existing and not (terms.preferred or terms.preferred_anti)
        self._raw: Ints = np.zeros(len(snapshot), dtype=np.int64)
        self._self: list[tuple[str, int]] = []
        if self._off:
            self.moves = False
            return
        population = snapshot.population
        for other in _concerned(snapshot, identity):
            for key, weight in self._contributions(other):
                self._add_all(key, population.column(other), weight)
        for pairs in self._keys.values():
            self._raw += pairs.values()
        self._self = list(self._contributions(identity))
        self.moves = bool(self._self)

    def scores(self, feasible: Feasible) -> Scaled:
        """From 0 for the least sum to 100 for the largest; all 0 while nothing contributes."""
        values = feasible.of(self._raw)
        least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if not self.matters or most == least:
            return Scaled(np.zeros(len(self._raw), dtype=np.int64), self._raw)
        shares = (self._raw - least) / float(most - least)
        return Scaled((float(MAX_NODE_SCORE) * shares).astype(np.int64), self._raw)

    def place(self, row: int) -> None:
        """Counts a pod of the shape for the next one."""
        for key, weight in self._self:
            pairs = self._pairs(key)
            if pairs.ids[row] >= 0:
                self.matters = True
                pairs.add(row, weight)
                self._raw[pairs.same_domain(row)] += weight

    def _contributions(self, other: Identity) -> Iterable[tuple[str, int]]:
        """(topology key, weight) of everything that a running pod contributes for the pod."""
        objects, identity = self._snapshot.objects, self._identity
        for terms, sign in ((identity.terms.preferred, 1), (identity.terms.preferred_anti, -1)):
            for term in terms:
                if own_term_matches(term, other, objects):
                    yield term.topology_key, sign * term.weight
        if not other.terms:
            return
        if self._plugin.hard_weight > 0:
            for term in other.terms.affinity:
                if other_term_matches(term, identity, objects):
                    yield term.topology_key, self._plugin.hard_weight
        for terms, sign in ((other.terms.preferred, 1), (other.terms.preferred_anti, -1)):
            for term in terms:
                if other_term_matches(term, identity, objects):
                    yield term.topology_key, sign * term.weight

    def _add_all(self, key: str, pods: Ints, weight: int) -> None:
        pairs = self._pairs(key)
        if pods[pairs.ids >= 0].any():
            self.matters = True
            pairs.add_all(pods, weight)

    def _pairs(self, key: str) -> Pairs:
        pairs = self._keys.get(key)
        if pairs is None:
            pairs = self._keys[key] = Pairs(self._snapshot.table, key)
        return pairs


def _apart(shapes: Sequence[Shape], snapshot: Snapshot) -> list[Between]:
    """For each key the pairs of shapes that required anti-affinity keeps apart, whichever of the two comes first.

    A term that matches running pods keeps its own from coming after those; one that matches incoming pods keeps those
    from coming after it.
    """
    kept: dict[str, set[tuple[int, int]]] = {}  # (a, b): b cannot come after a
    for at, shape in enumerate(shapes):
        identity = shape.usage.identity
        for term in () if identity is None else identity.terms.anti_affinity:
            for other, each in enumerate(shapes):
                seen = each.usage.identity
                if seen is None:
                    continue
                found = kept.setdefault(term.topology_key, set())
                if other_term_matches(term, seen, snapshot.objects):
                    found.add((at, other))
                if own_term_matches(term, seen, snapshot.objects):
                    found.add((other, at))
    return [
        Apart(f"anti-affinity by {key}", snapshot.table.column(key).ids, pairs)
        for key, found in kept.items()
        if (pairs := frozenset((one, other) for one, other in found if one <= other and (other, one) in found))
    ]


def _matched_by_all(terms: Sequence[PodTerm], shapes: Sequence[Shape], snapshot: Snapshot) -> frozenset[int]:
    return frozenset(
        at
        for at, shape in enumerate(shapes)
        if shape.usage.identity is not None
        and all(own_term_matches(term, shape.usage.identity, snapshot.objects) for term in terms)
    )


def _with_terms(snapshot: Snapshot) -> list[Identity]:
    """The identities of running pods that have terms."""
    return noted(snapshot, _with_terms, lambda: [other for other in snapshot.population if other.terms])


def _concerned(snapshot: Snapshot, identity: Identity) -> Iterable[Identity]:
    """The identities among which those are that the pod's terms match, or that have terms."""
    terms, population = identity.terms, snapshot.population
    own = [*terms.affinity, *terms.anti_affinity, *terms.preferred, *terms.preferred_anti]
    if any(term.namespace_selector is not None for term in own):
        return population
    spaces = sorted({namespace for term in own for namespace in term.namespaces})
    inside = dict.fromkeys(other for namespace in spaces for other in population.in_namespace(namespace))
    return {**inside, **dict.fromkeys(_with_terms(snapshot))}


class Pairs:
    """A number for each value of one label: `ids` int32[N] of each node, -1 without label; `sums` int64[D].

    `any`: a pod on a node with the label was counted. `single`: no two nodes share a value.
    """

    def __init__(self, table: NodeTable, key: str) -> None:
        column = table.column(key)
        self._column = column
        self.ids = column.ids
        self.sums: Ints = np.zeros(len(column.values), dtype=np.int64)
        self.any = False

    @property
    def single(self) -> bool:
        """Whether no two nodes share a value."""
        return int(np.count_nonzero(self.ids >= 0)) == len(self.sums)

    def add_all(self, pods: Ints, weight: int) -> None:
        """Adds weight · pods[i] for the value of each node."""
        rows = np.flatnonzero((pods != 0) & (self.ids >= 0))
        if len(rows):
            self.any = True
            np.add.at(self.sums, self.ids[rows], weight * pods[rows])

    def add(self, row: int, weight: int) -> None:
        """Adds the weight for the value of one node, if it has one."""
        if self.ids[row] >= 0:
            self.any = True
            self.sums[self.ids[row]] += weight

    def positive(self) -> Bools:
        """bool[N]: nodes whose value has a positive sum."""
        return np.append(self.sums > 0, False)[self.ids]  # the last place, which -1 reaches, is "no label"

    def values(self) -> Ints:
        """int64[N]: the sum of each node's value, 0 without label."""
        found: Ints = np.append(self.sums, 0)[self.ids]
        return found

    def same_domain(self, row: int) -> slice | Ints:
        """The rows of the nodes that share the value of this one."""
        return self._column.rows_of(int(self.ids[row]))


def own_term_matches(term: PodTerm, other: Identity, objects: ObjectStore) -> bool:
    """Whether a term of the incoming pod matches a running one.

    Its namespace selector is tried on no labels as well (an upstream slip): what that satisfies takes all namespaces.
    """
    return term.selector.matches(other.label_map) and _in_namespaces(
        term, other.namespace, lambda: (objects.namespace_labels(other.namespace), _NO_LABELS)
    )


def other_term_matches(term: PodTerm, identity: Identity, objects: ObjectStore) -> bool:
    """Whether a term of a running pod matches the incoming one."""
    return term.selector.matches(identity.label_map) and _in_namespaces(
        term, identity.namespace, lambda: (objects.namespace_labels(identity.namespace),)
    )


def _in_namespaces(term: PodTerm, namespace: str, labels: Callable[[], Sequence[Mapping[str, str]]]) -> bool:
    if namespace in term.namespaces:
        return True
    selector = term.namespace_selector
    return selector is not None and any(selector.matches(each) for each in labels())
