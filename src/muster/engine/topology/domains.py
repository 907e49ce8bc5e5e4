"""Groups that must run in one topology domain: all nodes with one value of a label (the upstream constraint).

All domains are looked at in one pass: what `count` says of each node, summed by domain, is a bound on what the domain
holds. Domains that it rules out are settled; in the others the group is decided as any group, with a rule in front
that closes all other nodes. Sources: workload-scheduling.md 1.3-1.6 (KEP-5732).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Ints, Ints32
from muster.engine.mixed import Demand, binding, demands_of
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Placed, Status, Undecided
from muster.engine.nodes import NodeTable
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.plugins.pod_topology_spread import PodTopologySpread
from muster.engine.plugins.scoring_strategy import (
    DEFAULT_WEIGHTS,
    NATIVE,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
)
from muster.engine.profile import MAX_NODE_SCORE, Profile, limited_to, remembered
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import TypeIs

PLUGIN = "TopologyPlacementGenerator"
"""Upstream's name of what limits a group to a domain."""

Inside = Callable[[Profile, int], Decision]
"""Decides about the request by the rules of a profile, within so much budget."""

_SHARES = 4
"""Each of several domains gets this part of the budget at first, so that one that is hard does not use up all of it."""
_MOST_AFTER_PLACED = 16
"""So many further domains are tried for a place for more members than enough."""


class DomainError(Exception):
    """The scheduled members of a group are not in one domain. Upstream: SchedulerError, until they are gone."""


class Within(Struct, frozen=True):
    """The rule that a pod goes to a node with this value of the label. An empty value is a value."""

    key: str
    value: str
    name: str = PLUGIN

    def count(self, shape: Shape, snapshot: Snapshot) -> Ints32:
        """Any number on nodes of the domain, none elsewhere."""
        return remembered(snapshot.table, (Within, self.key, self.value), lambda: self._count(snapshot.table))

    def reasons(self, shape: Shape, snapshot: Snapshot, rows: Ints) -> list[Status]:
        """The same for all other nodes: who is evicted there does not matter."""
        text = f"node(s) were outside of the topology domain {domain_text(self.key, self.value)}"
        return [Status(PLUGIN, (text,), resolvable=False)] * len(rows)

    def _count(self, table: NodeTable) -> Ints32:
        column = table.column(self.key)
        limits = limited_to(column.ids == column.values.get(self.value, -2))
        limits.setflags(write=False)
        return limits


class Domains(Struct, frozen=True):
    """The nodes with a label by its value. `values` in NodeTable order of their first nodes; `rows`: the nodes with
    the label, domain by domain; `starts[d]`: where domain d begins in `rows`. `in_order`: these are all nodes as they
    are in the table."""

    key: str
    values: tuple[str, ...]
    rows: Ints
    starts: Ints
    in_order: bool = False

    def sums(self, values: Ints) -> Ints:
        """int64[D]: the values (int64[N]) of each domain's nodes, summed."""
        if not self.values:
            return np.zeros(0, dtype=np.int64)
        sums: Ints = np.add.reduceat(values if self.in_order else values[self.rows], self.starts)
        return sums

    def nodes(self, table: NodeTable) -> list[list[str]]:
        """The names of each domain's nodes."""
        return [[table.records[row].name for row in part.tolist()] for part in np.split(self.rows, self.starts[1:])]


class Candidate(Struct, frozen=True):
    """A domain that may be chosen. `most`: at most so many members fit; `preference`: smaller is better."""

    value: str
    most: int
    preference: tuple[int, ...]


def domains_of(table: NodeTable, key: str) -> Domains:
    """All domains of a label; a node without it is in none. Worked out once a table."""
    return remembered(table, (Domains, key), lambda: _partition(table, key))


def _partition(table: NodeTable, key: str) -> Domains:
    column = table.column(key)
    rows = np.flatnonzero(column.ids >= 0)
    ids = column.ids[rows]
    if (np.diff(ids) < 0).any():
        order = np.argsort(ids, kind="stable")
        rows, ids = rows[order], ids[order]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    in_order = bool(np.array_equal(rows, np.arange(len(table))))
    return Domains(key, tuple(column.values), rows.astype(np.int64), starts.astype(np.int64), in_order)


