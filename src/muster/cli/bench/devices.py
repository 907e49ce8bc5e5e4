"""Gangs whose pods need devices of nodes: one decision.

Nodes have eight GPUs and four network cards, two GPUs and a card at each of four roots. `wired` pods take two GPUs and
the card of one root, `plain` ones any GPU, `shared` ones use one claim for one GPU, so that all run on its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time

from muster.api.codec import JSON, Object, Objects
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Member
from muster.engine.objects import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE
from muster.engine.state import ClusterState

DRIVER = "gpu.example.com"
GANGS = ((20, 60, 40, 0), (20, 71, 18, 0), (20, 71, 19, 0), (100, 399, 2, 0), (100, 399, 3, 0), (1_000, 300, 200, 0))
"""Nodes, and pods of each kind. The second and fourth fill the cluster, the third and fifth are one pod too many."""
SHARED = ((100, 0, 0, 16), (1_000, 0, 0, 16))
"""Only the last node has room for all pods of the claim."""


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each gang: processor milliseconds of the first decision, and of one more."""
    rows = []
    for nodes, wired, plain, shared in (*GANGS, *SHARED):
        progress(f"a gang of {wired + plain + shared} on {nodes} nodes")
        rows.append(_measure(nodes, wired, plain, shared))
    return rows


def _measure(nodes: int, wired: int, plain: int, shared: int) -> Object:
    kinds = ["plain"] * plain + ["wired"] * wired + ["shared"] * shared
    state, members = _cluster(nodes, kinds)
    request = GroupRequest("default/gang", members, len(members))
    first, again, answer = 0.0, 0.0, ""
    for _ in range(2):
        start = process_time()
        answer = type(decide(state.snapshot(), request)).__name__
        first, again = again, process_time() - start
    return {
        "nodes": nodes,
        "wired": wired,
        "plain": plain,
        "shared": shared,
        "answer": answer,
        "first_cpu_ms": round(1000 * first, 1),
        "again_cpu_ms": round(1000 * again, 1),
    }


def _cluster(nodes: int, kinds: list[str]) -> tuple[ClusterState, tuple[Member, ...]]:
    state = ClusterState()
    state.set_object(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    shared = kinds.count("shared")
    for at in range(nodes):
        cpu = str(shared if at == nodes - 1 else 4) if shared else "64"
        allocatable = {"cpu": cpu, "memory": "512Gi", "pods": "110"}
        node = {"metadata": {"name": _name(at), "labels": {}}, "spec": {}, "status": {"allocatable": allocatable}}
        state.set_node(node)
        pool = {"name": _name(at), "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": _name(at), "devices": list(_devices())}
        state.set_object(RESOURCE_SLICE, {"metadata": {"name": _name(at)}, "spec": spec})
    pods = [_pod(state, kind, at) for at, kind in enumerate(kinds)]
    shapes = state.shapes_of(pods)
    return state, tuple(Member(f"default/pod-{at}", shape) for at, shape in enumerate(shapes))


def _devices() -> Iterator[Object]:
    for kind, count in (("gpu", 8), ("nic", 4)):
        for number in range(count):
            yield {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}, "root": {"int": number % 4}}}


def _pod(state: ClusterState, kind: str, at: int) -> Object:
    name = f"pod-{at}"
    claim = "shared" if kind == "shared" else name
    requests = [_request("gpu", 2 if kind == "wired" else 1)] + ([_request("nic", 1)] if kind == "wired" else [])
    devices: Object = {"requests": requests}
    if kind == "wired":
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    metadata: Object = {"name": claim, "namespace": "default", "uid": claim}
    if kind != "shared":
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
        metadata["ownerReferences"] = [owner]
    state.set_object(RESOURCE_CLAIM, {"metadata": metadata, "spec": {"devices": devices}})
    source: JSON = {"name": "gpu", "resourceClaimName": claim}
    if kind != "shared":
        source = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "resourceClaims": [source]}
    made = [] if kind == "shared" else [{"name": "gpu", "resourceClaimName": claim}]
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": made}}


def _request(kind: str, count: int) -> Object:
    text = f'device.attributes["{DRIVER}"].kind == "{kind}"'
    selectors = [{"cel": {"expression": text}}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors}
    return {"name": kind, "exactly": exactly}


def _name(at: int) -> str:
    return f"node-{at:06d}"
