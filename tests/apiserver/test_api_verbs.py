"""Create, get, update, patch and delete, as every kind has them."""

from __future__ import annotations

import random

import pytest
from serving import CONFIG_MAPS, JOBS, PODS, Api, causes, config_map

from muster.api.codec import Object
from muster.apiserver.metadata import generate_name, random_uid
from muster.apiserver.options import ServerOptions
from muster.client.transport import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH
from muster.testing import make_job, make_pod


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_new_object_gets_uid_time_and_version(api: Api) -> None:
    meta = api.create(CONFIG_MAPS, config_map())["metadata"]
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert meta["namespace"] == "default"


def test_the_senders_object_is_not_changed_and_not_shared(api: Api) -> None:
    sent = config_map()
    stored = api.create(CONFIG_MAPS, sent)
    sent["data"]["key"] = "changed later"
    assert "uid" not in sent["metadata"]
    assert stored["data"] == {"key": "old"}


def test_generate_name_adds_five_characters(api: Api) -> None:
    body = {"metadata": {"generateName": "job-"}}
    names = [api.create(CONFIG_MAPS, body)["metadata"]["name"] for _ in range(2)]
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
    assert names[0] != names[1]


def test_a_generated_name_that_is_taken_is_drawn_again() -> None:
    metadata: Object = {"generateName": "a-"}
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return len(asked) < 4

    generate_name(metadata, random.Random(1), is_taken)
    assert metadata["name"] == asked[-1]
    assert len(set(asked)) == 4


def test_an_existing_name_is_a_conflict(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map())
    status = api.refuse(409, "POST", CONFIG_MAPS, config_map())
    assert status["reason"] == "AlreadyExists"
    assert status["message"] == 'configmaps "settings" already exists'
    assert status["details"] == {"name": "settings", "kind": "configmaps"}


def test_the_server_decides_uid_and_deletion(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map(uid="mine", deletionTimestamp="2020-01-01T00:00:00Z", generation=7))
    assert made["metadata"]["uid"] != "mine"
    assert "deletionTimestamp" not in made["metadata"]
    assert made["metadata"]["generation"] == 7  # as upstream, where nothing counts generations of the kind


