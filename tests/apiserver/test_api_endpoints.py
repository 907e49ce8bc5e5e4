"""Endpoints, EndpointSlices and the finalizers of namespaces: defaults, and what is refused."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object

ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NAMESPACES = "/api/v1/namespaces"


def paths(status: Object) -> list[str]:
    return [cause["field"] for cause in status["details"]["causes"]]


def endpoints(**subset: JSON) -> Object:
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}, "subsets": [subset]}


def endpoint_slice(**endpoint: JSON) -> Object:
    meta = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"}}
    return {**meta, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], **endpoint}]}


def test_ports_of_endpoints_are_tcp() -> None:
    made = Api().create(ENDPOINTS, endpoints(addresses=[{"ip": "10.0.0.1"}], ports=[{"port": 80}]))
    assert made["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("subset", "want"),
    [
        ({}, ["subsets[0]"]),
        ({"addresses": [{"ip": "127.0.0.1"}]}, ["subsets[0].addresses[0].ip"]),
        ({"addresses": [{"ip": "169.254.0.1"}]}, ["subsets[0].addresses[0].ip"]),
        ({"addresses": [{"ip": "224.0.0.1"}]}, ["subsets[0].addresses[0].ip"]),
        ({"notReadyAddresses": [{"ip": "x"}]}, ["subsets[0].notReadyAddresses[0].ip"] * 2),
        ({"addresses": [{"ip": "10.0.0.1", "nodeName": "A"}]}, ["subsets[0].addresses[0].nodeName"]),
        ({"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 0}]}, ["subsets[0].ports[0].port"]),
        (
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}, {"port": 2, "name": "b"}]},
            ["subsets[0].ports[0].name"],
        ),
    ],
)
def test_endpoints_that_make_no_sense_are_refused(subset: Object, want: list[str]) -> None:
    assert paths(Api().refuse(422, "POST", ENDPOINTS, endpoints(**subset))) == want


@pytest.mark.parametrize(
    ("endpoint", "want"),
    [
        ({"nodeName": "A"}, ["endpoints[0].nodeName"]),
        ({"hints": {"forZones": [{"name": "a b"}]}}, ["endpoints[0].hints.forZones[0].name"]),
        ({"hints": {"forNodes": [{"name": ""}]}}, ["endpoints[0].hints.forNodes[0].name"]),
    ],
)
def test_endpoint_names_nodes_and_zones(endpoint: Object, want: list[str]) -> None:
    assert paths(Api().refuse(422, "POST", SLICES, endpoint_slice(**endpoint))) == want


def test_topology_is_dropped() -> None:
    made = Api().create(SLICES, endpoint_slice(deprecatedTopology={"a": "b"}))
    assert made["endpoints"] == [{"addresses": ["10.0.0.1"]}]


def test_finalizers_of_a_namespace_have_a_domain() -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {"finalizers": ["x"]}}
    assert paths(Api().refuse(422, "POST", NAMESPACES, body)) == ["spec.finalizers"]
    assert Api().create(NAMESPACES, {**body, "spec": {"finalizers": ["a.b/c"]}})["spec"]["finalizers"][0] == "a.b/c"