def domain_text(key: str, value: str) -> str:
    """A domain in words."""
    return f"{key}={value}" if value else f'{key}=""'


def pinned_domain(table: NodeTable, key: str, placed: Mapping[str, str]) -> str | None:
    """The domain in which a group's scheduled members are; `placed`: pod key → node name. None without members.

    Members on nodes that do not exist any more do not count. Raises DomainError if a node lacks the label, or if they
    are in several domains.
    """
    found: dict[str, None] = {}
    for pod, node in sorted(placed.items()):
        row = table.index.get(node)
        if row is None:
            continue
        value = table.records[row].labels.get(key)
        if value is None:
            raise DomainError(
                f"cannot determine domain for already scheduled pods: no topology domain found for pod {pod}"
            )
        found[value] = None
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise DomainError(
            f"cannot determine domain for already scheduled pods: more than 1 domain found for pod group: {names}"
        )
    return next(iter(found), None)


@lru_cache(maxsize=4096)
def limited(profile: Profile, key: str, value: str) -> Profile:
    """The profile for pods that must be in the domain: all nodes outside are closed, and do not count in spreading."""
    filters = tuple(each.within(key, value) if is_local(each) else each for each in profile.filters)
    scores = tuple(
        replace(each, plugin=each.plugin.within(key, value)) if is_local(each.plugin) else each
        for each in profile.scores
    )
    return replace(profile, filters=(Within(key, value), *filters), scores=scores)


class LocalPlugin(Protocol):
    """A rule that is another one for pods that must be in a domain."""

    def within(self, key: str, value: str) -> PodTopologySpread:
        """The rule for them."""


def is_local(plugin: object) -> TypeIs[LocalPlugin]:
    """Whether a plugin is a LocalPlugin; see `muster.engine.profile.looks_first`."""
    return hasattr(plugin, "within")


def decide_in_one_domain(
    profile: Profile, snapshot: Snapshot, request: GroupRequest, key: str, limit: int, inside: Inside
) -> Decision:
    """Places a group in the domain that is preferred among those that hold most of it, or says why none holds enough.

    Most members first; then upstream's placement score (the fullest domain, by NodeResourcesFit), then the domain with
    the least room, which leaves the largest domains free, then NodeTable order. `Infeasible` needs a proof for each
    domain. `request` has members; `limit` is the budget of all domains together.
    """
    ranked = ranking(profile, snapshot, request, key)
    if not len(ranked):
        return _no_domain(snapshot, request, key)
    note = partial(note_counts, profile, snapshot, demands_of(request.members), key)
    needed = max(request.min_count - request.scheduled, 1)
    open_ = ranked.holding(needed)
    if not open_:
        note(ranked.at(0).value)
        decision = inside(limited(profile, key, ranked.at(0).value), 1)
        return _refused(key, len(ranked), ranked.at(0).value, decision)
    share = limit if open_ == 1 else max(1, limit // _SHARES)

    def place(value: str, budget: int) -> Decision:
        note(value)
        return inside(limited(profile, key, value), budget)

    return _best_of(key, ranked, open_, limit, share, place)


def note_counts(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], key: str, value: str) -> None:
    """Notes how many pods fit inside a domain, where that is what fits in the cluster: for rules that see one node.

    It saves asking every rule about every node once more.
    """
    if snapshot.reserved or binding(profile, snapshot, demands) or len(snapshot.counts) > _MOST_NOTED:
        return
    here, mask = limited(profile, key, value), Within(key, value).count(demands[0].shape, snapshot) > 0
    for demand in demands:
        counts = np.where(mask, profile.count(demand.shape, snapshot), 0)
        counts.setflags(write=False)
        snapshot.counts[here.filters, demand.shape] = counts


_MOST_NOTED = 80
"""Of the counts that a snapshot keeps."""


