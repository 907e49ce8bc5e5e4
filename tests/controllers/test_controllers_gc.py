"""Garbage collection: what happens to objects when their owners go."""

from __future__ import annotations

import pytest

from muster.api.codec import Object, Objects
from muster.api.meta import uid_of
from muster.api.resource import CONFIG_MAPS, NODES, Resource
from muster.controllers.action import Action, Delete, Emit, Patch
from muster.controllers.gc import FOREGROUND, ORPHAN, GarbageCollector
from muster.controllers.kinds import Kinds
from muster.testing.builders import make_node
from muster.testing.controller_state import ControllerState

WATCHED = (CONFIG_MAPS, NODES)
KINDS = Kinds(WATCHED, {(resource.api_version, resource.kind): resource for resource in WATCHED})


def config_map(name: str, *owners: Object, namespace: str = "default", finalizers: list[str] | None = None) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}
    if owners:
        metadata["ownerReferences"] = list(owners)
    if finalizers:
        metadata["finalizers"] = finalizers
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def owned_by(name: str, *, uid: str = "", kind: str = "ConfigMap", blocks: bool = False) -> Object:
    reference: Object = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid or f"uid-{name}"}
    return {**reference, "blockOwnerDeletion": True} if blocks else reference


def deleting(obj: Object, *finalizers: str) -> Object:
    obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=list(finalizers))
    return obj


def cluster(*objects: Object) -> ControllerState:
    state = ControllerState(*WATCHED)
    for obj in objects:
        state.put(NODES if obj["kind"] == "Node" else CONFIG_MAPS, obj)
    return state


def collect(state: ControllerState, name: str, on_server: Objects = [], namespace: str = "default") -> list[Action]:  # noqa: B006 (never changed)
    collector = GarbageCollector(KINDS)
    key = f"configmaps./{namespace}/{name}"
    live = state.reading(collector.reads(key, state), {obj["metadata"]["name"]: obj for obj in on_server})
    return list(collector.reconcile(key, live, 0.0).actions)


def patched(action: Action) -> Object:
    assert isinstance(action, Patch) and isinstance(action.patch, dict)
    metadata: Object = action.patch["metadata"]
    return metadata


def asked(state: ControllerState, changes: Objects, resource: Resource = CONFIG_MAPS) -> list[str]:
    collector = GarbageCollector(KINDS)
    found = []
    for obj in changes:
        for change in state.put(resource, obj):
            found += [request.key for request in collector.requests(resource, change, state)]
    return found


def test_object_whose_owner_is_gone_is_deleted_in_the_background() -> None:
    (delete,) = collect(cluster(config_map("child", owned_by("owner"))), "child")
    assert isinstance(delete, Delete)
    assert delete.options == {"propagationPolicy": "Background", "preconditions": {"resourceVersion": "7"}}


def test_owner_that_only_the_server_knows_of_counts() -> None:
    assert collect(cluster(config_map("child", owned_by("owner"))), "child", [config_map("owner")]) == []


def test_owner_of_that_name_with_another_uid_is_another_object() -> None:
    owner = config_map("owner")
    state = cluster(owner, config_map("child", owned_by("owner", uid="old")))
    assert isinstance(collect(state, "child", [owner])[0], Delete)


def test_reference_to_a_gone_owner_is_dropped_while_another_owner_is_there() -> None:
    state = cluster(config_map("b"), config_map("child", owned_by("a"), owned_by("b")))
    (patch,) = collect(state, "child")
    assert patched(patch) == {"resourceVersion": "7", "ownerReferences": [owned_by("b")]}


def test_owner_in_another_namespace_counts_as_missing_and_an_event_says_so() -> None:
    state = cluster(config_map("owner", namespace="other"), config_map("child", owned_by("owner")))
    event, delete = collect(state, "child")
    assert isinstance(event, Emit) and event.reason == "OwnerRefInvalidNamespace"
    want = (
        'ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: uid-owner] does not exist in namespace "default"'
    )
    assert event.message == want
    assert isinstance(delete, Delete)


def test_cluster_scoped_owner_is_found_from_any_namespace() -> None:
    node = make_node("n")
    node["metadata"]["uid"] = "uid-n"
    assert collect(cluster(node, config_map("child", owned_by("n", kind="Node"))), "child") == []


def test_owner_of_an_unknown_kind_counts_as_present() -> None:
    assert collect(cluster(config_map("child", owned_by("o", kind="JobSet"))), "child") == []


