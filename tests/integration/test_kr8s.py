"""kr8s against the embedded API server: lists, selectors, patches, scaling, watches, custom kinds."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.testing.definitions import make_definition

if TYPE_CHECKING:
    from real_clients import ServerThread

kr8s = pytest.importorskip("kr8s")
objects = pytest.importorskip("kr8s.objects")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # its own, of pools of connections and of releases
]


@pytest.fixture(scope="module")
def api(server: ServerThread, tmp_path_factory: pytest.TempPathFactory) -> object:
    path: Path = tmp_path_factory.mktemp("kr8s") / "config"
    write_kubeconfig(path, kubeconfig(server.url))
    return kr8s.api(kubeconfig=str(path))


@pytest.fixture
def namespace(api: object) -> str:
    name = f"kr8s-{uuid.uuid4().hex[:8]}"
    objects.Namespace({"metadata": {"name": name}}, api=api).create()
    return name


def pod(name: str, namespace: str, api: object) -> object:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    made = objects.Pod({"metadata": metadata, "spec": spec}, api=api)
    made.create()
    return made


def test_objects_are_created_found_changed_and_deleted(api: object, namespace: str) -> None:
    made = pod("a", namespace, api)
    pod("b", namespace, api)
    found = list(kr8s.get("pods", namespace=namespace, label_selector={"app": "a"}, api=api))
    assert [each.name for each in found] == ["a"]
    made.label({"x": "y"})  # type: ignore[attr-defined]  # the library has no types here
    assert objects.Pod.get("a", namespace=namespace, api=api).labels == {"app": "a", "x": "y"}
    made.delete()  # type: ignore[attr-defined]  # as above
    with pytest.raises(kr8s.NotFoundError):
        objects.Pod.get("a", namespace=namespace, api=api)


def test_lists_go_on_page_by_page(api: object, namespace: str) -> None:
    for number in range(120):
        objects.ConfigMap({"metadata": {"name": f"c{number:03}", "namespace": namespace}}, api=api).create()
    assert len(list(kr8s.get("configmaps", namespace=namespace, api=api))) == 120


def test_deployments_scale(api: object, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "nginx"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = objects.Deployment({"metadata": {"name": "web", "namespace": namespace}, "spec": spec}, api=api)
    made.create()
    made.patch({"spec": {"replicas": 2}})
    made.refresh()
    assert made.replicas == 2


def test_custom_kinds_are_found_by_discovery(api: object, namespace: str) -> None:
    definition = make_definition("Gadget", group=f"{namespace}.example.com")
    objects.CustomResourceDefinition(definition, api=api).create()
    kind = objects.new_class("Gadget", f"{namespace}.example.com/v1", namespaced=True)
    kind({"metadata": {"name": "g", "namespace": namespace}, "spec": {"n": 1}}, api=api).create()
    assert kind.get("g", namespace=namespace, api=api).spec.n == 1
