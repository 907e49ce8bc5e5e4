"""Workload, PodGroup and CompositePodGroup in their versions; Jobs and what may change in them."""

from __future__ import annotations

import pytest
from serving import JOBS, PODS, Api, causes, groups

from muster.api.codec import JSON, Object
from muster.apiserver.options import Release, ServerOptions
from muster.testing import make_group, make_job

GANG = {"gang": {"minCount": 2}}
MERGE = "application/merge-patch+json"


@pytest.fixture
def api() -> Api:
    return Api()


def emulating(release: Release) -> Api:
    return Api(ServerOptions(emulate=release))


def template(name: str = "w", **fields: JSON) -> Object:
    return {"name": name, "schedulingPolicy": GANG, **fields}


def workload(*templates: Object, **spec: JSON) -> Object:
    return {"metadata": {"name": "x"}, "spec": {"podGroupTemplates": list(templates), **spec}}


T0 = "spec.podGroupTemplates[0]"


@pytest.mark.parametrize(
    ("body", "want_causes"),
    [
        (workload(), [("spec.podGroupTemplates", "Required")]),
        (workload(*(template(f"t{i}") for i in range(9))), [("spec.podGroupTemplates", "TooMany")]),
        (workload(template("a"), template("a")), [("spec.podGroupTemplates[1]", "Duplicate")]),
        (workload(template("A.b")), [(f"{T0}.name", "Invalid")]),
        (workload({"name": "a"}), [(f"{T0}.schedulingPolicy", "Invalid")]),
        (workload(template(schedulingPolicy={"basic": {}, **GANG})), [(f"{T0}.schedulingPolicy", "Invalid")]),
        (
            workload(template(schedulingPolicy={"gang": {"minCount": 0}})),
            [(f"{T0}.schedulingPolicy.gang.minCount", "Required")],
        ),
        (
            workload(template(schedulingPolicy={"gang": {"minCount": -1}})),
            [(f"{T0}.schedulingPolicy.gang.minCount", "Invalid")],
        ),
        (workload(template(disruptionMode="Some")), [(f"{T0}.disruptionMode", "NotSupported")]),
        (workload(template(priority=2_000_000_000)), [(f"{T0}.priority", "Invalid")]),
        (workload(template(resourceClaims=[{"name": "c"}])), [(f"{T0}.resourceClaims[0]", "Invalid")]),
        (
            workload(template(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]})),
            [(f"{T0}.schedulingConstraints.topology", "TooMany")],
        ),
        (workload(template(), controllerRef={"name": "j"}), [("spec.controllerRef.kind", "Required")]),
        (
            workload(template("A.b", schedulingPolicy={}), controllerRef={"kind": "a/b", "name": "j"}),
            [("spec.controllerRef.kind", "Invalid"), (f"{T0}.name", "Invalid"), (f"{T0}.schedulingPolicy", "Invalid")],
        ),
    ],
    ids=lambda value: value[0][0] if isinstance(value, list) else "",
)
def test_workloads_that_are_refused(api: Api, body: Object, want_causes: list[tuple[str, str]]) -> None:
    status = api.refuse(422, "POST", groups("v1alpha2", "workloads"), body)
    assert causes(status) == want_causes
    assert status["message"].startswith('Workload.scheduling.k8s.io "x" is invalid: ')


def test_every_field_of_a_bad_workload_is_named_in_one_message(api: Api) -> None:
    body = workload({"name": "a"}, {"name": "b"})
    message = api.refuse(422, "POST", groups("v1alpha2", "workloads"), body)["message"]
    assert message == (
        'Workload.scheduling.k8s.io "x" is invalid: '
        f'[{T0}.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`, '
        'spec.podGroupTemplates[1].schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`]'
    )


@pytest.mark.parametrize(
    ("group", "want_causes"),
    [
        ({"name": "A", "policy": {"gang": {"minCount": 1}}}, [("spec.podGroups[0].name", "Invalid")]),
        ({"name": "a"}, [("spec.podGroups[0].policy", "Required")]),
        ({"name": "a", "policy": {"gang": {"minCount": 0}}}, [("spec.podGroups[0].policy.gang.minCount", "Invalid")]),
    ],
    ids=["name", "policy", "count"],
)
def test_first_workloads_that_are_refused(api: Api, group: Object, want_causes: list[tuple[str, str]]) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"podGroups": [group]}}
    assert causes(api.refuse(422, "POST", groups("v1alpha1", "workloads"), body)) == want_causes


