"""CustomResourceDefinitions: names, serving, versions, and the end of a definition and its objects."""

from __future__ import annotations

import pytest
from serving import Api, finish

from muster.api.codec import JSON, Object
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.client.transport import Response
from muster.testing.definitions import ANY, cluster_queue, job_set, leader_worker_set, make_definition, training_job

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/example.com/v1/namespaces/default/toys"


def toy(name: str = "a", **spec: JSON) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": spec}


def conditions(crd: Object) -> dict[str, tuple[str, str]]:
    return {entry["type"]: (entry["status"], entry["reason"]) for entry in crd["status"]["conditions"]}


def reading(api: Api, path: str, accept: str = "application/json", **headers: str) -> Response:
    """What the front answers to a GET."""
    front = Front(api.server, api.clock)
    answer = finish(front.answer(ApiRequest("GET", path, (), {"accept": accept, **headers})))
    assert not isinstance(answer, Streamed)
    return answer


@pytest.mark.parametrize("make", [job_set, leader_worker_set, cluster_queue, training_job])
def test_a_definition_is_served_as_soon_as_it_is_created(make: object) -> None:
    api = Api()
    definition: Object = make()  # type: ignore[operator]  # the parametrized builders
    api.create(CRDS, definition)
    crd = api.get(f"{CRDS}/{definition['metadata']['name']}")
    assert conditions(crd) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    spec = definition["spec"]
    for version in spec["versions"]:
        path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
        assert api.get(path)["kind"] == f"{spec['names']['kind']}List"


def test_discovery_openapi_and_etags_follow_the_definitions() -> None:
    api = Api()
    front = Front(api.server, api.clock)
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

    def get(path: str, accept: str = "application/json") -> Response:
        answer = finish(front.answer(ApiRequest("GET", path, (), {"accept": accept})))
        assert not isinstance(answer, Streamed)
        return answer

    before = get("/apis", aggregated)
    assert get("/apis/example.com/v1").status == 404
    api.create(CRDS, make_definition("Toy", short="ty"))
    after = get("/apis", aggregated)
    assert before.headers["ETag"] != after.headers["ETag"]
    (resource,) = get("/apis/example.com/v1").body["resources"]  # type: ignore[call-overload]  # JSON
    assert (resource["name"], resource["shortNames"]) == ("toys", ["ty"])
    paths = get("/openapi/v3").body["paths"]  # type: ignore[call-overload]  # JSON
    assert "apis/example.com/v1" in paths
    assert b"com.example.v1.Toy" in bytes(get("/openapi/v3/apis/example.com/v1").body)  # type: ignore[arg-type]
    api.delete(f"{CRDS}/toys.example.com")
    assert get("/apis", aggregated).headers["ETag"] == before.headers["ETag"]
    assert get("/apis/example.com/v1").status == 404


