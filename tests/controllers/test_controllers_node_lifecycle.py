"""The node lifecycle controller: lost nodes, taints by condition, the pods of lost nodes, labels."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.meta import condition
from muster.api.resource import LEASES, NODES, PODS
from muster.clock import rfc3339, rfc3339_micro
from muster.controllers.action import Action, Emit, Patch, Result, Update
from muster.controllers.node.node_lifecycle import ALL, NodeLifecycle
from muster.controllers.options import NodeLifecycleOptions
from muster.testing.builders import make_node, make_pod
from muster.testing.controller_state import ControllerState

NOW = 1_767_225_600.0
OPTIONS = NodeLifecycleOptions(monitor_period_s=1.0, monitor_grace_period_s=8.0, eviction_rate=10.0)
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}


def node_object(name: str, status: str = "True", *taints: Object, **metadata: object) -> Object:
    node = make_node(name, taints=list(taints))
    node["metadata"].update(uid=f"uid-{name}", resourceVersion="1", creationTimestamp=rfc3339(NOW), **metadata)
    node["status"]["conditions"] = [{"type": "Ready", "status": status, "lastTransitionTime": rfc3339(NOW)}]
    return node


def ready_pod(name: str, node: str) -> Object:
    pod = make_pod(name, node=node)
    pod["metadata"]["uid"] = f"uid-{name}"
    pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return pod


def lease(name: str, renewed_s: float, duration_s: int = 40) -> Object:
    spec = {"renewTime": rfc3339_micro(renewed_s), "leaseDurationSeconds": duration_s}
    return {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}


def cluster(*nodes: Object) -> ControllerState:
    state = ControllerState(NODES, LEASES, PODS)
    state.put(NODES, *nodes)
    return state


def run_pass(state: ControllerState, now: float) -> Result:
    """One pass; what it remembers is kept, its writes are not carried out."""
    result = NodeLifecycle(OPTIONS).reconcile(ALL, state, now)
    state.memories[ALL] = result.memory
    return result


def reasons(actions: tuple[Action, ...]) -> list[str]:
    return [action.reason for action in actions if isinstance(action, Emit)]


def taints_of_patch(action: Action) -> list[tuple[str, str]]:
    assert isinstance(action, Patch) and isinstance(action.patch, dict)
    return [(taint["key"].split("/")[1], taint["effect"]) for taint in action.patch["spec"]["taints"] or ()]


def test_nodes_are_registered_once_and_their_end_is_told() -> None:
    node = node_object("n")
    state = cluster(node)
    assert reasons(run_pass(state, NOW).actions) == ["RegisteredNode"]
    assert run_pass(state, NOW + 1).actions == ()
    state.remove(NODES, node)
    assert reasons(run_pass(state, NOW + 2).actions) == ["RemovingNode"]


def test_node_without_a_sign_of_life_becomes_unknown_and_its_ready_pods_not_ready() -> None:
    state = cluster(node_object("n"), node_object("other"))
    state.put(PODS, ready_pod("p", "n"), make_pod("starting", node="n"), ready_pod("q", "other"))
    run_pass(state, NOW)
    state.put(LEASES, lease("other", NOW + 8))
    update, event, pod = run_pass(state, NOW + 8.5).actions
    assert isinstance(update, Update) and update.subresource == "status"
    statuses = {entry["type"]: (entry["status"], entry["reason"]) for entry in update.object["status"]["conditions"]}
    assert statuses == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        "MemoryPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "DiskPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
    }
    assert isinstance(event, Emit) and event.message == "Node n status is now: NodeNotReady"
    assert isinstance(pod, Patch) and pod.name == "p" and pod.done is not None
    assert (pod.done.reason, pod.done.message) == ("NodeNotReady", "Node is not ready")


def test_marking_of_pods_is_made_up_for_if_the_pass_failed_after_the_node_was_written() -> None:
    state = cluster(node_object("n"))
    state.put(PODS, ready_pod("p", "n"))
    run_pass(state, NOW)
    state.put(NODES, node_object("n", "Unknown"))
    assert "NodeNotReady" in reasons(run_pass(state, NOW + 9).actions)
    assert reasons(run_pass(state, NOW + 10).actions) == []


def test_node_that_reports_not_ready_itself_leaves_its_pods_alone() -> None:
    state = cluster(node_object("n"), node_object("other"))
    state.put(PODS, ready_pod("p", "n"))
    run_pass(state, NOW)
    state.put(NODES, node_object("n", "False"))
    (taint,) = run_pass(state, NOW + 1).actions
    assert taints_of_patch(taint) == [("not-ready", "NoExecute")]


@pytest.mark.parametrize(
    ("status", "taint", "want"),
    [
        ("True", NOT_READY, []),
        ("True", UNREACHABLE, []),
        ("False", UNREACHABLE, [("not-ready", "NoExecute")]),
        ("Unknown", NOT_READY, [("unreachable", "NoExecute")]),
    ],
)
def test_no_execute_taint_of_a_node_follows_its_condition_at_once(
    status: str, taint: Object, want: list[tuple[str, str]]
) -> None:
    state = cluster(node_object("n", status, taint), node_object("other"))
    patches = [action for action in run_pass(state, NOW).actions if isinstance(action, Patch)]
    assert [taints_of_patch(patch) for patch in patches] == [want]


def test_no_execute_taint_of_a_node_that_reports_nothing_stays() -> None:
    node = node_object("n", "True", NOT_READY)
    node["status"]["conditions"] = []
    patches = [action for action in run_pass(cluster(node, node_object("m")), NOW).actions if isinstance(action, Patch)]
    assert patches == []


def test_new_no_execute_taints_come_one_by_one_at_the_rate_of_the_zone() -> None:
    state = cluster(*(node_object(f"n{index}", "False") for index in range(3)), *(map(node_object, "abcd")))
    first = run_pass(state, NOW)
    assert [action.name for action in first.actions if isinstance(action, Patch)] == ["n0"]
    assert first.requeue_after_s == pytest.approx(0.1) and not first.periodic
    state.put(NODES, node_object("n0", "False", NOT_READY))
    second = run_pass(state, NOW + 0.1)
    assert [action.name for action in second.actions if isinstance(action, Patch)] == ["n1"]


def test_when_every_node_is_lost_at_once_taints_are_taken_back_and_none_are_made() -> None:
    state = cluster(node_object("a"), node_object("b"))
    run_pass(state, NOW)
    state.put(NODES, node_object("a", "Unknown", UNREACHABLE), node_object("b", "Unknown"))
    patches = [action for action in run_pass(state, NOW + 9).actions if isinstance(action, Patch)]
    assert [(patch.name, taints_of_patch(patch)) for patch in patches] == [("a", [])]
    state.put(NODES, node_object("a", "Unknown"))
    later = run_pass(state, NOW + 30)
    assert (later.actions, later.requeue_after_s) == ((), None)
    state.put(NODES, node_object("b", "True"))
    state.put(LEASES, lease("b", NOW + 31))
    run_pass(state, NOW + 31)
    patches = [action for action in run_pass(state, NOW + 32).actions if isinstance(action, Patch)]
    assert [(patch.name, taints_of_patch(patch)) for patch in patches] == [("a", [("unreachable", "NoExecute")])]


def test_pass_over_healthy_nodes_waits_for_the_first_deadline_and_keeps_no_simulation_going() -> None:
    state = cluster(node_object("n"), node_object("m"))
    state.put(LEASES, lease("n", NOW, 3600), lease("m", NOW, 1800))
    result = run_pass(state, NOW)
    assert (result.requeue_after_s, result.periodic) == (1800.0, True)


def test_simulation_waits_for_a_node_whose_lease_was_shortened() -> None:
    state = cluster(node_object("n"), node_object("m"))
    state.put(LEASES, lease("n", NOW, 3600), lease("m", NOW, 3600))
    run_pass(state, NOW)
    change = state.put(LEASES, lease("n", NOW + 1, 40))[0]
    assert [request.key for request in NodeLifecycle(OPTIONS).requests(LEASES, change, state)] == [ALL]
    result = run_pass(state, NOW + 2)
    assert (result.requeue_after_s, result.periodic) == (7.0, False)


def test_renewals_and_heartbeats_ask_for_nothing() -> None:
    state = cluster(node_object("n"))
    state.put(LEASES, lease("n", NOW))
    controller = NodeLifecycle(OPTIONS)
    assert list(controller.requests(LEASES, state.put(LEASES, lease("n", NOW + 10))[0], state)) == []
    beating = node_object("n")
    beating["status"]["conditions"][0]["lastHeartbeatTime"] = rfc3339(NOW + 10)
    assert list(controller.requests(NODES, state.put(NODES, beating)[0], state)) == []


def test_conditions_and_cordon_become_no_schedule_taints_and_foreign_taints_stay() -> None:
    stale = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    foreign = {"key": "mine", "effect": "NoSchedule"}
    node = node_object("n", "Unknown", stale, foreign)
    node["spec"]["unschedulable"] = True
    node["status"]["conditions"].append({"type": "PIDPressure", "status": "True"})
    (patch,) = NodeLifecycle().reconcile("n", cluster(node), NOW).actions
    assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
    taints = patch.patch["spec"]["taints"]
    assert taints[0] == foreign
    keys = [taint["key"].removeprefix("node.kubernetes.io/") for taint in taints[1:]]
    assert keys == ["unreachable", "pid-pressure", "unschedulable"]


def test_labels_are_copied_to_their_older_names() -> None:
    node = node_object("n", labels={"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "x"})
    (patch,) = NodeLifecycle().reconcile("n", cluster(node), NOW).actions
    assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
    assert patch.patch["metadata"]["labels"] == {"beta.kubernetes.io/os": "linux"}


@pytest.mark.parametrize(("status", "want"), [("True", []), ("Unknown", ["default/p"])])
def test_ready_pod_that_is_bound_to_a_lost_node_is_marked(status: str, want: list[str]) -> None:
    state = cluster(node_object("n", status))
    change = state.put(PODS, ready_pod("p", "n"))[0]
    controller = NodeLifecycle()
    assert [request.key for request in controller.requests(PODS, change, state)] == want
    assert len(controller.reconcile("default/p", state, NOW).actions) == len(want)


def test_conditions_written_for_a_lost_node_do_not_touch_the_shared_object() -> None:
    node = node_object("n")
    state = cluster(node, node_object("m"))
    run_pass(state, NOW)
    run_pass(state, NOW + 20)
    ready = condition(node, "Ready")
    assert ready is not None and ready["status"] == "True"


def test_same_state_gives_the_same_actions() -> None:
    def outcome() -> Result:
        state = cluster(*(node_object(f"n{index}", "False") for index in range(4)), node_object("m"))
        return replace(run_pass(state, NOW), memory=None)

    assert outcome() == outcome()