def test_one_workload_is_seen_in_every_version(api: Api) -> None:
    api.create(
        groups("v1alpha1", "workloads"),
        {"metadata": {"name": "x"}, "spec": {"podGroups": [{"name": "w", "policy": GANG}]}},
    )
    flat = {"podGroupTemplates": [{"name": "w", "schedulingPolicy": GANG}]}
    for version in ("v1alpha2", "v1alpha3", "v1beta1"):
        seen = api.get(groups(version, "workloads") + "/x")
        assert (seen["apiVersion"], seen["spec"]) == (f"scheduling.k8s.io/{version}", flat)


def test_an_update_through_an_older_version_keeps_what_it_cannot_say(api: Api) -> None:
    made = api.create(groups(), make_group("g", preemptionPolicy="PreemptLowerPriority"))
    assert made["spec"]["preemptionPolicy"]
    api.patch(groups("v1alpha2") + "/g", {"metadata": {"labels": {"a": "b"}}})
    after = api.get(groups() + "/g")
    assert after["spec"] == made["spec"]
    assert after["metadata"]["labels"] == {"a": "b"}


def test_the_condition_has_each_versions_name(api: Api) -> None:
    api.create(groups(), make_group("g"))
    condition = {"status": "True", "reason": "Scheduled", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"conditions": [{"type": "PodGroupScheduled", **condition}]}}
    api.patch(groups("v1alpha2") + "/g/status", status)
    assert api.get(groups() + "/g")["status"]["conditions"][0]["type"] == "PodGroupInitiallyScheduled"


def test_a_group_gets_protection_priority_and_mode_and_loses_its_status(api: Api) -> None:
    made = api.create(groups("v1alpha2"), {**make_group("g", version="v1alpha2"), "status": {"conditions": []}})
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    assert (made["spec"]["priority"], made["spec"]["disruptionMode"]) == (0, "Pod")
    assert "status" not in made
    assert "generation" not in made["metadata"]


def test_without_a_policy_a_group_is_basic_with_a_warning(api: Api) -> None:
    response = api.call("POST", groups("v1alpha2"), {"metadata": {"name": "g"}, "spec": {"disruptionMode": "PodGroup"}})
    assert isinstance(response.body, dict)
    assert response.body["spec"]["schedulingPolicy"] == {"basic": {}}
    assert "spec.schedulingPolicy" in response.headers["Warning"]


def test_an_emulated_server_is_not_lenient() -> None:
    status = emulating("1.36").refuse(422, "POST", groups("v1alpha2"), {"metadata": {"name": "g"}, "spec": {}})
    assert causes(status) == [("spec.schedulingPolicy", "Invalid")]


@pytest.mark.parametrize(
    ("release", "served"),
    [("1.35", {"v1alpha1"}), ("1.36", {"v1alpha2"}), ("1.37", {"v1alpha3", "v1beta1"})],
)
def test_an_emulated_server_serves_its_versions_only(release: Release, served: set[str]) -> None:
    api = emulating(release)
    versions = ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1")
    found = {version for version in versions if api.call("GET", groups(version, "workloads")).status == 200}
    assert found == served


@pytest.mark.parametrize(
    ("spec", "want_code", "want_text"),
    [
        ({"priority": 3}, 403, "priority set in the pod group (3) must match the priority computed (0)"),
        ({"priorityClassName": "none"}, 403, "no PriorityClass with name none was found"),
        ({"priorityClassName": "system-node-critical"}, 422, "must be less than or equal to 1000000000"),
        ({"parentCompositePodGroupName": "p"}, 422, "must be set when parentCompositePodGroupName is set"),
        ({"workloadRef": {}}, 422, "spec.workloadRef.workloadName: Required value"),
        ({"disruptionMode": {"single": {}, "all": {}}}, 422, "must specify exactly one of: `single`, `all`"),
    ],
    ids=["number", "class", "system class", "parent", "reference", "mode"],
)
def test_groups_that_are_refused(api: Api, spec: Object, want_code: int, want_text: str) -> None:
    assert want_text in api.refuse(want_code, "POST", groups(), make_group("g", **spec))["message"]


@pytest.mark.parametrize(
    ("reference", "want_text"),
    [
        ({"workloadName": "none", "podGroupTemplateName": "w"}, 'PodGroup rejected: Workload "none" not found'),
        ({"workloadName": "x", "podGroupTemplateName": "v"}, 'PodGroupTemplate "v" not found in Workload "x"'),
    ],
    ids=["workload", "template"],
)
def test_only_1_36_requires_the_template(reference: Object, want_text: str) -> None:
    body = make_group("g", version="v1alpha2", podGroupTemplateRef={"workload": reference})
    strict, lenient = emulating("1.36"), Api()
    for api in (strict, lenient):
        api.create(groups("v1alpha2", "workloads"), workload(template()))
    assert want_text in strict.refuse(403, "POST", groups("v1alpha2"), body)["message"]
    lenient.create(groups("v1alpha2"), body)


