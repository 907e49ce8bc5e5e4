"""Volumes that are assumed while pods are placed: nobody gets two, nothing is left behind."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.identical import fill
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.objects import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from muster.engine.snapshot import Snapshot
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

CLASS = {
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
NODES = "abcd"
Volumes = list[tuple[set[str], int]]
"""The nodes that reach each volume, and its size."""


def volume(number: int, nodes: set[str], size: int) -> Object:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": sorted(nodes)}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {"capacity": {"storage": str(size)}, "storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    return {
        "metadata": {"name": f"v{number}"},
        "spec": {**spec, "nodeAffinity": affinity},
        "status": {"phase": "Available"},
    }


def claim(number: int, size: int) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(size)}},
        "storageClassName": "local",
    }
    return {"metadata": {"name": f"c{number}", "namespace": "default", "uid": f"c{number}"}, "spec": spec}


def state_of(volumes: Volumes, sizes: Sequence[int]) -> ClusterState:
    state = ClusterState()
    for name in NODES:
        state.set_node(make_node(name, cpu="2", labels={"kubernetes.io/hostname": name}))
    state.set_object(STORAGE_CLASS, CLASS)
    for number, (nodes, size) in enumerate(volumes):
        state.set_object(PERSISTENT_VOLUME, volume(number, nodes, size))
    for number, size in enumerate(sizes):
        state.set_object(PERSISTENT_VOLUME_CLAIM, claim(number, size))
    return state


def pod(number: int, *claims: int) -> Object:
    made = make_pod(f"p{number}", cpu="1")
    made["spec"]["volumes"] = [
        {"name": f"v{each}", "persistentVolumeClaim": {"claimName": f"c{each}"}} for each in claims
    ]
    return made


def claimed(snapshot: Snapshot) -> dict[str, str]:
    """The claim that each volume refers to."""
    volumes = snapshot.objects.all(PERSISTENT_VOLUME).values()
    return {name_of(each): each["spec"]["claimRef"]["name"] for each in volumes if each["spec"].get("claimRef")}


VOLUMES = st.lists(st.tuples(st.sets(st.sampled_from(NODES), min_size=1), st.integers(1, 5)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(VOLUMES, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_members_of_a_placed_gang_have_volumes_of_their_own(volumes: Volumes, sizes: list[int]) -> None:
    state = state_of(volumes, sizes)
    members = tuple(Member(f"p{n}", state.shape_of(pod(n, n))) for n in range(len(sizes)))
    decision = decide(state.snapshot(), GroupRequest("g", members, min_count=len(members)))
    if not isinstance(decision, Placed):
        return
    pods = {f"p{n}": pod(n, n) for n in range(len(sizes))}
    order = sorted(decision.placements, key=lambda each: len([v for v, _ in volumes if each.node in v]))
    used: list[str] = []
    for placement in order:
        reservation = state.reserve_volumes(placement.pod, pods[placement.pod], placement.node)
        assert reservation is not None
        for match in reservation.matched:
            nodes, size = volumes[int(match.volume[1:])]
            assert placement.node in nodes and size >= sizes[int(match.claim.rpartition("c")[2])]
            used.append(match.volume)
    assert len(used) == len(set(used))


@settings(max_examples=60, deadline=None)
@given(VOLUMES, st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_taking_pods_away_again_leaves_no_volume_assumed(volumes: Volumes, sizes: list[int]) -> None:
    state = state_of(volumes, sizes)
    snapshot = state.snapshot()
    shapes = [state.shape_of(pod(n, n)) for n in range(len(sizes))]
    with snapshot.trial() as trial:
        rows = []
        for shape in shapes:
            received = fill(DEFAULT_PROFILE, trial, shape, 1)
            rows.append(int(received.argmax()) if received.any() else None)
            if rows[-1] is not None:
                trial.place(shape.usage, rows[-1])
        assert len(claimed(trial)) == sum(row is not None for row in rows)
        with trial.trial() as deeper:
            assert claimed(deeper) == claimed(trial)
        for shape, row in reversed(list(zip(shapes, rows, strict=True))):
            if row is not None:
                trial.place(shape.usage, row, -1)
        assert not claimed(trial)
    assert not claimed(snapshot)


def test_what_the_api_shows_is_kept_while_something_is_assumed_of_it() -> None:
    state = state_of([({"a"}, 5)], [1])
    state.reserve_volumes("p0", pod(0, 0), "a")
    assert claimed(state.snapshot()) == {"v0": "c0"}
    changed = volume(0, {"a"}, 5)
    changed["metadata"]["labels"] = {"seen": "later"}
    state.set_object(PERSISTENT_VOLUME, changed)
    assert claimed(state.snapshot()) == {"v0": "c0"}
    state.release_volumes("p0")
    assert state.snapshot().objects.get(PERSISTENT_VOLUME, "v0") == changed


def test_pods_with_one_claim_are_bound_to_the_nodes_that_reach_its_volume() -> None:
    state = state_of([({"a", "c"}, 5)], [1])
    members = tuple(Member(f"p{n}", state.shape_of(pod(n, 0))) for n in range(4))
    decision = decide(state.snapshot(), GroupRequest("g", members, min_count=4))
    assert isinstance(decision, Placed)
    assert sorted(placement.node for placement in decision.placements) == ["a", "a", "c", "c"]
