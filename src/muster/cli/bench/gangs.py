"""Engine time of homogeneous gangs: one `decide` on a snapshot of a busy cluster, no API and no process around it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from random import Random
from time import perf_counter

from muster.api.codec import Object, Objects
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Member
from muster.engine.state import ClusterState

NODES = (1_000, 5_000, 100_000)
PODS = (8, 64, 1_000, 8_000)
_REPEATS = 15
_SEED = 1
_ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
_BUSY = "default/busy-0"


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each size of cluster and gang: milliseconds of a decision on a fresh snapshot, and of the snapshot."""
    rows = []
    for nodes in NODES:
        progress(f"building a cluster of {nodes} nodes")
        state = _busy_cluster(nodes)
        for pods in PODS:
            progress(f"a gang of {pods} on {nodes} nodes")
            rows.append(_measure(state, nodes, pods))
    return rows


def _measure(state: ClusterState, nodes: int, pods: int) -> Object:
    shape = state.shape_of(_pod(cpu=4, memory_gib=16, gpus=1))
    request = GroupRequest("default/gang", tuple(Member(f"default/gang-{at}", shape) for at in range(pods)), pods)
    decide(state.snapshot(), request)  # what depends on the node table alone is computed once, as in a running service
    snapshot_ms, decide_ms = [], []
    for _ in range(_REPEATS):
        state.remove_pod(_BUSY)  # a change, so that the next snapshot is a new one
        state.add_pod(_BUSY, _pod(cpu=1, memory_gib=4, gpus=0), _name(0))
        start = perf_counter()
        snapshot = state.snapshot()
        taken = perf_counter()
        decision = decide(snapshot, request)
        decide_ms.append(1000 * (perf_counter() - taken))
        snapshot_ms.append(1000 * (taken - start))
    return {
        "nodes": nodes,
        "pods": pods,
        "answer": type(decision).__name__,
        "median_ms": round(statistics.median(decide_ms), 2),
        "min_ms": round(min(decide_ms), 2),
        "max_ms": round(max(decide_ms), 2),
        "pods_per_s": round(1000 * pods / statistics.median(decide_ms)),
        "snapshot_ms": round(statistics.median(snapshot_ms), 2),
    }


def _busy_cluster(nodes: int) -> ClusterState:
    """Nodes of 64 cpu, 512Gi and 8 GPUs, each with two pods of random size."""
    random = Random(_SEED)
    state = ClusterState()
    for at in range(nodes):
        state.set_node(_node(at))
    for at in range(2 * nodes):
        pod = _pod(cpu=random.randint(1, 16), memory_gib=random.choice([4, 16, 64]), gpus=random.randint(0, 2))
        state.add_pod(f"default/busy-{at}", pod, _name(at % nodes))
    state.snapshot()
    return state


def _name(at: int) -> str:
    return f"node-{at:06d}"


def _node(at: int) -> Object:
    labels = {"kubernetes.io/hostname": _name(at), "topology.kubernetes.io/rack": f"rack-{at // 32:04d}"}
    return {"metadata": {"name": _name(at), "labels": labels}, "spec": {}, "status": {"allocatable": _ALLOCATABLE}}


def _pod(*, cpu: int, memory_gib: int, gpus: int) -> Object:
    requests = {"cpu": str(cpu), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    return {"metadata": {"name": "pod", "namespace": "default"}, "spec": {"containers": [container]}}
