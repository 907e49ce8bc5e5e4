"""Pods: defaults, validation, updates, binding, eviction, priorities."""

from __future__ import annotations

import pytest
from serving import NODES, PODS, Api, causes

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions
from muster.testing import make_node, make_pod

BINDING = {"target": {"kind": "Node", "name": "n"}}
MERGE = "application/merge-patch+json"


@pytest.fixture
def api() -> Api:
    return Api()


def with_spec(**spec: JSON) -> Object:
    return make_pod("p", spec=spec)


def with_container(**fields: JSON) -> Object:
    return with_spec(containers=[{"name": "c", "image": "busybox", **fields}])


def test_a_plain_pod_gets_defaults(api: Api) -> None:
    pod = api.create(PODS, make_pod("p"))
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (spec["terminationGracePeriodSeconds"], spec["priority"], spec["enableServiceLinks"]) == (30, 0, True)
    assert [entry["tolerationSeconds"] for entry in spec["tolerations"]] == [300, 300]
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("image", "want_policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("r:5000/b", "Always"),
        ("b@sha256:0", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(api: Api, image: str, want_policy: str) -> None:
    pod = api.create(PODS, with_container(image=image))
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == want_policy


def test_requests_follow_limits_and_quantities_are_canonical(api: Api) -> None:
    resources = {"limits": {"cpu": "2", "memory": "1024Mi"}, "requests": {"cpu": "0.5"}}
    pod = api.create(PODS, with_container(resources=resources))
    stored = pod["spec"]["containers"][0]["resources"]
    assert stored == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("resources", "want_class"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_quality_of_service(api: Api, resources: Object, want_class: str) -> None:
    assert api.create(PODS, with_container(resources=resources))["status"]["qosClass"] == want_class


def test_a_gated_pod_says_so(api: Api) -> None:
    pod = api.create(PODS, with_spec(schedulingGates=[{"name": "example.test/wait"}]))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


def test_match_label_keys_are_merged_into_the_selector(api: Api) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["app", "absent"],
    }
    pod = api.create(PODS, make_pod("p", labels={"app": "x"}, spec={"topologySpreadConstraints": [constraint]}))
    selector = pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    assert selector == {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}


AFFINITY = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
)


def node_affinity(**expression: JSON) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return with_spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


@pytest.mark.parametrize(
    ("pod", "want_causes"),
    [
        (with_spec(containers=[]), [("spec.containers", "Required")]),
        (with_container(image=""), [("spec.containers[0].image", "Required")]),
        (with_container(name="C_"), [("spec.containers[0].name", "Invalid")]),
        (
            with_spec(containers=[{"name": "c", "image": "b"}, {"name": "c", "image": "b"}]),
            [("spec.containers[1].name", "Duplicate")],
        ),
        (
            with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            [("spec.containers[0].resources.requests", "Invalid")],
        ),
        (
            with_container(resources={"requests": {"nvidia.com/gpu": "1"}}),
            [("spec.containers[0].resources.limits", "Required")],
        ),
        (
            with_container(resources={"requests": {"cpu": "-1"}}),
            [("spec.containers[0].resources.requests[cpu]", "Invalid")],
        ),
        (with_container(ports=[{"containerPort": 70000}]), [("spec.containers[0].ports[0].containerPort", "Invalid")]),
        (
            with_container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            [("spec.containers[0].volumeMounts[0].name", "NotFound")],
        ),
        (with_spec(restartPolicy="Sometimes"), [("spec.restartPolicy", "NotSupported")]),
        (
            with_spec(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
            [("spec.tolerations[0].operator", "Invalid")],
        ),
        (node_affinity(key="a", operator="In"), [(f"{AFFINITY}.values", "Required")]),
        (node_affinity(key="a", operator="Gt", values=["1", "2"]), [(f"{AFFINITY}.values", "Required")]),
        (
            with_spec(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Maybe"}]),
            [
                ("spec.topologySpreadConstraints[0].maxSkew", "Invalid"),
                ("spec.topologySpreadConstraints[0].topologyKey", "Required"),
                ("spec.topologySpreadConstraints[0].whenUnsatisfiable", "NotSupported"),
            ],
        ),
        (
            with_spec(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            [("spec.volumes[0].hostPath", "Forbidden")],
        ),
        (with_spec(schedulingGroup={}), [("spec.schedulingGroup.podGroupName", "Invalid")]),
        (
            with_spec(workloadRef={"name": "w"}),
            [("spec.workloadRef.podGroup", "Invalid")],
        ),
        (with_spec(nodeName="n", schedulingGates=[{"name": "a"}]), [("spec.nodeName", "Forbidden")]),
    ],
    ids=lambda value: value[0][0] if isinstance(value, list) else "",
)
def test_what_a_pod_may_not_say(api: Api, pod: Object, want_causes: list[tuple[str, str]]) -> None:
    status = api.refuse(422, "POST", PODS, pod)
    assert causes(status) == want_causes
    assert status["message"].startswith('Pod "p" is invalid: ')


@pytest.mark.parametrize(
    ("pod", "want_message"),
    [
        (with_container(resources={"requests": {"cpu": "2x"}}), "quantities must match the regular expression"),
        (with_spec(terminationGracePeriodSeconds="1"), "cannot unmarshal string into Go struct field"),
        (with_container(ports={}), "cannot unmarshal object into Go struct field"),
    ],
    ids=["quantity", "string for a number", "object for a list"],
)
def test_wrong_types_are_bad_requests(api: Api, pod: Object, want_message: str) -> None:
    status = api.refuse(400, "POST", PODS, pod)
    assert want_message in status["message"]
    assert status["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')


@pytest.mark.parametrize(
    ("patch", "want_code"),
    [
        ({"spec": {"activeDeadlineSeconds": 60}}, 200),
        ({"spec": {"nodeName": "n"}}, 422),
        ({"spec": {"schedulerName": "other"}}, 422),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, 422),
        ({"spec": {"tolerations": [{"key": "mine", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}}, 200),
        ({"spec": {"tolerations": []}}, 422),
        ({"metadata": {"labels": {"x": "y"}}}, 200),
    ],
    ids=str,
)
def test_what_may_change_in_a_pod(api: Api, patch: Object, want_code: int) -> None:
    api.create(PODS, with_spec(tolerations=[{"key": "mine", "operator": "Exists"}]))
    assert api.call("PATCH", PODS + "/p", patch, type_=MERGE).status == want_code


def test_an_image_may_change_by_a_strategic_merge(api: Api) -> None:
    api.create(PODS, with_container())
    patch = {"spec": {"containers": [{"name": "c", "image": "new:1"}]}}
    (container,) = api.patch(PODS + "/p", patch, type_="application/strategic-merge-patch+json")["spec"]["containers"]
    assert container["image"] == "new:1"
    assert container["terminationMessagePath"]


def test_gates_may_be_removed_and_not_added(api: Api) -> None:
    api.create(PODS, with_spec(schedulingGates=[{"name": "a"}]))
    status = api.refuse(
        422, "PATCH", f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}}, type_=MERGE
    )
    assert causes(status) == [("spec.schedulingGates[1].name", "Forbidden")]
    assert "schedulingGates" not in api.patch(PODS + "/p", {"spec": {"schedulingGates": []}})["spec"]


def test_a_gated_pod_may_only_narrow_its_node_selector(api: Api) -> None:
    api.create(PODS, with_spec(schedulingGates=[{"name": "a"}], nodeSelector={"a": "b"}))
    assert api.patch(PODS + "/p", {"spec": {"nodeSelector": {"c": "d"}}})["spec"]["nodeSelector"] == {
        "a": "b",
        "c": "d",
    }
    status = api.refuse(422, "PATCH", PODS + "/p", {"spec": {"nodeSelector": None}}, type_=MERGE)
    assert causes(status) == [("spec.nodeSelector", "Invalid")]


def test_binding_sets_the_node_the_condition_and_the_topology(api: Api) -> None:
    zone = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    api.create(NODES, make_node("n", labels={**zone, "other": "label"}))
    api.create(PODS, make_pod("p", labels={"mine": "1"}))
    answer = api.create(PODS + "/p/binding", BINDING)
    assert (answer["status"], answer["code"]) == ("Success", 201)
    pod = api.get(PODS + "/p")
    assert pod["spec"]["nodeName"] == "n"
    assert pod["metadata"]["labels"] == {"mine": "1", **zone}
    assert pod["status"]["conditions"][0]["status"] == "True"
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "body", "want_code", "want_text"),
    [
        ({"nodeName": "m"}, BINDING, 409, 'pod p is already assigned to node "m"'),
        ({"schedulingGates": [{"name": "g"}]}, BINDING, 409, "pod p has non-empty .spec.schedulingGates"),
        ({}, {"target": {"kind": "Pod", "name": "n"}}, 500, "target.kind: Unsupported value"),
        ({}, {"target": {"kind": "Node"}}, 500, "target.name: Required value"),
        ({}, {**BINDING, "metadata": {"uid": "other"}}, 409, "Precondition failed: UID in precondition: other"),
    ],
    ids=["bound", "gated", "kind", "no name", "uid"],
)
def test_bindings_that_fail(api: Api, spec: Object, body: Object, want_code: int, want_text: str) -> None:
    api.create(PODS, with_spec(**spec))
    assert want_text in api.refuse(want_code, "POST", PODS + "/p/binding", body)["message"]


def test_a_pod_that_is_going_is_not_bound(api: Api) -> None:
    api.create(PODS, make_pod("p", node="m"))
    api.delete(PODS + "/p")
    status = api.refuse(409, "POST", PODS + "/p/binding", BINDING)
    assert status["message"].endswith("pod p is being deleted, cannot be assigned to a host")


def test_bindings_may_be_posted_to_their_own_collection(api: Api) -> None:
    api.create(PODS, make_pod("p"))
    api.create("/api/v1/namespaces/default/bindings", {**BINDING, "metadata": {"name": "p"}})
    assert api.get(PODS + "/p")["spec"]["nodeName"] == "n"


def budget(allowed: int | None) -> Object:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    status = {} if allowed is None else {"disruptionsAllowed": allowed, "observedGeneration": 1}
    return {"metadata": {"name": "b"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("allowed", "want_code"), [(None, 201), (1, 201), (0, 429)], ids=["no controller", "one left", "spent"]
)
def test_eviction_asks_the_budget(api: Api, allowed: int | None, want_code: int) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    api.create(PODS, make_pod("p", node="n", labels={"app": "x"}))
    api.patch(PODS + "/p/status", {"status": {"phase": "Running"}})
    api.create(budgets, budget(allowed))
    if allowed is not None:
        api.patch(budgets + "/b/status", {"status": budget(allowed)["status"]})
    assert api.call("POST", PODS + "/p/eviction", {"metadata": {"name": "p"}}).status == want_code
    if allowed == 1:
        assert api.get(budgets + "/b")["status"]["disruptionsAllowed"] == 0
    assert ("deletionTimestamp" in api.get(PODS + "/p")["metadata"]) == (want_code == 201)


def priority_class(name: str, value: int, **fields: JSON) -> Object:
    return {"metadata": {"name": name}, "value": value, **fields}


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_a_class_gives_priority_and_policy(api: Api) -> None:
    api.create(CLASSES, priority_class("quiet", 7, preemptionPolicy="Never"))
    spec = api.create(PODS, with_spec(priorityClassName="quiet"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")


def test_the_global_default_holds_for_new_pods_from_then_on(api: Api) -> None:
    assert api.create(PODS, make_pod("before"))["spec"]["priority"] == 0
    api.create(CLASSES, priority_class("usual", 3, globalDefault=True))
    spec = api.create(PODS, make_pod("after"))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (3, "usual")
    api.delete(CLASSES + "/usual")
    assert api.create(PODS, make_pod("later"))["spec"]["priority"] == 0


@pytest.mark.parametrize(
    ("spec", "want_text"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 5}, "the integer value of priority (5) must not be provided in pod spec"),
    ],
    ids=["unknown class", "own number"],
)
def test_priorities_that_are_forbidden(api: Api, spec: Object, want_text: str) -> None:
    assert want_text in api.refuse(403, "POST", PODS, with_spec(**spec))["message"]


@pytest.mark.parametrize(
    ("body", "want_causes"),
    [
        (priority_class("system-mine", 1), [("metadata.name", "Forbidden")]),
        (priority_class("high", 1_000_000_001), [("value", "Forbidden")]),
        (priority_class("odd", 1, preemptionPolicy="Maybe"), [("preemptionPolicy", "NotSupported")]),
    ],
    ids=["system prefix", "too high", "policy"],
)
def test_priority_classes_that_are_refused(api: Api, body: Object, want_causes: list[tuple[str, str]]) -> None:
    assert causes(api.refuse(422, "POST", CLASSES, body)) == want_causes


@pytest.mark.parametrize(("emulate", "want_taints"), [(None, 0), ("1.36", 1)])
def test_only_emulated_servers_taint_new_nodes(emulate: str | None, want_taints: int) -> None:
    api = Api(ServerOptions(emulate=emulate))  # type: ignore[arg-type]  # a parametrised literal
    assert len(api.create(NODES, make_node("n"))["spec"].get("taints") or []) == want_taints


def test_taints_are_checked(api: Api) -> None:
    taints = [{"key": "a", "effect": "Odd"}, {"key": "b", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    status = api.refuse(422, "POST", NODES, make_node("n", taints=taints))
    assert causes(status) == [("metadata.taints[0].effect", "NotSupported"), ("metadata.taints[2]", "Duplicate")]


def test_preferred_nodes_may_have_values_that_no_label_has(api: Api) -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["bad value!"]}]}
    pod = make_pod("a")
    preferred = [{"weight": 1, "preference": term}]
    pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    answer = api.call("POST", PODS, pod)
    assert answer.status == 201 and "bad value! is invalid" in answer.headers["Warning"]
    required = {"nodeSelectorTerms": [term]}
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    api.refuse(422, "POST", PODS, {**pod, "metadata": {"name": "b"}})
