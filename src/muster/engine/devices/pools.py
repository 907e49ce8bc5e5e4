"""The pools of devices in reach of a node. Source: `structured/internal/*/pools_*.go` (GatherPools, 1.36).

The rules are upstream's: whether a pool is complete is judged by the slices that the node reaches, and only if these
are not all, by all slices of the pool. Slices with counters are in reach of whoever reaches devices of the pool, and
upstream of every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.api.codec import canonical
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device, Inventory, PoolId, Slice


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool as a node sees it. `devices`: those of its slices in reach, in the order in which they are tried.

    `elsewhere`: devices of slices that the node does not reach but that may use the counters; an incomplete or invalid
    pool has no devices.
    """

    id: PoolId
    devices: tuple[Device, ...] = ()
    per_device: frozenset[Device] = frozenset()
    elsewhere: tuple[Device, ...] = ()
    counters: Mapping[str, Mapping[str, int]] | None = None
    slices: Mapping[Device, Slice] | None = None
    is_incomplete: bool = False
    is_invalid: bool = False
    _content: list[object] = field(default_factory=list, repr=False)

    def said_of(self, device: Device) -> object:
        """All that is known of a device but its name, with the nodes that reach it."""
        return _said(device), self._reach(device)

    def content(self) -> object:
        """What is in the pool, but for names: equal for pools that offer a node each the same."""
        if not self._content:
            counters = {name: sorted(counts.items()) for name, counts in (self.counters or {}).items()}
            devices = tuple((_said(each), self._reach(each)[1:]) for each in self.devices)
            others = tuple(each.consumes for each in self.elsewhere)
            flags = self.is_incomplete, self.is_invalid
            self._content.append((self.id.driver, flags, devices, others, repr(sorted(counters.items()))))
        return self._content[0]

    def _reach(self, device: Device) -> tuple[object, ...]:
        is_per_device = device in self.per_device
        home = (self.slices or {}).get(device)
        reach = device.reach if is_per_device or home is None else home.reach
        return reach.node_name, reach.all_nodes, reach.terms, is_per_device

    @property
    def is_usable(self) -> bool:
        """Whether devices may be taken from it."""
        return not (self.is_incomplete or self.is_invalid)


def _said(device: Device) -> object:
    """All that a device says of itself, but its name."""
    return (
        canonical(device.attributes),
        tuple(sorted(device.capacity.items())),
        device.consumes,
        device.taints,
        (device.binds_to_node, device.binding_conditions, device.binding_failure_conditions),
        device.is_multiple,
    )


def pools_for(inventory: Inventory, labels: Mapping[str, str], node: str, features: Features) -> tuple[Pool, ...]:
    """The pools in reach of a node, sorted by driver and name; those that have binding conditions come last."""
    reached: dict[PoolId, list[Slice]] = {}
    for each in (*inventory.on_node.get(node, ()), *inventory.shared):
        if not each.has_counters and _is_relevant(each, labels, node, features):
            _add(reached.setdefault(each.pool, []), each)
    for each in inventory.counting if features.partitionable else ():
        if features.upstream or each.pool in reached:
            _add(reached.setdefault(each.pool, []), each)
    first: list[Pool] = []
    last: list[Pool] = []
    for pool_id in sorted(reached):
        pool = _pool(pool_id, reached[pool_id], inventory.pools[pool_id], features)
        if pool is not None:
            waits = pool.is_usable and any(each.binding_conditions for each in pool.devices)
            (last if waits else first).append(pool)
    return (*first, *last)


def _is_relevant(each: Slice, labels: Mapping[str, str], node: str, features: Features) -> bool:
    if not features.partitionable and each.is_per_device:
        return False
    if each.reach.is_known:
        return each.reach.matches(labels, node)
    return each.is_per_device and any(device.reach.matches(labels, node) for device in each.devices)


def _add(slices: list[Slice], each: Slice) -> None:
    """Adds a slice to those of its pool; only the newest generation counts."""
    if slices and each.generation < slices[0].generation:
        return
    if slices and each.generation > slices[0].generation:
        slices.clear()
    slices.append(each)


def _pool(pool_id: PoolId, slices: Sequence[Slice], every: Iterable[Slice], features: Features) -> Pool | None:
    """The pool of these slices; None if it is being replaced by a newer generation that the node does not reach."""
    known = sorted(slices, key=lambda each: each.name)
    elsewhere: list[Slice] = []
    if len(known) != slices[0].slice_count:
        same = []
        for each in every:
            if each.generation > slices[0].generation:
                return None
            if each.generation == slices[0].generation:
                same.append(each)
        if len(same) != slices[0].slice_count:
            return Pool(pool_id, is_incomplete=True)
        names = {each.name for each in known}
        elsewhere = [each for each in same if each.name not in names]
    return _built(pool_id, known, elsewhere, features)


def _built(pool_id: PoolId, known: Sequence[Slice], elsewhere: Sequence[Slice], features: Features) -> Pool:
    offering = [each for each in known if not (features.partitionable and each.has_counters)]
    slice_of = {device: each for each in offering for device in each.devices}
    devices = tuple(slice_of)
    invalid = Pool(pool_id, is_invalid=True)
    if len({device.id for device in devices}) < len(devices):
        return invalid
    per_device = frozenset(device for device, each in slice_of.items() if each.is_per_device)
    if not features.partitionable:
        return Pool(pool_id, devices, per_device, slices=slice_of)
    sets = [entry for each in known if each.has_counters for entry in each.counters]
    counters = dict(sets)
    others = tuple(device for each in elsewhere for device in each.devices)
    if len(counters) < len(sets) or not all(_is_counted(device, counters) for device in (*devices, *others)):
        return invalid
    return Pool(pool_id, devices, per_device, others, counters, slice_of)


def _is_counted(device: Device, counters: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether all counters that the device consumes exist."""
    return all(
        entry.counter_set in counters and all(name in counters[entry.counter_set] for name, _ in entry.counters)
        for entry in device.consumes
    )
