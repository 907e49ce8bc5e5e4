"""Engine time of a queue of single pods, and what the state of a large cluster costs: no API around it.

Wall time and processor time are told apart, because a busy machine distorts the first more than the second.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from time import perf_counter, process_time

from muster.api.codec import Object, Objects, dumps
from muster.api.lean_pods import loads_lean
from muster.client.informer import Change
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.identical import fill, put
from muster.engine.in_order import place_in_order
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.objects import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.scheduler.cache import SchedulerCache

NODES = 5_000
PODS = 10_000
COUPLED_PODS = 5_000
SHAPES = (1, 50, 500)
LARGE_NODES = 100_000
LARGE_PODS = 1_000_000
LISTED_PODS = 150_000
DEVICE_NODES, DEVICES_EACH, DEVICE_PODS = 100, 8, 1_000
_SEED = 1
_ZONES = 3
_ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "pods": "110"}
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_SELECTOR = {"matchLabels": {"app": "web"}}


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each order and number of shapes, for each rule between pods, for devices, the state and the cache."""
    progress(f"building a cluster of {NODES} nodes")
    state = _cluster()
    rows = []
    for shapes in SHAPES:
        progress(f"{PODS} pods of {shapes} shapes")
        rows += _queue(state, shapes)
    for name, spec in _rules().items():
        progress(f"{COUPLED_PODS} pods with {name}")
        rows.append(_coupled(state, name, spec))
    progress(f"{DEVICE_PODS} pods with a claim for a device")
    rows.append(_devices())
    progress(f"the state of {LARGE_NODES} nodes and {LARGE_PODS} pods")
    rows.append(_state_memory())
    progress(f"a list of {LISTED_PODS} pods")
    rows.append(_list())
    return rows


def _queue(state: ClusterState, number: int) -> Objects:
    """The same pods in strict order, and put together by shape."""
    rng = Random(_SEED)
    kinds = [state.shape_of(_pod(cpu=f"{100 + at}m")) for at in range(number)]
    queue = [rng.choice(kinds) for _ in range(PODS)]
    snapshot = state.snapshot()
    return [
        _timed(f"{number} shapes, strict order", lambda: _strictly(snapshot, queue)),
        _timed(f"{number} shapes, regrouped", lambda: _regrouped(snapshot, queue)),
    ]


def _strictly(snapshot: Snapshot, queue: list[Shape]) -> int:
    return sum(row >= 0 for row in place_in_order(DEFAULT_PROFILE, snapshot, queue))


def _regrouped(snapshot: Snapshot, queue: list[Shape]) -> int:
    counts: dict[Shape, int] = {}
    for shape in queue:
        counts[shape] = counts.get(shape, 0) + 1
    placed = 0
    with snapshot.trial() as trial:
        for shape, number in counts.items():
            received = fill(DEFAULT_PROFILE, trial, shape, number)
            put(trial, shape, received)
            placed += int(received.sum())
    return placed


def _coupled(state: ClusterState, name: str, spec: Object) -> Object:
    shape = state.shape_of(_pod(labels={"app": "web"}, spec=spec))
    members = tuple(Member(f"default/web-{at}", shape) for at in range(COUPLED_PODS))
    snapshot = state.snapshot()

    def place() -> int:
        decision = decide(snapshot, GroupRequest("default/web", members, min_count=1))
        return len(decision.placements) if isinstance(decision, Placed) else 0

    return _timed(name, place)