@pytest.mark.parametrize(
    ("version", "patch", "want_causes"),
    [
        ("v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 3}}}, [("spec.schedulingPolicy", "Invalid")]),
        ("v1alpha3", {"schedulingPolicy": {"gang": {"minCount": 3}}}, []),
        (
            "v1alpha3",
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            [("spec.schedulingPolicy.gang.minCount", "Required")],
        ),
        (
            "v1alpha3",
            {"schedulingPolicy": {"gang": None, "basic": {}}},
            [("spec.schedulingPolicy.basic", "Invalid"), ("spec.schedulingPolicy.gang", "Invalid")],
        ),
        ("v1alpha3", {"priority": 9}, [("spec.priority", "Invalid")]),
        (
            "v1beta1",
            {"schedulingConstraints": {"topology": [{"key": "a"}]}},
            [("spec.schedulingConstraints", "Invalid")],
        ),
    ],
    ids=["1.36 count", "1.37 count", "zero", "to basic", "priority", "constraints"],
)
def test_what_may_change_in_a_group(api: Api, version: str, patch: Object, want_causes: list[tuple[str, str]]) -> None:
    api.create(groups(version), make_group("g", version=version, min_count=2))
    response = api.call("PATCH", groups(version) + "/g", {"spec": patch}, type_=MERGE)
    assert response.status == (422 if want_causes else 200)
    assert isinstance(response.body, dict)
    assert causes(response.body) == want_causes


@pytest.mark.parametrize(
    ("version", "templates", "want_causes"),
    [
        ("v1alpha2", [template(schedulingPolicy={"gang": {"minCount": 3}})], [("spec.podGroupTemplates", "Invalid")]),
        ("v1alpha3", [template(schedulingPolicy={"gang": {"minCount": 3}})], []),
        ("v1alpha3", [template(), template("b")], [("spec.podGroupTemplates[1]", "Forbidden")]),
        ("v1alpha3", [template("b")], [(T0, "Forbidden"), ("spec.podGroupTemplates", "Forbidden")]),
    ],
    ids=["1.36 count", "1.37 count", "added", "renamed"],
)
def test_what_may_change_in_a_workload(
    api: Api, version: str, templates: list[Object], want_causes: list[tuple[str, str]]
) -> None:
    path = groups(version, "workloads")
    api.create(path, workload(template()))
    response = api.call("PATCH", path + "/x", {"spec": {"podGroupTemplates": templates}}, type_=MERGE)
    assert isinstance(response.body, dict)
    assert causes(response.body) == want_causes


def composite(name: str, **children: JSON) -> Object:
    return {"name": name, "schedulingPolicy": {"gang": {"minGroupCount": 1}}, **children}


def nested(depth: int) -> Object:
    tree = composite("l0", podGroupTemplates=[template("leaf")])
    for level in range(1, depth):
        tree = composite(f"l{level}", compositePodGroupTemplates=[tree])
    return tree


@pytest.mark.parametrize(
    ("tree", "want_causes"),
    [
        (nested(3), []),
        (nested(4), [("spec.compositePodGroupTemplates[0]", "Invalid")]),
        (composite("root"), [("spec.compositePodGroupTemplates[0]", "Invalid")]),
        (
            composite("a", podGroupTemplates=[template("a")]),
            [("spec.compositePodGroupTemplates[0].podGroupTemplates[0].name", "Duplicate")],
        ),
        (composite("a", podGroupTemplates=[template(priority=5)]), [("spec", "Invalid")]),
    ],
    ids=["three levels", "four levels", "no children", "name twice", "priorities"],
)
def test_trees_of_templates(api: Api, tree: Object, want_causes: list[tuple[str, str]]) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"compositePodGroupTemplates": [tree]}}
    response = api.call("POST", groups(plural="workloads"), body)
    assert isinstance(response.body, dict)
    assert causes(response.body) == want_causes


