"""Services, Secrets and ConfigMaps."""

from __future__ import annotations

import pytest
from serving import CONFIG_MAPS, Api, causes, config_map

from muster.api.codec import JSON, Object

SERVICES = "/api/v1/namespaces/default/services"
SECRETS = "/api/v1/namespaces/default/secrets"
MERGE = "application/merge-patch+json"


@pytest.fixture
def api() -> Api:
    return Api()


def service(name: str = "s", **spec: JSON) -> Object:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_a_service_gets_an_address_and_defaults(api: Api) -> None:
    spec = api.create(SERVICES, service())["spec"]
    assert spec["clusterIP"].startswith("10.0.")
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("ClusterIP", "None", "Cluster")


def test_addresses_and_node_ports_are_not_given_twice(api: Api) -> None:
    made = [api.create(SERVICES, service(f"s{index}", type="NodePort"))["spec"] for index in range(30)]
    assert len({spec["clusterIP"] for spec in made}) == 30
    assert len({spec["ports"][0]["nodePort"] for spec in made}) == 30


def test_a_headless_service_needs_no_ports_and_gets_no_address(api: Api) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
    assert api.create(SERVICES, body)["spec"]["clusterIPs"] == ["None"]


def test_an_address_stays(api: Api) -> None:
    made = api.create(SERVICES, service(type="NodePort"))
    after = api.patch(SERVICES + "/s", {"spec": {"sessionAffinity": "ClientIP"}})
    assert after["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert after["spec"]["ports"] == made["spec"]["ports"]
    status = api.refuse(422, "PATCH", SERVICES + "/s", {"spec": {"clusterIP": "10.0.0.99"}}, type_=MERGE)
    assert causes(status) == [("spec.clusterIPs[0]", "Invalid")]


@pytest.mark.parametrize(
    ("spec", "want_causes"),
    [
        ({"ports": []}, [("spec.ports", "Required")]),
        (
            {"ports": [{"port": 80}, {"port": 81}]},
            [("spec.ports[0].name", "Required"), ("spec.ports[1].name", "Required")],
        ),
        ({"type": "Odd"}, [("spec.type", "NotSupported")]),
        ({"clusterIP": "192.168.1.1"}, [("spec.clusterIPs", "Invalid")]),
        ({"trafficDistribution": "Sometimes"}, [("spec.trafficDistribution", "NotSupported")]),
    ],
    ids=["no ports", "no names", "type", "address", "distribution"],
)
def test_services_that_are_refused(api: Api, spec: Object, want_causes: list[tuple[str, str]]) -> None:
    assert causes(api.refuse(422, "POST", SERVICES, service(**spec))) == want_causes


def test_secrets_take_texts(api: Api) -> None:
    secret = api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"key": "value"}})
    assert (secret["type"], secret["data"]) == ("Opaque", {"key": "dmFsdWU="})
    assert "stringData" not in secret


def test_an_immutable_config_map_does_not_change(api: Api) -> None:
    api.create(CONFIG_MAPS, {**config_map(), "immutable": True})
    status = api.refuse(
        422, "PATCH", CONFIG_MAPS + "/settings", {"data": {"key": "new"}, "immutable": None}, type_=MERGE
    )
    assert causes(status) == [("immutable", "Forbidden"), ("data", "Forbidden")]


SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def endpoint_slice(**fields: JSON) -> Object:
    return {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [], "ports": [], **fields}


def test_a_change_of_labels_or_endpoints_counts_as_a_new_generation_of_a_slice(api: Api) -> None:
    assert api.create(SLICES, endpoint_slice())["metadata"]["generation"] == 1
    for number, patch in enumerate(({"metadata": {"labels": {"a": "b"}}}, {"ports": [{"port": 80}]}), 2):
        body = api.patch(f"{SLICES}/e", patch)
        assert body["metadata"]["generation"] == number
    assert body["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"addressType": "IPv5"}, ["addressType"]),
        ({"endpoints": [{"addresses": []}]}, ["endpoints[0].addresses"]),
        ({"endpoints": [{"addresses": ["fd00::1"]}]}, ["endpoints[0].addresses"]),
        ({"endpoints": [{"addresses": ["127.0.0.1"]}]}, ["endpoints[0].addresses[0]"]),
        ({"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}] * 2}}]},
         ["endpoints[0].hints.forZones[1].name"]),
        ({"ports": [{"port": 1, "protocol": "x"}]}, ["ports[0].protocol"]),
        ({"ports": [{"port": 1}, {"port": 2}]}, ["ports[1].name"]),
    ],
    ids=["type", "no address", "other family", "not reachable", "hint twice", "protocol", "name twice"],
)  # fmt: skip
def test_a_slice_that_makes_no_sense_is_refused(api: Api, fields: Object, want: list[str]) -> None:
    answer = api.call("POST", SLICES, endpoint_slice(**fields))
    assert answer.status == 422
    assert isinstance(answer.body, dict)
    assert [field for field, _ in causes(answer.body)] == want


def test_the_api_servers_own_service_is_there_from_the_start(api: Api) -> None:
    assert api.get(f"{SERVICES}/kubernetes")["spec"]["clusterIP"] == "10.0.0.1"
