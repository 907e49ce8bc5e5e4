"""Groups that are placed in parts: subgroups of consecutive pods, each in one domain, or shares over the domains.

Parts that are alike are dealt over the domains by how many of them each holds (one vectorised pass), and then placed
domain by domain by the same engine as any group. For pods of one shape without rules between pods the number that a
domain holds is exact; else it is a bound, and where a domain turns out to hold less, the rest is dealt anew. Where that
does not place enough of them, ways to share unlike parts out are tried one after the other (`search`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.api.topology import Policy
from muster.engine.arrays import Ints
from muster.engine.between import Apart, Between, Even, Near, rules_between, says_between
from muster.engine.diagnose import diagnose
from muster.engine.mixed import Demand, binding, demands_of
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Placement, Undecided
from muster.engine.nodes import NodeTable
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.topology.layout import Layout
from muster.engine.topology.partition import AsDealt, Partition, partition_of
from muster.engine.topology.search import Ask, AskAll, Dealt, Part, share_out
from muster.engine.topology.shares import nested_shares

Inside: TypeAlias = Callable[[Profile, Snapshot, GroupRequest, int], Decision]
"""Decides about a request by the rules of a profile, within so much budget."""

_QUESTIONS = 4
"""For each unit of the budget so many questions about the parts of one domain are asked where parts are shared out."""
_MOST_ROUNDS = 32
"""So often parts are dealt anew because a domain held fewer of them than its room promised."""


class Unit(Struct, frozen=True):
    """The pending members of a part. `domain`: that of its members that run, -1 while none does."""

    members: tuple[Member, ...]
    domain: int = -1

    @property
    def kind(self) -> frozenset[tuple[Shape, int]]:
        """What it takes, whoever it is."""
        return frozenset(Counter(member.shape for member in self.members).items())


def unit_key(layout: Layout) -> str:
    """The label of which one domain holds a part."""
    terms = layout.terms
    if terms.subgroups is not None:
        return terms.subgroups.key
    assert terms.distribution is not None, "only groups with parts have such a label"
    return terms.distribution.key


def most_in_units(
    table: NodeTable, layout: Layout, demands: Sequence[Demand], counts: Sequence[Ints], outer: Partition
) -> Ints | None:
    """int64[D]: at most so many members come to each outer domain in whole subgroups; None where that is not known.

    `counts` int64[N] of each shape: how many pods each node holds. Exact for pods of one shape.
    """
    subgroups = layout.terms.subgroups
    if subgroups is None or len(demands) != 1 or layout.running:
        return None
    size, wanted = subgroups.size, len(demands[0].places)
    full, rest = divmod(wanted, size)
    inner = partition_of(table, (*outer.keys, subgroups.key))
    of, room = outer.ids[inner.firsts], inner.sums(counts[0])
    whole = np.bincount(of, room // size, minlength=len(outer)).astype(np.int64)
    most: Ints = np.minimum(whole, full) * size
    if rest:
        has_rest = np.bincount(of, (room % size) >= rest, minlength=len(outer)) > 0
        most = most + np.where((whole > full) | has_rest, rest, 0)
    return most


def place_units(
    profile: Profile,
    snapshot: Snapshot,
    request: GroupRequest,
    layout: Layout,
    outer: Partition,
    limit: int,
    inside: Inside,
) -> Decision:
    """Places as many parts as can be placed, those of the lowest ranks; `outer`: the level inside which all are.

    A part is placed as a whole or not at all. `Infeasible` only where counting alone says so.
    """
    inner = partition_of(snapshot.table, (*outer.keys, unit_key(layout)))
    needed = max(request.min_count - request.scheduled, 1)
    units = _units_of(layout, request.members, inner, snapshot.table.index)
    with snapshot.trial() as trial:
        work = _Work(profile, trial, layout, inner, _levels(layout, snapshot.table, outer, inner), limit, inside)
        work.place_all(units)
        most = work.bound(snapshot, units) if len(work.placed) < needed else 0
        exact = _counted(profile, snapshot, request, layout, outer)
        most = most if exact is None else min(most, exact)
        is_tried = len(work.placed) < needed <= most and work.share_out(snapshot, units, needed)
        missing = next((member for member in request.members if member.key not in work.placed), None)
        diagnosis = None if missing is None else diagnose(profile, trial, missing.shape, missing.key)
    members = [member for member in request.members if member.key in work.placed]
    placements = tuple(Placement(member.key, work.placed[member.key]) for member in members)
    if len(placements) >= needed:
        unplaced = tuple(member.key for member in request.members if member.key not in work.placed)
        return Placed(placements, unplaced, diagnosis)
    assert diagnosis is not None, "a member is missing"
    words = _words(layout)
    if most < needed:
        return Infeasible(f"room for {most} of the {len(request.members)} pods {words}", diagnosis)
    if is_tried:
        proof = f"all ways to share the pods out over the domains were tried, and none holds {needed} of them {words}"
        return Infeasible(proof, diagnosis)
    reason = f"found no placement for {needed} pods {words}, and no proof that there is none"
    return Undecided(max(1, work.spent), reason, diagnosis, placements)


def _counted(
    profile: Profile, snapshot: Snapshot, request: GroupRequest, layout: Layout, outer: Partition
) -> int | None:
    """How many members fit in whole subgroups where that is a matter of counting; only one outer domain is open."""
    demands = demands_of(request.members)
    if binding(profile, snapshot, demands):
        return None
    counts = [profile.count(demand.shape, snapshot) for demand in demands]
    most = most_in_units(snapshot.table, layout, demands, counts, outer)
    return None if most is None else int(most.max(initial=0))


def _words(layout: Layout) -> str:
    subgroups = layout.terms.subgroups
    if subgroups is None:
        return f"on nodes with the label {unit_key(layout)}"
    return f"in subgroups of {subgroups.size} that are each in one domain of {subgroups.key}"


def _levels(
    layout: Layout, table: NodeTable, outer: Partition, inner: Partition
) -> tuple[list[Partition], list[Policy]]:
    """The levels between the outer domain and the parts' own, the widest first; a policy for each and the last."""
    distribution, last = layout.terms.distribution, unit_key(layout)
    keys = [key for key in layout.terms.tree if key not in outer.keys and key != last]
    if distribution is not None and distribution.key not in (*keys, last):
        keys.append(distribution.key)
    found = [partition_of(table, (*outer.keys, key)) for key in keys]
    wider = [
        (key, each) for key, each in zip(keys, found, strict=True) if len(each) < len(inner) and _nests(inner, each)
    ]
    policies: list[Policy] = [
        distribution.policy if distribution is not None and key == distribution.key else "packed"
        for key in (*(key for key, _ in wider), last)
    ]
    return [each for _, each in wider], policies