def test_owner_waits_for_the_dependents_that_block_it_and_for_no_others() -> None:
    owner = deleting(config_map("owner"), FOREGROUND, "other")
    state = cluster(owner, config_map("free", owned_by("owner")), config_map("held", owned_by("owner", blocks=True)))
    assert collect(state, "owner") == []
    state.remove(CONFIG_MAPS, config_map("held", owned_by("owner", blocks=True)))
    assert patched(collect(state, "owner")[0]) == {"resourceVersion": "7", "finalizers": ["other"]}


def test_dependent_of_a_waiting_owner_is_deleted_and_in_the_foreground_if_it_has_dependents_itself() -> None:
    owner = deleting(config_map("owner"), FOREGROUND)
    child, grandchild = config_map("child", owned_by("owner", blocks=True)), config_map("leaf", owned_by("child"))
    (delete,) = collect(cluster(owner, child), "child")
    assert isinstance(delete, Delete) and delete.options["propagationPolicy"] == "Background"
    (delete,) = collect(cluster(owner, child, grandchild), "child")
    assert isinstance(delete, Delete) and delete.options["propagationPolicy"] == "Foreground"


def test_circle_of_waiting_owners_is_broken() -> None:
    owner = deleting(config_map("owner", owned_by("child", blocks=True)), FOREGROUND)
    child = config_map("child", owned_by("owner", blocks=True))
    (patch,) = collect(cluster(owner, child), "child")
    assert patched(patch)["ownerReferences"][0]["blockOwnerDeletion"] is False


def test_orphaned_dependents_lose_the_reference_before_the_owner_goes() -> None:
    owner = deleting(config_map("owner"), ORPHAN)
    state = cluster(owner, config_map("c1", owned_by("owner")), config_map("c2", owned_by("owner"), owned_by("x")))
    first, second, last = collect(state, "owner")
    assert patched(first)["ownerReferences"] is None
    assert patched(second)["ownerReferences"] == [owned_by("x")]
    assert patched(last)["finalizers"] is None


def test_objects_without_owners_and_changes_elsewhere_ask_for_nothing() -> None:
    state = cluster()
    free = config_map("free")
    assert asked(state, [free, {**free, "data": {"a": "b"}}]) == []
    child = config_map("child", owned_by("free"))
    assert asked(state, [child, {**child, "data": {"a": "b"}}]) == []


def test_object_that_comes_with_a_missing_owner_is_looked_at() -> None:
    assert asked(cluster(), [config_map("child", owned_by("owner"))]) == ["configmaps./default/child"]


@pytest.mark.parametrize("finalizer", [FOREGROUND, ORPHAN])
def test_deletion_with_a_finalizer_of_the_collector_asks_for_the_owner(finalizer: str) -> None:
    state = cluster(config_map("owner"), config_map("child", owned_by("owner")))
    want = ["configmaps./default/owner"] + (["configmaps./default/child"] if finalizer == FOREGROUND else [])
    assert asked(state, [deleting(config_map("owner"), finalizer)]) == want


def test_end_of_an_owner_asks_for_its_dependents_and_end_of_a_dependent_for_its_waiting_owner() -> None:
    owner, child = config_map("owner"), config_map("child", owned_by("owner"))
    state = cluster(owner, child)
    collector = GarbageCollector(KINDS)
    changes = state.remove(CONFIG_MAPS, owner)
    assert [request.key for request in collector.requests(CONFIG_MAPS, changes[0], state)] == [
        "configmaps./default/child"
    ]
    state.put(CONFIG_MAPS, deleting(config_map("owner"), FOREGROUND))
    changes = state.remove(CONFIG_MAPS, child)
    assert [request.key for request in collector.requests(CONFIG_MAPS, changes[0], state)] == [
        "configmaps./default/owner"
    ]


def test_owner_that_went_between_reading_and_deciding_is_left_for_the_next_time() -> None:
    owner, child = config_map("owner"), config_map("child", owned_by("owner"))
    state = cluster(owner, child)
    collector = GarbageCollector(KINDS)
    live = state.reading(collector.reads("configmaps./default/child", state))
    state.remove(CONFIG_MAPS, owner)
    assert uid_of(owner) == "uid-owner"
    assert collector.reconcile("configmaps./default/child", live, 0.0).actions == ()
