"""The authorizer and the server read a request alike: nobody does one thing with the right to another."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.apiserver.access import Access
from muster.apiserver.authentication.accounts import Accounts, SigningKey
from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authorization.attributes import attributes_of
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.front import Front
from muster.apiserver.options import ServerOptions
from muster.apiserver.registry.table import resource_table
from muster.apiserver.request import ApiRequest, User
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import Response
from muster.clock import RealClock

TABLE = resource_table(ServerOptions())
NAMES = "api apis v1 batch apps namespaces team pods jobs x status finalize watch proxy secrets log nodes .. ."
PARTS = st.sampled_from(["", *NAMES.split()])
ANYWHERE = st.lists(PARTS, min_size=1, max_size=9).map(lambda parts: "/" + "/".join(parts))
CORE = st.lists(PARTS, max_size=6).map(lambda parts: "/api/v1/" + "/".join(parts))
PATHS = ANYWHERE | CORE


@given(PATHS)
def test_what_is_served_is_what_was_asked_for(path: str) -> None:
    route = TABLE.route(path)
    if route.served is None:
        return
    asked = attributes_of(ApiRequest("GET", path))
    served = route.served.resource
    assert asked.is_resource
    assert (asked.group, asked.resource, asked.name, asked.subresource) == (
        served.group,
        served.plural,
        route.name,
        route.subresource,
    )
    if served.plural != "namespaces":
        assert asked.namespace == route.namespace
    assert (asked.verb == "watch") == route.is_watch


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "POST", "HEAD"])
def test_who_may_watch_may_not_write_by_the_path_of_a_watch(method: str) -> None:
    store, clock = MemoryStore(), RealClock()
    server = ApiServer(store, clock, random.Random(1), ServerOptions(authorization_modes=("RBAC",)))
    rules = [{"verbs": ["watch"], "apiGroups": [""], "resources": ["configmaps"]}]
    store.put("/clusterroles/w", {"kind": "ClusterRole", "metadata": {"name": "w"}, "rules": rules})
    binding = {"roleRef": {"kind": "ClusterRole", "name": "w"}, "subjects": [{"kind": "User", "name": "jane"}]}
    store.put("/clusterrolebindings/w", {"metadata": {"name": "w"}, **binding})
    store.put("/configmaps/default/c", {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}})
    authenticator = Authenticator(
        store, clock, accounts=Accounts(SigningKey.generate), static={"secret": User("jane", ("devs",))}
    )
    front = Front(server, clock, Access(authenticator, authorizer(("RBAC",), store)))
    path = "/api/v1/watch/namespaces/default/configmaps/c"
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}'
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    if method == "PATCH":
        headers["content-type"] = "application/merge-patch+json"
    answer = asyncio.run(front.answer(ApiRequest(method, path, (), headers, body)))
    assert isinstance(answer, Response)
    assert answer.status == 405
    stored = store.get("/configmaps/default/c")
    assert stored is not None
    assert "data" not in stored
