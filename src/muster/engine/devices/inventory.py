"""The devices that ResourceSlices offer, parsed once a slice, and what is in reach of which node by its slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.meta import name_of
from muster.api.quantity import Quantity, parse_quantity
from muster.api.selectors import NodeSelectorTerm, SelectorError, node_selector_term
from muster.engine.devices.tolerations import device_taint
from muster.engine.tolerations import Taint


class DeviceId(NamedTuple):
    """What names a device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolId(NamedTuple):
    """What names a pool in a cluster."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class Consumption(Struct, frozen=True):
    """What a device takes of the counters of a set: amounts in nano units."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]


class Capacity(Struct, frozen=True):
    """A capacity of a device and its request policy; `minimum` is the mark of a valid range."""

    value: Quantity
    default: Quantity | None = None
    values: tuple[Quantity, ...] = ()
    minimum: Quantity | None = None
    maximum: Quantity | None = None
    step: Quantity | None = None
    has_policy: bool = False


class Reach(Struct, frozen=True):
    """Which nodes reach a slice or a device: one by name, all, or those of a selector (`raw` as it was written)."""

    node_name: str = ""
    all_nodes: bool = False
    terms: tuple[NodeSelectorTerm, ...] = ()
    raw: JSON = None

    @property
    def is_known(self) -> bool:
        """Whether it says anything."""
        return bool(self.node_name) or self.all_nodes or self.raw is not None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name reaches it."""
        if self.node_name:
            return self.node_name == name
        return self.all_nodes or any(term.matches(labels, name) for term in self.terms)


_UNSAID = Reach()


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device as its slice describes it. Equal only to itself; `memo` keeps what selectors say of it,
    `memo_values` what they see."""

    id: DeviceId
    attributes: Mapping[str, Object]
    capacity: Mapping[str, Capacity]
    consumes: tuple[Consumption, ...] = ()
    taints: tuple[Taint, ...] = ()
    reach: Reach = _UNSAID
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    is_multiple: bool = False
    memo: dict[str, bool | str] = field(default_factory=dict, repr=False)
    memo_values: Object = field(default_factory=dict, repr=False)

    def attribute(self, name: str) -> Object | None:
        """The attribute of a fully qualified name: as written, or without the domain if that is the driver's."""
        found = self.attributes.get(name)
        if found is not None:
            return found
        domain, slash, identifier = name.partition("/")
        return self.attributes.get(identifier) if slash and domain == self.id.driver else None


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A ResourceSlice: devices, or counter sets (set → counter → nano units; duplicates in `doubled`)."""

    name: str
    pool: PoolId
    generation: int
    slice_count: int
    reach: Reach
    is_per_device: bool
    devices: tuple[Device, ...]
    counters: tuple[tuple[str, Mapping[str, int]], ...]

    @property
    def has_counters(self) -> bool:
        """Whether it publishes counter sets."""
        return bool(self.counters)


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """All slices. `on_node`: those that name a node; `shared`: all others; `counting`: those with counters.

    `memo`: what was worked out about nodes; it lives and dies with the inventory.
    """

    by_name: Mapping[str, tuple[Object, Slice]]
    on_node: Mapping[str, tuple[Slice, ...]]
    shared: tuple[Slice, ...]
    pools: Mapping[PoolId, tuple[Slice, ...]]
    counting: tuple[Slice, ...] = ()
    memo: dict[object, object] = field(default_factory=dict, repr=False)


EMPTY = Inventory({}, {}, (), {})


def take_stock(slices: Iterable[Object], before: Inventory | None) -> Inventory:
    """The inventory of these ResourceSlice objects; slices that were in the one before are not parsed again."""
    known = {} if before is None else before.by_name
    by_name: dict[str, tuple[Object, Slice]] = {}
    for obj in sorted(slices, key=name_of):
        found = known.get(name_of(obj))
        by_name[name_of(obj)] = found if found is not None and found[0] is obj else (obj, parse_slice(obj))
    on_node: dict[str, list[Slice]] = {}
    shared: list[Slice] = []
    pools: dict[PoolId, list[Slice]] = {}
    for _, each in by_name.values():
        (on_node.setdefault(each.reach.node_name, []) if each.reach.node_name else shared).append(each)
        pools.setdefault(each.pool, []).append(each)
    return Inventory(
        by_name,
        {node: tuple(found) for node, found in on_node.items()},
        tuple(shared),
        {pool: tuple(found) for pool, found in pools.items()},
        tuple(each for _, each in by_name.values() if each.has_counters),
    )


def parse_slice(obj: Object) -> Slice:
    """The slice of a ResourceSlice object. Raises QuantityError for an amount that is none."""
    spec = obj["spec"]
    pool = spec.get("pool") or {}
    pool_id = PoolId(spec.get("driver") or "", pool.get("name") or "")
    counters = [
        (each.get("name") or "", {name: _nano(value) for name, value in (each.get("counters") or {}).items()})
        for each in spec.get("sharedCounters") or ()
    ]
    return Slice(
        name_of(obj),
        pool_id,
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 0),
        parse_reach(spec),
        bool(spec.get("perDeviceNodeSelection")),
        tuple(parse_device(each, pool_id) for each in spec.get("devices") or ()),
        tuple(counters),
    )


def parse_reach(spec: Object) -> Reach:
    """The nodes that a slice or device says it is for; a malformed selector matches none."""
    raw = spec.get("nodeSelector")
    terms = []
    for term in (raw or {}).get("nodeSelectorTerms") or ():
        try:
            terms.append(node_selector_term(term))
        except SelectorError:
            continue
    return Reach(spec.get("nodeName") or "", bool(spec.get("allNodes")), tuple(terms), raw)


def parse_device(entry: Object, pool: PoolId) -> Device:
    """The device of an entry of `devices`."""
    basic = entry.get("basic") or entry  # v1beta1 puts most fields one level deeper
    return Device(
        DeviceId(pool.driver, pool.pool, entry.get("name") or ""),
        basic.get("attributes") or {},
        {name: _capacity(each) for name, each in (basic.get("capacity") or {}).items()},
        tuple(_consumption(each) for each in basic.get("consumesCounters") or ()),
        tuple(device_taint(each) for each in basic.get("taints") or ()),
        parse_reach(basic),
        bool(basic.get("bindsToNode")),
        tuple(basic.get("bindingConditions") or ()),
        tuple(basic.get("bindingFailureConditions") or ()),
        bool(basic.get("allowMultipleAllocations")),
    )


def _consumption(entry: Object) -> Consumption:
    counters = {name: _nano(value) for name, value in (entry.get("counters") or {}).items()}
    return Consumption(entry.get("counterSet") or "", tuple(sorted(counters.items())))


def _nano(value: JSON) -> int:
    return parse_quantity(value["value"] if isinstance(value, dict) else value).nano


def _capacity(entry: JSON) -> Capacity:
    if not isinstance(entry, dict):
        return Capacity(parse_quantity(entry))
    policy = entry.get("requestPolicy") or {}
    valid = policy.get("validRange") or {}
    amounts = [policy.get("default"), valid.get("min"), valid.get("max"), valid.get("step")]
    default, minimum, maximum, step = (None if each is None else parse_quantity(each) for each in amounts)
    values = tuple(parse_quantity(each) for each in policy.get("validValues") or ())
    return Capacity(parse_quantity(entry["value"]), default, values, minimum, maximum, step, bool(policy))
