"""Pods are decoded without managedFields and otherwise as they are."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON, copy, dumps, loads_lean

METADATA = {
    "name": "p",
    "generateName": "p-",
    "namespace": "default",
    "selfLink": "",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": None,
    "deletionGracePeriodSeconds": 30,
    "labels": {"app": "web"},
    "annotations": {"note": "é"},
    "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
    "finalizers": ["example.com/hold"],
    "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": METADATA,
    "spec": {"containers": [{"name": "main", "unknown": [1, 2.5, None]}], "newField": True},
    "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
}
STATUS = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired", "message": "old", "details": {"a": 1}}


@pytest.mark.parametrize(
    "value",
    [
        POD,
        {
            "kind": "PodList",
            "metadata": {"resourceVersion": "9", "continue": "t", "remainingItemCount": 3},
            "items": [POD],
        },
        {"kind": "PodList", "metadata": {}, "items": None},
        {"type": "MODIFIED", "object": POD},
        {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "8"}}},
        {"type": "ERROR", "object": STATUS},
        STATUS,
    ],
    ids=["pod", "list", "empty list", "event", "bookmark", "error", "status"],
)
def test_lean_decoding_loses_nothing_but_managed_fields(value: JSON) -> None:
    assert loads_lean(dumps(value)) == without_managed_fields(copy(value))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"items": 3}', '{"metadata": 1}'])
def test_what_is_no_object_of_the_api_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads_lean(text)


def without_managed_fields(value: JSON) -> JSON:
    for obj in (value, value.get("object") or {}, *(value.get("items") or ())):
        obj.get("metadata", {}).pop("managedFields", None)
    return value
