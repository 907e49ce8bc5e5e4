"""Removal of pods that nobody else removes."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.resource import NODES, PODS
from muster.controllers.action import Delete, Patch, Result
from muster.controllers.node.pod_gc import FINISHED_KEY, QUARANTINE_S, PodGarbageCollector
from muster.testing.builders import make_node, make_pod
from muster.testing.controller_state import ControllerState

KEY = "default/pod"


def terminating(pod: Object, grace_s: int = 30) -> Object:
    pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace_s)
    return pod


def not_ready(node: Object) -> Object:
    node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return node


def reconcile(state: ControllerState, now: float, nodes: dict[str, Object] | None = None) -> Result:
    collector = PodGarbageCollector()
    return collector.reconcile(KEY, state.reading(collector.reads(KEY, state), nodes), now)


def orphan_state() -> ControllerState:
    state = ControllerState(PODS, NODES)
    state.put(PODS, make_pod(node="gone"))
    return state


def test_pod_of_a_missing_node_waits_for_the_quarantine_and_then_fails_and_goes() -> None:
    state = orphan_state()
    first = reconcile(state, 100.0)
    assert (first.actions, first.requeue_after_s, first.periodic) == ((), QUARANTINE_S, False)
    state.memories[KEY] = first.memory
    fail, delete = reconcile(state, 140.0).actions
    assert isinstance(fail, Patch) and isinstance(fail.patch, dict) and isinstance(delete, Delete)
    assert fail.patch["status"]["phase"] == "Failed"
    assert fail.patch["status"]["conditions"][0]["reason"] == "DeletionByPodGC"
    assert delete.options["gracePeriodSeconds"] == 0


def test_pod_stays_if_the_server_still_has_the_node() -> None:
    state = orphan_state()
    state.memories[KEY] = 100.0
    result = reconcile(state, 140.0, {"gone": make_node("gone")})
    assert (result.actions, result.memory) == ((), 140.0)


def test_pod_stays_if_its_node_came_back() -> None:
    state = orphan_state()
    state.memories[KEY] = 100.0
    state.put(NODES, make_node("gone"))
    assert reconcile(state, 140.0) == Result()


def test_terminating_pod_on_a_node_out_of_service_is_removed() -> None:
    state = ControllerState(PODS, NODES)
    state.put(NODES, not_ready(make_node(taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}])))
    state.put(PODS, terminating(make_pod(node="node")))
    assert [type(action) for action in reconcile(state, 0.0).actions] == [Patch, Delete]


def test_terminating_pod_on_a_node_in_service_is_left_to_its_kubelet() -> None:
    state = ControllerState(PODS, NODES)
    state.put(NODES, not_ready(make_node()))
    change = state.put(PODS, terminating(make_pod(node="node")))[0]
    assert list(PodGarbageCollector().requests(PODS, change, state)) == []
    assert reconcile(state, 0.0) == Result()


def test_terminating_pod_without_a_node_is_removed() -> None:
    state = ControllerState(PODS, NODES)
    state.put(PODS, terminating(make_pod(), 0))
    assert [type(action) for action in reconcile(state, 0.0).actions] == [Patch, Delete]


def test_pod_that_only_finalizers_keep_is_not_looked_at_again() -> None:
    state = ControllerState(PODS, NODES)
    pod = terminating(make_pod(), 0)
    pod["status"]["phase"] = "Failed"
    change = state.put(PODS, pod)[0]
    assert list(PodGarbageCollector().requests(PODS, change, state)) == []


def test_surplus_of_finished_pods_goes_evicted_and_oldest_first() -> None:
    state = ControllerState(PODS, NODES)
    state.put(NODES, make_node())
    for index, reason in enumerate(("", "", "Evicted", "")):
        pod = make_pod(f"p{index}", node="node")
        pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{index}Z"
        pod["status"] = {"phase": "Failed", "reason": reason}
        state.put(PODS, pod)
    result = PodGarbageCollector(2).reconcile(FINISHED_KEY, state, 0.0)
    assert [action.name for action in result.actions if isinstance(action, Delete)] == ["p2", "p0"]
