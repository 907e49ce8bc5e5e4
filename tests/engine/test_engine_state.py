"""ClusterState follows events; snapshots do not change; trials always revert."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.axis import PODS
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

ports = {"containers": [{"name": "main", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
PODS_TO_USE = [make_pod(cpu="1"), make_pod(cpu="2", memory="1Gi"), make_pod(gpu=1), make_pod(spec=ports)]
WANTED = (("0.0.0.0", "TCP", 80),)


def requested(snapshot: Snapshot, node: str, resource: str) -> int:
    return int(snapshot.requested[snapshot.table.index[node], snapshot.axis.columns[resource]])


def facts(snapshot: Snapshot) -> object:
    """All that a snapshot says, in a form that can be compared."""
    names = snapshot.table.names
    return (
        {
            (name, resource): (int(snapshot.table.allocatable[row, column]), int(snapshot.requested[row, column]))
            for row, name in enumerate(names)
            for resource, column in snapshot.axis.columns.items()
            if snapshot.table.allocatable[row, column] or snapshot.requested[row, column]
        },
        snapshot.scored.tolist(),
        snapshot.ports.conflicts(WANTED).tolist(),
        {node: set(pods) for node, pods in snapshot.placed.items() if pods},
        names,
    )


def test_pod_on_an_unknown_node_counts_once_the_node_appears() -> None:
    state = ClusterState()
    state.add_pod("default/a", make_pod(cpu="2", gpu=1), "late")
    state.set_node(make_node("early"))
    state.snapshot()

    state.set_node(make_node("late", gpu=4))

    assert requested(state.snapshot(), "late", "cpu") == 2000
    assert requested(state.snapshot(), "late", "nvidia.com/gpu") == 1
    assert requested(state.snapshot(), "early", "pods") == 0


def test_pods_of_a_removed_node_count_again_when_it_returns() -> None:
    state = ClusterState()
    state.set_node(make_node("n"))
    state.add_pod("default/a", make_pod(cpu="2"), "n")
    state.snapshot()
    state.remove_node("n")
    assert len(state.snapshot()) == 0

    state.set_node(make_node("n"))

    assert requested(state.snapshot(), "n", "cpu") == 2000


def test_adding_a_pod_again_replaces_it() -> None:
    state = ClusterState()
    state.set_node(make_node("a"))
    state.set_node(make_node("b"))
    state.add_pod("default/p", make_pod(cpu="1"), "a")
    state.add_pod("default/p", make_pod(cpu="1"), "a")
    state.add_pod("default/p", make_pod(cpu="3"), "b")

    assert requested(state.snapshot(), "a", "pods") == 0
    assert requested(state.snapshot(), "b", "cpu") == 3000
    state.remove_pod("default/p")
    state.remove_pod("default/p")
    assert not state.snapshot().requested.any()


def test_heartbeat_changes_nothing_and_keeps_the_snapshot() -> None:
    state = ClusterState()
    state.set_node(make_node("n"))
    before = state.snapshot()
    beat = make_node("n")
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"

    assert state.set_node(beat) is False
    assert state.snapshot() is before


def test_nodes_are_ordered_by_zone_rack_and_name() -> None:
    state = ClusterState()
    for name, zone, rack in [("c", "z1", "r1"), ("b", "z2", "r1"), ("d", "z1", "r2"), ("a", "z1", "r2")]:
        labels = {"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/rack": rack}
        state.set_node(make_node(name, labels=labels))

    assert state.snapshot().table.names == ["c", "a", "d", "b"]


def test_snapshot_is_read_only_and_does_not_follow_the_state() -> None:
    state = ClusterState()
    state.set_node(make_node("n"))
    state.add_pod("default/p", make_pod(cpu="1"), "n")
    snapshot = state.snapshot()
    before = facts(snapshot)

    state.add_pod("default/q", make_pod(spec=ports), "n")
    state.remove_pod("default/p")

    assert facts(snapshot) == before
    with pytest.raises(ValueError, match="read-only"):
        snapshot.requested[0, 0] = 1


def test_trial_reverts_also_after_an_error() -> None:
    state = ClusterState()
    state.set_node(make_node("n"))
    state.add_pod("default/p", make_pod(spec=ports), "n")
    snapshot = state.snapshot()
    before = facts(snapshot)

    with pytest.raises(RuntimeError), snapshot.trial() as trial:
        trial.remove(["default/p", "default/unknown"])
        trial.place(state.shape_of(make_pod(cpu="4")).usage, 0, 3)
        assert requested(trial, "n", "cpu") == 12_000
        assert not trial.ports.conflicts(WANTED).any()
        raise RuntimeError

    assert facts(snapshot) == before
    assert facts(state.snapshot()) == before


def test_shapes_of_equal_pods_are_one_object_however_quantities_are_spelled() -> None:
    state = ClusterState()

    assert state.shape_of(make_pod("a", cpu="1", memory="1Gi")) is state.shape_of(
        make_pod("b", cpu="1000m", memory="1024Mi")
    )
    assert state.shape_of(make_pod(cpu="1")) != state.shape_of(make_pod(cpu="2"))


nodes = st.sampled_from(["n0", "n1", "n2", "n3"])
events = st.lists(
    st.one_of(
        st.tuples(st.just("set"), nodes, st.integers(0, 2)),
        st.tuples(st.just("drop"), nodes, st.just(0)),
        st.tuples(st.just("add"), st.tuples(st.sampled_from("pqrst"), nodes), st.integers(0, 3)),
        st.tuples(st.just("end"), st.sampled_from("pqrst"), st.just(0)),
        st.tuples(st.just("look"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(events)
def test_any_order_of_events_leads_to_the_same_snapshot_as_a_fresh_start(events: list[tuple[str, object, int]]) -> None:
    state = ClusterState()
    known: dict[str, int] = {}
    pods: dict[str, tuple[str, int]] = {}
    for kind, what, number in events:
        match kind, what:
            case "set", str(name):
                known[name] = number
                state.set_node(node_variant(name, number))
            case "drop", str(name):
                known.pop(name, None)
                state.remove_node(name)
            case "add", (str(key), str(name)):
                pods[key] = (name, number)
                state.add_pod(key, PODS_TO_USE[number], name)
            case "end", str(key):
                pods.pop(key, None)
                state.remove_pod(key)
            case _:
                state.snapshot()

    fresh = ClusterState()
    for key, (name, number) in pods.items():
        fresh.add_pod(key, PODS_TO_USE[number], name)
    for name, number in known.items():
        fresh.set_node(node_variant(name, number))
    assert facts(state.snapshot()) == facts(fresh.snapshot())


def node_variant(name: str, number: int) -> dict[str, object]:
    zone = {"topology.kubernetes.io/zone": f"z{number}"}
    return make_node(name, labels=zone, **({"gpu": number} if number else {}))  # type: ignore[arg-type]  # only gpu=


def test_pod_slots_are_a_resource_like_any_other() -> None:
    state = ClusterState()
    state.set_node(make_node("n", pods=3))
    state.add_pod("default/p", make_pod(), "n")

    assert state.snapshot().free()[0, PODS] == 2
    assert np.array_equal(state.snapshot().requested[0, 1:], np.zeros(len(state.snapshot().axis) - 1))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.sampled_from(["n0", "n1", ""])), max_size=200))
def test_many_changes_counted_in_one_go_are_what_they_are_one_by_one(moves: list[tuple[int, int, str]]) -> None:
    at_once, one_by_one = ClusterState(), ClusterState()
    for state in (at_once, one_by_one):
        state.set_node(make_node("n0", gpu=4))
        state.set_node(make_node("n1"))
        state.snapshot()
    for pod, kind, node in moves:
        for state in (at_once, one_by_one):
            if node:
                state.add_pod(f"default/{pod}", PODS_TO_USE[kind], node)
            else:
                state.remove_pod(f"default/{pod}")
        one_by_one.snapshot()
    assert facts(at_once.snapshot()) == facts(one_by_one.snapshot())