@pytest.mark.parametrize(
    ("path", "body", "want_code", "want_message"),
    [
        (CONFIG_MAPS + "/none", None, 404, 'configmaps "none" not found'),
        ("/api/v1/namespaces/none/configmaps", config_map(), 404, 'namespaces "none" not found'),
        ("/api/v1/configmaps", config_map(), 405, "the server does not allow this method on the requested resource"),
        (
            CONFIG_MAPS,
            config_map(namespace="other"),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("/api/v1/namespaces/default/unknown", None, 404, "the server could not find the requested resource"),
    ],
    ids=["missing", "namespace missing", "across namespaces", "other namespace", "unknown resource"],
)
def test_refusals(api: Api, path: str, body: Object | None, want_code: int, want_message: str) -> None:
    assert api.refuse(want_code, "POST" if body else "GET", path, body)["message"] == want_message


def test_an_unknown_version_is_a_plain_404(api: Api) -> None:
    response = api.call("GET", "/apis/scheduling.k8s.io/v9/namespaces/default/podgroups")
    assert (response.status, response.body) == (404, b"404 page not found\n")


def test_a_terminating_namespace_takes_nothing_new(api: Api) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": "old"}})
    assert api.delete("/api/v1/namespaces/old")["status"] == {"phase": "Terminating"}
    status = api.refuse(403, "POST", "/api/v1/namespaces/old/configmaps", config_map())
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"


def test_a_namespace_goes_when_it_is_finalized(api: Api) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": "old"}})
    terminating = api.delete("/api/v1/namespaces/old")
    api.call("PUT", "/api/v1/namespaces/old/finalize", {**terminating, "spec": {}})
    api.refuse(404, "GET", "/api/v1/namespaces/old")


def test_update_of_an_old_version_is_a_conflict(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map())
    api.update(CONFIG_MAPS + "/settings", {**made, "data": {"key": "new"}})
    status = api.refuse(409, "PUT", CONFIG_MAPS + "/settings", {**made, "data": {"key": "late"}})
    assert status["message"].endswith(
        "the object has been modified; please apply your changes to the latest version and try again"
    )


def test_update_without_a_change_writes_nothing(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map())
    before = api.store.revision
    assert api.update(CONFIG_MAPS + "/settings", made) == made
    assert api.store.revision == before


def test_update_cannot_change_what_the_server_decides(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map())
    changed = {**made, "metadata": {**made["metadata"], "creationTimestamp": "1999-01-01T00:00:00Z"}}
    after = api.update(CONFIG_MAPS + "/settings", {**changed, "data": {}})
    assert after["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_update_of_another_uid_is_a_conflict(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map())
    body = {**made, "metadata": {"name": "settings", "uid": "other"}}
    assert (
        "Precondition failed: UID in precondition: other"
        in api.refuse(409, "PUT", f"{CONFIG_MAPS}/settings", body)["message"]
    )


def test_dry_run_answers_and_stores_nothing(api: Api) -> None:
    before = api.store.revision
    assert api.create(CONFIG_MAPS, config_map(), dryRun="All")["metadata"]["uid"]
    assert api.store.revision == before
    api.refuse(404, "GET", CONFIG_MAPS + "/settings")


def test_generation_counts_changes_of_the_spec_only(api: Api) -> None:
    api.create(JOBS, make_job("j", parallelism=2))
    job = JOBS + "/j"
    assert api.patch(job, {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert api.patch(job + "/status", {"status": {"active": 2}})["metadata"]["generation"] == 1
    assert api.patch(job, {"spec": {"suspend": True}})["metadata"]["generation"] == 2


def test_the_main_resource_does_not_change_the_status_nor_the_other_way(api: Api) -> None:
    api.create(PODS, make_pod("p"))
    assert api.patch(PODS + "/p", {"status": {"phase": "Running"}})["status"]["phase"] == "Pending"
    after = api.patch(PODS + "/p/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}})
    assert after["status"]["phase"] == "Running"
    assert "nodeName" not in after["spec"]


@pytest.mark.parametrize(
    ("type_", "patch", "want_data"),
    [
        ("application/merge-patch+json", {"data": {"key": None, "new": "1"}}, {"new": "1"}),
        (STRATEGIC_MERGE_PATCH, {"data": {"$patch": "replace", "new": "1"}}, {"new": "1"}),
        (JSON_PATCH, [{"op": "replace", "path": "/data/key", "value": "2"}], {"key": "2"}),
    ],
    ids=["merge", "strategic", "json"],
)
def test_patch_types(api: Api, type_: str, patch: Object, want_data: Object) -> None:
    api.create(CONFIG_MAPS, config_map())
    assert api.patch(CONFIG_MAPS + "/settings", patch, type_=type_)["data"] == want_data


def test_a_json_patch_that_does_not_apply_is_refused(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map())
    operations = [{"op": "test", "path": "/data/key", "value": "other"}]
    status = api.refuse(422, "PATCH", CONFIG_MAPS + "/settings", operations, type_=JSON_PATCH)
    assert status["message"] == "the server rejected our request due to an error in our request"


def test_apply_creates_and_then_merges(api: Api) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
    first = api.call("PATCH", CONFIG_MAPS + "/settings", applied, type_=APPLY_PATCH, fieldManager="me")
    assert first.status == 201
    second = api.patch(
        CONFIG_MAPS + "/settings", {**applied, "data": {"b": "2"}}, type_=APPLY_PATCH, fieldManager="you"
    )
    assert second["data"] == {"a": "1", "b": "2"}


def test_apply_needs_a_field_manager(api: Api) -> None:
    status = api.refuse(422, "PATCH", CONFIG_MAPS + "/settings", config_map(), type_=APPLY_PATCH)
    assert causes(status) == [("fieldManager", "Required")]


@pytest.mark.parametrize(
    ("validation", "want_code", "want_warning"),
    [("Strict", 400, ""), ("Warn", 201, '299 - "unknown field \\"bogus\\""'), ("Ignore", 201, "")],
)
def test_unknown_fields_are_left_out(api: Api, validation: str, want_code: int, want_warning: str) -> None:
    response = api.call("POST", CONFIG_MAPS, {**config_map(), "bogus": 1}, fieldValidation=validation)
    assert response.status == want_code
    assert response.headers.get("Warning", "") == want_warning
    assert "bogus" not in response.body


def test_strict_validation_finds_repeated_fields_in_the_text(api: Api) -> None:
    text = b'{"metadata":{"name":"dup"},"data":{"a":"1","a":"2"}}'
    status = api.refuse(400, "POST", CONFIG_MAPS, text, fieldValidation="Strict")
    assert status["message"].endswith('strict decoding error: duplicate field "data.a"')


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("application/json", b'{"metadata":{"name":"dup"},"data":{"a":"1","a":"2"}}'),
        ("application/yaml", b"metadata: {name: dup}\ndata:\n  a: '1'\n  a: '2'\n"),
    ],
)
@pytest.mark.parametrize(
    ("validation", "want_code", "want_warning"),
    [("Strict", 400, ""), ("Warn", 201, '299 - "duplicate field \\"data.a\\""'), ("Ignore", 201, "")],
)
def test_repeated_fields_are_treated_as_unknown_ones_are(
    api: Api, type_: str, text: bytes, validation: str, want_code: int, want_warning: str
) -> None:
    response = api.call("POST", CONFIG_MAPS, text, type_=type_, fieldValidation=validation)
    assert response.status == want_code
    assert response.headers.get("Warning", "") == want_warning


def test_yaml_keeps_dates_as_texts(api: Api) -> None:
    text = b"metadata: {name: dated}\ndata:\n  day: 2026-04-03T00:00:00Z\n"
    response = api.call("POST", CONFIG_MAPS, text, type_="application/yaml")
    assert isinstance(response.body, dict)
    assert response.body["data"] == {"day": "2026-04-03T00:00:00Z"}


def test_bad_names_labels_and_finalizers_are_named(api: Api) -> None:
    body = config_map("Bad_Name", labels={"ok": "not ok!"}, finalizers=["bare"])
    status = api.refuse(422, "POST", CONFIG_MAPS, body)
    assert causes(status) == [
        ("metadata.name", "Invalid"),
        ("metadata.labels", "Invalid"),
        ("metadata.finalizers[0]", "Invalid"),
    ]


def test_every_error_of_a_failed_handler_is_an_answer(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.server._verbs.create = None  # type: ignore[method-assign,assignment]  # anything that raises
    assert api.refuse(500, "POST", CONFIG_MAPS, config_map())["reason"] == "InternalError"
    assert "request failed" in caplog.text


def test_a_restarted_server_keeps_what_is_there(api: Api) -> None:
    before = api.store.revision
    again = Api.__new__(Api)
    again.clock, again.store = api.clock, api.store
    again.server = type(api.server)(api.store, api.clock, api.server._rng, ServerOptions())
    assert api.store.revision == before


@pytest.mark.parametrize("seed_pair", [(1, 1), (1, 2)], ids=["same seed", "other seed"])
def test_uids_depend_on_the_seed_alone(seed_pair: tuple[int, int]) -> None:
    one, other = (random_uid(random.Random(seed)) for seed in seed_pair)
    assert (one == other) == (seed_pair[0] == seed_pair[1])
