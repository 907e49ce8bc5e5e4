"""Reviews are answered and not stored; events are shown in two groups; devices are validated."""

from __future__ import annotations

import pytest
from serving import Api, causes

from muster.api.codec import JSON, Object

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def review(api: Api, group: str, kind: str, **spec: JSON) -> Object:
    path = f"/apis/{group}/v1/{kind.lower()}s"
    return api.create(path, {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})


def test_everybody_may_do_everything() -> None:
    attributes = {"verb": "get", "resource": "pods"}
    answer = review(Api(), "authorization.k8s.io", "SelfSubjectAccessReview", resourceAttributes=attributes)
    assert answer["status"] == {"allowed": True}


def test_reviews_cannot_be_listed() -> None:
    Api().refuse(405, "GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")


def test_a_token_lasts_ten_minutes_or_more() -> None:
    api = Api()
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "a"}})
    request = {"kind": "TokenRequest", "spec": {"expirationSeconds": 60}}
    status = api.refuse(422, "POST", f"{accounts}/a/token", request)
    assert causes(status) == [("spec.expirationSeconds", "Invalid")]
    assert api.create(f"{accounts}/a/token", {"spec": {}})["status"]["token"]


def test_an_event_is_shown_in_both_groups() -> None:
    api = Api()
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    api.create(EVENTS, {"metadata": {"name": "e"}, "involvedObject": about, "message": "m", "reason": "R"})
    shown = api.get(f"{NEW_EVENTS}/e")
    assert (shown["apiVersion"], shown["regarding"], shown["note"]) == ("events.k8s.io/v1", about, "m")


@pytest.mark.parametrize(
    ("spec", "want_field"),
    [
        ({"nodeName": "n", "allNodes": True}, "spec"),
        ({"nodeName": "n", "devices": [{"name": "A"}]}, "spec.devices[0].name"),
        ({"nodeName": "n", "devices": [{"name": "a", "attributes": {"x": {}}}]}, "spec.devices[0].attributes[x]"),
    ],
    ids=["two places", "device name", "attribute without value"],
)
def test_slices_are_validated(spec: Object, want_field: str) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    body = {"metadata": {"name": "s"}, "spec": {"driver": "d.example", "pool": pool, **spec}}
    assert want_field in [field for field, _ in causes(Api().refuse(422, "POST", SLICES, body))]


@pytest.mark.parametrize("text", ["device.driver ==", "device.driver", "1"])
def test_selectors_of_devices_must_say_yes_or_no(text: str) -> None:
    body = {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": text}}]}}
    status = Api().refuse(422, "POST", CLASSES, body)
    assert causes(status) == [("spec.selectors[0].cel.expression", "Invalid")]