def test_a_name_that_is_taken_is_granted_when_it_is_free() -> None:
    api = Api()
    api.create(CRDS, make_definition("Toy", short="t"))
    api.create(CRDS, make_definition("Tool", short="t"))
    late = api.get(f"{CRDS}/tools.example.com")
    assert conditions(late) == {
        "NamesAccepted": ("False", "ShortNamesConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert api.call("GET", "/apis/example.com/v1/tools").status == 404
    api.delete(f"{CRDS}/toys.example.com")
    assert conditions(api.get(f"{CRDS}/tools.example.com"))["Established"][0] == "True"
    assert api.get("/apis/example.com/v1/tools")["items"] == []


def test_a_deleted_definition_takes_its_objects_along_and_waits_for_their_finalizers() -> None:
    api = Api()
    api.create(CRDS, make_definition("Toy"))
    api.create(TOYS, toy("a"))
    held = toy("b")
    held["metadata"]["finalizers"] = ["example.com/held"]
    api.create(TOYS, held)
    api.delete(f"{CRDS}/toys.example.com")
    crd = api.get(f"{CRDS}/toys.example.com")
    assert conditions(crd)["Terminating"] == ("True", "InstanceDeletionInProgress")
    assert [item["metadata"]["name"] for item in api.get(TOYS)["items"]] == ["b"]
    refused = api.call("POST", TOYS, toy("c"))
    assert (refused.status, refused.body["reason"]) == (405, "MethodNotAllowed")  # type: ignore[call-overload]
    api.call("PATCH", f"{TOYS}/b", {"metadata": {"finalizers": None}}, type_="application/merge-patch+json")
    assert api.call("GET", f"{CRDS}/toys.example.com").status == 404
    assert api.call("GET", TOYS).body == b"404 page not found\n"


def test_definitions_in_the_store_are_served_after_a_restart() -> None:
    api = Api()
    api.create(CRDS, make_definition("Toy"))
    api.create(TOYS, toy("a"))
    again = Api(store=api.store)
    assert [item["metadata"]["name"] for item in again.get(TOYS)["items"]] == ["a"]


def test_kinds_in_a_group_of_kubernetes_are_shown_but_not_served() -> None:
    api = Api()
    definition = make_definition("Gang", group="scheduling.k8s.io", version="v1alpha9")
    refused = api.call("POST", CRDS, definition)
    assert refused.status == 422
    assert "api-approved.kubernetes.io" in str(refused.body)
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    api.create(CRDS, definition)
    shown = reading(api, "/apis/scheduling.k8s.io/v1alpha9")
    assert shown.status == 200
    assert api.call("GET", "/apis/scheduling.k8s.io/v1alpha9/gangs").status == 404
    assert api.get("/apis/scheduling.k8s.io/v1alpha3/podgroups")["items"] == []


def test_versions_share_their_objects_and_differ_in_defaults() -> None:
    api = Api()
    api.create(CRDS, cluster_queue())
    queue: Object = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"}}
    api.create("/apis/kueue.x-k8s.io/v1beta1/clusterqueues", {**queue, "spec": {"cohort": "all"}})
    newer = api.get("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q")
    assert newer["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert newer["spec"] == {"cohort": "all", "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None"}
    api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q", {"spec": {"cohort": "none"}})
    older = api.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q")
    assert older["spec"]["cohort"] == "none"
    assert older["metadata"]["uid"] == newer["metadata"]["uid"]


def test_a_new_default_shows_in_objects_that_exist() -> None:
    api = Api()
    api.create(CRDS, make_definition("Toy", {"type": "object", "properties": {"n": {"type": "integer"}}}))
    api.create(TOYS, toy("a", n=1))
    crd = api.get(f"{CRDS}/toys.example.com")
    changed = make_definition(
        "Toy",
        {"type": "object", "properties": {"n": {"type": "integer"}, "color": {"type": "string", "default": "red"}}},
    )
    version = crd["metadata"]["resourceVersion"]
    api.update(f"{CRDS}/toys.example.com", {**changed, "metadata": {**changed["metadata"], "resourceVersion": version}})
    assert api.get(f"{TOYS}/a")["spec"] == {"n": 1, "color": "red"}


def broken(**changes: JSON) -> Object:
    """A definition whose spec schema has these fields besides."""
    return make_definition("Toy", {"type": "object", **changes})


@pytest.mark.parametrize(
    ("definition", "want"),
    [
        ({**make_definition("Toy"), "metadata": {"name": "x.example.com"}}, "metadata.name"),
        (make_definition("Toy", group="nodot"), "spec.group"),
        (make_definition("Toy", scope="Everywhere"), "spec.scope"),
        (make_definition("Toy", version="V1"), "spec.versions[0].name"),
        (make_definition("Toy", schema={}), "spec.versions[0].schema.openAPIV3Schema"),
        (make_definition("Toy", storage=False), "spec.versions"),
        (make_definition("Toy", short="Big"), "spec.names.shortNames[0]"),
        (make_definition("Toy", deprecationWarning="old"), "spec.versions[0].deprecationWarning"),
        (
            make_definition("Toy", additionalPrinterColumns=[{"name": "A", "type": "color", "jsonPath": ".a"}]),
            "spec.additionalPrinterColumns[0].type",
        ),
        (
            make_definition(
                "Toy", subresources={"scale": {"specReplicasPath": ".n", "statusReplicasPath": ".status.n"}}
            ),
            "spec.subresources.scale.specReplicasPath",
        ),
        (make_definition("Toy", selectableFields=[{"jsonPath": ".metadata.name"}]), "selectableFields[0].jsonPath"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_definition_is_refused_with_the_field(definition: Object, want: str) -> None:
    refused = Api().call("POST", CRDS, definition)
    assert refused.status == 422
    assert any(want in cause["field"] for cause in refused.body["details"]["causes"])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"type": "color"}, "type"),
        ({"properties": {"a": {}}}, "properties[a].type"),
        ({"properties": {"a": {"type": "array"}}}, "properties[a].items"),
        ({"properties": {"a": ANY}, "additionalProperties": ANY}, "additionalProperties"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "properties[a].pattern"),
        ({"x-kubernetes-list-type": "set"}, "type"),
        ({"anyOf": [{"properties": {"a": {"minLength": 1}}}]}, "properties[a]"),
        ({"anyOf": [{"type": "object"}]}, "anyOf[0].type"),
        ({"properties": {"a": {"type": "integer", "default": "x"}}}, "properties[a].default"),
        ({"x-kubernetes-validations": [{"rule": "self.a +"}]}, "x-kubernetes-validations[0].rule"),
        ({"x-kubernetes-validations": [{"rule": "unknown(self)"}]}, "x-kubernetes-validations[0].rule"),
        ({"x-kubernetes-validations": [{"rule": " "}]}, "x-kubernetes-validations[0].rule"),
        (
            {
                "properties": {
                    "a": {
                        "type": "array",
                        "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
                    }
                }
            },
            "properties[a].items.x-kubernetes-validations[0].rule",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_that_is_not_structural_is_refused_with_the_field(changes: Object, want: str) -> None:
    refused = Api().call("POST", CRDS, broken(**changes))
    assert refused.status == 422
    start = "spec.validation.openAPIV3Schema.properties[spec]."
    fields = [cause["field"] for cause in refused.body["details"]["causes"]]  # type: ignore[call-overload]
    assert f"{start}{want}" in fields


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ({"rule": "self.b == 1"}, "compilation failed: ERROR: <input>:1:5: undefined field 'b'"),
        ({"rule": "self.a == 'x'"}, "found no matching overload for '_==_' applied to '(int, string)'"),
        ({"rule": "self.a"}, "cel expression must evaluate to a bool"),
        ({"rule": "true", "messageExpression": "self.a"}, "messageExpression must evaluate to a string"),
        ({"rule": "true", "messageExpression": "self.a +"}, "messageExpression compilation failed: ERROR: "),
        (
            {"rule": "self.a > oldSelf.a", "optionalOldSelf": True},
            "found no matching overload for '_>_' applied to '(int, optional_type(int))'",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value["rule"]),
)
def test_rules_are_held_to_the_types_of_the_schema(rule: Object, want: str) -> None:
    definition = broken(properties={"a": {"type": "integer"}}, **{"x-kubernetes-validations": [rule]})
    refused = Api().refuse(422, "POST", CRDS, definition)
    assert want in refused["message"]


def test_names_and_scope_of_an_established_definition_stay() -> None:
    api = Api()
    api.create(CRDS, make_definition("Toy"))
    crd = api.get(f"{CRDS}/toys.example.com")
    crd = {**crd, "spec": {**crd["spec"], "scope": "Cluster", "names": {**crd["spec"]["names"], "kind": "Tool"}}}
    refused = api.call("PUT", f"{CRDS}/toys.example.com", crd)
    fields = [cause["field"] for cause in refused.body["details"]["causes"]]  # type: ignore[call-overload]
    assert (refused.status, fields) == (422, ["spec.scope", "spec.names.kind"])
