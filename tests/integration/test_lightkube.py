"""lightkube against the embedded API server: typed calls without discovery, apply, watches, deletion by query."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.testing.definitions import make_definition

if TYPE_CHECKING:
    from real_clients import ServerThread

lightkube = pytest.importorskip("lightkube")
core = pytest.importorskip("lightkube.resources.core_v1")
meta = pytest.importorskip("lightkube.models.meta_v1")
models = pytest.importorskip("lightkube.models.core_v1")
generic = pytest.importorskip("lightkube.generic_resource")
types = pytest.importorskip("lightkube.types")
extensions = pytest.importorskip("lightkube.resources.apiextensions_v1")

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def namespace() -> str:
    return f"light-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(server: ServerThread, namespace: str, tmp_path: Path) -> Iterator[object]:
    write_kubeconfig(tmp_path / "config", kubeconfig(server.url))
    config = lightkube.KubeConfig.from_file(str(tmp_path / "config"))
    made = lightkube.Client(config=config, namespace=namespace, field_manager="tests")
    made.create(core.Namespace(metadata=meta.ObjectMeta(name=namespace)))
    yield made
    made._client._client.close()


def pod(name: str) -> object:
    containers = [models.Container(name="main", image="busybox")]
    metadata = meta.ObjectMeta(name=name, labels={"app": name})
    return core.Pod(metadata=metadata, spec=models.PodSpec(containers=containers))


def test_typed_calls(client, namespace: str) -> None:  # type: ignore[no-untyped-def]  # the library has no types here
    client.create(pod("a"))
    assert client.get(core.Pod, "a").status.phase == "Pending"
    client.patch(core.Pod, "a", {"metadata": {"labels": {"x": "y"}}}, patch_type=types.PatchType.MERGE)
    assert [each.metadata.name for each in client.list(core.Pod, labels={"x": "y"})] == ["a"]
    client.delete(core.Pod, "a", grace_period=0)
    with pytest.raises(lightkube.ApiError) as caught:
        client.get(core.Pod, "a")
    assert caught.value.status.code == 404


def test_apply_and_watch(client, namespace: str) -> None:  # type: ignore[no-untyped-def]  # as above
    settings = core.ConfigMap(
        apiVersion="v1", kind="ConfigMap", metadata=meta.ObjectMeta(name="c", namespace=namespace), data={"a": "1"}
    )
    client.apply(settings)
    settings.data = {"a": "2"}
    assert client.apply(settings).data == {"a": "2"}
    for kind, obj in client.watch(core.ConfigMap, fields={"metadata.name": "c"}):
        assert (kind, obj.data) == ("ADDED", {"a": "2"})
        break


def test_custom_kinds_without_discovery(client, namespace: str) -> None:  # type: ignore[no-untyped-def]  # as above
    group = f"{namespace}.example.com"
    client.create(extensions.CustomResourceDefinition.from_dict(make_definition("Gadget", group=group)))
    kind = generic.create_namespaced_resource(group, "v1", "Gadget", "gadgets")
    client.create(kind(metadata=meta.ObjectMeta(name="g", namespace=namespace), spec={"n": 1}))
    assert [each.spec for each in client.list(kind)] == [{"n": 1}]
