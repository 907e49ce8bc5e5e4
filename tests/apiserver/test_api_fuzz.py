"""Whatever bytes, patches, selectors and parameters come: there is an answer, and nothing is half written."""

from __future__ import annotations

import json
import random
import string
from itertools import pairwise
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CONFIG_MAPS, JOBS, PODS, StillClock, finish

from muster.api.codec import JSON, Object, dumps, loads
from muster.apiserver.front import Front, Streamed
from muster.apiserver.request import ApiRequest
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Response
from muster.testing import make_pod

POD = f"{PODS}/p"
JSON_TYPE = "application/json"
Query: TypeAlias = dict[str, str]
FIELDS = st.sampled_from(
    [
        "metadata", "name", "labels", "annotations", "finalizers", "ownerReferences", "managedFields", "spec", "status",
        "containers", "0", "-", "image", "env", "resources", "limits", "cpu", "tolerations", "affinity", "volumes",
        "$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "data", "uid",
        "resourceVersion", "kind", "apiVersion", "conditions", "type", "", "a/b", "~1", "é",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "replace", "merge", "delete", "1Gi", "50%", "v1", "Pod", "2030-01-01T00:00:00Z", "é"]),
)  # fmt: skip
VALUES: st.SearchStrategy[JSON] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(FIELDS, inner, max_size=4)),
    max_leaves=12,
)
POINTERS = st.lists(FIELDS, max_size=5).map(lambda parts: "".join(f"/{part}" for part in parts))
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "", "x"]), "path": POINTERS},
    optional={"value": VALUES, "from": POINTERS},
)
PATCHES = st.one_of(
    st.tuples(st.just(JSON_PATCH), st.one_of(st.lists(OPERATIONS, max_size=4), VALUES)),
    st.tuples(st.sampled_from([MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH, "application/json"]), VALUES),
)  # fmt: skip
QUERY = st.dictionaries(
    st.sampled_from(
        [
            "fieldManager", "force", "dryRun", "fieldValidation", "labelSelector", "fieldSelector", "limit", "continue",
            "resourceVersion", "resourceVersionMatch", "propagationPolicy", "gracePeriodSeconds", "pretty",
            "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "includeObject", "orphanDependents",
        ]
    ),
    st.one_of(
        st.sampled_from(["", "All", "true", "1", "-1", "0", "Strict", "Exact", "a=b", "99999999999999999999"]),
        st.text(alphabet=string.printable, max_size=12),
    ),
    max_size=3,
)  # fmt: skip


class Served:
    """A server with one pod, asked with bytes as over HTTP."""

    def __init__(self) -> None:
        clock = StillClock()
        self.store = MemoryStore()
        self.front = Front(ApiServer(self.store, clock, random.Random(3)), clock)
        self.ask("POST", PODS, make_pod("p", cpu="1"))

    def ask(
        self,
        method: str,
        path: str,
        body: JSON = None,
        type_: str = "application/json",
        query: Query | None = None,
    ) -> Response:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"content-type": type_, "user-agent": "fuzz/1"}
        answer = finish(self.front.answer(ApiRequest(method, path, tuple((query or {}).items()), headers, data)))
        assert not isinstance(answer, Streamed)
        return answer


def body_of(answer: Response) -> Object:
    value = loads(answer.body) if isinstance(answer.body, bytes) else loads(dumps(answer.body))
    assert isinstance(value, dict)
    return value


def check(served: Served, answer: Response, before: int) -> None:
    """Nothing of ours fell over, and what was refused changed nothing."""
    body = body_of(answer)
    if answer.status >= 400:
        assert body["kind"] == "Status" and body["code"] == answer.status
        assert body.get("reason") != "InternalError", body
        assert served.store.revision == before


@given(patch=PATCHES, query=QUERY, path=st.sampled_from([POD, f"{POD}/status", f"{POD}/resize"]))
@settings(max_examples=150, deadline=None)
def test_no_patch_breaks_the_server_or_is_half_applied(patch: tuple[str, JSON], query: Query, path: str) -> None:
    served = Served()
    before = served.store.revision
    answer = served.ask("PATCH", path, patch[1], patch[0], query)
    check(served, answer, before)
    if answer.status < 300 and "dryRun" not in query:
        assert body_of(served.ask("GET", POD)) == body_of(answer)
    if "dryRun" in query:
        assert served.store.revision == before


@given(body=VALUES, query=QUERY, path=st.sampled_from([PODS, CONFIG_MAPS, JOBS, f"{POD}/binding", f"{POD}/eviction"]))
@settings(max_examples=100, deadline=None)
def test_no_body_breaks_a_creation(body: JSON, query: Query, path: str) -> None:
    served = Served()
    before = served.store.revision
    check(served, served.ask("POST", path, body, query=query), before)


@given(query=QUERY, path=st.sampled_from([PODS, POD, f"{JOBS}", "/api/v1/pods", "/apis/apps/v1/deployments"]))
@settings(max_examples=100, deadline=None)
def test_no_query_breaks_a_read(query: Query, path: str) -> None:
    served = Served()
    check(served, served.ask("GET", path, query=query), served.store.revision)


@given(
    data=st.binary(max_size=40),
    type_=st.sampled_from([JSON_TYPE, "application/yaml", APPLY_PATCH]),
)
@settings(max_examples=100, deadline=None)
def test_no_bytes_break_the_decoders(data: bytes, type_: str) -> None:
    served = Served()
    before = served.store.revision
    check(served, served.ask("POST", PODS, data, type_), before)
    check(served, served.ask("PATCH", POD, data, type_, {"fieldManager": "f"}), before)


def test_very_deep_values_are_refused() -> None:
    served = Served()
    for depth in (2_000, 200_000):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            text = opening * depth + ("1" if closing == "}" else "") + closing * depth
            for method, path, type_ in (
                ("POST", CONFIG_MAPS, "application/json"),
                ("PATCH", POD, MERGE_PATCH),
                ("PATCH", POD, STRATEGIC_MERGE_PATCH),
            ):
                before = served.store.revision
                answer = served.ask(method, path, f'{{"metadata":{{"name":"d"}},"x":{text}}}'.encode(), type_)
                if answer.status >= 400:
                    check(served, answer, before)


def test_yaml_that_refers_to_itself_or_multiplies_is_refused() -> None:
    served = Served()
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghi")
    )
    for text in ("&a [*a]", "a: &a {b: *a}", bomb, "? {a: b}\n: c", "a: .nan", "!!set {a}", "a: !!binary YQ=="):
        before = served.store.revision
        answer = served.ask("POST", CONFIG_MAPS, text.encode(), "application/yaml")
        assert answer.status == 400
        check(served, answer, before)
