"""Claims for volumes and their templates in StatefulSets: what is refused, data sources, what may change."""

from __future__ import annotations

import pytest
from serving import Api

from muster.api.codec import JSON, Object

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
FIXED = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound"


def causes(status: Object) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]


def claim_spec(**fields: JSON) -> Object:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, **fields}


def claim(**fields: JSON) -> Object:
    meta = {"name": "c"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim_spec(**fields)}


WRONG: list[tuple[Object, list[tuple[str, str]]]] = [
    ({"accessModes": []}, [("accessModes", "Required value: at least 1 access mode is required")]),
    (
        {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
        [("accessModes", "Forbidden: may not use ReadWriteOncePod with other access modes")],
    ),
    ({"resources": {}}, [("resources[storage]", "Required value")]),
    (
        {"resources": {"requests": {"storage": "0"}}},
        [("resources[storage]", 'Invalid value: "0": must be greater than zero')],
    ),
    (
        {"volumeMode": "Tape"},
        [("volumeMode", 'Unsupported value: "Tape": supported values: "Block", "Filesystem"')],
    ),
]


@pytest.mark.parametrize(("fields", "want"), WRONG)
def test_claim_says_how_much_and_for_whom(fields: Object, want: list[tuple[str, str]]) -> None:
    found = causes(Api().refuse(422, "POST", CLAIMS, claim(**fields)))
    assert found == [(f"spec.{field}", text) for field, text in want]


def stateful_set(*templates: Object, mounts: str = "data") -> Object:
    container = {"name": "main", "image": "x", "volumeMounts": [{"name": mounts, "mountPath": "/data"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "volumeClaimTemplates": list(templates)}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize(("fields", "want"), WRONG)
def test_templates_of_claims_follow_the_same_rules(fields: Object, want: list[tuple[str, str]]) -> None:
    template = {"metadata": {"name": "data"}, "spec": claim_spec(**fields)}
    found = causes(Api().refuse(422, "POST", SETS, stateful_set(template)))
    assert found == [(f"spec.volumeClaimTemplates[0].spec.{field}", text) for field, text in want]


def test_pods_of_a_set_mount_its_claims_and_nothing_else() -> None:
    template = {"metadata": {"name": "data"}, "spec": claim_spec()}
    made = Api().create(SETS, stateful_set(template))
    assert made["spec"]["volumeClaimTemplates"][0]["status"] == {"phase": "Pending"}
    refused = causes(Api().refuse(422, "POST", SETS, stateful_set(template, mounts="other")))
    assert refused == [("spec.template.spec.containers[0].volumeMounts[0].name", 'Not found: "other"')]


def test_name_of_a_template_is_that_of_a_volume() -> None:
    template = {"metadata": {"name": "a.b"}, "spec": claim_spec()}
    refused = causes(Api().refuse(422, "POST", SETS, stateful_set(template, mounts="a.b")))
    assert refused[0][0] == "spec.template.spec.volumes[0].name"


def test_both_fields_for_a_data_source_say_the_same() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "other"}
    for field in ("dataSource", "dataSourceRef"):
        spec = Api().create(CLAIMS, claim(**{field: source}))["spec"]
        assert spec["dataSource"] == spec["dataSourceRef"] == source
    other = {"kind": "Odd", "name": "other", "apiGroup": "example.com"}
    assert "dataSource" not in Api().create(CLAIMS, claim(dataSource=other))["spec"]
    assert Api().create(CLAIMS, claim(dataSourceRef=other))["spec"]["dataSource"] == other
    both = claim(dataSource=source, dataSourceRef={**source, "name": "third"})
    assert causes(Api().refuse(422, "POST", CLAIMS, both)) == [
        ("spec", 'Invalid value: "spec.dataSource": must match dataSourceRef')
    ]


def test_claim_that_waits_changes_nothing_but_its_volume() -> None:
    api = Api()
    api.create(CLAIMS, claim(storageClassName="fast"))
    grown = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    ((field, message),) = causes(api.refuse(422, "PATCH", f"{CLAIMS}/c", grown, type_="application/merge-patch+json"))
    assert field == "spec" and message.startswith(FIXED)
    assert '-   "storage": "2Gi"\n+   "storage": "3Gi"\n' in message
    assert api.patch(f"{CLAIMS}/c", {"spec": {"volumeName": "pv"}})["spec"]["volumeName"] == "pv"
    api.refuse(422, "PATCH", f"{CLAIMS}/c", {"spec": {"volumeName": "pv2"}}, type_="application/merge-patch+json")


def test_bound_claim_grows_and_does_not_shrink_below_its_volume() -> None:
    api = Api()
    api.create(CLAIMS, claim(storageClassName="fast"))
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    api.patch(f"{CLAIMS}/c/status", bound)
    api.patch(f"{CLAIMS}/c", {"spec": {"resources": {"requests": {"storage": "3Gi"}}}})
    smaller = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    refused = api.refuse(422, "PATCH", f"{CLAIMS}/c", smaller, type_="application/merge-patch+json")
    why = "Forbidden: field can not be less than status.capacity"
    assert causes(refused) == [("spec.resources.requests.storage", why)]


def test_parts_of_bytes_are_warned_of() -> None:
    answer = Api().call("POST", CLAIMS, claim(resources={"requests": {"storage": "1500m"}}))
    assert answer.status == 201 and "fractional byte value" in answer.headers["Warning"]
