"""The engine decides as a plain sequential scheduler does, over clusters and pods with every feature.

`MUSTER_CASES=20000 pytest tests/engine/test_engine_reference.py` tries so many of each kind.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.meta import key_of
from muster.engine import objects
from muster.engine.decide import decide
from muster.engine.evaluate import evaluate
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.profile import Profile
from muster.engine.registry import PluginArguments, SpreadArguments, default_profile
from muster.engine.spreading import parse_constraint
from muster.engine.state import ClusterState
from muster.testing.clusters import FEATURES, RandomCluster, random_cluster
from muster.testing.reference import ReferenceScheduler

CASES = int(os.environ.get("MUSTER_CASES", "40"))
KINDS = {f"{kind[0].lower()}{kind[1:]}s": kind for kind in objects.KINDS} | {
    "storageClasses": objects.STORAGE_CLASS,
    "csiNodes": objects.CSI_NODE,
    "csiDrivers": objects.CSI_DRIVER,
    "csiStorageCapacities": objects.CSI_STORAGE_CAPACITY,
}
SETS = {name: frozenset({name}) for name in FEATURES} | {
    "spread with taints": frozenset({"spread", "taints", "nodeAffinity"}),
    "everything": frozenset(FEATURES),
}
PROFILE = default_profile()
SEEDS = st.integers(0, 2**63)
kinds = pytest.mark.parametrize("features", SETS.values(), ids=SETS)


def state_of(cluster: RandomCluster, rng: Random) -> ClusterState:
    """The engine's state after the cluster came about by events in some order, with some that were undone."""
    state = ClusterState()
    events: list[tuple[str, str, Object]] = [("node", "", node) for node in cluster.nodes]
    events += [("pod", "", pod) for pod in cluster.pods]
    events += [("object", KINDS[plural], obj) for plural, found in cluster.objects.items() for obj in found]
    rng.shuffle(events)
    for place, (what, kind, obj) in enumerate(events):
        if what == "node":
            state.set_node(obj)
        elif what == "object":
            state.set_object(kind, obj)
        else:
            state.add_pod(key_of(obj), obj, rng.choice(cluster.nodes)["metadata"]["name"])
            state.add_pod(key_of(obj), obj, obj["spec"]["nodeName"])
        if place % 7 == 0:
            state.shape_of(cluster.pod)
            state.snapshot()
    return state


def reference_of(cluster: RandomCluster) -> ReferenceScheduler:
    reference = ReferenceScheduler(cluster.nodes, cluster.objects)
    for pod in cluster.pods:
        reference.place(pod, pod["spec"]["nodeName"])
    return reference


def check_one(cluster: RandomCluster, reference: ReferenceScheduler, profile: Profile, rng: Random) -> None:
    """One pod: why not on each node, every score, the choice."""
    state = state_of(cluster, rng)
    want = reference.schedule(cluster.pod)
    shape, snapshot = state.shape_of(cluster.pod), state.snapshot()
    got = evaluate(profile, snapshot, shape)
    note(f"{cluster}")
    if want.refusal is not None:
        assert got.verdict is not None
        assert (got.verdict.plugin, got.verdict.reasons[0]) == want.refusal
    else:
        statuses = {name: (each.plugin, each.reasons, each.resolvable) for name, each in got.statuses.items()}
        assert statuses == want.rejected
        assert got.scores == want.scores
    decision = decide(snapshot, GroupRequest("g", (Member("pod", shape),), min_count=1), profile=profile)
    assert (decision.placements[0].node if isinstance(decision, Placed) else None) == want.node


@kinds
@settings(max_examples=CASES, deadline=None)
@given(seed=SEEDS, nodes=st.integers(1, 8), pods=st.integers(0, 16))
def test_one_pod_is_decided_as_by_the_reference(features: frozenset[str], seed: int, nodes: int, pods: int) -> None:
    rng = Random(seed)
    cluster = random_cluster(rng, features, nodes=nodes, pods=pods)
    check_one(cluster, reference_of(cluster), PROFILE, rng)


@settings(max_examples=CASES, deadline=None)
@given(seed=SEEDS, nodes=st.integers(1, 8), pods=st.integers(0, 16))
def test_default_constraints_of_a_profile_are_applied_as_by_the_reference(seed: int, nodes: int, pods: int) -> None:
    rng = Random(seed)
    cluster = random_cluster(rng, frozenset({"defaults"}), nodes=nodes, pods=pods)
    keys = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
    when = ("DoNotSchedule", "ScheduleAnyway")
    entries: list[Object] = [
        {"topologyKey": key, "maxSkew": rng.randint(1, 2), "whenUnsatisfiable": rng.choice(when)}
        for key in rng.sample(keys, 2)
    ]
    reference = reference_of(cluster)
    reference.arguments = {"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": entries}}
    constraints = tuple(parse_constraint(entry) for entry in entries)
    check_one(cluster, reference, default_profile(PluginArguments(spread=SpreadArguments(constraints))), rng)


@kinds
@settings(max_examples=CASES, deadline=None)
@given(seed=SEEDS, nodes=st.integers(1, 6), pods=st.integers(0, 8), number=st.integers(1, 12))
def test_equal_pods_in_one_go_get_the_nodes_that_they_would_get_one_by_one(
    features: frozenset[str], seed: int, nodes: int, pods: int, number: int
) -> None:
    rng = Random(seed)
    cluster = random_cluster(rng, features, nodes=nodes, pods=pods)
    note(f"{cluster}")
    state, reference = state_of(cluster, rng), reference_of(cluster)
    want: list[str] = []
    for _ in range(number):
        node = reference.schedule(cluster.pod).node
        if node is None:
            break
        want.append(node)
        reference.assume(cluster.pod, node)
    shape = state.shape_of(cluster.pod)
    members = tuple(Member(f"pod-{place}", shape) for place in range(number))
    decision = decide(state.snapshot(), GroupRequest("g", members, min_count=1), profile=PROFILE)
    got = [placement.node for placement in decision.placements] if isinstance(decision, Placed) else []
    # Where pods have rules about each other, the exact search may find room for more than come one by one.
    assert sorted(got) == sorted(want) or len(got) > len(want)
