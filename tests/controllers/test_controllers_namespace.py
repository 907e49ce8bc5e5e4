"""Deletion of namespaces: pods first, then all else, then the namespace."""

from __future__ import annotations

from muster.api.codec import Object
from muster.api.resource import CONFIG_MAPS, NAMESPACES, PODS
from muster.controllers.action import Delete, Update
from muster.controllers.kinds import Kinds
from muster.controllers.namespace import SWEPT, NamespaceController, deletion_conditions
from muster.testing.builders import make_pod
from muster.testing.controller_state import ControllerState

KINDS = Kinds((CONFIG_MAPS, NAMESPACES, PODS), {})


def dying_namespace(*finalizers: str) -> Object:
    metadata = {"name": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    spec = {"finalizers": list(finalizers or ("kubernetes",))}
    return {"kind": "Namespace", "metadata": metadata, "spec": spec, "status": {"phase": "Terminating"}}


def config_map(name: str, *, is_dying: bool = False) -> Object:
    metadata: Object = {"name": name, "namespace": "ns"}
    if is_dying:
        metadata.update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.test/hold"])
    return {"kind": "ConfigMap", "metadata": metadata}


def cluster(*namespaces: Object) -> ControllerState:
    state = ControllerState(NAMESPACES, PODS, CONFIG_MAPS)
    state.put(NAMESPACES, *namespaces)
    return state


def statuses(update: object) -> dict[str, str]:
    assert isinstance(update, Update)
    return {entry["type"]: entry["status"] for entry in update.object["status"]["conditions"]}


def test_pods_are_deleted_before_anything_else_and_conditions_say_nothing_of_them() -> None:
    state = cluster(dying_namespace())
    state.put(PODS, make_pod("p", namespace="ns"))
    state.put(CONFIG_MAPS, config_map("c"))
    delete, update = NamespaceController(KINDS).reconcile("ns", state, 0.0).actions
    assert isinstance(delete, Delete) and (delete.resource, delete.name) == (PODS, "p")
    assert set(statuses(update).values()) == {"False"}


def test_other_objects_go_when_no_pod_is_left() -> None:
    state = cluster(dying_namespace())
    state.put(CONFIG_MAPS, config_map("c"))
    (delete,) = NamespaceController(KINDS).reconcile("ns", state, 0.0).actions
    assert isinstance(delete, Delete) and delete.name == "c"


def test_what_finalizers_keep_is_named_in_the_conditions() -> None:
    state = cluster(dying_namespace())
    state.put(CONFIG_MAPS, config_map("c", is_dying=True), config_map("d", is_dying=True))
    (update,) = NamespaceController(KINDS).reconcile("ns", state, 0.0).actions
    assert isinstance(update, Update)
    messages = {entry["type"]: entry["message"] for entry in update.object["status"]["conditions"]}
    want = "Some resources are remaining: configmaps. has 2 resource instances"
    assert messages["NamespaceContentRemaining"] == want
    want = "Some content in the namespace has finalizers remaining: example.test/hold in 2 resource instances"
    assert messages["NamespaceFinalizersRemaining"] == want
    state.put(NAMESPACES, update.object)
    assert NamespaceController(KINDS).reconcile("ns", state, 9.0).actions == ()


def test_empty_namespace_is_swept_on_the_server_and_then_let_go() -> None:
    state = cluster(dying_namespace("kubernetes", "mine"))
    first = NamespaceController(KINDS).reconcile("ns", state, 0.0)
    swept = [action.resource.plural for action in first.actions if isinstance(action, Delete) and not action.name]
    assert swept == ["pods", "configmaps", "events"]
    assert (first.requeue_after_s, first.memory) == (0.0, SWEPT)
    state.memories["ns"] = first.memory
    (update,) = NamespaceController(KINDS).reconcile("ns", state, 1.0).actions
    assert isinstance(update, Update) and update.subresource == "finalize"
    assert update.object["spec"]["finalizers"] == ["mine"]


def test_namespace_that_was_let_go_or_lives_is_left_alone() -> None:
    living: Object = {"kind": "Namespace", "metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}}
    for namespace in (dying_namespace("mine"), living):
        assert NamespaceController(KINDS).reconcile("ns", cluster(namespace), 0.0).actions == ()


def test_only_what_happens_in_dying_namespaces_asks_for_them() -> None:
    state = cluster(dying_namespace())
    controller = NamespaceController(KINDS)
    elsewhere = state.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "other"}})[0]
    assert list(controller.requests(CONFIG_MAPS, elsewhere, state)) == []
    state.put(CONFIG_MAPS, config_map("c"))
    last = state.remove(CONFIG_MAPS, config_map("c"))[0]
    assert [(request.key, request.after_s) for request in controller.requests(CONFIG_MAPS, last, state)] == [("ns", 0)]


def test_conditions_of_an_emptied_namespace_are_all_false() -> None:
    assert {entry["status"] for entry in deletion_conditions({}, {})} == {"False"}
