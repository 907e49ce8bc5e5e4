"""Metrics, health checks, usage, and answers about processes that do not exist."""

from __future__ import annotations

import pytest
from serving import Api, finish

from muster.api.codec import Object
from muster.apiserver.front import Front, Streamed
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.client.transport import Response
from muster.testing import make_node, make_pod

PODS = "/api/v1/namespaces/default/pods"
V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


def ask(front: Front, path: str, *query: tuple[str, str], method: str = "GET") -> Response:
    answer = finish(front.answer(ApiRequest(method, path, query)))
    assert not isinstance(answer, Streamed)
    return answer


def test_requests_are_counted_by_verb_resource_and_code() -> None:
    api = Api()
    front = Front(api.server, api.clock)
    for _ in range(2):
        ask(front, PODS)
    ask(front, f"{PODS}/none")
    text = bytes(ask(front, "/metrics").body).decode()  # type: ignore[arg-type]  # text
    lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total")]
    assert any('verb="LIST"' in line and 'code="200"' in line and line.endswith(" 2.0") for line in lines)
    assert any('verb="GET"' in line and 'code="404"' in line and line.endswith(" 1.0") for line in lines)
    assert 'apiserver_storage_objects{resource="namespaces"} 4.0' in text
    assert "apiserver_request_duration_seconds_bucket" in text


def test_open_watches_are_counted_until_they_end() -> None:
    api = Api()
    front = Front(api.server, api.clock)
    answer = finish(front.answer(ApiRequest("GET", PODS, (("watch", "true"), ("resourceVersion", "1")))))
    assert isinstance(answer, Streamed)
    text = bytes(ask(front, "/metrics").body).decode()  # type: ignore[arg-type]  # text
    assert any(
        line.startswith("apiserver_longrunning_requests") and line.endswith(" 1.0") for line in text.splitlines()
    )


@pytest.mark.parametrize("root", ["healthz", "livez", "readyz"])
def test_health_is_told_briefly_and_in_words(root: str) -> None:
    api = Api()
    front = Front(api.server, api.clock)
    assert ask(front, f"/{root}").body == b"ok"
    assert ask(front, f"/{root}", ("verbose", "")).body == f"[+]ping ok\n[+]store ok\n{root} check passed\n".encode()
    assert ask(front, f"/{root}/ping").status == 200
    assert ask(front, f"/{root}/none").status == 404


def running(api: Api, name: str, **pod: str) -> None:
    api.create(PODS, make_pod(name, **pod))  # type: ignore[arg-type]  # the builder's own arguments
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
    api.create(f"{PODS}/{name}/binding", binding)
    api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})


def test_pods_use_what_they_request_and_nodes_the_sum() -> None:
    api = Api()
    api.create("/api/v1/nodes", make_node("n", cpu="8", memory="8Gi"))
    running(api, "a", cpu="2", memory="1Gi")
    running(api, "b", cpu="500m", memory="1Gi")
    api.create(PODS, make_pod("pending", cpu="1"))
    pods = api.get("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")["items"]
    assert [(pod["metadata"]["name"], pod["containers"][0]["usage"]) for pod in pods] == [
        ("a", {"cpu": "2", "memory": "1Gi"}),
        ("b", {"cpu": "500m", "memory": "1Gi"}),
    ]
    node = api.get("/apis/metrics.k8s.io/v1beta1/nodes/n")
    assert (node["kind"], node["usage"]) == ("NodeMetrics", {"cpu": "2500m", "memory": "2Gi"})
    assert api.call("GET", "/apis/metrics.k8s.io/v1beta1/nodes/none").status == 404
    assert Api(ServerOptions(emulate="1.36")).call("GET", "/apis/metrics.k8s.io/v1beta1/nodes").status == 404


def test_logs_and_commands_of_simulated_pods_say_what_they_are() -> None:
    api = Api()
    api.create("/api/v1/nodes", make_node("n", cpu="8", memory="8Gi"))
    api.create(PODS, make_pod("waiting"))
    assert api.call("GET", f"{PODS}/waiting/log").status == 400
    running(api, "a")
    log = api.call("GET", f"{PODS}/a/log")
    assert b"simulated node n" in bytes(log.body)  # type: ignore[arg-type]  # text
    assert api.call("GET", f"{PODS}/a/log", container="other").status == 400
    for action in ("exec", "attach", "portforward", "proxy"):
        refused = api.call("POST", f"{PODS}/a/{action}")
        assert (refused.status, "simulated node" in str(refused.body)) == (400, True)


def autoscaler(version: str, **spec: object) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec},
    }


def test_autoscalers_are_the_same_in_both_versions() -> None:
    api = Api()
    api.create(V1, autoscaler("v1", targetCPUUtilizationPercentage=70))
    spec = api.get(f"{V2}/h")["spec"]
    assert (spec["minReplicas"], spec["metrics"][0]["resource"]["target"]["averageUtilization"]) == (1, 70)
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    api.patch(f"{V2}/h", {"spec": {"metrics": [*spec["metrics"], memory]}})
    api.patch(f"{V1}/h", {"spec": {"targetCPUUtilizationPercentage": 60}})
    names = [metric["resource"]["name"] for metric in api.get(f"{V2}/h")["spec"]["metrics"]]
    assert names == ["memory", "cpu"]
    assert api.get(f"{V1}/h")["spec"]["targetCPUUtilizationPercentage"] == 60


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas"),
        ({"minReplicas": 6}, "spec.maxReplicas"),
        ({"minReplicas": 0}, "spec.minReplicas"),
        ({"scaleTargetRef": {"kind": "Deployment", "name": ""}}, "spec.scaleTargetRef.name"),
    ],
)
def test_a_wrong_autoscaler_is_refused(spec: Object, want: str) -> None:
    refused = Api().call("POST", V2, autoscaler("v2", **spec))
    assert refused.status == 422
    assert want in [cause["field"] for cause in refused.body["details"]["causes"]]  # type: ignore[call-overload]
