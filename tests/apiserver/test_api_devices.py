"""Claims of devices and their templates: what templates may say of the claims, who may use devices in use."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
NAMESPACES = "/api/v1/namespaces"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


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


def resource_slice(**spec: JSON) -> Object:
    meta = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {**meta, "spec": {"driver": "example.com", "pool": pool, **spec}}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"nodeName": "A"}, ["spec.nodeName"]),
        ({"nodeSelector": {}}, ["spec.nodeSelector.nodeSelectorTerms"] * 2),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, ["spec.nodeSelector.nodeSelectorTerms"]),
        ({"perDeviceNodeSelection": True, "devices": [{"name": "d"}]}, ["spec.devices[0]"]),
        (
            {"perDeviceNodeSelection": True, "devices": [{"name": "d", "nodeName": ""}]},
            ["spec.devices[0].nodeName", "spec.devices[0]"],
        ),
        ({"perDeviceNodeSelection": True, "devices": [{"name": "d", "nodeName": "n"}]}, []),
        ({"allNodes": True, "devices": [{"name": "d", "nodeName": "n"}]}, ["spec.devices[0]"]),
        (
            {"allNodes": True, "devices": [{"name": "d", "consumesCounters": [{"counterSet": "A", "counters": {}}]}]},
            ["spec.devices[0].consumesCounters[0].counterSet", "spec.devices[0].consumesCounters[0].counters"],
        ),
        (
            {"allNodes": True, "devices": [{"name": "d", "capacity": {"memory": {"value": "1", "requestPolicy": {}}}}]},
            ["spec.devices[0].capacity[memory].requestPolicy"],
        ),
    ],
)
def test_slice_says_where_its_devices_are_and_what_they_share(spec: Object, want: list[str]) -> None:
    api = Api()
    if not want:
        assert api.create(SLICES, resource_slice(**spec))["spec"]["devices"]
        return
    refused = [path for path, _ in causes(api.refuse(422, "POST", SLICES, resource_slice(**spec)))]
    assert [path for path in refused if path in want] == want


@pytest.mark.parametrize(
    ("ready", "failed", "want"),
    [
        (["a.b/ready"], ["a.b/failed"], []),
        (["x"], [], ["bindingFailureConditions"]),
        ([], ["x"], ["bindingConditions"]),
        (["x"], ["x"], ["bindingFailureConditions[0]"]),
        (["x", "x"], ["y"], ["bindingConditions[1]"]),
        (["A!"], ["y"], ["bindingConditions[0]"]),
        (["a", "b", "c", "d", "e"], ["y"], ["bindingConditions"]),
    ],
)
def test_conditions_of_binding_come_in_pairs_that_differ(ready: JSON, failed: JSON, want: list[str]) -> None:
    device = {"name": "d", "bindingConditions": ready, "bindingFailureConditions": failed}
    api, body = Api(), resource_slice(allNodes=True, devices=[device])
    if not want:
        api.create(SLICES, body)
        return
    refused = causes(api.refuse(422, "POST", SLICES, body))
    assert [path for path, _ in refused] == [f"spec.devices[0].{field}" for field in want]


def test_slice_keeps_its_pool_driver_and_node_but_not_the_way_of_saying_where() -> None:
    api = Api()
    api.create(SLICES, resource_slice(nodeName="n"))
    changed = {"spec": {"pool": {"name": "q"}, "driver": "b.com", "nodeName": None, "allNodes": True}}
    refused = api.refuse(422, "PATCH", f"{SLICES}/s", changed, type_="application/merge-patch+json")
    assert causes(refused) == [
        ("spec.pool.name", 'Invalid value: "q": field is immutable'),
        ("spec.driver", 'Invalid value: "b.com": field is immutable'),
        ("spec.nodeName", "Invalid value: null: field is immutable"),
    ]


def test_what_1_35_has_off_is_dropped_and_not_refused() -> None:
    api = Api(ServerOptions(emulate="1.35"))
    device = {"name": "d", "taints": [{"key": "a"}], "bindingConditions": ["x"], "allNodes": True}
    made = api.create(SLICES, resource_slice(allNodes=True, devices=[device], sharedCounters=[{"name": "A!"}]))
    assert made["spec"]["devices"] == [{"name": "d"}]
    assert "sharedCounters" not in made["spec"]
