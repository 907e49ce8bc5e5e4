"""Eviction by NoExecute taints: who goes at once, who later, and who is let off."""

from __future__ import annotations

import pytest

from muster.api.codec import Object
from muster.api.resource import NODES, PODS
from muster.controllers.action import Action, Delete, Emit, Patch, Result
from muster.controllers.node.taint_eviction import Eviction, TaintEviction
from muster.controllers.node.taints import tolerates_all, toleration_s
from muster.testing.builders import make_node, make_pod
from muster.testing.controller_state import ControllerState

TAINT = {"key": "maint", "value": "v", "effect": "NoExecute"}
KEY = "default/pod"


def tolerating(seconds: int | None = None, key: str = "maint") -> Object:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


def pod_on_node(*tolerations: Object, uid: str = "u1") -> Object:
    pod = make_pod(node="node", spec={"tolerations": list(tolerations)})
    pod["metadata"]["uid"] = uid
    return pod


def state_with(pod: Object | None, *taints: Object) -> ControllerState:
    state = ControllerState(PODS, NODES)
    state.put(NODES, make_node(taints=list(taints)))
    if pod is not None:
        state.put(PODS, pod)
    return state


def texts(result: Result) -> list[str]:
    return [action.message for action in result.actions if isinstance(action, Emit)]


def kinds(result: Result) -> list[type[Action]]:
    return [type(action) for action in result.actions]


def test_pod_without_toleration_is_marked_and_deleted_at_once() -> None:
    result = TaintEviction().reconcile(KEY, state_with(pod_on_node(), TAINT), 100.0)
    assert kinds(result) == [Emit, Patch, Delete]
    assert texts(result) == ["Marking for deletion Pod default/pod"]
    assert result.memory == Eviction("u1", None)


def test_pod_that_tolerates_for_a_time_is_evicted_when_the_time_is_over() -> None:
    state = state_with(pod_on_node(tolerating(30)), TAINT)
    first = TaintEviction().reconcile(KEY, state, 100.0)
    assert (first.actions, first.requeue_after_s, first.periodic) == ((), 30.0, False)
    state.memories[KEY] = first.memory
    assert kinds(TaintEviction().reconcile(KEY, state, 130.0)) == [Emit, Patch, Delete]


def test_date_of_an_eviction_stays_when_tolerations_change() -> None:
    state = state_with(pod_on_node(tolerating(30)), TAINT)
    state.memories[KEY] = TaintEviction().reconcile(KEY, state, 100.0).memory
    state.put(PODS, pod_on_node(tolerating(300)))
    assert TaintEviction().reconcile(KEY, state, 110.0).requeue_after_s == 20.0


def test_pod_that_tolerates_for_ever_stays() -> None:
    assert TaintEviction().reconcile(KEY, state_with(pod_on_node(tolerating()), TAINT), 0.0) == Result()


@pytest.mark.parametrize("gone", ["taint", "pod"])
def test_eviction_is_cancelled_with_an_event_when_its_cause_is_gone(gone: str) -> None:
    pod = pod_on_node(tolerating(30))
    state = state_with(pod, TAINT)
    state.memories[KEY] = TaintEviction().reconcile(KEY, state, 100.0).memory
    if gone == "pod":
        state.remove(PODS, pod)
    else:
        state.put(NODES, make_node())
    result = TaintEviction().reconcile(KEY, state, 110.0)
    assert texts(result) == ["Cancelling deletion of Pod default/pod"]
    assert result.memory is None


def test_eviction_that_was_carried_out_is_neither_cancelled_nor_repeated() -> None:
    state = state_with(pod_on_node(), TAINT)
    state.memories[KEY] = Eviction("u1", None)
    assert TaintEviction().reconcile(KEY, state, 5.0).actions == ()
    state.put(NODES, make_node())
    assert TaintEviction().reconcile(KEY, state, 6.0) == Result()


def test_dated_eviction_becomes_one_at_once_when_a_taint_comes_that_is_not_tolerated() -> None:
    state = state_with(pod_on_node(tolerating(300)), TAINT)
    state.memories[KEY] = TaintEviction().reconcile(KEY, state, 100.0).memory
    state.put(NODES, make_node(taints=[TAINT, {"key": "out", "effect": "NoExecute"}]))
    result = TaintEviction().reconcile(KEY, state, 110.0)
    assert texts(result) == ["Cancelling deletion of Pod default/pod", "Marking for deletion Pod default/pod"]


def test_pod_of_the_same_name_is_another_pod() -> None:
    state = state_with(pod_on_node(uid="u2"), TAINT)
    state.memories[KEY] = Eviction("u1", None)
    assert kinds(TaintEviction().reconcile(KEY, state, 5.0)) == [Emit, Patch, Delete]


def test_only_changes_of_no_execute_taints_concern_the_pods_of_a_node() -> None:
    state = state_with(pod_on_node())
    controller = TaintEviction()
    cordoned = make_node(taints=[{"key": "k", "effect": "NoSchedule"}])
    tainted = make_node(taints=[TAINT])
    asked = [list(controller.requests(NODES, state.put(NODES, node)[0], state)) for node in (cordoned, tainted)]
    assert [[request.key for request in requests] for requests in asked] == [[], [KEY]]


def test_pod_bound_to_an_untainted_node_costs_nothing() -> None:
    state = state_with(None)
    change = state.put(PODS, pod_on_node())[0]
    assert list(TaintEviction().requests(PODS, change, state)) == []


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "maint", "operator": "Exists"}, True),
        ({"key": "maint", "value": "v"}, True),
        ({"key": "maint", "operator": "Equal", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "maint", "operator": "Exists", "effect": "NoSchedule"}, False),
    ],
)
def test_toleration_matches_by_key_value_and_effect(toleration: Object, want: bool) -> None:
    assert tolerates_all([toleration], [TAINT]) is want


def test_shortest_limit_of_the_tolerations_in_use_counts() -> None:
    other = {"key": "b", "effect": "NoExecute"}
    tolerations = [tolerating(60), tolerating(20, "b"), tolerating(5, "unused")]
    assert toleration_s(tolerations, [TAINT, other]) == 20.0
    assert toleration_s(tolerations, [TAINT]) == 60.0
