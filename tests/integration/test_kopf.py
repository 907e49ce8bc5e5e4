"""A kopf operator runs against the embedded API server: it watches a custom kind, makes children, holds finalizers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.api.codec import Object
from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.testing.definitions import make_definition

if TYPE_CHECKING:
    from real_clients import ServerThread

kopf = pytest.importorskip("kopf")
kubernetes = pytest.importorskip("kubernetes")

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

GROUP = "operators.example.com"
PATIENCE_S = 15.0


class Operator:
    """An operator in a thread: for each Farm it makes a ConfigMap, follows its size, and says goodbye."""

    def __init__(self, server: str) -> None:
        self.seen: list[str] = []
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server,))

    def _registry(self, server: str) -> object:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        def login(**_: object) -> object:
            return kopf.ConnectionInfo(server=server, insecure=True)

        @kopf.on.startup(registry=registry)
        def configure(settings: object, **_: object) -> None:
            settings.posting.enabled = True  # type: ignore[attr-defined]  # the library's settings have no types here

        @kopf.on.create(GROUP, "v1", "farms", registry=registry)
        def created(spec: Object, name: str, namespace: str, patch: Object, **_: object) -> None:
            self.seen.append(f"created {name}")
            child: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-made"}}
            kopf.adopt(child)
            _core(server).create_namespaced_config_map(namespace, child)
            patch.setdefault("status", {})["size"] = spec["size"]

        @kopf.on.update(GROUP, "v1", "farms", registry=registry)
        def updated(spec: Object, name: str, patch: Object, **_: object) -> None:
            self.seen.append(f"updated {name}")
            patch.setdefault("status", {})["size"] = spec["size"]

        @kopf.on.delete(GROUP, "v1", "farms", registry=registry)
        def deleted(name: str, **_: object) -> None:
            self.seen.append(f"deleted {name}")

        return registry

    def _run(self, server: str) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        registry = self._registry(server)
        try:
            loop.run_until_complete(
                kopf.operator(registry=registry, stop_flag=self._stop, ready_flag=self._ready, clusterwide=True)
            )
        finally:
            loop.close()

    def __enter__(self) -> Operator:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def _api(server: str) -> object:
    configuration = kubernetes.client.Configuration()
    configuration.host = server
    return kubernetes.client.ApiClient(configuration)


def _core(server: str):  # type: ignore[no-untyped-def]  # the library has no types here
    return kubernetes.client.CoreV1Api(_api(server))


@pytest.fixture
def farms(server: ServerThread) -> Iterator[object]:
    extensions = kubernetes.client.ApiextensionsV1Api(_api(server.url))
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    extensions.create_custom_resource_definition(make_definition("Farm", spec, group=GROUP, status=status))
    yield kubernetes.client.CustomObjectsApi(_api(server.url))
    extensions.delete_custom_resource_definition(f"farms.{GROUP}")


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_operator_follows_its_kind(server: ServerThread, farms: object, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "config", kubeconfig(server.url))
    where = (GROUP, "v1", "default", "farms")

    def size() -> object:
        found = farms.get_namespaced_custom_object(*where, "f")  # type: ignore[attr-defined]  # no types here
        return (found.get("status") or {}).get("size")

    with Operator(server.url) as operator:
        farm = {"apiVersion": f"{GROUP}/v1", "kind": "Farm", "metadata": {"name": "f"}, "spec": {"size": 1}}
        farms.create_namespaced_custom_object(*where, farm)  # type: ignore[attr-defined]  # as above
        until(lambda: size() == 1)
        child = _core(server.url).read_namespaced_config_map("f-made", "default")
        assert child.metadata.owner_references[0].kind == "Farm"
        farms.patch_namespaced_custom_object(*where, "f", {"spec": {"size": 2}})  # type: ignore[attr-defined]
        until(lambda: size() == 2)
        farms.delete_namespaced_custom_object(*where, "f")  # type: ignore[attr-defined]  # as above
        until(lambda: "deleted f" in operator.seen)
    assert operator.seen == ["created f", "updated f", "deleted f"]
