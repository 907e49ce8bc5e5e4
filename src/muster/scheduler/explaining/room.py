"""What an explanation says of the room: per shape, node and domain, and who holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from muster.api.codec import Object, Objects
from muster.api.meta import controller_of
from muster.api.quantity import format_units
from muster.engine.decide import decide
from muster.engine.diagnose import node_statuses
from muster.engine.explanation.waiting import RunningGroup
from muster.engine.mixed import demands_of
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domains_of
from muster.engine.words import shape_text
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.members import PodRecord

MOST_DOMAINS = 64
MOST_HOLDERS = 20


def shapes_of(profile: Profile, snapshot: Snapshot, members: Sequence[Member]) -> Objects:
    """For each kind of pod: how many there are, how many of them alone have room, and which resources are how scarce.

    `nodes` counts the nodes with room for one. Of a resource: what a pod requests, what all request, what is free in
    all, and on the node where most is free.
    """
    free, found = snapshot.free(), []
    for demand in demands_of(members):
        counts = profile.count(demand.shape, snapshot)
        number = len(demand.places)
        resources = []
        for name, units in demand.shape.usage.requests:
            column = snapshot.axis.columns.get(name)
            left = np.zeros(1, dtype=np.int64) if column is None or not len(free) else np.maximum(free[:, column], 0)
            amounts = {"each": units, "all": units * number, "free": int(left.sum()), "mostOnANode": int(left.max())}
            resources.append({"resource": name, **{key: format_units(name, each) for key, each in amounts.items()}})
        found.append(
            {
                "shape": shape_text(demand.shape),
                "pods": number,
                "room": int(np.minimum(counts, number).sum()),
                "nodes": int((counts > 0).sum()),
                "resources": resources,
            }
        )
    return found


def nodes_of(profile: Profile, snapshot: Snapshot, member: Member) -> Objects:
    """For each node how many pods like this one fit, and why none does, in kube-scheduler's words."""
    counts = profile.count(member.shape, snapshot)
    why = node_statuses(profile, snapshot, member.shape)
    found = []
    for record, count in zip(snapshot.table.records, counts.tolist(), strict=True):
        status = why.get(record.name)
        reasons = [] if status is None else list(status.reasons)
        found.append({"node": record.name, "room": 0 if reasons else int(count), "reasons": reasons})
    return found


def domains_of_group(profile: Profile, snapshot: Snapshot, request: GroupRequest) -> Objects:
    """For each domain of the group's topology key: whether it holds the group, and the proof if it does not."""
    key = request.topology_key
    if key is None:
        return []
    found = []
    for value in sorted(domains_of(snapshot.table, key).values)[:MOST_DOMAINS]:
        if request.topology_domain not in (None, value):
            continue
        decision = decide(snapshot, replace(request, topology_domain=value), profile=profile)
        if isinstance(decision, Placed):
            said, why = "Fits", ""
        else:
            said, why = (
                ("Infeasible", decision.proof) if isinstance(decision, Infeasible) else ("Undecided", decision.reason)
            )
        found.append({"key": key, "domain": value, "state": said, "proof": why.rpartition(f": in {value}, ")[2]})
    return found


@dataclass(slots=True)
class _Holder:
    kind: str
    name: str
    priority: int = 0
    pods: list[str] = field(default_factory=list)
    nodes: dict[str, None] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)


def holders_of(cache: SchedulerCache, snapshot: Snapshot, resources: Sequence[str], asking: str) -> Objects:
    """Who holds these resources: groups, else owners of pods, else pods; who holds most of the first comes first."""
    found: dict[tuple[str, str], _Holder] = {}
    for key, record in cache.pods.items():
        usage = snapshot.placed.get(record.node, {}).get(key) if record.node else None
        if usage is None or (record.ref is not None and record.ref.key == asking):
            continue
        kind, name = holder_name(record)
        holder = found.setdefault((kind, name), _Holder(kind, name))
        holder.pods.append(key)
        holder.nodes[record.node] = None
        holder.priority = max(holder.priority, record.priority) if len(holder.pods) > 1 else record.priority
        for resource, units in usage.requests:
            holder.requests[resource] = holder.requests.get(resource, 0) + units
    wanted = [each for each in resources if any(each in holder.requests for holder in found.values())]
    holding = [each for each in found.values() if not wanted or any(name in each.requests for name in wanted)]
    holding.sort(key=lambda each: ([-each.requests.get(name, 0) for name in wanted], each.kind, each.name))
    return [_holder(each, wanted) for each in holding[:MOST_HOLDERS]]


def _holder(each: _Holder, wanted: Sequence[str]) -> Object:
    names = wanted or sorted(each.requests)
    return {
        "kind": each.kind,
        "name": each.name,
        "pods": len(each.pods),
        "nodes": len(each.nodes),
        "priority": each.priority,
        "requests": {name: format_units(name, each.requests[name]) for name in names if name in each.requests},
    }


def holder_name(record: PodRecord) -> tuple[str, str]:
    """Kind and `namespace/name` of what a pod belongs to."""
    namespace = record.key.partition("/")[0]
    if record.ref is not None:
        return ("PodGroup" if record.ref.is_pod_group else "Workload"), record.ref.key
    owner = controller_of(record.pod)
    if owner is None or owner.get("kind") == "Node":
        return "Pod", record.key
    return str(owner.get("kind")), f"{namespace}/{owner.get('name')}"


def running_groups(cache: SchedulerCache, asking: frozenset[str]) -> list[RunningGroup]:
    """The groups, and the Jobs without a group, that hold room, with the pods that do; not those that ask."""
    found: dict[str, list[str]] = {}
    for key, record in cache.pods.items():
        if not record.node:
            continue
        kind, name = holder_name(record)
        if kind in ("PodGroup", "Workload") and name not in asking:
            found.setdefault(name, []).append(key)
        elif kind == "Job":
            found.setdefault(f"job {name}", []).append(key)
    return [(name, sorted(pods)) for name, pods in sorted(found.items())]