def _devices() -> Object:
    """Pods that each ask for a device by a claim of their own, on nodes that have too few for all of them."""
    state = ClusterState()
    state.set_object(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    for at in range(DEVICE_NODES):
        state.set_node(_node(_name(at), at))
        devices = [{"name": f"gpu-{number}"} for number in range(DEVICES_EACH)]
        pool = {"name": _name(at), "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": _name(at), "devices": devices}
        state.set_object(RESOURCE_SLICE, {"metadata": {"name": _name(at)}, "spec": spec})
    pods = [_with_claim(state, f"pod-{at}") for at in range(DEVICE_PODS)]

    def place() -> int:
        members = tuple(Member(f"default/pod-{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
        decision = decide(state.snapshot(), GroupRequest("default/pods", members, min_count=1, one_by_one=True))
        return len(decision.placements) if isinstance(decision, Placed) else 0

    return _timed(f"a device each, {DEVICES_EACH} on each of {DEVICE_NODES} nodes", place)


def _with_claim(state: ClusterState, name: str) -> Object:
    """A pod with a claim that was made for it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    state.set_object(RESOURCE_CLAIM, {"metadata": claim, "spec": spec})
    pod = _pod(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]})
    pod["metadata"] |= {"name": name, "uid": name}
    return {**pod, "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}}


def _timed(name: str, work: Callable[[], int]) -> Object:
    wall, cpu = perf_counter(), process_time()
    pods = work()
    cpu, wall = process_time() - cpu, perf_counter() - wall
    return {
        "what": name,
        "pods": pods,
        "pods_per_s": round(pods / wall),
        "pods_per_cpu_s": round(pods / cpu),
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
    }


def _state_memory() -> Object:
    """What the engine's state and one snapshot hold, beside the objects that a scheduler keeps anyway."""
    nodes = [_name(at) for at in range(LARGE_NODES)]
    pods = [_pod(cpu=f"{100 + at}m", labels={"app": f"app-{at}"}) for at in range(50)]
    gc.collect()
    tracemalloc.start()
    cpu = process_time()
    state = ClusterState(_Book(nodes))
    for name in nodes:
        state.set_node(_node(name, 0))
    for at in range(LARGE_PODS):
        state.add_pod(f"default/pod-{at}", pods[at % len(pods)], nodes[at % LARGE_NODES])
    state.snapshot()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "what": f"state of {LARGE_NODES} nodes",
        "pods": LARGE_PODS,
        "cpu_s": round(process_time() - cpu, 2),
        "memory_mb": round(held / 2**20),
    }


class _Book:
    """Where pods of the large state are, as a scheduler's cache would say: by their number."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes

    def node_of(self, key: str) -> str:
        return self._nodes[int(key.rpartition("-")[2]) % len(self._nodes)]

    def metadata_of(self, key: str) -> Object:
        return {"name": key}


def _list() -> Object:
    """A list as a server sends it, in pages of 5,000, decoded and taken over into the scheduler's cache."""
    page = dumps({"items": [_listed(at) for at in range(5_000)]})
    pages = LISTED_PODS // 5_000
    cache = SchedulerCache(frozenset({"default-scheduler"}))
    gc.collect()
    gc.disable()  # as a scheduler does until it has listed
    try:
        wall, cpu = perf_counter(), process_time()
        for number in range(pages):
            pods = loads_lean(page)["items"]
            for pod in pods:
                pod["metadata"]["name"] += f"-{number}"
            cache.apply_pods([Change("ADDED", None, pod) for pod in pods])
        cache.state.snapshot()
        cpu, wall = process_time() - cpu, perf_counter() - wall
    finally:
        gc.enable()
    return {
        "what": "list decoded into the cache",
        "pods": len(cache.pods),
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "bytes_each": len(page) // 5_000,
    }


def _rules() -> dict[str, Object]:
    host, zone = ({"topologyKey": key, "labelSelector": _SELECTOR} for key in (_HOSTNAME, _ZONE))
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    soft = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    hard = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        "soft spread over zones": {"topologySpreadConstraints": [{**soft, **zone}]},
        "soft spread over zones and hosts": {"topologySpreadConstraints": [{**soft, **zone}, {**soft, **host}]},
        "hard spread over zones": {"topologySpreadConstraints": [{**hard, **zone}]},
        "required anti-affinity by host": {"affinity": {"podAntiAffinity": {required: [host]}}},
        "preferred affinity by zone": {
            "affinity": {"podAffinity": {preferred: [{"weight": 10, "podAffinityTerm": zone}]}}
        },
        "required affinity by zone": {"affinity": {"podAffinity": {required: [zone]}}},
    }


def _cluster() -> ClusterState:
    """Nodes of 64 cpu in three zones, each with a pod of random size."""
    rng = Random(_SEED)
    state = ClusterState()
    for at in range(NODES):
        state.set_node(_node(_name(at), at))
        state.add_pod(f"default/busy-{at}", _pod(cpu=str(rng.randint(1, 8))), _name(at))
    return state


def _name(at: int) -> str:
    return f"node-{at:06d}"


def _node(name: str, at: int) -> Object:
    labels = {_HOSTNAME: name, _ZONE: f"zone-{at % _ZONES}"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": _ALLOCATABLE}}


def _pod(cpu: str = "100m", labels: Object | None = None, spec: Object | None = None) -> Object:
    container = {"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
    metadata = {"name": "pod", "namespace": "default", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": [container], **(spec or {})}}


def _listed(at: int) -> Object:
    """A running pod with about the fields that a server gives back."""
    pod = _pod(labels={"app": f"app-{at % 50}", "pod-template-hash": "5d4f8c7b9"})
    pod["metadata"] |= {"name": f"pod-{at}", "uid": f"uid-{at}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {f"f:field-{n}": {} for n in range(60)}}]
    pod["spec"] |= {"nodeName": _name(at % NODES), "schedulerName": "default-scheduler", "restartPolicy": "Always"}
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"} for name in types]
    pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}
    return pod
