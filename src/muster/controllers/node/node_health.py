"""Whether nodes live: signs of life, grace periods, the state of zones and how fast their pods may be evicted.

Pure functions of what was seen before and what is seen now.
Source of the rules: kube-controller-manager `pkg/controller/nodelifecycle` (tryUpdateNodeHealth, ComputeZoneState,
handleDisruption) and `scheduler.RateLimitedTimedQueue`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.meta import condition, uid_of
from muster.clock import parse_rfc3339
from muster.controllers.node.taints import NO_EXECUTE, NOT_READY, UNREACHABLE, taint_ids
from muster.controllers.options import NodeLifecycleOptions

KUBELET_LEASE_S = 40.0
"""The `leaseDurationSeconds` of a kubelet: a lease that lasts no longer does not prolong the grace period."""

SKEW_S = 60.0
"""A sign of life that claims to be older than the one before by more than this is dated by our own clock."""

EXCLUDED = "node.kubernetes.io/exclude-disruption"

LOST_TAINTS = {"False": NOT_READY, "Unknown": UNREACHABLE}
"""The key of the NoExecute taint of a node by its Ready condition."""


class NodeHealth(Struct, frozen=True):
    """What is known of one node, with all that a pass asks about it.

    `ready`: status of its Ready condition, "" without one. `seen_s`: last sign of life. `patience_s`: so long after it
    the node counts as lost. `ending`: its lease was shortened at the last renewal, so its end is to be expected.
    `taints`: the keys of those of our NoExecute taints that it has. `counts`: whether it counts in its zone.
    """

    node: Object
    lease: Object | None
    ready: str
    seen_s: float
    patience_s: float
    ending: bool
    zone: str
    counts: bool
    taints: tuple[str, ...]

    @property
    def deadline_s(self) -> float:
        """When the node, without a further sign of life, counts as lost."""
        return self.seen_s + self.patience_s


def observe(
    node: Object, lease: Object | None, old: NodeHealth | None, options: NodeLifecycleOptions, now: float
) -> NodeHealth:
    """The health of a node after a look at it and its lease.

    Signs of life are a new heartbeat of the Ready condition and a new renewal of the lease.
    """
    if old is not None and old.node is node and old.lease is lease:
        return old
    same = old if old is not None and uid_of(old.node) == uid_of(node) else None
    ready: str = (condition(node, "Ready") or {}).get("status") or ""
    return NodeHealth(
        node=node,
        lease=lease,
        ready=ready,
        seen_s=_last_sign_s(node, lease, same, now),
        patience_s=_patience_s(ready, lease, options),
        ending=same is not None and _is_ending(lease, same),
        zone=zone_of(node),
        counts=EXCLUDED not in (node["metadata"].get("labels") or {}),
        taints=tuple(
            sorted(key for key, effect in taint_ids(node) if effect == NO_EXECUTE and key in LOST_TAINTS.values())
        ),
    )


def _last_sign_s(node: Object, lease: Object | None, old: NodeHealth | None, now: float) -> float:
    ready = condition(node, "Ready")
    if old is None:
        created = node["metadata"].get("creationTimestamp")
        never_lived = ready is None and lease is None and created
        return parse_rfc3339(created) if never_lived else now
    seen = old.seen_s if (ready is not None) == bool(old.ready) else now
    signs = [
        ((ready or {}).get("lastHeartbeatTime"), (condition(old.node, "Ready") or {}).get("lastHeartbeatTime")),
        (_renewed(lease), _renewed(old.lease)),
    ]
    for text, before in signs:
        if text and text != before:
            seen = max(seen, _dated(text, seen, now))
    return seen


def _is_ending(lease: Object | None, old: NodeHealth) -> bool:
    if _renewed(lease) == _renewed(old.lease):
        return old.ending
    return 0 < lease_s(lease) < lease_s(old.lease)


def lease_s(lease: Object | None) -> float:
    """How long a lease says that it lasts; 0 without one."""
    return float(((lease or {}).get("spec") or {}).get("leaseDurationSeconds") or 0)


def _patience_s(ready: str, lease: Object | None, options: NodeLifecycleOptions) -> float:
    """The grace period; ours: a lease that lasts longer (and longer than a kubelet's) prolongs it.

    So simulated nodes may renew rarely.
    """
    grace = options.monitor_grace_period_s if ready else options.startup_grace_period_s
    duration = lease_s(lease)
    return max(grace, duration) if duration > KUBELET_LEASE_S else grace


def _renewed(lease: Object | None) -> str:
    return ((lease or {}).get("spec") or {}).get("renewTime") or ""


def _dated(text: str, seen: float, now: float) -> float:
    """When a sign of life came: as it says itself if that can be, else now (clocks of nodes may be wrong)."""
    moment = parse_rfc3339(text)
    return moment if seen - SKEW_S <= moment <= now else now


class ZoneState(Enum):
    """How much of a zone is not ready."""

    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


class Zone(Struct, frozen=True):
    """A zone: how many of its nodes may get a NoExecute taint a second, and not before when the next one."""

    state: ZoneState
    rate: float
    next_s: float = 0.0


Zones = Mapping[str, Zone]


class Disruption(Struct, frozen=True):
    """The zones after a look at all nodes. `entered`: now everything is down; `left`: not any more."""

    zones: Zones
    entered: bool = False
    left: bool = False


def zone_of(node: Object) -> str:
    """Region and zone of a node as one text; "" if it has neither."""
    labels = node["metadata"].get("labels") or {}
    region = labels.get("topology.kubernetes.io/region") or labels.get("failure-domain.beta.kubernetes.io/region") or ""
    zone = labels.get("topology.kubernetes.io/zone") or labels.get("failure-domain.beta.kubernetes.io/zone") or ""
    return f"{region}:\x00:{zone}" if region or zone else ""


def disruption(nodes: Collection[NodeHealth], before: Zones, options: NodeLifecycleOptions, now: float) -> Disruption:
    """The state of each zone that has nodes, and its rate.

    If every zone is fully down, nobody is evicted until one node is back: then it is more likely that the control
    plane is cut off.
    """
    census = Counter((health.zone, health.ready == "True") for health in nodes if health.counts)
    counts = {zone: (census[zone, True], census[zone, False]) for zone in sorted({zone for zone, _ in census})}
    states = {zone: zone_state(ready, not_ready, options) for zone, (ready, not_ready) in counts.items()}
    first = Zone(ZoneState.INITIAL, options.eviction_rate)
    zones = {zone: before.get(zone, first) for zone in states}
    uncounted = {
        zone: before.get(zone, first) for zone in sorted({health.zone for health in nodes}) if zone not in zones
    }
    all_are_down = all(state is ZoneState.FULL for state in states.values())
    all_were_down = all(zone.state is ZoneState.FULL for zone in zones.values())
    if all_are_down:
        entered = not all_were_down
        stopped = {name: Zone(ZoneState.FULL, 0.0) for name in zones} if entered else zones
        return Disruption(stopped | uncounted, entered=entered)
    for name, zone in zones.items():
        if zone.state is not states[name] or all_were_down:
            new_rate = rate(states[name], sum(counts[name]), options)
            zones[name] = _with_rate(zone, states[name], new_rate, now)
    return Disruption(zones | uncounted, left=all_were_down)


def zone_state(ready: int, not_ready: int, options: NodeLifecycleOptions) -> ZoneState:
    """The state of a zone with so many nodes that are ready and not."""
    if not_ready > 0 and ready == 0:
        return ZoneState.FULL
    if not_ready > 2 and not_ready / (ready + not_ready) >= options.unhealthy_zone_threshold:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def rate(state: ZoneState, size: int, options: NodeLifecycleOptions) -> float:
    """NoExecute taints a second in a zone of that state and size."""
    if state is not ZoneState.PARTIAL:
        return options.eviction_rate
    return options.secondary_eviction_rate if size > options.large_cluster_size_threshold else 0.0


def take(zone: Zone, now: float) -> Zone | None:
    """The zone after one more NoExecute taint; None if it must wait (a token bucket that holds one)."""
    if zone.rate <= 0 or now < zone.next_s:
        return None
    return replace(zone, next_s=now + 1 / zone.rate)


def _with_rate(zone: Zone, state: ZoneState, new_rate: float, now: float) -> Zone:
    """The zone in another state; whoever had to wait before waits for a token at the new rate."""
    if new_rate == zone.rate:
        return replace(zone, state=state)
    waits = zone.rate <= 0 or now < zone.next_s
    return Zone(state, new_rate, now + 1 / new_rate if waits and new_rate > 0 else now)
