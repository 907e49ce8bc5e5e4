"""Disruption budgets: how many pods may go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from workload_objects import LABELS, NOW, pod_of, stored

from muster.api.codec import Object
from muster.api.resource import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from muster.clock import rfc3339
from muster.controllers.action import Emit, Patch, Result, Update
from muster.controllers.disruption import STALE, DisruptionController
from muster.controllers.disruption_counting import selector_text
from muster.testing.controller_state import ControllerState

KEY = "default/budget"


def budget(*, status: Object | None = None, **spec: object) -> Object:
    metadata = {"name": "budget", "namespace": "default", "uid": "b", "generation": 1}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": LABELS}, **spec}, "status": status or {}}


def state_of(obj: Object, *pods: Object, sets: tuple[Object, ...] = ()) -> ControllerState:
    kinds = (POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
    state = ControllerState(*kinds)
    state.put(POD_DISRUPTION_BUDGETS, obj)
    state.put(PODS, *pods)
    state.put(REPLICA_SETS, *sets)
    return state


def reconcile(state: ControllerState, now: float = NOW) -> Result:
    return DisruptionController().reconcile(KEY, state, now)


def status_after(result: Result) -> Object:
    (update,) = [action for action in result.actions if isinstance(action, Update)]
    status: Object = update.object["status"]
    return status


def reasons(result: Result) -> list[str]:
    return [action.reason for action in result.actions if isinstance(action, Emit)]


@given(st.integers(0, 8), st.integers(0, 8), st.one_of(st.integers(0, 9), st.integers(0, 100)), st.booleans())
def test_evicting_all_that_may_go_leaves_what_is_wanted(ready: int, down: int, amount: int, percent: bool) -> None:
    owner = stored("ReplicaSet", replicas=ready + down)
    pods = [pod_of(owner, f"up-{n}") for n in range(ready)]
    pods += [pod_of(owner, f"down-{n}", ready_s=None) for n in range(down)]
    obj = budget(maxUnavailable=f"{amount}%" if percent else amount)
    status = status_after(reconcile(state_of(obj, *pods, sets=(owner,))))
    allowed, total = status["disruptionsAllowed"], ready + down
    assert 0 <= allowed <= ready
    assert allowed == 0 or ready - allowed >= status["desiredHealthy"]
    most = -(-amount * total // 100) if percent else amount
    assert status["desiredHealthy"] == max(0, total - most) and status["expectedPods"] == total


def test_expected_pods_are_those_of_the_deployment() -> None:
    deployment = stored("Deployment", "above", replicas=9)
    owner = stored("ReplicaSet", replicas=2)
    reference = {"kind": "Deployment", "name": "above", "uid": "uid-of-above", "controller": True}
    owner["metadata"]["ownerReferences"] = [reference]
    state = state_of(budget(minAvailable="50%"), pod_of(owner, "a"), sets=(owner,))
    state.put(DEPLOYMENTS, deployment)
    assert (status_after(reconcile(state))["expectedPods"], status_after(reconcile(state))["desiredHealthy"]) == (9, 5)


def test_pods_of_a_kind_without_a_size_cannot_be_counted() -> None:
    owner = stored("ReplicaSet")
    pod = pod_of(owner, "a")
    pod["metadata"]["ownerReferences"][0] |= {"kind": "Job", "apiVersion": "batch/v1"}
    result = reconcile(state_of(budget(maxUnavailable=1), pod))
    assert reasons(result) == ["CalculateExpectedPodCountFailed"]
    status = status_after(result)
    assert status["disruptionsAllowed"] == 0 and status["conditions"][0]["reason"] == "SyncFailed"
    assert status["conditions"][0]["message"] == "jobs.batch does not implement the scale subresource"


def test_evicted_pod_counts_as_gone_until_it_should_have_gone() -> None:
    owner = stored("ReplicaSet", replicas=2)
    obj = budget(minAvailable=1, status={"disruptedPods": {"a": rfc3339(NOW)}})
    state = state_of(obj, pod_of(owner, "a"), pod_of(owner, "b"), sets=(owner,))
    early, late = reconcile(state, NOW + 60), reconcile(state, NOW + 200)
    assert status_after(early)["currentHealthy"] == 1 and early.requeue_after_s == 61.0
    assert status_after(late)["currentHealthy"] == 2 and reasons(late) == ["NotDeleted"]


def test_pod_that_was_not_evicted_after_all_is_no_target_any_more() -> None:
    pod = pod_of(stored("ReplicaSet"), "a")
    entry = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": rfc3339(NOW)}
    pod["status"]["conditions"].append(entry)
    state = state_of(budget(), pod)
    controller = DisruptionController()
    assert controller.reconcile(f"{STALE}default/a", state, NOW + 20).requeue_after_s == 100.0
    (patch,) = controller.reconcile(f"{STALE}default/a", state, NOW + 130).actions
    assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
    assert patch.patch["status"]["conditions"][0]["status"] == "False"


def test_selector_reads_as_in_upstream_messages() -> None:
    expression = {"key": "a", "operator": "In", "values": ["x", "y"]}
    assert selector_text({"matchLabels": {"app": "r"}, "matchExpressions": [expression]}) == (
        "&LabelSelector{MatchLabels:map[string]string{app: r,},MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:a,Operator:In,Values:[x y],},},}"
    )
