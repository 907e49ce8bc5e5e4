"""Pods of several shapes in strict order get the nodes that they would get one by one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from muster.api.meta import key_of
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.in_order import place_in_order
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.state import ClusterState
from muster.testing.clusters import random_cluster


@pytest.mark.parametrize("features", [{"taints", "resources", "images", "nodeAffinity"}, {"spread", "podAffinity"}])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**63), nodes=st.integers(1, 6), number=st.integers(1, 16))
def test_strict_order_is_one_decision_after_the_other(features: set[str], seed: int, nodes: int, number: int) -> None:
    rng = Random(seed)
    cluster = random_cluster(rng, frozenset(features), nodes=nodes, pods=6)
    note(f"{cluster}")
    state = ClusterState()
    for node in cluster.nodes:
        state.set_node(node)
    for pod in cluster.pods[:3]:
        state.add_pod(key_of(pod), pod, pod["spec"]["nodeName"])
    pending = [{**pod, "spec": {**pod["spec"], "nodeName": ""}} for pod in (*cluster.pods[3:], cluster.pod)]
    queue = [rng.choice(pending) for _ in range(number)]
    shapes = [state.shape_of(pod) for pod in queue]  # once all selectors are known, shapes stay what they are
    shapes = [state.shape_of(pod) for pod in queue]
    snapshot = state.snapshot()
    got = place_in_order(DEFAULT_PROFILE, snapshot, shapes)

    want: list[int] = []
    for place, (pod, shape) in enumerate(zip(queue, shapes, strict=True)):
        decision = decide(state.snapshot(), GroupRequest("g", (Member("pod", shape),), min_count=1))
        chosen = decision.placements[0].node if isinstance(decision, Placed) else ""
        want.append(snapshot.table.index.get(chosen, -1))
        if chosen:
            state.add_pod(f"placed/{place}", pod, chosen)
    assert got == want