def _best_of(
    key: str, ranked: Ranking, open_: int, limit: int, share: int, inside: Callable[[str, int], Decision]
) -> Decision:
    """Tries the first domains, `open_` of them at most, with a share of the budget each. What is left of the budget
    goes to the first that stayed undecided, if it is more than that share."""
    best: Placed | None = None
    first: Decision | None = None
    undecided: list[Undecided] = []
    hard: list[str] = []
    spent, further = 0, 0
    for candidate in map(ranked.at, range(open_)):
        if best is not None and (candidate.most <= len(best.placements) or further >= _MOST_AFTER_PLACED):
            break
        if spent >= max(limit, 1):
            break
        decision = inside(candidate.value, share)
        first = first or decision
        further += best is not None
        if isinstance(decision, Placed):
            if best is None or len(decision.placements) > len(best.placements):
                best = decision
        elif isinstance(decision, Undecided):
            undecided.append(decision)
            hard.append(candidate.value)
            spent += decision.spent
    if best is not None:
        return best
    if hard and limit - spent > share:
        again = inside(hard[0], limit - spent)
        if isinstance(again, Placed):
            return again
        if isinstance(again, Undecided):
            undecided[0], spent = again, spent + again.spent
        else:
            undecided.pop(0)
            first = again if isinstance(first, Undecided) else first
    assert first is not None
    if not undecided:
        return _refused(key, len(ranked), ranked.at(0).value, first)
    reason = f"in {len(undecided)} of {len(ranked)} topology domains of {key} {undecided[0].reason}"
    return Undecided(spent, reason, undecided[0].diagnosis, undecided[0].best_found)


def _refused(key: str, number: int, value: str, decision: Decision) -> Decision:
    """No domain has room; `decision` is that about the most promising one."""
    if not isinstance(decision, Infeasible):
        return decision
    proof = f"0/{number} topology domains of {key} have room: in {value or repr(value)}, {decision.proof}"
    return Infeasible(proof, decision.diagnosis)


def _no_domain(snapshot: Snapshot, request: GroupRequest, key: str) -> Infeasible:
    nodes = len(snapshot)
    if request.topology_domain is None:
        proof = f"no node has the label {key}"
        reason = f"node(s) didn't have the topology label {key}"
    else:
        domain = domain_text(key, request.topology_domain)
        proof = f"its scheduled pods pin it to the topology domain {domain}, which has no nodes any more"
        reason = f"node(s) were outside of the topology domain {domain}"
    reasons = ((reason, nodes),) if nodes else ()
    return Infeasible(proof, Diagnosis(request.members[0].key, nodes, reasons, frozenset({PLUGIN})))


class Ranking(Struct, frozen=True):
    """Domains in order of preference: `order` int64[C] indexes `values` and the columns of `keys` int64[4, D].

    The keys are what Candidate.preference says, but for the last; `most` is the first of them, turned round.
    """

    values: tuple[str, ...]
    order: Ints
    keys: Ints

    def __len__(self) -> int:
        return len(self.order)

    def at(self, place: int) -> Candidate:
        """The candidate at this place."""
        domain = int(self.order[place])
        key = self.keys[:, domain].tolist()
        return Candidate(self.values[domain], -key[0], (*key, domain))

    def holding(self, needed: int) -> int:
        """How many domains may hold so many members; they are the first."""
        return int(np.count_nonzero(self.keys[0, self.order] <= -needed))


def candidates(profile: Profile, snapshot: Snapshot, request: GroupRequest, key: str) -> list[Candidate]:
    """The domains that the group may use, the preferred ones first, whether they have room or not."""
    ranked = ranking(profile, snapshot, request, key)
    return [ranked.at(place) for place in range(len(ranked))]


