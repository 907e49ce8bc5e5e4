"""Groups with a layout: which level and which domain of it, and then where inside.

The preferred labels are tried in order, then the required one (or the whole cluster); the first at which all members
fit is taken, else of those at which most fit the first. Where no domain of a preferred label holds all, as few of them
as possible are used inside the wider one. All domains of a level are looked at in one pass; the engine places the group
inside the few that may hold it. Of several domains: the one that takes most members; then, for replicas, that with the
fewest others; that in which most members run; that with most nominations; then the least room there, then at each wider
level: what is left whole is as large as possible. At last NodeTable order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.api.topology import Distribution
from muster.engine.arrays import Ints
from muster.engine.mixed import binding, demands_of
from muster.engine.model import Decision, Diagnosis, GroupRequest, Infeasible, Placed, Undecided
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import PLUGIN, domain_text
from muster.engine.topology.layout import Layout
from muster.engine.topology.partition import Partition, partition_of
from muster.engine.topology.ranks import in_rank_order
from muster.engine.topology.units import Inside, most_in_units, place_units, unit_key

_SHARES = 4
"""Each of several domains gets this part of the budget, so that one that is hard does not use up all of it."""
_MOST_AFTER_PLACED = 8
"""So many further domains are tried for a place for more members than enough."""


class Choice(Struct, frozen=True):
    """The domains of a level that may be chosen, the preferred ones first. `most`: at most so many members fit."""

    partition: Partition
    domains: Ints
    most: Ints


def decide_laid_out(
    profile: Profile, snapshot: Snapshot, request: GroupRequest, limit: int, inside: Inside
) -> Decision:
    """Places a group as its layout asks, or says why enough of it do not fit. `request` has members and a layout."""
    layout = request.layout
    assert layout is not None
    best: Decision | None = None
    for keys in _steps(request, layout):
        decision = _at_level(profile, snapshot, request, layout, partition_of(snapshot.table, keys), limit, inside)
        if isinstance(decision, Placed) and not decision.unplaced:
            best = decision
            break
        best = decision if best is None or _rank(decision) >= _rank(best, 1) else best
    assert best is not None, "there is a widest level"
    if not isinstance(best, Placed):
        return best
    return in_rank_order(snapshot.table, request, layout, best, _part_of(snapshot, layout, best, request))


def _rank(decision: Decision, more: int = 0) -> int:
    """How good a decision is; of refusals the last one, at the widest level, says most."""
    return len(decision.placements) + more if isinstance(decision, Placed) else 0


def _steps(request: GroupRequest, layout: Layout) -> Iterator[tuple[str, ...]]:
    """The labels of which one domain is to hold the group, step by step, the required one always among them."""
    terms = layout.terms
    required = () if request.topology_key is None else (request.topology_key,)
    wanted = list(terms.preferred)
    if terms.spread_over is not None and not wanted and terms.spread_over != request.topology_key:
        wanted.append(terms.spread_over)
    for key in wanted:
        if key not in required:
            yield (*required, key)
    yield required


def _part_of(snapshot: Snapshot, layout: Layout, placed: Placed, request: GroupRequest) -> partial[Hashable]:
    """Members only change seats inside the domain of their subgroup."""
    if layout.terms.subgroups is None:
        return partial(_same, {})
    inner = partition_of(snapshot.table, (unit_key(layout),))
    nodes, index = dict(placed.placements), snapshot.table.index
    domains = {
        rank: int(inner.ids[index[nodes[member.key]]])
        for rank, member in zip(layout.ranks, request.members, strict=True)
        if member.key in nodes
    }
    return partial(_same, domains)


def _same(domains: dict[int, int], rank: int) -> Hashable:
    return domains.get(rank, 0)


def _at_level(
    profile: Profile,
    snapshot: Snapshot,
    request: GroupRequest,
    layout: Layout,
    partition: Partition,
    limit: int,
    inside: Inside,
) -> Decision:
    """In one domain of a level."""
    choice = choose(profile, snapshot, request, layout, partition)
    if not len(choice.domains):
        return _no_domain(snapshot, request, partition)
    needed = max(request.min_count - request.scheduled, 1)
    hopeful = [
        (domain, most)
        for domain, most in zip(choice.domains.tolist(), choice.most.tolist(), strict=True)
        if most >= needed
    ]
    required = () if request.topology_key is None else (request.topology_key,)
    share = limit if len(hopeful) == 1 else max(1, limit // _SHARES)

    def place(domain: int, budget: int) -> Decision:
        here = partition.limited(profile, domain, required)
        if layout.has_units:
            return place_units(here, snapshot, request, layout, partition, budget, inside)
        packed = _packed(layout, partition)
        if packed is not None:
            decision = place_units(here, snapshot, request, packed, partition, budget, inside)
            if isinstance(decision, Placed) and not decision.unplaced:
                return decision
        return inside(here, snapshot, request, budget)

    if not hopeful:
        decision = place(int(choice.domains[0]), 1)
        if isinstance(decision, Undecided):
            # Counting has decided it, whatever the search may say in so short a time.
            room = f"room for {int(choice.most[0])} of the {len(request.members)} pods"
            decision = Infeasible(room, decision.diagnosis)
        return _refused(partition, int(choice.domains[0]), len(choice.domains), decision)
    best: Placed | None = None
    first: Decision | None = None
    undecided: Undecided | None = None
    spent = further = 0
    for domain, most in hopeful:
        if spent >= limit or (best is not None and (most <= len(best.placements) or further >= _MOST_AFTER_PLACED)):
            break
        decision = place(domain, share)
        first = first or decision
        further += best is not None
        if isinstance(decision, Placed):
            if best is None or len(decision.placements) > len(best.placements):
                best = decision
        elif isinstance(decision, Undecided):
            undecided = undecided or decision
            spent += decision.spent
    if best is not None:
        return best
    assert first is not None
    if undecided is not None:
        return undecided
    return _refused(partition, hopeful[0][0], len(choice.domains), first)


def _packed(layout: Layout, partition: Partition) -> Layout | None:
    """The layout with as few domains as possible of the label that is preferred first; None if one is to hold all."""
    preferred = layout.terms.preferred[:1]
    if not preferred or preferred[0] in partition.keys:
        return None
    terms = replace(layout.terms, distribution=Distribution("packed", preferred[0]))
    return replace(layout, terms=terms)


def choose(profile: Profile, snapshot: Snapshot, request: GroupRequest, layout: Layout, partition: Partition) -> Choice:
    """The domains of a level in order of preference; see the module."""
    table, demands = snapshot.table, demands_of(request.members)
    of = profile.ceiling if binding(profile, snapshot, demands) else profile.count
    counts = [of(demand.shape, snapshot) for demand in demands]
    wanted = np.array([len(demand.places) for demand in demands], dtype=np.int64)
    rooms = partition.sums(np.stack(counts))
    room = rooms.sum(axis=0)
    most = np.minimum(rooms, wanted[:, None]).sum(axis=0)
    in_units = most_in_units(table, layout, demands, counts, partition)
    if in_units is not None:
        most = np.minimum(most, in_units)
    index = table.index
    here = partition.counted([index[node] for _, node in layout.running if node in index])
    nominated = partition.counted([index[each.nominated] for each in request.members if each.nominated in index])
    keys = [np.arange(len(partition)), *_room_around(snapshot, layout, partition, counts), room]
    keys += [-nominated, -here, _others(snapshot, layout, partition), -most]
    order = np.lexsort(keys)
    if request.topology_domain is not None:
        at = partition.keys.index(request.topology_key or "")
        allowed = np.array([values[at] == request.topology_domain for values in partition.values], dtype=np.bool_)
        order = order[allowed[order]]
    return Choice(partition, order, most[order])


def _room_around(snapshot: Snapshot, layout: Layout, partition: Partition, counts: list[Ints]) -> list[Ints]:
    """int64[D] for each wider level, the widest first: how much room there is around the domain."""
    found = []
    for key in layout.terms.tree:
        if key in partition.keys:
            continue
        wider = partition_of(snapshot.table, (key,))
        of = wider.ids[partition.firsts]
        if len(wider) < len(partition) and (of >= 0).all():
            found.append(wider.sums(np.stack(counts)).sum(axis=0)[of])
    return found


def _others(snapshot: Snapshot, layout: Layout, partition: Partition) -> Ints:
    """int64[D]: how many other groups of the template run in the same domain of the label to spread over."""
    key = layout.terms.spread_over
    found = np.zeros(len(partition), dtype=np.int64)
    if key is None or not layout.others or not partition.keys:
        return found
    number = dict(layout.others)
    for domain, row in enumerate(partition.firsts.tolist()):
        found[domain] = number.get(snapshot.table.records[row].labels.get(key, ""), 0)
    return found


def _refused(partition: Partition, domain: int, number: int, decision: Decision) -> Decision:
    """No domain has room; `decision` is that about the most promising one."""
    if not isinstance(decision, Infeasible) or not partition.keys:
        return decision
    values = partition.values[domain]
    name = ", ".join(value or repr(value) for value in values)
    text = f"0/{number} topology domains of {' and '.join(partition.keys)} have room: in {name}, {decision.proof}"
    return Infeasible(text, decision.diagnosis)


def _no_domain(snapshot: Snapshot, request: GroupRequest, partition: Partition) -> Infeasible:
    nodes, names = len(snapshot), " and ".join(partition.keys)
    if request.topology_domain is None or len(partition) == 0:
        proof, reason = f"no node has the label {names}", f"node(s) didn't have the topology label {names}"
    else:
        domain = domain_text(request.topology_key or "", request.topology_domain)
        proof = f"its scheduled pods pin it to the topology domain {domain}, which has no nodes any more"
        reason = f"node(s) were outside of the topology domain {domain}"
    reasons = ((reason, nodes),) if nodes else ()
    return Infeasible(proof, Diagnosis(request.members[0].key, nodes, reasons, frozenset({PLUGIN})))
