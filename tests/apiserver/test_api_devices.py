"""Claims of devices and their templates: what templates may say of the claims, who may use devices in use."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
NAMESPACES = "/api/v1/namespaces"


def causes(status: Object) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]


def claim_spec(name: str = "gpu", **fields: JSON) -> Object:
    return {"devices": {"requests": [{"name": name, "exactly": {"deviceClassName": "gpu", **fields}}]}}


def template(**metadata: JSON) -> Object:
    spec = {"metadata": metadata, "spec": claim_spec()}
    meta = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    return {**meta, "spec": spec}


def claim(spec: Object) -> Object:
    meta = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    return {**meta, "spec": spec}


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"uid": "x"}, "uID"),
        ({"deletionGracePeriodSeconds": 0}, "deletionGracePeriodSeconds"),
        ({"finalizers": ["a.b/c"]}, "finalizers"),
        ({"annotations": {"Bad Key!": "x"}}, "annotations"),
        ({"labels": {"a": "bad value!"}}, "labels"),
    ],
)
def test_template_gives_its_claims_labels_and_annotations_only(metadata: Object, field: str) -> None:
    refused = Api().refuse(422, "POST", TEMPLATES, template(**metadata))
    assert [path for path, _ in causes(refused)] == [f"spec.metadata.{field}"]


def test_template_never_changes_and_empty_texts_are_no_change() -> None:
    api = Api()
    api.create(TEMPLATES, template())
    assert api.patch(f"{TEMPLATES}/t", {"spec": {"metadata": {"name": ""}}})["spec"]["spec"]
    changed = {"spec": {"metadata": {"uid": "x"}}}
    refused = api.refuse(422, "PATCH", f"{TEMPLATES}/t", changed, type_="application/merge-patch+json")
    assert [path for path, _ in causes(refused)] == ["spec.metadata.uID", "spec"]


def test_devices_in_use_need_a_namespace_that_allows_it() -> None:
    api = Api()
    spec = claim_spec(adminAccess=True)
    refused = causes(api.refuse(422, "POST", CLAIMS, claim(spec)))
    assert [path for path, _ in refused] == ["spec.devices.requests[0].adminAccess"]
    label = {"resource.kubernetes.io/admin-access": "true"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "admin", "labels": label}}
    api.create(NAMESPACES, body)
    made = api.create(CLAIMS.replace("default", "admin"), claim(spec))
    assert made["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] is True


def test_name_with_dots_is_told_so() -> None:
    refused = causes(Api().refuse(422, "POST", CLAIMS, claim(claim_spec("a.b"))))
    assert refused == [("spec.devices.requests[0].name", 'Invalid value: "a.b": must not contain dots')]