def ranking(profile: Profile, snapshot: Snapshot, request: GroupRequest, key: str) -> Ranking:
    """All domains in one pass over the nodes."""
    domains = domains_of(snapshot.table, key)
    if not domains.values:
        empty = np.zeros(0, dtype=np.int64)
        return Ranking((), empty, empty.reshape(4, 0))
    demands = demands_of(request.members)
    rooms = _rooms(profile, snapshot, demands, domains)
    wanted = np.array([len(demand.places) for demand in demands], dtype=np.int64)
    taken = np.minimum(rooms, wanted[:, None])
    most, room = taken.sum(axis=0), rooms.sum(axis=0)
    nominated = _nominated(snapshot, request, domains)
    score = placement_scores(profile, snapshot, demands, domains, taken)
    keys = np.stack([-most, -nominated, -score, room])
    order = np.lexsort(keys[::-1])  # stable: at a tie in NodeTable order
    if request.topology_domain is not None:
        pinned = snapshot.table.column(key).values.get(request.topology_domain, -1)
        order = order[order == pinned]
    return Ranking(domains.values, order, keys)


def _rooms(profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], domains: Domains) -> Ints:
    """int64[shapes, D]: at most so many pods of each shape fit into each domain."""
    of = profile.ceiling if binding(profile, snapshot, demands) else profile.count
    return np.stack([domains.sums(of(demand.shape, snapshot)) for demand in demands])


def _nominated(snapshot: Snapshot, request: GroupRequest, domains: Domains) -> Ints:
    """int64[D]: for how many of the members nodes of each domain were cleared."""
    index = snapshot.table.index
    rows = [index[member.nominated] for member in request.members if member.nominated in index]
    if not rows:
        return np.zeros(len(domains.values), dtype=np.int64)
    return domains.sums(np.bincount(np.array(rows, dtype=np.int64), minlength=len(snapshot)).astype(np.int64))


def placement_scores(
    profile: Profile, snapshot: Snapshot, demands: Sequence[Demand], domains: Domains, taken: Ints
) -> Ints:
    """int64[D]: upstream's NodeResourcesFit score of a placement: MostAllocated on the sums over the domain.

    `taken` int64[shapes, D]: how many pods of each shape it would receive.
    """
    columns = snapshot.axis.columns
    total = np.zeros(len(domains.values), dtype=np.int64)
    weight_sum = np.zeros(len(domains.values), dtype=np.int64)
    for name, weight in _weights(profile):
        if name not in columns or not (name in NATIVE or any(each.shape.request(name) for each in demands)):
            continue
        held = domains.sums(_held(snapshot, name))
        for demand, number in zip(demands, taken, strict=True):
            held = held + number * _request(demand.shape, name)
        offered = _offered(snapshot.table, domains, name)
        coarse = int(offered.max()) // _LARGE + 1  # products stay within 64 bits
        held, offered = np.minimum(held, offered) // coarse, offered // coarse
        total += weight * (held * MAX_NODE_SCORE // np.maximum(offered, 1))
        weight_sum += np.where(offered > 0, weight, 0)
    return total // np.maximum(weight_sum, 1)


def _offered(table: NodeTable, domains: Domains, name: str) -> Ints:
    """int64[D]: what the nodes of each domain have of a resource in all. Worked out once a table."""
    column = table.axis.columns[name]
    return remembered(table, (_offered, domains.key, name), lambda: domains.sums(table.allocatable[:, column]))


_LARGE = 2**55
_SCORED = {"cpu": 0, "memory": 1}


def _held(snapshot: Snapshot, name: str) -> Ints:
    place = _SCORED.get(name)
    return snapshot.requested[:, snapshot.axis.columns[name]] if place is None else snapshot.scored[:, place]


def _request(shape: Shape, name: str) -> int:
    place = _SCORED.get(name)
    return shape.request(name) if place is None else shape.usage.scored[place]


def _weights(profile: Profile) -> tuple[tuple[str, int], ...]:
    """The resources that count, with their weights: those of the scores of nodes; none if the profile has no such."""
    for weighted in profile.scores:
        if isinstance(weighted.plugin, NodeResourcesFit):
            strategy = weighted.plugin.strategy
            if isinstance(strategy, LeastAllocated | MostAllocated | RequestedToCapacityRatio):
                return strategy.weights
            return DEFAULT_WEIGHTS
    return ()
