"""Custom objects: pruning, defaults, validation, rules, sub-resources, tables, patches."""

from __future__ import annotations

import pytest
from serving import Api, finish

from muster.api.codec import JSON, Object
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.client.transport import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH
from muster.testing.definitions import ANY, cluster_queue, job_set, leader_worker_set, make_definition, training_job

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/example.com/v1/namespaces/default/toys"
SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
JOBS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


def serving(*definitions: Object) -> Api:
    api = Api()
    for definition in definitions:
        api.create(CRDS, definition)
    return api


def with_spec(**properties: JSON) -> Api:
    """A server with a kind Toy whose spec has these properties; `rules` are those of the spec."""
    rules = properties.pop("rules", None)
    spec: Object = {"type": "object", "properties": properties}
    if rules is not None:
        spec["x-kubernetes-validations"] = rules
    return serving(make_definition("Toy", spec))


def toy(name: str = "a", **spec: JSON) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": spec}


def causes(api: Api, obj: Object, path: str = TOYS) -> list[tuple[str, str]]:
    """Field and message of what is wrong with an object, [] if it is created."""
    answer = api.call("POST", path, obj)
    assert isinstance(answer.body, dict)
    if answer.status == 201:
        return []
    assert answer.status == 422, answer.body
    return [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


def leader_worker(**spec: JSON) -> Object:
    body = {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": []}}}, **spec}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "s"},
        "spec": body,
    }


def test_unknown_fields_are_pruned_with_a_warning_and_kept_where_the_schema_says_so() -> None:
    api = with_spec(
        n={"type": "integer"}, free=ANY, texts={"type": "object", "additionalProperties": {"type": "string"}}
    )
    answer = api.call("POST", TOYS, toy(n=1, other=2, free={"a": [{"b": 1}]}, texts={"x": "y"}))
    assert answer.body["spec"] == {"n": 1, "free": {"a": [{"b": 1}]}, "texts": {"x": "y"}}  # type: ignore[call-overload]
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.other\\""'
    strict = api.call("POST", TOYS, toy("b", other=2), fieldValidation="Strict")
    assert (strict.status, "spec.other" in str(strict.body)) == (400, True)


def test_defaults_are_filled_in_at_every_depth_and_replace_nulls() -> None:
    api = serving(leader_worker_set())
    created = api.create(SETS, leader_worker(replicas=None))
    assert created["spec"]["replicas"] == 1
    assert created["spec"]["rolloutStrategy"] == {"type": "RollingUpdate", "maxUnavailable": 1}
    assert created["spec"]["leaderWorkerTemplate"]["size"] == 1


@pytest.mark.parametrize(
    ("schema", "value", "want"),
    [
        ({"type": "integer"}, "x", 'Invalid value: "string": spec.v in body must be of type integer: "string"'),
        ({"type": "string"}, 1, 'Invalid value: "integer": spec.v in body must be of type string: "integer"'),
        ({"type": "integer", "maximum": 3}, 4, "Invalid value: 4: spec.v in body should be less than or equal to 3"),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "Invalid value: 1: spec.v in body should be greater than 1",
        ),
        ({"type": "integer", "multipleOf": 5}, 7, "Invalid value: 7: spec.v in body should be a multiple of 5"),
        ({"type": "string", "minLength": 2}, "a", 'Invalid value: "a": spec.v in body should be at least 2 chars long'),
        ({"type": "string", "maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        ({"type": "string", "pattern": "^x+$"}, "xy", "Invalid value: \"xy\": spec.v in body should match '^x+$'"),
        ({"type": "string", "enum": ["a", "b"]}, "c", 'Unsupported value: "c": supported values: "a", "b"'),
        (
            {"type": "string", "format": "date-time"},
            "soon",
            'Invalid value: "soon": spec.v in body must be of type date-time: "soon"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            [],
            'Invalid value: "array": spec.v in body must be of type integer,string: "array"',
        ),
        (
            {"type": "array", "minItems": 2, "items": {"type": "string"}},
            ["a"],
            "Invalid value: 1: spec.v in body should have at least 2 items",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_in_the_words_of_real_servers(schema: Object, value: JSON, want: str) -> None:
    assert causes(with_spec(v=schema), toy(v=value)) == [("spec.v", want)]


def test_paths_name_items_of_lists_and_keys_of_maps() -> None:
    item = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    api = with_spec(list={"type": "array", "items": item}, map={"type": "object", "additionalProperties": item})
    found = [field for field, _ in causes(api, toy(list=[{"name": "a"}, {}], map={"k": {}}))]
    assert found == ["spec.list[1].name", "spec.map.k.name"]


def test_junctors_name_the_value_and_the_closest_alternative() -> None:
    one_of = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    api = with_spec(v=one_of)
    none = causes(api, toy(v={}))
    message = 'Invalid value: "": "spec.v" must validate one and only one schema (oneOf). '
    assert none == [("<nil>", message + "Found none valid"), ("spec.v.a", "Required value")]
    assert causes(api, toy(v={"a": "x", "b": "y"})) == [("<nil>", message + "Found 2 valid alternatives")]


def test_sets_and_keyed_lists_have_no_equal_items() -> None:
    api = serving(job_set())
    jobs: list[Object] = [{"name": name, "template": {}} for name in ("a", "b", "a")]
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}}
    found = causes(api, {**job, "spec": {"replicatedJobs": jobs}}, JOBS)
    assert found == [("spec.replicatedJobs[2]", 'Duplicate value: {"name":"a"}')]


RULES: list[tuple[Object, Object, str]] = [
    ({"rule": "self.n < 3"}, {"n": 3}, "Invalid value: failed rule: self.n < 3"),
    ({"rule": "self.n < 3", "message": "too many"}, {"n": 3}, "Invalid value: too many"),
    (
        {"rule": "self.n < 3", "messageExpression": "'at most 3, not ' + string(self.n)"},
        {"n": 5},
        "Invalid value: at most 3, not 5",
    ),
    ({"rule": "self.n < 3", "message": "no", "reason": "FieldValueForbidden"}, {"n": 3}, "Forbidden: no"),
    (
        {"rule": "self.texts.all(k, self.texts[k] == k)"},
        {"texts": {"a": "b"}},
        "Invalid value: failed rule: self.texts.all(k, self.texts[k] == k)",
    ),
    (
        {"rule": "self.missing == 1"},
        {"n": 1},
        'Invalid value: "object": no such key: missing evaluating rule: self.missing == 1',
    ),
    (
        {"rule": "quantity(self.memory).isLessThan(quantity('1Gi'))"},
        {"memory": "1024Mi"},
        "Invalid value: failed rule: quantity(self.memory).isLessThan(quantity('1Gi'))",
    ),
    ({"rule": "self.x__dash__y == 1"}, {"x-y": 2}, "Invalid value: failed rule: self.x__dash__y == 1"),
]


@pytest.mark.parametrize(("rule", "spec", "want"), RULES, ids=[rule["rule"] for rule, _, _ in RULES])
def test_a_broken_rule_is_named(rule: Object, spec: Object, want: str) -> None:
    api = with_spec(
        n={"type": "integer"},
        missing={"type": "integer"},
        memory={"type": "string"},
        texts={"type": "object", "additionalProperties": {"type": "string"}},
        rules=[rule],
        **{"x-y": {"type": "integer"}},
    )
    assert causes(api, toy(**spec)) == [("spec", want)]


def test_rules_are_not_checked_on_objects_without_the_right_structure() -> None:
    api = with_spec(n={"type": "integer"}, rules=[{"rule": "self.n < 3"}])
    fields = [field for field, _ in causes(api, toy(n="x"))]
    assert fields == ["spec.n", "<nil>"]


def test_transition_rules_compare_with_the_old_value() -> None:
    api = serving(leader_worker_set())
    created = api.create(SETS, leader_worker())
    changed = {"spec": {"leaderWorkerTemplate": {"size": 2}}}
    refused = api.call("PATCH", f"{SETS}/s", changed, type_="application/merge-patch+json")
    assert (refused.status, "size cannot be changed" in str(refused.body)) == (422, True)
    patched = api.patch(f"{SETS}/s", {"spec": {"replicas": 3}})
    assert patched["metadata"]["generation"] == created["metadata"]["generation"] + 1


def test_optional_old_values_are_seen_by_rules_at_creation() -> None:
    rule = {"rule": "self.n > oldSelf.optMap(o, o.n).orValue(10)", "optionalOldSelf": True, "message": "must grow"}
    api = with_spec(n={"type": "integer"}, rules=[rule])
    assert causes(api, toy(n=3)) == [("spec", "Invalid value: must grow")]
    api.create(TOYS, toy(n=11))
    assert api.call("PATCH", f"{TOYS}/a", {"spec": {"n": 10}}, type_="application/merge-patch+json").status == 422
    api.patch(f"{TOYS}/a", {"spec": {"n": 12}})


def test_what_did_not_change_is_not_judged_by_a_stricter_schema() -> None:
    api = with_spec(old={"type": "string"}, new={"type": "string"})
    api.create(TOYS, toy(old="long", new="a"))
    crd = api.get(f"{CRDS}/toys.example.com")
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 2} for name in ("old", "new")}}
    stricter = make_definition("Toy", schema)
    api.update(f"{CRDS}/toys.example.com", {**crd, "spec": stricter["spec"]})
    api.patch(f"{TOYS}/a", {"spec": {"new": "b"}})
    assert api.call("PATCH", f"{TOYS}/a", {"spec": {"new": "bcd"}}, type_="application/merge-patch+json").status == 422


