"""Server-side apply: owners, conflicts, what is given up."""

from __future__ import annotations

import pytest
from serving import CONFIG_MAPS, PODS, Api, config_map

from muster.api.codec import JSON, Object
from muster.client.transport import APPLY_PATCH, MERGE_PATCH

PATH = f"{CONFIG_MAPS}/settings"


@pytest.fixture
def api() -> Api:
    return Api()


def config(**data: JSON) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


def apply(api: Api, manager: str, body: Object, path: str = PATH, **query: str) -> Object:
    return api.patch(path, body, type_=APPLY_PATCH, fieldManager=manager, **query)


def owners(obj: Object) -> dict[str, Object]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def test_apply_creates_what_is_missing_and_notes_who_owns_it(api: Api) -> None:
    obj = apply(api, "one", config(x="1"))
    assert obj["data"] == {"x": "1"}
    assert owners(obj) == {"one": {"f:data": {"f:x": {}}}}


def test_a_field_that_its_only_applier_leaves_out_goes(api: Api) -> None:
    apply(api, "one", config(x="1", y="1"))
    apply(api, "two", config(y="1"))
    assert apply(api, "one", config())["data"] == {"y": "1"}


def test_a_field_of_somebody_else_is_a_conflict_until_forced(api: Api) -> None:
    apply(api, "one", config(x="1"))
    status = api.refuse(409, "PATCH", PATH, config(x="2"), type_=APPLY_PATCH, fieldManager="two")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    obj = apply(api, "two", config(x="2"), force="true")
    assert (obj["data"], owners(obj)) == ({"x": "2"}, {"two": {"f:data": {"f:x": {}}}})


def test_several_conflicts_are_listed_by_manager(api: Api) -> None:
    apply(api, "one", config(x="1", y="1"))
    status = api.refuse(409, "PATCH", PATH, config(x="2", y="2"), type_=APPLY_PATCH, fieldManager="two")
    assert status["message"] == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'


def test_updates_take_fields_over(api: Api) -> None:
    apply(api, "one", config(x="1"))
    obj = api.patch(PATH, {"data": {"x": "3"}}, type_=MERGE_PATCH, fieldManager="ed")
    assert owners(obj) == {"ed": {"f:data": {"f:x": {}}}}


def test_fields_of_an_untracked_object_belong_to_before_first_apply(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map())
    status = api.refuse(409, "PATCH", PATH, config(key="new"), type_=APPLY_PATCH, fieldManager="one")
    assert status["details"]["causes"][0]["message"] == 'conflict with "before-first-apply" using v1'


def test_applying_the_same_again_writes_nothing(api: Api) -> None:
    first = apply(api, "one", config(x="1"))
    api.clock.now_s += 60
    assert apply(api, "one", config(x="1")) == first


def test_containers_merge_by_name_and_go_with_their_applier(api: Api) -> None:
    def pod(*names: str) -> Object:
        containers = [{"name": name, "image": "i"} for name in names]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}

    obj = apply(api, "one", pod("a", "b"), f"{PODS}/p")
    assert [container["name"] for container in obj["spec"]["containers"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ({"data": {"x": 5}}, ".data.x: expected string, got &value.valueUnstructured{Value:5}"),
        ({"odd": "1"}, ".odd: field not declared in schema"),
    ],
    ids=["wrong type", "unknown field"],
)
def test_what_does_not_fit_the_schema_is_not_applied(api: Api, body: Object, want: str) -> None:
    status = api.refuse(500, "PATCH", PATH, {**config(), **body}, type_=APPLY_PATCH, fieldManager="one")
    assert status["message"] == f"failed to create typed patch object (/settings; /v1, Kind=ConfigMap): {want}"
