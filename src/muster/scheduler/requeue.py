"""Wake what events on nodes can help: a test for each pool of equal questions, never one for each pending pod.

A pod that node-local rules rejected everywhere can be helped by a node only if it fits there now; a group of such pods
only if at least one of them does and, of what is free on all nodes, there is enough for as many as it needs. That is
what is tested, so most events wake nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from muster.engine.identity import Identity
from muster.engine.objects import ObjectStore
from muster.engine.plugins.inter_pod_affinity import own_term_matches
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.preemption.coupling import couples_nodes
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.topology.domains import domains_of
from muster.scheduler.changes import BETWEEN_PODS, CONCERNS, NODE_LOCAL_PLUGINS, OBJECT_CONCERNS, ClusterEvent
from muster.scheduler.cycle import Signature
from muster.scheduler.domains import OneDomain
from muster.scheduler.queue import SchedulingQueue
from muster.scheduler.waiting import ANY, Pool

Lower: TypeAlias = Callable[[Sequence[str], int], list[str]]
"""The pods on some nodes that a preemptor of a priority may evict."""
Below: TypeAlias = Callable[[int], bool]
"""Whether anybody of lower priority runs, so that who does not fit may preempt."""

FEW_NODES = 64
"""Up to so many changed nodes are looked at alone, not as a part of the whole table."""


def may_hold(snapshot: Snapshot, signature: Signature, profile: Profile) -> bool:
    """Whether all nodes, or those of one domain, may have room for as many pods as are needed; False is certain."""
    topology = signature.structure
    key = topology.key if isinstance(topology, OneDomain) else None
    found = np.zeros(1, dtype=np.int64)
    for shape, number in signature.members:
        if _is_no_sum(profile, shape, snapshot):
            return True
        counts = profile.count(shape, snapshot)
        sums = counts.sum() if key is None else domains_of(snapshot.table, key).sums(counts)
        found = found + np.minimum(sums, number)
    return int(found.max(initial=0)) >= signature.need


class Room:
    """What fits on some nodes of a snapshot."""

    def __init__(self, snapshot: Snapshot, nodes: Sequence[str]) -> None:
        table = snapshot.table
        self._whole, self._nodes = snapshot, nodes
        if len(nodes) <= FEW_NODES:
            snapshot = snapshot.with_nodes(table.records[table.index[node]] for node in nodes)
            table = snapshot.table
        self.nodes = nodes
        self._snapshot = snapshot
        self._emptied: dict[int, Trial | None] = {}
        self._rows = np.array([table.index[node] for node in nodes], dtype=np.int64)
        most = snapshot.free()[self._rows].max(axis=0, initial=0)
        self._most_free = dict(zip(snapshot.axis.names, most.tolist(), strict=True))

    def pods(self, profile: Profile, shapes: Iterable[Shape]) -> int:
        """How many pods fit by the rules of the profile, each shape for itself."""
        if _counts_all_requests(profile):
            shapes = (shape for shape in shapes if self._could_fit(shape))
        return sum(self._count(profile, shape) for shape in shapes)

    def _count(self, profile: Profile, shape: Shape) -> int:
        """How many fit; rules that look at other nodes as well are asked about the whole cluster."""
        if _looks_elsewhere(profile, shape, self._whole):
            index, counts = self._whole.table.index, profile.count(shape, self._whole)
            return int(sum(counts[index[node]] for node in self._nodes))
        return int(profile.count(shape, self._snapshot)[self._rows].sum())

    def pods_without_lower(self, priority: int, lower: Lower, profile: Profile, shapes: Iterable[Shape]) -> int:
        """How many fit with the pods gone that a preemptor of this priority may evict; 0 if there are none."""
        if priority not in self._emptied:
            keys = lower(self.nodes, priority)
            emptied = self._emptied[priority] = Trial(self._snapshot) if keys else None
            if emptied is not None:
                emptied.remove(keys)
        snapshot = self._emptied[priority]
        return 0 if snapshot is None else sum(int(profile.count(shape, snapshot)[self._rows].sum()) for shape in shapes)

    def _could_fit(self, shape: Shape) -> bool:
        """A quick no: some request is larger than what any of the nodes has left."""
        most = self._most_free
        return most["pods"] > 0 and all(most.get(name, 0) >= amount for name, amount in shape.usage.requests)


def _is_no_sum(profile: Profile, shape: Shape, snapshot: Snapshot) -> bool:
    """Whether what fits on each node now is no bound on how many pods of the shape fit."""
    usage = shape.usage
    if usage.volumes or usage.devices is not None:
        return True
    return any(coupling.binding for coupling, _ in profile.couplings(shape, snapshot))


def _looks_elsewhere(profile: Profile, shape: Shape, snapshot: Snapshot) -> bool:
    """Whether what fits on a node may depend on other nodes."""
    usage = shape.usage
    return bool(usage.volumes) or usage.devices is not None or couples_nodes(profile, shape, snapshot)


def _counts_all_requests(profile: Profile) -> bool:
    """Whether a pod never fits by these rules where some request is larger than what is left."""
    return any(
        isinstance(plugin, NodeResourcesFit) and not plugin.ignored and not plugin.ignored_groups
        for plugin in profile.filters
    )


def wake_for_nodes(
    queue: SchedulingQueue,
    snapshot: Snapshot,
    events: Mapping[str, Iterable[ClusterEvent]],
    now: float,
    profiles: Sequence[Profile],
    lower: Lower,
    below: Below,
) -> None:
    """Wake the entities that these events (by node) can help. Nodes that the snapshot does not have are left out.

    `profiles`: by the number that signatures name. `lower`, `below`: who might make room beyond what is free.
    """
    nodes_by_kinds: dict[frozenset[ClusterEvent], list[str]] = {}
    for node, kinds in events.items():
        if node in snapshot.table.index:
            nodes_by_kinds.setdefault(frozenset(kinds), []).append(node)
    for kinds, nodes in nodes_by_kinds.items():
        plugins = sorted(frozenset[str]().union(*(CONCERNS[kind] for kind in kinds)))
        pools = queue.waiting_for(plugins)
        if pools:
            room = Room(snapshot, nodes)
            for pool in pools:
                _wake(queue, pool, snapshot, room, min(kind.value for kind in kinds), now, profiles, lower, below)


def wake_for_objects(queue: SchedulingQueue, kinds: Iterable[str], now: float) -> None:
    """Wake the entities that changes of objects of these kinds may help."""
    for kind in kinds:
        plugins = OBJECT_CONCERNS[kind]
        for pool in queue.waiting_for(sorted(plugins)):
            if pool.waits_for & plugins:
                queue.wake(pool.signature, 1, now, f"{kind}Change")


def wake_for_pods(queue: SchedulingQueue, objects: ObjectStore, placed: Iterable[Identity], now: float) -> None:
    """Wake the entities for which pods that were placed somewhere may make a difference."""
    pools = [pool for pool in queue.waiting_for(sorted(BETWEEN_PODS)) if pool.waits_for & BETWEEN_PODS]
    if not pools:
        return
    identities = list(placed)
    for pool in pools:
        signature = pool.signature
        assert isinstance(signature, Signature)
        by_default = "PodTopologySpread" in pool.waits_for
        shapes = [shape for shape, _ in signature.members]
        if any(_looks_at(shape, other, objects, by_default) for shape in shapes for other in identities):
            queue.wake(signature, 1, now, "AssignedPodAdd")


def _looks_at(shape: Shape, other: Identity, objects: ObjectStore, by_default: bool) -> bool:
    """Whether a hard rule of the shape that one more pod can satisfy counts this pod.

    `by_default`: a pod without constraints of its own has default ones, whose selectors are not known here.
    """
    identity = shape.usage.identity
    if identity is None:
        return False
    if any(own_term_matches(term, other, objects) for term in identity.terms.affinity):
        return True
    if other.namespace != identity.namespace:
        return False
    hard = [rule for rule in shape.spread if rule.constraint.hard]
    return any(rule.selector.matches(other.label_map) for rule in hard) or (by_default and not shape.spread)


def _wake(
    queue: SchedulingQueue,
    pool: Pool,
    snapshot: Snapshot,
    room: Room,
    event: str,
    now: float,
    profiles: Sequence[Profile],
    lower: Lower,
    below: Below,
) -> None:
    signature = pool.signature
    assert isinstance(signature, Signature)
    if ANY in pool.waits_for:
        queue.wake(signature, 1, now, event)
        return
    pods = room.pods(profiles[signature.profile], (shape for shape, _ in signature.members))
    if pods == 0 and _helps_to_preempt(signature, room, profiles, lower):
        queue.wake(signature, 1, now, event)
    elif pods == 0:
        # What the event changed was in the way, but something else is too, which nobody has named yet.
        queue.widen(pool, NODE_LOCAL_PLUGINS)
    elif signature.is_one_pod:
        queue.wake(signature, pods, now, event)
    elif below(signature.priority) or may_hold(snapshot, signature, profiles[signature.profile]):
        queue.wake(signature, 1, now, event)


def _helps_to_preempt(signature: Signature, room: Room, profiles: Sequence[Profile], lower: Lower) -> bool:
    """Whether some pod would fit on the nodes without pods of lower priority."""
    shapes = [shape for shape, _ in signature.members]
    return room.pods_without_lower(signature.priority, lower, profiles[signature.profile], shapes) > 0
