"""Pods are resized in place."""

from __future__ import annotations

import pytest
from serving import PODS, Api, causes

from muster.api.codec import Object
from muster.apiserver.options import ServerOptions
from muster.client.transport import STRATEGIC_MERGE_PATCH


def pod(cpu: str = "1") -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


def more(cpu: str = "2", **container: str) -> Object:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}, **container}]}}


def test_resize_changes_cpu_and_nothing_else() -> None:
    api = Api()
    api.create(PODS, pod())
    obj = api.patch(f"{PODS}/p/resize", more(image="other"), type_=STRATEGIC_MERGE_PATCH)
    (container,) = obj["spec"]["containers"]
    assert (container["resources"]["requests"], container["image"]) == ({"cpu": "2"}, "i")
    assert obj["metadata"]["generation"] == 2


def test_requests_cannot_be_taken_away() -> None:
    api = Api()
    api.create(PODS, pod())
    patch = {"spec": {"containers": [{"name": "c", "resources": None}]}}
    status = api.refuse(422, "PATCH", f"{PODS}/p/resize", patch, type_=STRATEGIC_MERGE_PATCH)
    assert ("spec.containers[0].resources.requests", "Forbidden") in causes(status)


def test_a_patch_of_the_pod_itself_resizes_it_with_a_warning() -> None:
    api = Api()
    api.create(PODS, pod())
    response = api.call("PATCH", f"{PODS}/p", more(), type_=STRATEGIC_MERGE_PATCH)
    assert response.status == 200
    assert "--subresource resize" in response.headers["Warning"]


@pytest.mark.parametrize("release", ["1.35", "1.36", "1.37"])
def test_a_real_release_wants_the_sub_resource(release: str) -> None:
    api = Api(ServerOptions(emulate=release))  # type: ignore[arg-type]  # a literal above
    api.create(PODS, pod())
    api.refuse(422, "PATCH", f"{PODS}/p", more(), type_=STRATEGIC_MERGE_PATCH)
