"""ClusterState: the engine's picture of the cluster, kept up to date by events, from which snapshots are taken."""

from __future__ import annotations

from typing import TypeVar

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.engine.arrays import frozen, zeros
from muster.engine.axis import ResourceAxis, widened
from muster.engine.nodes import NodeRecord, build_table, parse_node
from muster.engine.ports import PortTable
from muster.engine.requests import Usage, usage_of
from muster.engine.shape import Shape, parse_shape, shape_key, usage_key
from muster.engine.snapshot import Snapshot, add_usage, moved_usage

_CACHE_LIMIT = 20_000

K = TypeVar("K")
V = TypeVar("V")


class ClusterState:
    """Nodes and assigned pods, mutable. Not for use from several threads.

    Events are cheap: a pod costs a few microseconds, a changed node marks the table, which is rebuilt at the next
    `snapshot()`. All methods are idempotent. A pod on a node that is not known is kept and counts once it appears.
    """

    def __init__(self) -> None:
        self._records: dict[str, NodeRecord] = {}
        self._sources: dict[str, tuple[object, ...]] = {}
        self._axis = ResourceAxis()
        self._placed: dict[str, dict[str, Usage]] = {}
        self._own: set[str] = set()  # nodes whose dict in _placed no snapshot shares
        self._where: dict[str, str] = {}
        self._stale = False
        self._last: Snapshot | None = None
        self._shapes: dict[bytes, Shape] = {}
        self._interned: dict[Shape, Shape] = {}
        self._usages: dict[bytes, Usage] = {}
        table = build_table((), self._axis)
        self._live = Snapshot(table, zeros(0, len(self._axis)), zeros(0, 2), PortTable(0), self._placed)

    # -- nodes

    def set_node(self, node: Object) -> bool:
        """Adds or replaces a node; returns whether anything changed that matters here. Raises QuantityError."""
        name, source = name_of(node), _node_source(node)
        if self._sources.get(name) == source:
            return False
        record = parse_node(node)
        self._sources[name] = source
        if self._records.get(name) == record:
            return False
        self._records[name] = record
        self._axis = self._axis.extended(resource for resource, _ in record.allocatable)
        self._stale = True
        return True

    def remove_node(self, name: str) -> None:
        """Forgets a node; its pods are kept and count again if it comes back."""
        self._sources.pop(name, None)
        if self._records.pop(name, None) is not None:
            self._stale = True

    def has_node(self, name: str) -> bool:
        """Whether the node is known."""
        return name in self._records

    # -- pods

    def add_pod(self, key: str, pod: Object, node_name: str) -> None:
        """Counts a pod (assigned or assumed) on a node, in place of what was known of that key."""
        raw = usage_key(pod)
        usage = self._usages.get(raw)
        if usage is None:
            usage = _remember(self._usages, raw, usage_of(pod))
        if self._where.get(key) == node_name and self._placed[node_name][key] == usage:
            return
        self.remove_pod(key)
        self._pods_of(node_name)[key] = usage
        self._where[key] = node_name
        self._count(node_name, usage, 1)

    def remove_pod(self, key: str) -> None:
        """Forgets a pod; unknown keys are ignored."""
        node_name = self._where.pop(key, None)
        if node_name is None:
            return
        pods = self._pods_of(node_name)
        self._count(node_name, pods.pop(key), -1)
        if not pods:
            del self._placed[node_name]

    def node_of(self, key: str) -> str | None:
        """The node on which a pod is counted."""
        return self._where.get(key)

    def shape_of(self, pod: Object) -> Shape:
        """The shape of a pod; equal shapes are the same object. Raises QuantityError or SelectorError."""
        raw = shape_key(pod)
        shape = self._shapes.get(raw)
        if shape is None:
            parsed = parse_shape(pod)
            shape = _remember(self._shapes, raw, _remember(self._interned, parsed, self._interned.get(parsed, parsed)))
        return shape

    # -- snapshots

    def snapshot(self) -> Snapshot:
        """The cluster now. The same object is returned while nothing changed; else it costs one copy of the arrays."""
        if self._stale:
            self._rebuild()
        if self._last is None:
            live = self._live
            requested, scored = live.requested.copy(order="K"), live.scored.copy(order="K")
            frozen(requested)
            frozen(scored)
            self._own.clear()
            self._last = Snapshot(live.table, requested, scored, live.ports.copy(), dict(self._placed))
        return self._last

    def _rebuild(self) -> None:
        table = build_table(self._records.values(), self._axis, self._live.table)
        requested, scored, ports = moved_usage(self._live, table)
        self._live = Snapshot(table, requested, scored, ports, self._placed)
        self._stale = False
        self._last = None

    def _pods_of(self, node_name: str) -> dict[str, Usage]:
        """The pods of a node, not shared with a snapshot."""
        if node_name not in self._own:
            self._placed[node_name] = dict(self._placed.get(node_name, ()))
            self._own.add(node_name)
        return self._placed.setdefault(node_name, {})

    def _count(self, node_name: str, usage: Usage, sign: int) -> None:
        self._last = None
        axis = self._axis.extended(name for name, _ in usage.requests)
        if axis is not self._axis:
            self._axis = axis
            self._stale = True
        live = self._live
        row = live.table.index.get(node_name)
        if row is None:
            return
        if len(axis) > live.requested.shape[1]:
            live.requested = widened(live.requested, len(axis))
        add_usage(axis, live.requested, live.scored, live.ports, row, usage, sign)


def _node_source(node: Object) -> tuple[object, ...]:
    """What `parse_node` reads: heartbeats leave it as it is."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return (
        node["metadata"].get("labels"),
        spec.get("taints"),
        bool(spec.get("unschedulable")),
        status.get("allocatable"),
        status.get("images"),
    )


def _remember(cache: dict[K, V], key: K, value: V) -> V:
    """Puts the value into a cache that is emptied when it is full, and returns it."""
    if len(cache) >= _CACHE_LIMIT:
        cache.clear()
    cache[key] = value
    return value
