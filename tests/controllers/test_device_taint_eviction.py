"""Eviction by NoExecute taints of devices: who goes at once, who later, who is let off, and what a rule tells of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from muster.api.codec import Object, Objects
from muster.api.resource import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from muster.clock import rfc3339
from muster.controllers.action import Action, Delete, Emit, Patch, Result
from muster.controllers.node.device_taint_eviction import DeviceTaintEviction
from muster.testing.builders import make_pod
from muster.testing.controller_state import ControllerState
from muster.testing.devices import DRIVER, make_claim, make_slice, pod_claim

KEY = "pods/default/pod"
TAINT = {"key": "sick", "value": "v", "effect": "NoExecute", "timeAdded": rfc3339(100.0)}


def world(
    taints: Sequence[Object] = (),
    *,
    tolerations: Sequence[Object] = (),
    node: str = "node",
    rules: Sequence[Object] = (),
) -> tuple[DeviceTaintEviction, ControllerState]:
    """A pod whose claim has gpu-0 of a slice with these taints."""
    state = ControllerState(PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_TAINT_RULES)
    controller = DeviceTaintEviction(DEVICE_TAINT_RULES)
    pod = make_pod(node=node, spec=pod_claim("gpu", claim="c"))
    pod["metadata"]["uid"] = "u1"
    result = {"request": "gpu", "driver": DRIVER, "pool": "node", "device": "gpu-0", "tolerations": list(tolerations)}
    reserved = [{"resource": "pods", "name": "pod", "uid": "u1"}]
    claim = {**make_claim("c"), "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}}
    state.put(PODS, pod)
    state.put(RESOURCE_CLAIMS, claim)
    put_slice(controller, state, list(taints))
    for rule in rules:
        state.put(DEVICE_TAINT_RULES, rule)
    return controller, state


def put_slice(controller: DeviceTaintEviction, state: ControllerState, taints: Objects) -> list[str]:
    """The keys that a slice with these taints of its first device asks for."""
    found = make_slice("node", 2)
    found["spec"]["devices"][0]["taints"] = taints
    change = state.put(RESOURCE_SLICES, found)[0]
    return [request.key for request in controller.requests(RESOURCE_SLICES, change, state)]


def rule_for(effect: str, **selector: str) -> Object:
    taint = {"key": "sick", "effect": effect, "timeAdded": rfc3339(100.0)}
    return {
        "apiVersion": DEVICE_TAINT_RULES.api_version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule", "uid": "r1", "generation": 1},
        "spec": {"taint": taint, "deviceSelector": selector},
    }


def tolerating(seconds: int | None = None) -> Object:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": "sick", "operator": "Exists", "effect": "NoExecute", **limit}


def kinds(result: Result) -> list[type[Action]]:
    return [type(action) for action in result.actions]


EVICTED = [Emit, Patch, Delete]


def test_pod_whose_device_gets_a_taint_is_told_why_and_deleted() -> None:
    controller, state = world()
    assert controller.reconcile(KEY, state, 100.0) == Result()

    assert put_slice(controller, state, [TAINT]) == [KEY]
    result = controller.reconcile(KEY, state, 101.0)

    assert kinds(result) == EVICTED
    patch = result.actions[1]
    assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
    assert patch.patch["status"]["conditions"][0]["reason"] == "DeletionByDeviceTaintManager"
    state.memories[KEY] = result.memory
    assert controller.reconcile(KEY, state, 102.0).actions == ()


@pytest.mark.parametrize(
    ("world_is", "evicted"),
    [
        ({"taints": [TAINT]}, True),
        ({"taints": [{**TAINT, "effect": "NoSchedule"}]}, False),
        ({"taints": [TAINT], "node": ""}, False),
        ({"taints": [TAINT], "tolerations": [tolerating()]}, False),
        ({"taints": [TAINT], "tolerations": [{**tolerating(), "key": "other"}]}, True),
        ({"taints": [TAINT], "tolerations": [{**tolerating(), "effect": ""}]}, True),  # must name the effect
        ({"rules": [rule_for("NoExecute", pool="node")]}, True),
        ({"rules": [rule_for("NoExecute", pool="other")]}, False),
        ({"rules": [rule_for("NoExecute", device="gpu-1")]}, False),
        ({"rules": [rule_for("None", pool="node")]}, False),
        ({"rules": [{**rule_for("NoExecute"), "spec": {"taint": rule_for("NoExecute")["spec"]["taint"]}}]}, False),
    ],
)
def test_who_has_to_leave(world_is: dict[str, Objects], evicted: bool) -> None:
    controller, state = world(**world_is)  # type: ignore[arg-type]  # a row is what `world` takes
    assert kinds(controller.reconcile(KEY, state, 200.0)) == (EVICTED if evicted else [])


def test_time_of_a_toleration_counts_from_when_the_taint_came_and_the_shortest_counts() -> None:
    tolerations = [tolerating(300), tolerating(60), {**tolerating(5), "key": "other"}]
    controller, state = world([TAINT], tolerations=tolerations)

    first = controller.reconcile(KEY, state, 130.0)
    assert (first.actions, first.requeue_after_s) == ((), 30.0)
    state.memories[KEY] = first.memory
    assert kinds(controller.reconcile(KEY, state, 160.0)) == EVICTED

    put_slice(controller, state, [])
    assert [
        action.message for action in controller.reconcile(KEY, state, 140.0).actions if isinstance(action, Emit)
    ] == ["Cancelling deletion"]


def test_slices_of_an_older_generation_say_nothing() -> None:
    controller, state = world([TAINT])
    newer = make_slice("node", 2, name="newer")
    newer["spec"]["pool"]["generation"] = 2
    change = state.put(RESOURCE_SLICES, newer)[0]
    list(controller.requests(RESOURCE_SLICES, change, state))

    assert controller.reconcile(KEY, state, 200.0) == Result()


def test_pods_of_a_group_leave_the_devices_of_its_claim() -> None:
    controller, state = world([TAINT])
    pod = make_pod(node="node", group="g", spec=pod_claim("gpu", claim="c"))
    pod["metadata"]["uid"] = "u1"
    state.put(PODS, pod)
    claim = state[RESOURCE_CLAIMS].get("default/c")
    assert claim is not None
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g1"}
    state.put(RESOURCE_CLAIMS, {**claim, "status": {**claim["status"], "reservedFor": [group]}})

    assert put_slice(controller, state, [TAINT, {**TAINT, "key": "worse"}]) == [KEY]
    assert kinds(controller.reconcile(KEY, state, 200.0)) == EVICTED


def test_rule_tells_how_far_it_is() -> None:
    controller, state = world(rules=[rule_for("NoExecute", pool="node")])

    def told(now: float) -> tuple[str, str, str]:
        result = controller.reconcile("rules/rule", state, now)
        assert len(result.actions) == 1, result
        patch = result.actions[0]
        assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
        rule = rule_for("NoExecute", pool="node")
        state.put(DEVICE_TAINT_RULES, {**rule, "status": patch.patch["status"]})
        entry = patch.patch["status"]["conditions"][0]
        return entry["status"], entry["reason"], entry["message"]

    assert told(200.0) == ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    controller.reconcile(KEY, state, 200.0)
    pod = state[PODS].get("default/pod")
    assert pod is not None
    state.remove(PODS, pod)
    waiting = controller.reconcile("rules/rule", state, 204.0)
    assert (waiting.actions, waiting.requeue_after_s) == ((), 6.0)
    assert told(210.0) == ("False", "Completed", "1 pod evicted since starting the controller.")


def test_rule_without_effect_tells_what_it_would_do() -> None:
    controller, state = world(rules=[rule_for("None", pool="node")])
    patch = controller.reconcile("rules/rule", state, 200.0).actions[0]
    assert isinstance(patch, Patch) and isinstance(patch.patch, dict)
    assert patch.patch["status"]["conditions"][0]["message"].startswith(
        "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect"
    )
