"""The official Python client against the embedded API server: typed calls, watches, the dynamic client."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.client.kubeconfig import kubeconfig, write_kubeconfig

if TYPE_CHECKING:
    from real_clients import ServerThread

client = pytest.importorskip("kubernetes.client")
config = pytest.importorskip("kubernetes.config")
dynamic = pytest.importorskip("kubernetes.dynamic")
watching = pytest.importorskip("kubernetes.watch")

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def api(server: ServerThread, tmp_path: Path) -> Iterator[object]:
    path = tmp_path / "config"
    write_kubeconfig(path, kubeconfig(server.url))
    with config.new_client_from_config(config_file=str(path)) as made:
        yield made


@pytest.fixture
def namespace(api: object) -> str:
    name = f"py-{uuid.uuid4().hex[:8]}"
    client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
    return name


def pod(name: str) -> dict[str, object]:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def test_typed_calls(api: object, namespace: str) -> None:
    core = client.CoreV1Api(api)
    assert core.create_namespaced_pod(namespace, pod("a")).status.phase == "Pending"
    core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"x": "y"}}})
    assert core.read_namespaced_pod("a", namespace).metadata.labels == {"app": "a", "x": "y"}
    assert [item.metadata.name for item in core.list_namespaced_pod(namespace, label_selector="x=y").items] == ["a"]
    assert core.delete_namespaced_pod("a", namespace).metadata.name == "a"
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_pod("a", namespace)
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (404, "NotFound")


def test_binding(api: object, namespace: str) -> None:
    core = client.CoreV1Api(api)
    core.create_node({"metadata": {"name": f"node-{namespace}"}})
    core.create_namespaced_pod(namespace, pod("a"))
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": f"node-{namespace}"}}
    core.create_namespaced_pod_binding("a", namespace, body, _preload_content=False)
    assert core.read_namespaced_pod("a", namespace).spec.node_name == f"node-{namespace}"


def test_pages(api: object, namespace: str) -> None:
    core = client.CoreV1Api(api)
    for number in range(5):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": f"c{number}"}})
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"c{number}" for number in range(5)]


def test_watch(api: object, namespace: str) -> None:
    core = client.CoreV1Api(api)
    version = core.list_namespaced_pod(namespace).metadata.resource_version

    def write() -> None:
        core.create_namespaced_pod(namespace, pod("a"))
        core.delete_namespaced_pod("a", namespace)

    writer = threading.Timer(0.1, write)
    writer.start()
    watch = watching.Watch()
    seen = []
    for event in watch.stream(core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=10):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watch.stop()
    writer.join()
    assert seen == [("ADDED", "a"), ("DELETED", "a")]


def test_watch_ends_after_its_time(api: object, namespace: str) -> None:
    core = client.CoreV1Api(api)
    stream = watching.Watch().stream(core.list_namespaced_pod, namespace, resource_version="0", timeout_seconds=1)
    assert list(stream) == []


def test_dynamic_client(api: object, namespace: str) -> None:
    groups = dynamic.DynamicClient(api).resources.get(api_version="scheduling.k8s.io/v1alpha2", kind="PodGroup")
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    groups.create(body={"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", **body}, namespace=namespace)
    assert groups.get(name="g", namespace=namespace).spec.schedulingPolicy.gang.minCount == 2
    assert [item.metadata.name for item in groups.get(namespace=namespace).items] == ["g"]
    groups.delete(name="g", namespace=namespace)
