"""kubectl itself against the embedded API server: the commands of everyday use."""

from __future__ import annotations

import json

import pytest
from real_clients import Kubectl

pytestmark = pytest.mark.integration

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: web}}
spec:
  containers:
  - {name: main, image: busybox, env: [{name: A, value: "1"}]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {node-role.kubernetes.io/worker: ""}}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
  nodeInfo: {kubeletVersion: v1.37.0}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: busybox}]}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 4
  completions: 4
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox}]
"""


def pod(name: str) -> str:
    return POD.replace("NAME", name)


def rows(text: str) -> list[list[str]]:
    """The cells of a printed table, header first."""
    return [line.split() for line in text.splitlines()]


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, which is also kubectl's default."""
    name: str = request.node.name.replace("_", "-")[:60].strip("-")
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    kubectl("config", "set-context", "--current", f"--namespace={name}")
    return name


def test_create_get_and_delete(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl("create", "-f", "-", stdin=pod("a")) == "pod/a created\n"
    assert "already exists" in kubectl("create", "-f", "-", stdin=pod("a"), want=1)
    header, row = rows(kubectl("get", "pods"))
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["a", "0/1", "Pending", "0"]
    assert rows(kubectl("get", "pods", "-o", "wide"))[1][5:] == ["<none>"] * 4
    assert kubectl("get", "pods", "-o", "name") == "pod/a\n"
    assert kubectl("get", "pod", "a", "-o", "jsonpath={.spec.containers[*].image}") == "busybox"
    assert "kind: Pod" in kubectl("get", "pod", "a", "-o", "yaml")
    assert kubectl.json("get", "pods")["items"][0]["metadata"]["name"] == "a"
    assert kubectl("delete", "pod", "a") == 'pod "a" deleted\n'
    assert "NotFound" in kubectl("get", "pod", "a", want=1)


def test_selectors_sorting_and_pages(kubectl: Kubectl, namespace: str) -> None:
    for name in ("c", "a", "b"):
        kubectl("create", "-f", "-", stdin=pod(name))
    kubectl("label", "pod", "a", "tier=front")
    assert kubectl("get", "pods", "-l", "tier=front", "-o", "name") == "pod/a\n"
    assert kubectl("get", "pods", "-l", "tier notin (front)", "-o", "name") == "pod/b\npod/c\n"
    assert kubectl("get", "pods", "--field-selector", "metadata.name=b", "-o", "name") == "pod/b\n"
    listed = rows(kubectl("get", "pods", "--sort-by={.metadata.creationTimestamp}"))
    assert sorted(row[0] for row in listed[1:]) == ["a", "b", "c"]
    assert [row[0] for row in rows(kubectl("get", "pods", "--chunk-size=1"))] == ["NAME", "a", "b", "c"]
    assert {row[0] for row in rows(kubectl("get", "pods", "-A"))} >= {namespace}
    assert kubectl("get", "pods", "-L", "tier").splitlines()[1].endswith("front")


def test_apply_again_changes_only_what_changed(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web unchanged\n"
    changed = DEPLOYMENT.replace("replicas: 2", "replicas: 3").replace("image: busybox", "image: other")
    kubectl("diff", "-f", "-", stdin=changed, want=1)
    assert kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
    spec = kubectl.json("get", "deployment", "web")["spec"]
    assert spec["replicas"] == 3
    assert [c["image"] for c in spec["template"]["spec"]["containers"]] == ["other"]
    assert rows(kubectl("get", "deploy", "web"))[1][:2] == ["web", "0/3"]


def test_dry_runs_store_nothing(kubectl: Kubectl, namespace: str) -> None:
    for how in ("client", "server"):
        text = kubectl("apply", "-f", "-", f"--dry-run={how}", stdin=pod("a"))
        assert text == f"pod/a created ({'server dry run' if how == 'server' else 'dry run'})\n"
    assert "uid:" in kubectl("create", "-f", "-", "--dry-run=server", "-o", "yaml", stdin=pod("a"))
    assert kubectl("get", "pods", "-o", "name") == ""


def test_three_kinds_of_patches(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "x"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(sidecar))
    containers = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert sorted(c["name"] for c in containers) == ["main", "side"]
    kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"spec":{"replicas":7}}')
    replace = [{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]
    kubectl("patch", "deployment", "web", "--type=json", "-p", json.dumps([{**replace[0], "op": "add"}]))
    found = kubectl.json("get", "deployment", "web")
    assert (found["spec"]["replicas"], found["metadata"]["labels"]) == (7, {"a": "b"})


def test_label_annotate_and_scale(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl("label", "deployment", "web", "a=b") == "deployment.apps/web labeled\n"
    assert "--overwrite" in kubectl("label", "deployment", "web", "a=c", want=1)
    assert kubectl("label", "deployment", "web", "a-") == "deployment.apps/web unlabeled\n"
    assert kubectl("annotate", "deployment", "web", "x=y") == "deployment.apps/web annotated\n"
    assert kubectl("scale", "deployment", "web", "--replicas=5") == "deployment.apps/web scaled\n"
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "5"


def test_describe(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=pod("a"))
    kubectl("create", "-f", "-", stdin=JOB)
    kubectl("apply", "-f", "-", stdin=NODE)
    uid = kubectl("get", "pod", "a", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": "a", "namespace": namespace, "uid": uid},
        "reason": "FailedScheduling",
        "message": "no room",
        "type": "Warning",
        "source": {"component": "test"},
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "FailedScheduling" in kubectl("describe", "pod", "a")
    assert "Completion Mode:" in kubectl("describe", "job", "train")
    assert "Allocated resources:" in kubectl("describe", "node", "node-1")
    assert rows(kubectl("get", "events"))[1][1:4] == ["Warning", "FailedScheduling", "pod/a"]
    assert "no room" in kubectl("events", "--for", "pod/a")


def test_nodes(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=NODE)
    assert rows(kubectl("get", "nodes"))[1][:3] == ["node-1", "Ready", "worker"]
    kubectl("cordon", "node-1")
    assert rows(kubectl("get", "nodes"))[1][1] == "Ready,SchedulingDisabled"
    kubectl("uncordon", "node-1")
    kubectl("taint", "node", "node-1", "gpu=yes:NoSchedule")
    assert kubectl("get", "node", "node-1", "-o", "jsonpath={.spec.taints[0].key}") == "gpu"
    assert kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=5s") == "node/node-1 condition met\n"


def test_wait_for_a_later_change(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=pod("a"))
    waiting = kubectl.start("wait", "--for=jsonpath={.metadata.labels.done}=yes", "pod/a", "--timeout=20s")
    kubectl("label", "pod", "a", "done=yes")
    text, _ = waiting.communicate(timeout=30)
    assert text == "pod/a condition met\n"
    gone = kubectl.start("wait", "--for=delete", "pod/a", "--timeout=20s")
    kubectl("delete", "pod", "a")
    gone.communicate(timeout=30)
    assert gone.returncode == 0


def test_watch_prints_changes_as_they_come(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=pod("a"))
    watch = kubectl.start("get", "pods", "-w", "--output-watch-events")
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert watch.stdout.readline().split()[:2] == ["ADDED", "a"]
        kubectl("label", "pod", "a", "x=y")
        assert watch.stdout.readline().split()[:2] == ["MODIFIED", "a"]
        kubectl("create", "-f", "-", stdin=pod("b"))
        assert watch.stdout.readline().split()[:2] == ["ADDED", "b"]
        kubectl("delete", "pod", "a")
        assert watch.stdout.readline().split()[:2] == ["DELETED", "a"]
    finally:
        watch.terminate()
        watch.communicate()


def test_discovery_and_explain(kubectl: Kubectl) -> None:
    resources = rows(kubectl("api-resources"))
    assert ["pods", "po", "v1", "true", "Pod"] in resources
    assert ["podgroups", "scheduling.k8s.io/v1beta1", "true", "PodGroup"] in resources
    assert set(kubectl("api-versions").split()) >= {
        "v1",
        "apps/v1",
        "batch/v1",
        "scheduling.k8s.io/v1",
        "scheduling.k8s.io/v1alpha1",
        "scheduling.k8s.io/v1alpha2",
        "scheduling.k8s.io/v1alpha3",
        "scheduling.k8s.io/v1beta1",
    }
    assert "minCount" in kubectl("explain", "podgroup.spec.schedulingPolicy.gang")
    assert "<map[string]string>" in kubectl("explain", "pod.metadata.labels")
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "gitVersion" in kubectl("version", "-o", "json")


def test_server_side_apply(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web serverside-applied\n"
    changed = DEPLOYMENT.replace("replicas: 2", "replicas: 4")
    kubectl("apply", "--server-side", "-f", "-", stdin=changed)
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"


def test_delete_everything_of_a_kind(kubectl: Kubectl, namespace: str) -> None:
    for name in ("a", "b"):
        kubectl("create", "-f", "-", stdin=pod(name))
    assert kubectl("delete", "pods", "--all") == 'pod "a" deleted\npod "b" deleted\n'
    assert kubectl("delete", "-f", "-", "--ignore-not-found", stdin=pod("a")) == ""


def test_invalid_objects_name_each_field(kubectl: Kubectl, namespace: str) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 0}}},
    }
    text = kubectl("create", "-f", "-", stdin=json.dumps(group), want=1)
    assert "spec.schedulingPolicy.gang.minCount" in text
    group["apiVersion"] = "scheduling.k8s.io/v9"
    assert "no matches for kind" in kubectl("create", "-f", "-", stdin=json.dumps(group), want=1)


def test_commands_that_send_protobuf(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hi")
    kubectl("create", "deployment", "zero", "--image=busybox", "--replicas=0")
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "hidden", "--from-literal=a=b")
    kubectl("create", "namespace", f"{namespace}-2")
    kubectl("create", "pdb", "budget", "--selector=app=web", "--min-available=50%")
    kubectl("create", "priorityclass", namespace, "--value=-7")
    container = kubectl.json("get", "job", "hello")["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["echo", "hi"]
    assert kubectl.json("get", "deployment", "zero")["spec"]["replicas"] == 0
    assert kubectl.json("get", "configmap", "settings")["data"] == {"a": "b"}
    assert kubectl.json("get", "secret", "hidden")["data"] == {"a": "Yg=="}
    assert kubectl.json("get", "pdb", "budget")["spec"]["minAvailable"] == "50%"
    assert kubectl.json("get", "priorityclass", namespace)["value"] == -7
