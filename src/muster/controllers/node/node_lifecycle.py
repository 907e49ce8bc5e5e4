"""node-lifecycle-controller: finds lost nodes, taints nodes by their conditions, marks the pods of lost nodes.

One pass over all nodes (key `*`) is made when something changed that matters, when the next node may be lost, and when
the next NoExecute taint is due; taints of effect NoSchedule and labels are set at once, node by node.
Source of the rules: kube-controller-manager `pkg/controller/nodelifecycle`. Unlike there, nothing is done while all
nodes are well, whatever their number, and a restart takes no NoExecute taints away from nodes that are not ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from muster.api.codec import Object, copy_object
from muster.api.meta import condition, has_condition, key_of, name_of, namespace_of, uid_of
from muster.api.resource import LEASES, NODES, PODS, Resource
from muster.client.informer import Change
from muster.clock import rfc3339
from muster.controllers.action import Action, Emit, Patch, Result, Update
from muster.controllers.node.node_health import (
    EXCLUDED,
    LOST_TAINTS,
    NodeHealth,
    Zones,
    disruption,
    lease_s,
    observe,
    take,
    zone_of,
)
from muster.controllers.node.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    UNREACHABLE,
    TaintId,
    changed_taints,
    taint_ids,
)
from muster.controllers.options import NodeLifecycleOptions
from muster.controllers.pod_writes import patch_status, pod_condition
from muster.controllers.runner import Request
from muster.controllers.state import State, Watched

ALL = "*"
"""The key of the pass over all nodes. Other keys: node names, and pods (with a slash)."""

LEASE_NAMESPACE = "kube-node-lease"

BY_CONDITION: dict[tuple[str, str], str] = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OURS = frozenset((key, NO_SCHEDULE) for key in (*BY_CONDITION.values(), UNSCHEDULABLE))
LABELS = {"kubernetes.io/os": "beta.kubernetes.io/os", "kubernetes.io/arch": "beta.kubernetes.io/arch"}
"""Labels that are copied to an older name."""

UNKNOWN_TYPES = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class Memory:
    """What a pass leaves for the next one."""

    nodes: dict[str, NodeHealth] = field(default_factory=dict)
    zones: Zones = field(default_factory=dict)


class NodeLifecycle:
    """Looks after nodes."""

    name = "node-lifecycle-controller"
    resources: tuple[Resource, ...] = (NODES, LEASES, PODS)

    def __init__(self, options: NodeLifecycleOptions | None = None) -> None:
        self._options = options or NodeLifecycleOptions()

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        period = self._options.monitor_period_s
        if resource == LEASES:
            shorter = namespace_of(change.object) == LEASE_NAMESPACE and lease_s(change.new) < lease_s(change.old)
            return [Request(ALL, period)] if shorter else []
        if resource == PODS:
            pod = change.new
            return [Request(key_of(pod))] if pod is not None and _came_to_lost_node(change.old, pod, state) else []
        requests = []
        if change.old is None or change.new is None:
            # Soon, but not once a node when thousands appear one by one.
            requests.append(Request(ALL, period / 10))
        elif _health_facts(change.old) != _health_facts(change.new):
            requests.append(Request(ALL, period))
        if change.new is not None and _schedule_patch(change.new, 0.0) is not None:
            requests.append(Request(name_of(change.new)))
        return requests

    def reconcile(self, key: str, state: State, now: float) -> Result:
        if key == ALL:
            return self._pass(state, now)
        if "/" in key:
            pod = state[PODS].get(key)
            return Result(_not_ready(pod, now) if pod is not None and _came_to_lost_node(None, pod, state) else ())
        node = state[NODES].get(key)
        patch = _schedule_patch(node, now) if node is not None else None
        return Result((patch,) if patch is not None else ())

    def _pass(self, state: State, now: float) -> Result:
        memory = state.memory(ALL)
        before = memory if isinstance(memory, Memory) else Memory()
        # 1. Look at every node and its lease.
        seen = self._observe(state, before.nodes, now)
        actions = [*_registrations(before.nodes, seen)]
        # 2. Nodes without a sign of life become Unknown, and their pods not ready.
        lost = [name for name, health in seen.items() if now > health.deadline_s and health.ready != "Unknown"]
        actions += [_unknown(seen[name].node, now) for name in lost]
        nodes = {**seen, **{name: replace(seen[name], ready="Unknown") for name in lost}}
        for name, health in nodes.items():
            if health.ready == "Unknown" and name in before.nodes and before.nodes[name].ready == "True":
                actions += _lost(health.node, state[PODS], now)
        # 3. Zones: how fast may nodes be tainted?
        result = disruption(nodes.values(), before.zones, self._options, now)
        if result.left:
            nodes = {name: replace(health, seen_s=now) for name, health in nodes.items()}
        # 4. NoExecute taints: away at once, or changed at once; new ones as the zone allows.
        marked = [health for health in seen.values() if health.taints]
        actions += _corrections(marked, now, all_down=result.entered)
        waiting = [health for health in seen.values() if health.ready in LOST_TAINTS and not health.taints]
        zones, tainted, next_s = _taints(waiting, result.zones, now)
        actions += tainted
        after_s, periodic = self._wake(nodes.values(), next_s, now)
        return Result(tuple(actions), requeue_after_s=after_s, periodic=periodic, memory=Memory(nodes, zones))

    def _observe(self, state: State, before: dict[str, NodeHealth], now: float) -> dict[str, NodeHealth]:
        leases = state[LEASES]
        found: dict[str, NodeHealth] = {}
        for node in state[NODES].all():
            name = name_of(node)
            lease = leases.get(f"{LEASE_NAMESPACE}/{name}")
            found[name] = observe(node, lease, before.get(name), self._options, now)
        return found

    def _wake(self, nodes: Iterable[NodeHealth], next_taint_s: float | None, now: float) -> tuple[float | None, bool]:
        """Seconds to the next pass, and whether a simulation need not wait for it.

        Nodes are found lost on multiples of the period, taints come when they are due.
        """
        alive = [health for health in nodes if health.ready != "Unknown"]
        after_s = None if next_taint_s is None else next_taint_s - now
        if alive:
            period = self._options.monitor_period_s
            first_s = min(health.deadline_s for health in alive) - now
            deadline_s = max(1.0, -(-first_s // period)) * period
            after_s = deadline_s if after_s is None else min(after_s, deadline_s)
        return after_s, next_taint_s is None and not any(health.ending for health in alive)


def _health_facts(node: Object) -> tuple[object, ...]:
    """What of a node a pass looks at, but for its heartbeats."""
    labels = node["metadata"].get("labels") or {}
    status = (condition(node, "Ready") or {}).get("status")
    lost = tuple((key, NO_EXECUTE) in taint_ids(node) for key in LOST_TAINTS.values())
    return uid_of(node), status, zone_of(node), EXCLUDED in labels, lost


def _registrations(before: dict[str, NodeHealth], now: dict[str, NodeHealth]) -> Iterable[Action]:
    for name, health in now.items():
        if name not in before:
            yield _node_event(health.node, "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")
    for name, health in before.items():
        if name not in now:
            yield _node_event(health.node, "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")


def _node_event(node: Object, reason: str, message: str) -> Emit:
    about: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name_of(node), "uid": uid_of(node)}}
    return Emit(about, "Normal", reason, message)


def _unknown(node: Object, now: float) -> Update:
    """All that a kubelet reports becomes Unknown."""
    changed = copy_object(node)
    conditions = changed.setdefault("status", {}).setdefault("conditions", [])
    for type_ in UNKNOWN_TYPES:
        found = next((entry for entry in conditions if entry.get("type") == type_), None)
        if found is None:
            never = {"reason": "NodeStatusNeverUpdated", "message": "Kubelet never posted node status."}
            times = {"lastHeartbeatTime": node["metadata"].get("creationTimestamp"), "lastTransitionTime": rfc3339(now)}
            conditions.append({"type": type_, "status": "Unknown", **never, **times})
        elif found.get("status") != "Unknown":
            stopped = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
            found.update({"status": "Unknown", **stopped, "lastTransitionTime": rfc3339(now)})
    return Update(NODES, changed, "status")


def _lost(node: Object, pods: Watched, now: float) -> Iterable[Action]:
    name = name_of(node)
    yield _node_event(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
    yield from chain.from_iterable(_not_ready(pod, now) for pod in pods.on_node(name))


def _not_ready(pod: Object, now: float) -> tuple[Action, ...]:
    """A pod that is Ready is so no longer: nobody reports about it."""
    if not has_condition(pod, "Ready"):
        return ()
    about: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
    patch = patch_status(pod, pod_condition(pod, now, "Ready", "False"))
    return (replace(patch, done=Emit(about, "Warning", "NodeNotReady", "Node is not ready")),)


def _came_to_lost_node(old: Object | None, pod: Object, state: State) -> bool:
    """Whether a pod that was bound just now has a node that is not ready."""
    name = pod["spec"].get("nodeName")
    if not name or (old is not None and old["spec"].get("nodeName") == name):
        return False
    node = state[NODES].get(name)
    ready = condition(node, "Ready") if node is not None else None
    return ready is not None and ready.get("status") != "True"


def _corrections(nodes: Iterable[NodeHealth], now: float, *, all_down: bool) -> Iterable[Action]:
    """NoExecute taints that go at once (of ready nodes; of all, when everything is down) or turn into the other."""
    for health in nodes:
        if not health.ready and not all_down:
            continue
        right = None if all_down else LOST_TAINTS.get(health.ready)
        if right is None or right not in health.taints:
            wrong = [(key, NO_EXECUTE) for key in health.taints]
            yield from _patch_taints(health.node, [(right, NO_EXECUTE)] if right else [], wrong, now)


def _taints(waiting: list[NodeHealth], zones: Zones, now: float) -> tuple[Zones, list[Action], float | None]:
    """New NoExecute taints as far as the zones allow, and when the next one may follow (None: none waits)."""
    allowed = dict(zones)
    actions: list[Action] = []
    next_s: float | None = None
    for health in sorted(waiting, key=_since):
        zone = allowed.get(health.zone)
        taken = take(zone, now) if zone is not None else None
        if taken is not None:
            allowed[health.zone] = taken
            actions += _patch_taints(health.node, [(LOST_TAINTS[health.ready], NO_EXECUTE)], [], now)
        elif zone is not None and zone.rate > 0:
            next_s = zone.next_s if next_s is None else min(next_s, zone.next_s)
    return allowed, actions, next_s


def _since(health: NodeHealth) -> tuple[str, str]:
    ready = condition(health.node, "Ready") or {}
    return ready.get("lastTransitionTime") or "", name_of(health.node)


def _patch_taints(node: Object, add: list[TaintId], remove: Iterable[TaintId], now: float) -> Iterable[Action]:
    taints = changed_taints(node, add, remove, now)
    if taints is not None:
        yield Patch(NODES, "", name_of(node), {"metadata": _version(node), "spec": {"taints": taints or None}})


def _schedule_patch(node: Object, now: float) -> Patch | None:
    """The patch that makes NoSchedule taints and labels agree with the node; None if they do."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    keys = [BY_CONDITION.get((entry.get("type", ""), entry.get("status", ""))) for entry in conditions]
    if (node.get("spec") or {}).get("unschedulable"):
        keys.append(UNSCHEDULABLE)
    wanted = [(key, NO_SCHEDULE) for key in keys if key]
    taints = changed_taints(node, wanted, OURS.difference(wanted), now)
    labels = node["metadata"].get("labels") or {}
    copies = {to: labels[key] for key, to in LABELS.items() if key in labels and labels.get(to) != labels[key]}
    if taints is None and not copies:
        return None
    patch: Object = {"metadata": _version(node)}
    if copies:
        patch["metadata"]["labels"] = copies
    if taints is not None:
        patch["spec"] = {"taints": taints or None}
    return Patch(NODES, "", name_of(node), patch)


def _version(node: Object) -> Object:
    return {"resourceVersion": node["metadata"].get("resourceVersion")}