def test_a_composite_group_needs_its_workload_and_never_changes(api: Api) -> None:
    path = groups(plural="compositepodgroups")
    spec = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    assert causes(api.refuse(422, "POST", path, {"metadata": {"name": "c"}, "spec": spec})) == [
        ("spec.workloadRef", "Required")
    ]
    api.create(
        path, {"metadata": {"name": "c"}, "spec": {**spec, "workloadRef": {"workloadName": "w", "templateName": "t"}}}
    )
    patch = {"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 3}}}}
    assert causes(api.refuse(422, "PATCH", path + "/c", patch, type_=MERGE)) == [("spec.schedulingPolicy", "Invalid")]


def test_bad_conditions_are_refused(api: Api) -> None:
    api.create(groups(), make_group("g"))
    patch = {"status": {"conditions": [{"type": "T", "status": "Maybe", "reason": "bad reason"}]}}
    assert causes(api.refuse(422, "PATCH", groups() + "/g/status", patch, type_=MERGE)) == [
        ("status.conditions[0].status", "NotSupported"),
        ("status.conditions[0].lastTransitionTime", "Required"),
        ("status.conditions[0].reason", "Invalid"),
    ]


def test_a_job_gets_selector_labels_and_defaults(api: Api) -> None:
    job = api.create(JOBS, make_job("j", parallelism=3, indexed=True))
    uid = job["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"] == labels
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert (job["spec"]["backoffLimit"], job["spec"]["podReplacementPolicy"]) == (6, "TerminatingOrFailed")
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    ("spec", "want_causes"),
    [
        ({"parallelism": -1, "backoffLimit": -1}, [("spec.parallelism", "Invalid"), ("spec.backoffLimit", "Invalid")]),
        ({"completionMode": "Odd"}, [("spec.completionMode", "NotSupported")]),
        ({"backoffLimitPerIndex": 1}, [("spec.backoffLimitPerIndex", "Invalid")]),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, [("spec.successPolicy", "Invalid")]),
        (
            {"template": {}},
            [("spec.template.spec.containers", "Required"), ("spec.template.spec.restartPolicy", "Required")],
        ),
    ],
    ids=["negative", "mode", "per index", "success policy", "no template"],
)
def test_jobs_that_are_refused(api: Api, spec: Object, want_causes: list[tuple[str, str]]) -> None:
    body = make_job("j")
    body["spec"].update(spec)
    assert causes(api.refuse(422, "POST", JOBS, body)) == want_causes


@pytest.mark.parametrize(
    ("patch", "want_causes"),
    [
        ({"parallelism": 2, "completions": 2}, []),
        ({"parallelism": 9}, []),
        ({"completions": 5}, [("spec.completions", "Invalid")]),
        ({"completionMode": "NonIndexed"}, [("spec.completionMode", "Invalid")]),
        ({"suspend": True}, []),
    ],
    ids=["in tandem", "parallelism", "completions alone", "mode", "suspend"],
)
def test_what_may_change_in_a_job(api: Api, patch: Object, want_causes: list[tuple[str, str]]) -> None:
    api.create(JOBS, make_job("j", parallelism=3, indexed=True))
    response = api.call("PATCH", JOBS + "/j", {"spec": patch}, type_=MERGE)
    assert isinstance(response.body, dict)
    assert causes(response.body) == want_causes


def test_a_job_with_a_gang_keeps_its_parallelism_by_the_rules_of_1_36(api: Api) -> None:
    job = api.create(JOBS, make_job("j", parallelism=3, indexed=True))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"], "controller": True}
    group = make_group("g", min_count=3)
    group["metadata"]["ownerReferences"] = [owner]
    api.create(groups(), group)
    patch = {"spec": {"parallelism": 2, "completions": 2}}
    status = api.refuse(403, "PATCH", JOBS + "/j", patch, type_=MERGE)
    assert status["message"].endswith('cannot change parallelism for a Job referencing gang-scheduled PodGroup "g"')


@pytest.mark.parametrize(
    ("scheduling", "want_causes"),
    [
        ({"schedulingPolicy": {"gang": {}}}, []),
        ({"schedulingPolicy": {"basic": {}, "gang": {}}}, [("spec.scheduling.schedulingPolicy", "Invalid")]),
        (
            {"schedulingPolicy": {"gang": {"minCount": 4}}},
            [("spec.scheduling.schedulingPolicy.gang.minCount", "Invalid")],
        ),
    ],
    ids=["gang", "both", "too many"],
)
def test_scheduling_of_jobs_in_1_37(scheduling: Object, want_causes: list[tuple[str, str]]) -> None:
    response = emulating("1.37").call("POST", JOBS, make_job("j", parallelism=3, scheduling=scheduling))
    assert isinstance(response.body, dict)
    assert causes(response.body) == want_causes


def test_scheduling_of_jobs_is_left_out_elsewhere(api: Api) -> None:
    response = api.call("POST", JOBS, make_job("j", scheduling={"schedulingPolicy": {"basic": {}}}))
    assert isinstance(response.body, dict)
    assert "scheduling" not in response.body["spec"]
    assert "spec.scheduling is left out" in response.headers["Warning"]


def test_a_pod_may_name_a_group_that_does_not_exist_yet(api: Api) -> None:
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "b"}], "schedulingGroup": {"podGroupName": "g"}},
    }
    assert api.create(PODS, body)["spec"]["schedulingGroup"] == {"podGroupName": "g"}
