"""What the server says of itself, and the forms in which it answers."""

from __future__ import annotations

import asyncio
import random

import pytest

from muster.api.codec import Object, loads
from muster.apiserver.front import Front, Streamed
from muster.apiserver.negotiation import DISCOVERY_FORMS, OBJECT_FORMS, choose
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import Response
from muster.clock import RealClock

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
AGGREGATED_BETA = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def ask(path: str, accept: str = "", options: ServerOptions | None = None, *, if_none_match: str = "") -> Response:
    """The answer of a fresh server to one GET."""

    async def main() -> Response:
        clock = RealClock()
        front = Front(ApiServer(MemoryStore(), clock, random.Random(1), options), clock)
        answer = await front.answer(ApiRequest("GET", path, (), {"accept": accept, "if-none-match": if_none_match}))
        assert not isinstance(answer, Streamed)
        return answer

    return asyncio.run(main())


def document(path: str, accept: str = "", options: ServerOptions | None = None) -> Object:
    """The JSON of a successful answer."""
    answer = ask(path, accept, options)
    assert answer.status == 200
    return loads(answer.body) if isinstance(answer.body, bytes) else answer.body


@pytest.mark.parametrize("path", ["/api", "/apis"])
@pytest.mark.parametrize("accept", [AGGREGATED, AGGREGATED_BETA])
def test_aggregated_discovery_names_its_exact_type(path: str, accept: str) -> None:
    answer = ask(path, f"{accept},application/json")
    assert answer.headers["Content-Type"] == accept
    assert answer.headers["Vary"] == "Accept"
    again = ask(path, accept, if_none_match=answer.headers["ETag"])
    assert (again.status, again.body) == (304, b"")


def test_plain_and_aggregated_discovery_agree() -> None:
    plain = {group["name"]: [v["version"] for v in group["versions"]] for group in document("/apis")["groups"]}
    items = document("/apis", AGGREGATED)["items"]
    assert {item["metadata"]["name"]: [v["version"] for v in item["versions"]] for item in items} == plain
    for item in items:
        for version in item["versions"]:
            listed = document(f"/apis/{item['metadata']['name']}/{version['version']}")["resources"]
            names = sorted(entry["name"] for entry in listed if "/" not in entry["name"])
            assert names == [resource["resource"] for resource in version["resources"]]


def test_eviction_is_announced_as_drain_needs_it() -> None:
    entries = {entry["name"]: entry for entry in document("/api/v1")["resources"]}
    eviction = entries["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")


def test_versions_come_preferred_first() -> None:
    versions = [v["version"] for v in document("/apis/scheduling.k8s.io")["versions"]]
    assert versions == ["v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"]


def test_emulation_narrows_discovery_to_one_release() -> None:
    options = ServerOptions(emulate="1.36")
    assert [v["version"] for v in document("/apis/scheduling.k8s.io", "", options)["versions"]] == ["v1", "v1alpha2"]
    assert document("/version", "", options)["minor"] == "36"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(path: str) -> None:
    assert ask(path).body == b"ok"


@pytest.mark.parametrize("path", ["/nope", "/apis/none.example"])
def test_unknown_paths_are_not_found(path: str) -> None:
    assert ask(path).status == 404


def test_every_kind_with_patch_is_described_as_kubectl_needs_it() -> None:
    for path in document("/openapi/v3")["paths"]:
        described = document(f"/openapi/v3/{path}")
        schemas = described["components"]["schemas"]
        patches = [item["patch"] for item in described["paths"].values() if "patch" in item]
        for patch in patches:
            assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
            kind = patch["x-kubernetes-group-version-kind"]
            assert any(kind in schema.get("x-kubernetes-group-version-kind", ()) for schema in schemas.values())


def test_documents_hold_every_definition_that_they_refer_to() -> None:
    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(child) for child in value.values()))
        if isinstance(value, list):
            return set().union(*(references(child) for child in value))
        return set()

    for path in ("api/v1", "apis/scheduling.k8s.io/v1alpha1", "apis/batch/v1"):
        described = document(f"/openapi/v3/{path}")
        known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
        assert references(described) <= known


def test_lists_as_tables_metadata_and_yaml() -> None:
    shown = document("/api/v1/namespaces", TABLE)
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Status", "Age"]
    partial = document("/api/v1/namespaces", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    assert {item["kind"] for item in partial["items"]} == {"PartialObjectMetadata"}
    text = ask("/api/v1/namespaces/default", "application/yaml").body
    assert isinstance(text, bytes) and b"kind: Namespace" in text


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        ("", ""),
        ("*/*", ""),
        ("application/*", ""),
        ("application/vnd.kubernetes.protobuf,application/json", ""),
        ("application/vnd.kubernetes.protobuf, */*", ""),
        (f"{TABLE},application/json", "Table"),
        ("application/json;q=0.5," + TABLE, "Table"),
        ("application/xml", None),
        ("application/vnd.kubernetes.protobuf", None),
    ],
)
def test_form_of_the_answer(accept: str, want: str | None) -> None:
    form = choose(accept, OBJECT_FORMS)
    assert (form.kind if form else None) == want


def test_newer_discovery_is_preferred_in_the_clients_order() -> None:
    form = choose(f"{AGGREGATED},{AGGREGATED_BETA},application/json", DISCOVERY_FORMS)
    assert form is not None and form.version == "v2"
