"""ReplicaSets: which pods come and go."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from workload_objects import LABELS, NOW, pod_of, stored

from muster.api.codec import Object
from muster.api.meta import name_of
from muster.api.resource import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from muster.controllers.action import Create, Delete, Patch, Result, Update
from muster.controllers.apps.replicaset import ReplicaSetController
from muster.controllers.apps.replicaset_removal import deletion_cost, pods_to_remove
from muster.testing.controller_state import ControllerState

KEY = "default/web"


def reconcile(owner: Object, *pods: Object) -> Result:
    state = ControllerState(REPLICA_SETS, PODS)
    state.put(REPLICA_SETS, owner)
    state.put(PODS, *pods)
    return ReplicaSetController().reconcile(KEY, state, NOW)


def removed(result: Result) -> list[str]:
    return [action.name for action in result.actions if isinstance(action, Delete)]


def order(owner: Object, pods: list[Object]) -> list[str]:
    return [name_of(pod) for pod in pods_to_remove(pods, pods, len(pods) - 1, lambda pod: 0, NOW)]


def test_missing_pods_are_made_whatever_happened_to_the_old_ones() -> None:
    owner = stored("ReplicaSet", replicas=3)
    result = reconcile(owner, pod_of(owner, "a", "Failed"), pod_of(owner, "b", deleting=True), pod_of(owner, "c"))
    assert sum(isinstance(action, Create) for action in result.actions) == 2


def test_deletion_prefers_what_costs_least() -> None:
    owner = stored("ReplicaSet", replicas=1)
    cheap = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    pods = [
        pod_of(owner, "old", ready_s=5000, age_s=5000),
        pod_of(owner, "young", ready_s=10, age_s=10),
        pod_of(owner, "cheap", ready_s=5000, age_s=5000, annotations=cheap),
        pod_of(owner, "not-ready", ready_s=None),
        pod_of(owner, "pending", "Pending", node="node"),
        pod_of(owner, "unbound", "Pending", node=""),
    ]
    assert order(owner, pods) == ["unbound", "pending", "not-ready", "cheap", "young"]


def test_crowded_node_gives_up_a_pod_first() -> None:
    owner = stored("ReplicaSet")
    pods = [pod_of(owner, name, node=node) for name, node in (("a", "one"), ("b", "two"), ("c", "two"))]
    assert order(owner, pods)[0] in ("b", "c")


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2**32))
def test_removal_does_not_depend_on_the_order_of_pods(count: int, size: int, seed: int) -> None:
    rng = random.Random(seed)
    owner = stored("ReplicaSet")
    pods = [
        pod_of(owner, f"p{number}", ready_s=rng.choice((None, 0.0, 900.0)), node=rng.choice(("", "one", "two")))
        for number in range(size)
    ]
    shuffled = rng.sample(pods, len(pods))
    first = {name_of(pod) for pod in pods_to_remove(pods, pods, count, lambda pod: 0, NOW)}
    second = {name_of(pod) for pod in pods_to_remove(shuffled, pods, count, lambda pod: 0, NOW)}
    assert first == second and len(first) == min(count, size)


def test_deletion_cost_that_is_no_number_counts_as_none() -> None:
    owner = stored("ReplicaSet")
    for text, want in (("7", 7), ("-7", -7), ("007", 0), ("+7", 0), ("x", 0), (str(2**40), 0)):
        pod = pod_of(owner, "p", annotations={"controller.kubernetes.io/pod-deletion-cost": text})
        assert deletion_cost(pod) == want


def test_pod_that_no_longer_matches_is_let_go_before_anything_else() -> None:
    owner = stored("ReplicaSet", replicas=1)
    (action,) = reconcile(owner, pod_of(owner, "a", labels={"app": "other"})).actions
    assert isinstance(action, Patch) and action.name == "a"


def test_ready_pod_is_available_after_the_minimum_time_only() -> None:
    owner = stored("ReplicaSet", replicas=1, minReadySeconds=10)
    result = reconcile(owner, pod_of(owner, "a", ready_s=4))
    (update,) = result.actions
    assert isinstance(update, Update) and "availableReplicas" not in update.object["status"]
    assert result.requeue_after_s == 6.0


def test_refused_pod_is_told_of_in_the_status_once() -> None:
    owner = stored("ReplicaSet", replicas=1)
    result = reconcile(owner)
    assert result.on_failure is not None
    (update,) = result.on_failure(result.actions[0], "no room")
    assert isinstance(update, Update)
    (condition,) = update.object["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "ReplicaFailure",
        "FailedCreate",
        "no room",
    )
    again = reconcile(update.object)
    assert again.on_failure is not None
    assert not again.on_failure(again.actions[0], "still no room")


def test_deleted_replica_set_makes_and_deletes_nothing() -> None:
    owner = stored("ReplicaSet", replicas=3)
    owner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    result = reconcile(owner, pod_of(owner, "a"))
    assert not removed(result) and not any(isinstance(action, Create) for action in result.actions)


def test_a_replication_controller_selects_by_its_map_of_labels() -> None:
    owner = stored("ReplicationController", replicas=2)
    owner["apiVersion"], owner["spec"]["selector"] = "v1", dict(LABELS)
    other = stored("ReplicationController", "other", replicas=1)
    orphan = pod_of(other, "orphan")
    del orphan["metadata"]["ownerReferences"]
    state = ControllerState(REPLICATION_CONTROLLERS, PODS)
    state.put(REPLICATION_CONTROLLERS, owner)
    (change,) = state.put(PODS, orphan)
    controller = ReplicaSetController(resource=REPLICATION_CONTROLLERS)
    assert [request.key for request in controller.requests(PODS, change, state)] == [KEY]
    (adoption,) = controller.reconcile(KEY, state, NOW).actions
    assert isinstance(adoption, Patch)
    (reference,) = adoption.patch["metadata"]["ownerReferences"]  # type: ignore[call-overload]  # it is an object
    assert (reference["apiVersion"], reference["kind"]) == ("v1", "ReplicationController")


def test_a_replication_controller_makes_its_pods_and_counts_them() -> None:
    owner = stored("ReplicationController", replicas=2)
    owner["apiVersion"], owner["spec"]["selector"] = "v1", dict(LABELS)
    state = ControllerState(REPLICATION_CONTROLLERS, PODS)
    state.put(REPLICATION_CONTROLLERS, owner)
    state.put(PODS, pod_of(owner, "a"))
    actions = ReplicaSetController(resource=REPLICATION_CONTROLLERS).reconcile(KEY, state, NOW).actions
    (made,) = [action.object for action in actions if isinstance(action, Create)]
    assert made["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"
    (update,) = [action for action in actions if isinstance(action, Update)]
    assert update.resource == REPLICATION_CONTROLLERS
    assert update.object["status"]["readyReplicas"] == 1 and "terminatingReplicas" not in update.object["status"]
