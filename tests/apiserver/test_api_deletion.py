"""How objects go: grace periods, finalizers, propagation, preconditions."""

from __future__ import annotations

import pytest
from serving import CONFIG_MAPS, JOBS, PODS, Api, config_map

from muster.api.codec import Object
from muster.testing import make_job, make_pod


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_completed_deletion_answers_with_a_status_and_a_pods_with_the_pod(api: Api) -> None:
    uid = api.create(CONFIG_MAPS, config_map())["metadata"]["uid"]
    details = {"name": "settings", "kind": "configmaps", "uid": uid}
    assert api.delete(CONFIG_MAPS + "/settings")["details"] == details
    api.create(PODS, make_pod("p"))
    assert api.delete(PODS + "/p")["kind"] == "Pod"


def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    api.create(PODS, make_pod("p"))
    api.delete(PODS + "/p")
    api.refuse(404, "GET", PODS + "/p")


def test_a_bound_pod_waits_for_its_node(api: Api) -> None:
    api.create(PODS, make_pod("p", node="n"))
    marked = api.delete(PODS + "/p")["metadata"]
    assert marked["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (30, 2)
    assert api.get(PODS + "/p")["metadata"]["deletionTimestamp"]
    api.delete(PODS + "/p", {"gracePeriodSeconds": 0})
    api.refuse(404, "GET", PODS + "/p")


@pytest.mark.parametrize(
    ("grace", "want_left"), [(5, 5), (60, 30), (-1, 1)], ids=["shorter counts", "longer is ignored", "negative is 1"]
)
def test_a_second_delete_may_only_shorten_the_wait(api: Api, grace: int, want_left: int) -> None:
    api.create(PODS, make_pod("p", node="n"))
    api.delete(PODS + "/p")
    after = api.delete(PODS + "/p", {"gracePeriodSeconds": grace})["metadata"]
    assert after["deletionGracePeriodSeconds"] == want_left
    assert after["deletionTimestamp"] == f"2026-01-01T00:00:{want_left:02}Z"


def test_an_ended_pod_goes_at_once(api: Api) -> None:
    api.create(PODS, make_pod("p", node="n"))
    api.patch(PODS + "/p/status", {"status": {"phase": "Succeeded"}})
    api.delete(PODS + "/p")
    api.refuse(404, "GET", PODS + "/p")


def test_a_finalizer_keeps_the_object_until_it_is_removed(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map(finalizers=["example.test/hold"]))
    path = CONFIG_MAPS + "/settings"
    assert api.delete(path)["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    before = api.store.revision
    api.delete(path)
    assert api.store.revision == before
    api.patch(path, {"metadata": {"finalizers": []}})
    api.refuse(404, "GET", path)


def test_no_new_finalizer_while_deleting(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map(finalizers=["example.test/hold"]))
    api.delete(CONFIG_MAPS + "/settings")
    more = {"metadata": {"finalizers": ["example.test/hold", "example.test/late"]}}
    status = api.refuse(422, "PATCH", f"{CONFIG_MAPS}/settings", more, type_="application/merge-patch+json")
    assert 'found new finalizers []string{"example.test/late"}' in status["message"]


@pytest.mark.parametrize(
    ("policy", "want_finalizers"),
    [("Orphan", ["orphan"]), ("Foreground", ["foregroundDeletion"])],
)
def test_propagation_is_told_to_the_collector(api: Api, policy: str, want_finalizers: list[str]) -> None:
    api.create(CONFIG_MAPS, config_map())
    kept = api.delete(CONFIG_MAPS + "/settings", {"propagationPolicy": policy})
    assert kept["metadata"]["finalizers"] == want_finalizers


@pytest.mark.parametrize(
    ("query", "want_finalizers"),
    [({}, ["orphan"]), ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"])],
    ids=["a Job leaves its pods by default", "options may come in the query"],
)
def test_deletion_of_jobs(api: Api, query: dict[str, str], want_finalizers: list[str]) -> None:
    api.create(JOBS, make_job("j"))
    assert api.delete(JOBS + "/j", None, **query)["metadata"]["finalizers"] == want_finalizers


def test_a_background_deletion_of_a_job_is_complete(api: Api) -> None:
    api.create(JOBS, make_job("j"))
    assert api.delete(JOBS + "/j", {"propagationPolicy": "Background"})["status"] == "Success"


@pytest.mark.parametrize("preconditions", [{"uid": "other"}, {"resourceVersion": "1"}], ids=["uid", "resourceVersion"])
def test_preconditions_must_hold(api: Api, preconditions: Object) -> None:
    api.create(CONFIG_MAPS, config_map())
    status = api.refuse(409, "DELETE", CONFIG_MAPS + "/settings", {"preconditions": preconditions})
    assert status["reason"] == "Conflict"


def test_an_unknown_propagation_policy_is_refused(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map())
    status = api.refuse(422, "DELETE", CONFIG_MAPS + "/settings", {"propagationPolicy": "Sideways"})
    assert 'supported values: "Foreground", "Background", "Orphan", "nil"' in status["message"]


def test_delete_collection_takes_what_the_selector_matches(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        api.create(CONFIG_MAPS, config_map(name, labels={"app": app}))
    gone = api.delete(CONFIG_MAPS, labelSelector="app=x")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in api.get(CONFIG_MAPS)["items"]] == ["b"]


def test_the_default_namespace_stays(api: Api) -> None:
    status = api.refuse(403, "DELETE", "/api/v1/namespaces/default")
    assert status["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'
