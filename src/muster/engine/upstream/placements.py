"""Which placements a group is tried in (the domains of its topology constraint), and which of the feasible ones wins.

Sources: `plugins/topologyaware`, `plugins/podgrouppodscount`, `plugins/noderesources` (placement scores of 1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from muster.engine.mixed import demands_of
from muster.engine.profile import MAX_NODE_SCORE, Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domains_of, pinned_domain, placement_scores
from muster.engine.upstream.model import Choices, Group, PodResult, leaves

NO_PLACEMENTS = "no feasible placements found"
FIT_PLUGIN = "NodeResourcesFit"
COUNT_PLUGIN = "PodGroupPodsCount"


class Area(Struct, frozen=True):
    """A placement: all nodes in scope (`name` None), or those of one topology domain."""

    name: str | None
    nodes: Snapshot


def areas(snapshot: Snapshot, group: Group, choices: Choices) -> list[Area]:
    """The placements in the order in which they are tried.

    Raises DomainError for members that run in no one domain.
    """
    key = group.topology_key
    if key is None:
        return [Area(None, snapshot)]
    scheduled = {pod: node for leaf in leaves(group) for pod, node in leaf.scheduled.items()}
    pinned = pinned_domain(snapshot.table, key, scheduled)
    domains = domains_of(snapshot.table, key)
    nodes = dict(zip(domains.values, domains.nodes(snapshot.table), strict=True)) if domains.values else {}
    names = [value for value in nodes if pinned is None or value == pinned]
    records, index = snapshot.table.records, snapshot.table.index
    return [
        Area(name, snapshot.with_nodes(records[index[node]] for node in nodes[name]))
        for name in choices.domains(group.key, names)
    ]


def scores_of(
    profile: Profile, snapshot: Snapshot, group: Group, feasible: Mapping[str, Sequence[PodResult]]
) -> dict[str, dict[str, int]]:
    """The scores of the feasible domains (name → what went where in it) by plugin, and their `total`."""
    assert group.topology_key is not None
    domains = domains_of(snapshot.table, group.topology_key)
    placed = {name: [each for each in pods if each.node] for name, pods in feasible.items()}
    demands = demands_of([each.member for pods in placed.values() for each in pods])
    taken = np.zeros((len(demands), len(domains.values)), dtype=np.int64)
    column = {name: at for at, name in enumerate(domains.values)}
    row = {demand.shape: at for at, demand in enumerate(demands)}
    for name, pods in placed.items():
        for each in pods:
            taken[row[each.member.shape], column[name]] += 1
    fits = placement_scores(profile, snapshot, demands, domains, taken)
    before = sum(leaf.number_scheduled for leaf in leaves(group))
    counts = {name: before + len(pods) for name, pods in placed.items()}
    most = max(counts.values(), default=0)
    found = {}
    for name in feasible:
        parts = {
            FIT_PLUGIN: int(fits[column[name]]),
            COUNT_PLUGIN: counts[name] * MAX_NODE_SCORE // max(most, 1),
        }
        found[name] = {**parts, "total": sum(parts[plugin] * _weight(profile, plugin) for plugin in parts)}
    return found


def best_domains(scores: Mapping[str, Mapping[str, int]], names: Iterable[str]) -> list[str]:
    """Those with the highest total, in the order given."""
    most = max(scores[name]["total"] for name in scores)
    return [name for name in names if name in scores and scores[name]["total"] == most]


def _weight(profile: Profile, plugin: str) -> int:
    """That of the node scores, which is also the placements'; a plugin that only scores placements has 1."""
    return next((each.weight for each in profile.scores if each.plugin.name == plugin), 1)
