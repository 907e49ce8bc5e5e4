"""An API server to call in one line: requests go straight to it, answers are compared as values."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import TypeVar

from muster.api.codec import JSON, Object
from muster.apiserver.options import ServerOptions
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import MERGE_PATCH, Response
from muster.clock import SIMULATION_EPOCH_S

T = TypeVar("T")

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NODES = "/api/v1/nodes"


def groups(version: str = "v1alpha3", plural: str = "podgroups") -> str:
    """The path of a collection of the scheduling group."""
    return f"/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}"


class StillClock:
    """A clock that tests move by hand; all values in seconds."""

    def __init__(self) -> None:
        self.now_s = SIMULATION_EPOCH_S

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        raise AssertionError("nothing in these tests waits")


def finish(coroutine: Coroutine[object, object, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the coroutine waits for something")


class Api:
    """One server over a memory store. `call` answers with the Response, the verbs with the body."""

    def __init__(self, options: ServerOptions | None = None, store: MemoryStore | None = None) -> None:
        self.clock = StillClock()
        self.store = store or MemoryStore()
        self.server = ApiServer(self.store, self.clock, random.Random(7), options)

    def call(self, method: str, path: str, body: JSON = None, *, type_: str = "", **query: str) -> Response:
        headers = {"content-type": type_} if type_ else {}
        return finish(self.server.handle(ApiRequest(method, path, tuple(query.items()), headers, body)))

    def create(self, path: str, body: Object, **query: str) -> Object:
        return self._good(self.call("POST", path, body, **query))

    def get(self, path: str, **query: str) -> Object:
        return self._good(self.call("GET", path, **query))

    def patch(self, path: str, body: JSON, *, type_: str = MERGE_PATCH, **query: str) -> Object:
        return self._good(self.call("PATCH", path, body, type_=type_, **query))

    def update(self, path: str, body: Object) -> Object:
        return self._good(self.call("PUT", path, body))

    def delete(self, path: str, body: Object | None = None, **query: str) -> Object:
        return self._good(self.call("DELETE", path, body, **query))

    def refuse(self, code: int, method: str, path: str, body: JSON = None, *, type_: str = "", **query: str) -> Object:
        """The Status of a request that must fail with `code`."""
        response = self.call(method, path, body, type_=type_, **query)
        assert response.status == code, response.body
        assert isinstance(response.body, dict)
        return response.body

    @staticmethod
    def _good(response: Response) -> Object:
        assert response.status < 400, response.body
        assert isinstance(response.body, dict)
        return response.body


def config_map(name: str = "settings", **metadata: JSON) -> Object:
    """A small object without rules of its own."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"key": "old"}}


def causes(status: Object) -> list[tuple[str, str]]:
    """(field, reason without its prefix) of each cause."""
    found = status.get("details", {}).get("causes", [])
    return [(cause["field"], cause["reason"].removeprefix("FieldValue")) for cause in found]