def _nests(inner: Partition, outer: Partition) -> bool:
    """Whether every inner domain that matters lies inside one of the outer ones."""
    of = outer.ids[inner.firsts]
    return bool(
        (of >= 0).all()
        and (outer.ids[inner.rows] == np.repeat(of, np.diff(inner.starts, append=len(inner.rows)))).all()
    )


def _units_of(layout: Layout, members: Sequence[Member], inner: Partition, index: dict[str, int]) -> list[Unit]:
    """The parts in order, with the domain of those that run in part already: that of most of their members."""
    found: dict[int, list[Member]] = {}
    for rank, member in sorted(zip(layout.ranks, members, strict=True), key=lambda pair: pair[0]):
        found.setdefault(layout.unit(rank), []).append(member)
    where: dict[int, Counter[int]] = {}
    for rank, node in layout.running if layout.terms.subgroups is not None else ():
        if node in index and inner.ids[index[node]] >= 0:
            where.setdefault(layout.unit(rank), Counter())[int(inner.ids[index[node]])] += 1
    domains = {unit: max(count, key=lambda at: (where[unit][at], -at)) for unit, count in where.items()}
    return [Unit(tuple(pods), domains.get(number, -1)) for number, pods in found.items()]


@dataclass(slots=True)
class _Work:
    """One attempt on a trial, which it fills. `placed`: member → node."""

    profile: Profile
    trial: Trial
    layout: Layout
    inner: Partition
    levels: tuple[list[Partition], list[Policy]]
    limit: int
    inside: Inside
    placed: dict[str, str] = field(default_factory=dict)
    spent: int = 0

    def place_all(self, units: Sequence[Unit]) -> None:
        """Parts that run already go where they run; the others by kind, those with most pods first."""
        kinds: dict[Hashable, list[Unit]] = {}
        for unit in units:
            if unit.domain >= 0:
                self._fits(unit.domain, [unit])
            else:
                kinds.setdefault(unit.kind, []).append(unit)
        for alike in sorted(kinds.values(), key=lambda alike: -len(alike[0].members)):
            self._place_alike(alike)

    def _place_alike(self, units: list[Unit]) -> None:
        room = self.room(self.trial, units[0])
        left = list(units)
        for _ in range(_MOST_ROUNDS):
            received = nested_shares(room, len(left), self.inner, *self.levels)
            if not received.any():
                return
            for domain in np.flatnonzero(received).tolist():
                taken = self._as_many(domain, left[: int(received[domain])])
                left = left[taken:]
                room[domain] = room[domain] - taken if taken == received[domain] else 0
            if not left:
                return

    def _as_many(self, domain: int, units: list[Unit]) -> int:
        """Places the first units in the domain, as many as it really holds; how many."""
        number = len(units)
        while number and not self._fits(domain, units[:number]):
            number = number // 2 if self.spent < self.limit else 0
        return number

    def _fits(self, domain: int, units: Sequence[Unit]) -> bool:
        """Places all members of the units in the domain, or none."""
        members = tuple(member for unit in units for member in unit.members)
        self.spent += 1
        decision = self._ask(self.trial, domain, members)
        if not isinstance(decision, Placed) or decision.unplaced:
            return False
        self.placed.update(decision.placements)
        put_members(self.trial, members, decision.placements)
        return True

    def share_out(self, snapshot: Snapshot, units: Sequence[Unit], needed: int) -> bool:
        """Places enough members after all, if some way to share the units out does; else whether it is sure that none
        does."""
        ask: Ask = partial(self._ask, snapshot)
        ask_all: AskAll | None = None
        demands = demands_of([member for unit in units for member in unit.members])
        if binding(self.profile, snapshot, demands):
            kinds = self._kinds_of_rules(snapshot, demands)
            if kinds is None or not (kinds <= {Apart, Near} or (kinds == {Even} and self._is_even_inside())):
                return False
            if kinds & {Apart, Near}:
                ask, ask_all = partial(self._ask_without_rules, snapshot), partial(self._ask_all, snapshot)
        parts = [Part(unit.members, unit.kind, self._open_to(snapshot, unit)) for unit in units]
        found = share_out(parts, needed, ask, self.limit * _QUESTIONS, ask_all)
        if found.placements:
            self.placed = dict(found.placements)
        return found.proved

    def _kinds_of_rules(self, snapshot: Snapshot, demands: Sequence[Demand]) -> set[type[Between]] | None:
        """What rules the pods have about each other; None where volumes or devices matter as well."""
        shapes = [demand.shape for demand in demands]
        if any(shape.usage.volumes or shape.usage.devices for shape in shapes):
            return None
        return {type(rule) for rule in rules_between(self.profile, shapes, snapshot)}

    def _is_even_inside(self) -> bool:
        """Whether pods that are to be spread evenly see none but those in their own domain."""
        subgroups = self.layout.terms.subgroups
        if subgroups is None:
            return False
        column = self.inner.keys.index(subgroups.key)
        return len({values[column] for values in self.inner.values}) == len(self.inner)

    def _ask_without_rules(self, snapshot: Snapshot, domain: int, members: tuple[Member, ...]) -> Decision:
        """Whether they fit but for the rules about each other: if not, neither do they beside others."""
        filters = tuple(rule for rule in self.profile.filters if not says_between(rule))
        request = GroupRequest(members[0].key, members, len(members))
        profile = self.inner.limited(replace(self.profile, filters=filters), domain, ())
        return self.inside(profile, snapshot, request, max(1, self.limit // 4))

    def _ask_all(self, snapshot: Snapshot, dealt: Dealt) -> Decision:
        """Whether all members fit at once, each in the domain to which it is dealt."""
        members = tuple(
            replace(member, shape=dataclasses.replace(member.shape, domain=domain))
            for domain, parts in sorted(dealt.items())
            for part in parts
            for member in part.members
        )
        request = GroupRequest(members[0].key, members, len(members))
        profile = replace(self.profile, filters=(AsDealt(self.inner.keys), *self.profile.filters))
        return self.inside(profile, snapshot, request, max(1, self.limit // 4))

    def _open_to(self, snapshot: Snapshot, unit: Unit) -> tuple[int, ...]:
        """The domains that may hold the unit."""
        if unit.domain >= 0:
            return (unit.domain,)
        return tuple(np.flatnonzero(self.room(snapshot, unit) > 0).tolist())

    def _ask(self, snapshot: Snapshot, domain: int, members: tuple[Member, ...]) -> Decision:
        request = GroupRequest(members[0].key, members, len(members))
        return self.inside(self._within(domain), snapshot, request, max(1, self.limit // 4))

    def _within(self, domain: int) -> Profile:
        subgroups = self.layout.terms.subgroups
        return self.inner.limited(self.profile, domain, () if subgroups is None else (subgroups.key,))

    def room(self, snapshot: Snapshot, unit: Unit) -> Ints:
        """int64[D]: at most so many units of this kind come to each domain."""
        demands = demands_of(unit.members)
        of = self.profile.ceiling if binding(self.profile, snapshot, demands) else self.profile.count
        fits = [self.inner.sums(of(demand.shape, snapshot)) // len(demand.places) for demand in demands]
        room: Ints = np.minimum.reduce(fits)
        return np.minimum(room, len(self.layout.ranks))

    def bound(self, snapshot: Snapshot, units: Sequence[Unit]) -> int:
        """At most so many members can be placed, each kind by itself."""
        kinds: dict[Hashable, list[Unit]] = {}
        for unit in units:
            kinds.setdefault(unit.kind if unit.domain < 0 else (unit.kind, unit.domain), []).append(unit)
        total = 0
        for alike in kinds.values():
            room, domain = self.room(snapshot, alike[0]), alike[0].domain
            most = int(room.sum()) if domain < 0 else int(room[domain])
            total += min(most, len(alike)) * len(alike[0].members)
        return total


def put_members(trial: Trial, members: Sequence[Member], placements: Sequence[Placement]) -> None:
    """Puts members on their nodes, those of one shape in one go."""
    shapes = {member.key: member.shape for member in members}
    rows: dict[Shape, list[int]] = {}
    for pod, node in placements:
        rows.setdefault(shapes[pod], []).append(trial.table.index[node])
    for shape, on in rows.items():
        distinct, counts = np.unique(np.array(on, dtype=np.int64), return_counts=True)
        trial.place_many(shape.usage, distinct, counts.astype(np.int64))
