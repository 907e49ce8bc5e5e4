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
