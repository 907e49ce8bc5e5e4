"""Room that is kept for preemptors, as others find it: one snapshot for all that find the same; gone with its pods."""

from __future__ import annotations

from muster.api.codec import Object
from muster.client.informer import Change
from muster.engine.snapshot import Snapshot
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.preemption.planning import Preemptions
from muster.testing import make_node, make_pod


def kept() -> tuple[SchedulerCache, Preemptions, dict[str, Object]]:
    """Two pending pods with room kept on a node each."""
    cache = SchedulerCache(frozenset({"muster"}))
    preemptions = Preemptions(cache)
    cache.apply_nodes([Change("ADDED", None, make_node(f"n{at}", cpu="4")) for at in range(2)])
    pods = {f"p{at}": make_pod(f"p{at}", cpu="3", priority=10) for at in range(2)}
    for at, pod in enumerate(pods.values()):
        pod["status"] = {**(pod.get("status") or {}), "nominatedNodeName": f"n{at}"}
    cache.apply_pods([Change("ADDED", None, pod) for pod in pods.values()])
    for name in pods:
        preemptions.adopt(name, 10, [cache.pods[f"default/{name}"]])
    return cache, preemptions, pods


def seen(preemptions: Preemptions, priority: int, entity: str) -> Snapshot:
    with preemptions.view(priority, entity) as snapshot:
        return snapshot


def used(snapshot: Snapshot) -> list[int]:
    """Millicores in use on each node."""
    column = snapshot.axis.names.index("cpu")
    return [int(snapshot.requested[snapshot.table.index[f"n{at}"], column]) for at in range(2)]


def test_room_is_taken_for_everybody_else_of_at_most_the_priority() -> None:
    _, preemptions, _ = kept()
    assert used(seen(preemptions, 10, "other")) == [3000, 3000]
    assert used(seen(preemptions, 10, "p0")) == [0, 3000]
    assert used(seen(preemptions, 11, "other")) == [0, 0]
    assert [each.pod for each in preemptions.nominations("p1")] == ["default/p0"]


def test_all_that_find_the_same_see_one_snapshot() -> None:
    _, preemptions, _ = kept()
    assert seen(preemptions, 10, "other") is seen(preemptions, 3, "another")


def test_room_for_a_pod_that_is_gone_is_free_again() -> None:
    cache, preemptions, pods = kept()
    before = seen(preemptions, 10, "other")
    cache.apply_pods([Change("DELETED", pods["p0"], None)])
    assert used(seen(preemptions, 10, "other")) == [0, 3000]
    assert used(before) == [3000, 3000]