def test_the_status_is_written_apart() -> None:
    api = serving(job_set())
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {}}
    created = api.create(JOBS, {**job, "status": {"restarts": 3}})
    assert "status" not in created
    written = api.patch(f"{JOBS}/j/status", {"status": {"restarts": 1, "other": 2}, "spec": {"suspend": True}})
    assert (written["status"], written["spec"]) == ({"restarts": 1}, {})
    assert written["metadata"]["generation"] == 1
    wrong = api.call("PATCH", f"{JOBS}/j/status", {"status": {"restarts": "x"}}, type_="application/merge-patch+json")
    assert wrong.status == 422


def test_scale_reads_and_writes_the_paths_of_the_definition() -> None:
    api = serving(leader_worker_set())
    api.create(SETS, leader_worker())
    api.patch(f"{SETS}/s/status", {"status": {"replicas": 1, "hpaPodSelector": "a=b"}})
    assert api.get(f"{SETS}/s/scale")["status"] == {"replicas": 1, "selector": "a=b"}
    scaled = api.patch(f"{SETS}/s/scale", {"spec": {"replicas": 4}})
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 4})
    assert api.get(f"{SETS}/s")["spec"]["replicas"] == 4
    assert (
        api.call("PATCH", f"{SETS}/s/scale", {"spec": {"replicas": -1}}, type_="application/merge-patch+json").status
        == 422
    )


