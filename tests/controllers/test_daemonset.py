"""DaemonSets: which nodes get pods, and how they are replaced."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from workload_objects import NOW, pod_of, stored

from muster.api.codec import Object, copy_object
from muster.api.meta import name_of
from muster.api.resource import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from muster.client.informer import Change
from muster.controllers.action import Create, Delete, Result, Update
from muster.controllers.apps.daemonset import DaemonSetController
from muster.controllers.apps.daemonset_pods import HASH_LABEL, node_of, should_run, tolerations_of
from muster.controllers.apps.daemonset_sync import Failures
from muster.testing.builders import make_node
from muster.testing.controller_state import ControllerState

KEY = "default/web"


def daemon_set(*, unavailable: object = 1, surge: object = 0, **pod_spec: object) -> Object:
    rules = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}
    owner = stored("DaemonSet", updateStrategy=rules)
    owner["spec"]["template"]["spec"] |= pod_spec
    return owner


def tainted(node: Object, effect: str, key: str = "dedicated") -> Object:
    node["spec"] = {"taints": [{"key": key, "effect": effect}]}
    return node


def cluster(owner: Object, nodes: Iterable[Object]) -> tuple[ControllerState, str]:
    """A state with the present revision; its hash."""
    state = ControllerState(DAEMON_SETS, PODS, NODES, CONTROLLER_REVISIONS)
    state.put(DAEMON_SETS, owner)
    state.put(NODES, *nodes)
    (create,) = DaemonSetController().reconcile(KEY, state, NOW).actions
    assert isinstance(create, Create)
    revision = copy_object(create.object)
    state.put(CONTROLLER_REVISIONS, revision)
    return state, revision["metadata"]["labels"][HASH_LABEL]


def reconcile(state: ControllerState, now: float = NOW) -> Result:
    return DaemonSetController().reconcile(KEY, state, now)


def made_for(result: Result) -> list[str]:
    return [node_of(action.object) for action in result.actions if isinstance(action, Create)]


def removed(result: Result) -> list[str]:
    return [action.name for action in result.actions if isinstance(action, Delete)]


@pytest.mark.parametrize(
    ("node", "want"),
    [
        (make_node("n"), (True, True)),
        (tainted(make_node("n"), "NoSchedule"), (False, True)),
        (tainted(make_node("n"), "NoExecute"), (False, False)),
        (tainted(make_node("n"), "PreferNoSchedule"), (True, True)),
        (tainted(make_node("n"), "NoSchedule", "node.kubernetes.io/unschedulable"), (True, True)),
    ],
    ids=["plain", "no schedule", "no execute", "prefer", "cordoned"],
)
def test_taints_decide_where_pods_run_and_stay(node: Object, want: tuple[bool, bool]) -> None:
    assert should_run(daemon_set(), node) == want


def test_selector_and_affinity_must_both_match() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    owner = daemon_set(nodeSelector={"role": "db"}, affinity=affinity)
    assert should_run(owner, make_node("n", labels={"role": "db", "disk": "ssd"}))[0]
    assert not should_run(owner, make_node("n", labels={"role": "db"}))[0]


def test_host_network_pods_tolerate_a_missing_network() -> None:
    keys = [entry["key"] for entry in tolerations_of(daemon_set(hostNetwork=True)["spec"]["template"])]
    assert keys[-1] == "node.kubernetes.io/network-unavailable" and len(keys) == 7


def test_every_node_without_a_pod_gets_one() -> None:
    owner = daemon_set()
    state, hash_ = cluster(owner, [make_node("a"), make_node("b")])
    state.put(PODS, pod_of(owner, "one", node="a", labels={HASH_LABEL: hash_}))
    assert made_for(reconcile(state)) == ["b"]


def test_second_pod_of_a_node_goes() -> None:
    owner = daemon_set()
    state, hash_ = cluster(owner, [make_node("a")])
    for name, age in (("young", 1.0), ("old", 9.0)):
        state.put(PODS, pod_of(owner, name, node="a", age_s=age, labels={HASH_LABEL: hash_}))
    assert removed(reconcile(state)) == ["young"]


@pytest.mark.parametrize(("unavailable", "want"), [(1, 1), (2, 2), ("50%", 2), ("100%", 4)])
def test_rolling_update_deletes_as_many_as_may_be_missing(unavailable: object, want: int) -> None:
    owner = daemon_set(unavailable=unavailable)
    state, _ = cluster(owner, [make_node(name) for name in "abcd"])
    state.put(PODS, *[pod_of(owner, f"pod-{name}", node=name, labels={HASH_LABEL: "old"}) for name in "abcd"])
    assert len(removed(reconcile(state))) == want


def test_old_pod_that_is_not_available_is_replaced_at_once() -> None:
    owner = daemon_set(unavailable=1)
    state, _ = cluster(owner, [make_node("a"), make_node("b")])
    state.put(PODS, pod_of(owner, "down", node="a", ready_s=None, labels={HASH_LABEL: "old"}))
    state.put(PODS, pod_of(owner, "up", node="b", labels={HASH_LABEL: "old"}))
    assert removed(reconcile(state)) == ["down"]


def test_surge_makes_the_new_pod_before_the_old_one_goes() -> None:
    owner = daemon_set(unavailable=0, surge=1)
    state, hash_ = cluster(owner, [make_node("a"), make_node("b")])
    state.put(PODS, *[pod_of(owner, f"old-{name}", node=name, labels={HASH_LABEL: "old"}) for name in "ab"])
    first = reconcile(state)
    assert (made_for(first), removed(first)) == (["a"], [])
    state.put(PODS, pod_of(owner, "new-a", node="a", ready_s=None, labels={HASH_LABEL: hash_}))
    second = reconcile(state)
    assert (made_for(second), removed(second)) == ([], [])
    state.put(PODS, pod_of(owner, "new-a", node="a", labels={HASH_LABEL: hash_}))
    assert removed(reconcile(state)) == ["old-a"]


def test_failed_pod_is_deleted_and_the_next_one_later() -> None:
    owner = daemon_set()
    state, hash_ = cluster(owner, [make_node("a")])
    state.put(PODS, pod_of(owner, "failed", "Failed", node="a", labels={HASH_LABEL: hash_}))
    first = reconcile(state)
    assert removed(first) == ["failed"] and isinstance(first.memory, Failures)
    state.memories[KEY] = first.memory
    second = reconcile(state, NOW + 0.25)
    assert (removed(second), second.requeue_after_s) == ([], 0.75)


def test_node_change_matters_only_if_pods_are_missing_or_may_not_stay() -> None:
    owner = daemon_set()
    state, hash_ = cluster(owner, [make_node("a")])
    state.put(PODS, pod_of(owner, "one", node="a", labels={HASH_LABEL: hash_}))
    old = make_node("a")
    requests = DaemonSetController().requests
    assert not list(requests(NODES, Change("MODIFIED", old, tainted(make_node("a"), "NoSchedule")), state))
    assert list(requests(NODES, Change("MODIFIED", old, tainted(make_node("a"), "NoExecute")), state))


def test_status_counts_nodes_and_pods_that_should_not_be_there() -> None:
    owner = daemon_set()
    state, hash_ = cluster(owner, [make_node("a"), make_node("b"), tainted(make_node("c"), "NoSchedule")])
    state.put(PODS, *[pod_of(owner, f"pod-{name}", node=name, labels={HASH_LABEL: hash_}) for name in "ac"])
    (update,) = [action for action in reconcile(state).actions if isinstance(action, Update)]
    status = update.object["status"]
    assert (status["desiredNumberScheduled"], status["currentNumberScheduled"]) == (2, 1)
    assert (status["numberMisscheduled"], status["numberUnavailable"], status["numberReady"]) == (1, 1, 1)
    assert name_of(update.object) == "web"
