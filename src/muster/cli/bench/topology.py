"""Groups that are bound to domains, on half-full nodes in racks, blocks and zones: engine time, no API around it.

`count`: what every rule says of every node, once; `choose`: that, and which domain is best; `decide`: the whole
decision, with the places. CPU time, since the figures are small.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from random import Random
from time import process_time

from msgspec.structs import replace

from muster.api.codec import Object, Objects
from muster.api.topology import Subgroups, TopologyTerms
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.nodes import BLOCK_LABEL, RACK_LABEL, ZONE_LABEL
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.engine.topology.domains import ranking
from muster.engine.topology.layout import Layout

CLUSTERS = ((5_000, 100), (5_000, 20), (100_000, 32))
"""Nodes, and nodes of a rack."""
GANGS = (4, 64, 1_000)
_CORES = 64
_REPEATS = 9
_LEVELS = (ZONE_LABEL, BLOCK_LABEL, RACK_LABEL)


def run(progress: Callable[[str], None]) -> Objects:
    """A row for each cluster, gang and kind of constraint."""
    rows = []
    for nodes, rack in CLUSTERS:
        progress(f"{nodes} nodes")
        state = half_full(nodes, rack)
        snapshot = state.snapshot()
        for size in GANGS:
            shape = state.shape_of(_pod(4))
            members = tuple(Member(f"default/gang-{at}", shape) for at in range(size))
            request = GroupRequest("default/gang", members, size, topology_key=ZONE_LABEL)
            rows += [_row(snapshot, replace(request, topology_key=RACK_LABEL), nodes, rack, "one rack")]
            for name, terms in _TERMS:
                laid_out = replace(request, layout=Layout(terms, tuple(range(size))))
                rows.append(_row(snapshot, laid_out, nodes, rack, name))
    return rows


_TERMS = (
    ("lowest level", TopologyTerms(levels=_LEVELS, required=ZONE_LABEL, preferred=(RACK_LABEL, BLOCK_LABEL))),
    ("4 in a rack", TopologyTerms(levels=_LEVELS, required=ZONE_LABEL, subgroups=Subgroups(4, RACK_LABEL))),
)


def _row(snapshot: Snapshot, request: GroupRequest, nodes: int, rack: int, name: str) -> Object:
    shape = request.members[0].shape
    decision = decide(snapshot, request)
    choose = None
    if request.layout is None:
        choose = _median_ms(snapshot, lambda: ranking(DEFAULT_PROFILE, snapshot, request, str(request.topology_key)))
    return {
        "nodes": nodes,
        "rack": rack,
        "gang": len(request.members),
        "constraint": name,
        "placed": "yes" if isinstance(decision, Placed) else "no",
        "count_ms": _median_ms(snapshot, lambda: DEFAULT_PROFILE.count(shape, snapshot)),
        "choose_ms": choose,
        "decide_ms": _median_ms(snapshot, lambda: decide(snapshot, request)),
    }


def _median_ms(snapshot: Snapshot, work: Callable[[], object]) -> float:
    """CPU milliseconds with nothing known about the snapshot beforehand."""
    taken = []
    for _ in range(_REPEATS):
        snapshot.counts.clear()
        snapshot.notes.clear()
        start = process_time()
        work()
        taken.append(1000 * (process_time() - start))
    return round(statistics.median(taken), 2)


def half_full(nodes: int, rack: int) -> ClusterState:
    """Nodes of 64 cores, seven of ten with a pod of some size; 16 racks a block, 50 blocks a zone."""
    random, state = Random(1), ClusterState()
    for at in range(nodes):
        name, number = f"node-{at:06d}", at // rack
        labels = {
            RACK_LABEL: f"r{number:05d}",
            BLOCK_LABEL: f"b{number // 16:04d}",
            ZONE_LABEL: f"z{number // 800:02d}",
        }
        allocatable = {"cpu": str(_CORES), "memory": "512Gi", "pods": "110"}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}
        state.set_node(node)
        if random.random() < 0.7:
            state.add_pod(f"default/pod-{at}", _pod(random.randint(1, 60), name), name)
    return state


def _pod(cores: int, node: str = "") -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cores)}}}
    placed = {"nodeName": node} if node else {}
    return {"metadata": {"name": "pod", "namespace": "default"}, "spec": {"containers": [container], **placed}}