def table(api: Api, path: str) -> tuple[list[str], list[list[JSON]]]:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = finish(Front(api.server, api.clock).answer(ApiRequest("GET", path, (), {"accept": accept})))
    assert not isinstance(answer, Streamed) and isinstance(answer.body, dict)
    names = [column["name"] for column in answer.body["columnDefinitions"]]
    return names, [row["cells"] for row in answer.body["rows"]]


def test_columns_show_what_their_paths_find() -> None:
    api = serving(job_set(), training_job())
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {}}
    api.create(JOBS, job)
    api.patch(f"{JOBS}/j/status", {"status": {"conditions": [{"type": "Completed", "status": "True"}]}})
    assert table(api, JOBS) == (["Name", "TerminalState", "Completed", "Age"], [["j", None, "True", "0s"]])
    path = "/apis/trainer.kubeflow.org/v1/namespaces/default/trainjobs"
    spec = {"replicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {"containers": [{"name": "a"}]}}}}}
    train = {"apiVersion": "trainer.kubeflow.org/v1", "kind": "TrainJob", "metadata": {"name": "t"}, "spec": spec}
    assert api.create(path, train)["spec"] == spec
    assert table(api, path) == (["Name", "State", "Workers"], [["t", None, 3]])


def test_patches_are_merge_json_and_apply() -> None:
    api = serving(cluster_queue())
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"}}
    path = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q"
    applied = {**queue, "spec": {"cohort": "a"}}
    assert api.call("PATCH", path, applied, type_=APPLY_PATCH, fieldManager="me").status == 201
    api.patch(path, [{"op": "replace", "path": "/spec/cohort", "value": "b"}], type_=JSON_PATCH)
    assert api.get(path)["spec"]["cohort"] == "b"
    assert api.call("PATCH", path, {"spec": {}}, type_=STRATEGIC_MERGE_PATCH).status == 415


def test_apply_merges_keyed_lists_by_the_schema_of_the_definition() -> None:
    api = serving(job_set())
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}}
    api.create(JOBS, {**job, "spec": {}})
    for manager, type_ in (("one", "A"), ("two", "B")):
        status = {"conditions": [{"type": type_, "status": "True"}]}
        body = {**job, "status": status}
        assert api.call("PATCH", f"{JOBS}/j/status", body, type_=APPLY_PATCH, fieldManager=manager).status == 200
    assert [entry["type"] for entry in api.get(f"{JOBS}/j")["status"]["conditions"]] == ["A", "B"]


def test_objects_are_selected_by_the_fields_that_the_definition_names() -> None:
    spec = {"type": "object", "properties": {"color": {"type": "string"}}}
    api = serving(make_definition("Toy", spec, selectableFields=[{"jsonPath": ".spec.color"}]))
    for name, color in (("a", "red"), ("b", "blue")):
        api.create(TOYS, toy(name, color=color))
    found = api.get(TOYS, fieldSelector="spec.color=red")["items"]
    assert [item["metadata"]["name"] for item in found] == ["a"]
    assert api.call("GET", TOYS, fieldSelector="spec.size=1").status == 400


def test_metadata_of_custom_objects_has_the_types_of_all_metadata() -> None:
    api = with_spec()
    wrong = toy()
    wrong["metadata"]["labels"] = {"a": 1}
    assert api.call("POST", TOYS, wrong).status == 400
    replaced = api.create(TOYS, toy("b"))
    del replaced["metadata"]["resourceVersion"]
    assert api.call("PUT", f"{TOYS}/b", replaced).status == 422


def test_old_versions_of_a_kind_warn() -> None:
    api = serving(make_definition("Toy", deprecated=True))
    answer = api.call("GET", TOYS)
    assert answer.headers["Warning"] == '299 - "example.com/v1 Toy is deprecated"'
