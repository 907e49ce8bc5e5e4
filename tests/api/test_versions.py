"""Conversion of Workloads and PodGroups: what is lossless stays equal, and nothing is changed in place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.api.codec import JSON, Object, copy_object
from muster.api.versions import from_hub, losses, to_hub

NAMES = st.sampled_from(["a", "b", "c", "d"])
POLICIES: st.SearchStrategy[Object] = st.one_of(
    st.just({"basic": {}}), st.integers(1, 9).map(lambda count: {"gang": {"minCount": count}})
)
CONDITIONS = st.lists(st.sampled_from(["PodGroupScheduled", "DisruptionTarget"]), unique=True).map(
    lambda types: [{"type": type_, "status": "True", "reason": "R"} for type_ in types]
)


def optional(fields: dict[str, st.SearchStrategy[JSON]]) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=fields)


SHARED: dict[str, st.SearchStrategy[JSON]] = {
    "schedulingConstraints": st.just({"topology": [{"key": "rack"}]}),
    "resourceClaims": st.just([{"name": "c", "resourceClaimName": "r"}]),
    "priorityClassName": NAMES,
    "priority": st.integers(-5, 5),
    "disruptionMode": st.sampled_from(["Pod", "PodGroup"]),
}


@st.composite
def workloads(draw: st.DrawFn, version: str) -> Object:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    if version == "v1alpha1":
        spec: Object = {"podGroups": [{"name": name, "policy": draw(POLICIES)} for name in names]}
    else:
        spec = {
            "podGroupTemplates": [
                {"name": name, "schedulingPolicy": draw(POLICIES), **draw(optional(SHARED))} for name in names
            ]
        }
    reference = draw(optional({"controllerRef": st.just({"apiGroup": "batch", "kind": "Job", "name": "j"})}))
    return _object("Workload", version, {**spec, **reference})


@st.composite
def pod_groups(draw: st.DrawFn) -> Object:
    reference = st.fixed_dictionaries({"workloadName": NAMES, "podGroupTemplateName": NAMES})
    fields = {**SHARED, "podGroupTemplateRef": reference.map(lambda value: {"workload": value})}
    spec = {"schedulingPolicy": draw(POLICIES), **draw(optional(fields))}
    status = draw(optional({"conditions": CONDITIONS}))
    return {**_object("PodGroup", "v1alpha2", spec), **({"status": status} if status else {})}


def _object(kind: str, version: str, spec: Object) -> Object:
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def through_hub(obj: Object, version: str) -> Object:
    before = copy_object(obj)
    hub = to_hub(obj, version)
    kept = copy_object(hub)
    back = from_hub(hub, version)
    assert (obj, hub) == (before, kept)
    return back


@given(workloads("v1alpha1"))
def test_first_workloads_survive_the_stored_form(obj: Object) -> None:
    assert through_hub(obj, "v1alpha1") == obj


@given(workloads("v1alpha2"))
def test_second_workloads_survive_the_stored_form(obj: Object) -> None:
    assert through_hub(obj, "v1alpha2") == obj


@given(pod_groups())
def test_pod_groups_survive_the_stored_form(obj: Object) -> None:
    assert through_hub(obj, "v1alpha2") == obj


@given(pod_groups())
def test_v1alpha3_and_v1beta1_say_the_same(obj: Object) -> None:
    hub = to_hub(obj, "v1alpha2")
    beta = from_hub(hub, "v1beta1")
    assert {**beta, "apiVersion": hub["apiVersion"]} == hub
    assert to_hub(beta, "v1beta1") == hub


@given(workloads("v1alpha2"), st.sampled_from(["v1alpha1", "v1alpha2"]))
def test_an_update_keeps_what_the_version_cannot_say(obj: Object, version: str) -> None:
    hub = to_hub(obj, "v1alpha2")
    assert to_hub(from_hub(hub, version), version, hub) == hub


def test_the_policy_is_renamed_and_the_mode_becomes_a_union() -> None:
    template = {"name": "w", "schedulingPolicy": {"basic": {}}, "disruptionMode": "PodGroup"}
    (stored,) = to_hub(_object("Workload", "v1alpha2", {"podGroupTemplates": [template]}), "v1alpha2")["spec"][
        "podGroupTemplates"
    ]
    assert stored["disruptionMode"] == {"all": {}}
    first = from_hub(_object("Workload", "v1alpha3", {"podGroupTemplates": [stored]}), "v1alpha1")
    assert first["spec"] == {"podGroups": [{"name": "w", "policy": {"basic": {}}}]}


def test_the_reference_is_flat_in_the_stored_form() -> None:
    spec = {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}}
    hub = to_hub(_object("PodGroup", "v1alpha2", spec), "v1alpha2")
    assert hub["spec"]["workloadRef"] == {"workloadName": "w", "templateName": "t"}


def test_losses_are_named() -> None:
    tree = {"compositePodGroupTemplates": [{"name": "root"}]}
    assert losses(_object("Workload", "v1alpha3", tree), "v1alpha2") == ["spec.compositePodGroupTemplates"]
    flat = {"podGroupTemplates": [{"name": "w", "priority": 0}]}
    assert losses(_object("Workload", "v1alpha3", flat), "v1alpha1") == ["spec.podGroupTemplates[0].priority"]
    assert losses(_object("Workload", "v1alpha3", flat), "v1beta1") == []
