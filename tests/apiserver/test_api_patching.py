"""Patches and decoding as functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import JSON, Object, copy
from muster.api.resource import NODES, PODS
from muster.apiserver.applying import merged
from muster.apiserver.decoding import Types, WrongValue
from muster.apiserver.patching import merge_patch, strategic_merge
from muster.apiserver.schema import schema_for

POD = schema_for("", "v1", "Pod")
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.sampled_from("xyz")),
    lambda inner: st.one_of(st.dictionaries(st.sampled_from("abc"), inner, max_size=3), st.lists(inner, max_size=2)),
    max_leaves=8,
)


def plain_merge(target: JSON, patch: JSON) -> JSON:
    """RFC 7386 word for word."""
    if not isinstance(patch, dict):
        return patch
    result = copy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            if name in result:
                del result[name]
        else:
            result[name] = plain_merge(result.get(name), value)
    return result


@given(VALUES, VALUES)
def test_a_merge_patch_is_that_of_the_rfc_and_changes_nothing_in_place(target: JSON, patch: JSON) -> None:
    before = copy(target), copy(patch)
    assert merge_patch(target, patch) == plain_merge(target, patch)
    assert (target, patch) == before


@given(VALUES, VALUES)
def test_a_merge_patch_applied_twice_is_applied_once(target: JSON, patch: JSON) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def pod(*names: str, **spec: JSON) -> Object:
    return {"spec": {"containers": [{"name": name, "image": "old"} for name in names], **spec}}


def containers(result: JSON) -> list[tuple[str, str]]:
    return [(container["name"], container.get("image", "")) for container in result["spec"]["containers"]]


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        ([{"name": "b", "image": "new"}], [("a", "old"), ("b", "new")]),
        ([{"name": "c", "image": "new"}], [("c", "new"), ("a", "old"), ("b", "old")]),
        ([{"name": "a", "$patch": "delete"}], [("b", "old")]),
        ([{"$patch": "replace"}, {"name": "z", "image": "new"}], [("z", "new")]),
    ],
    ids=["merge", "add", "delete", "replace"],
)
def test_lists_with_a_merge_key_merge_by_it(patch: list[Object], want: list[tuple[str, str]]) -> None:
    assert containers(strategic_merge(pod("a", "b"), {"spec": {"containers": patch}}, POD)) == want


def test_set_element_order_orders() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert containers(strategic_merge(pod("a", "b"), patch, POD)) == [("b", "old"), ("a", "old")]


def test_retain_keys_drops_the_others() -> None:
    volume = {"name": "v", "emptyDir": {}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}
    result = strategic_merge(pod("a", volumes=[volume]), patch, POD)
    assert result["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/"}}]


def test_lists_of_plain_values_unite_and_items_can_be_removed() -> None:
    target = {"metadata": {"finalizers": ["a", "b"]}}
    united = strategic_merge(target, {"metadata": {"finalizers": ["b", "c"]}}, POD)
    assert united["metadata"]["finalizers"] == ["a", "b", "c"]
    removed = strategic_merge(target, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, POD)
    assert removed["metadata"]["finalizers"] == ["b"]


def test_lists_without_a_merge_key_are_replaced() -> None:
    tolerations = [{"key": "a"}]
    result = strategic_merge(pod("a", tolerations=tolerations), {"spec": {"tolerations": [{"key": "b"}]}}, POD)
    assert result["spec"]["tolerations"] == [{"key": "b"}]


def test_applied_lists_merge_by_their_keys() -> None:
    applied = {"spec": {"containers": [{"name": "b", "image": "new"}, {"name": "c", "image": "new"}]}}
    assert containers(merged(pod("a", "b"), applied, POD)) == [("a", "old"), ("b", "new"), ("c", "new")]


def test_ports_are_told_apart_by_number_and_protocol() -> None:
    target = {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}]}]}}
    applied = {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 53}]}]}}
    (container,) = merged(target, applied, POD)["spec"]["containers"]
    assert len(container["ports"]) == 2


def test_decoding_copies_and_leaves_out_nulls_and_unknown_fields() -> None:
    sent = {
        "metadata": {"name": "p", "creationTimestamp": None, "labels": {}},
        "spec": {"containers": [{"name": "c", "odd": 1, "resources": {"limits": {"cpu": "0.5"}}}], "volumes": []},
        "extra": {},
    }
    obj, unknown = Types().decode(PODS, sent)
    assert unknown == ["spec.containers[0].odd", "extra"]
    assert obj == {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}}]},
    }
    assert obj["metadata"] is not sent["metadata"]


@pytest.mark.parametrize(
    ("value", "want_message"),
    [
        (
            {"spec": {"containers": [{"ports": [{"containerPort": 2**31}]}]}},
            "json: cannot unmarshal number 2147483648 into Go struct field "
            "ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        ({"spec": []}, "json: cannot unmarshal array into Go struct field Pod.spec of type PodSpec"),
        (
            {"spec": {"hostNetwork": "yes"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
    ],
    ids=["range", "list", "string"],
)
def test_wrong_types_are_told_as_go_tells_them(value: Object, want_message: str) -> None:
    with pytest.raises(WrongValue) as raised:
        Types().decode(PODS, value)
    assert raised.value.message("Pod") == want_message


def test_a_release_knows_its_own_fields_only() -> None:
    pod_spec = {"spec": {"schedulingGroup": {"podGroupName": "g"}, "workloadRef": {"name": "w", "podGroup": "p"}}}
    assert Types("1.35").decode(PODS, pod_spec)[1] == ["spec.schedulingGroup"]
    assert Types("1.36").decode(PODS, pod_spec)[1] == ["spec.workloadRef"]
    assert Types().decode(PODS, pod_spec)[1] == []


def test_kinds_without_a_schema_are_copied() -> None:
    from muster.api.resource import Resource

    sent = {"metadata": {"name": "x"}, "anything": [1]}
    obj, unknown = Types().decode(Resource("example.test", "v1", "things", "Thing"), sent)
    assert (obj, unknown) == (sent, [])
    assert obj is not sent
    assert Types().schema(NODES) is not None
