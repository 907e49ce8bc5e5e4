"""The HTTP transport against the embedded server, in one event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from muster.api.codec import dumps
from muster.api.lean_pods import loads_lean
from muster.api.resource import CONFIG_MAPS, PODS
from muster.apiserver.front import Front
from muster.apiserver.http import HttpServer
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import (
    Connection,
    KubeconfigError,
    default_path,
    kubeconfig,
    read_kubeconfig,
    write_kubeconfig,
)
from muster.client.transport import ApiError, TransportError, WatchEvents
from muster.clock import RealClock
from muster.testing import make_pod


def run(main: Callable[[HttpServer, HttpTransport], Awaitable[None]], *, token: str = "", window: int = 1000) -> None:
    """Run a test with a server and a transport to it."""

    async def whole() -> None:
        clock = RealClock()
        front = Front(ApiServer(MemoryStore(window=window), clock, random.Random(1)), clock)
        server = HttpServer(front, token=token)
        await server.start()
        transport = HttpTransport(Connection(server.url, token=token))
        try:
            async with asyncio.timeout(10):
                await main(server, transport)
        finally:
            await transport.aclose()
            await server.stop()

    asyncio.run(whole())


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def test_objects_make_a_round_trip() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        client = Client(transport)
        made = await client.create(CONFIG_MAPS, "default", config_map("a", k="ü"))
        assert await client.get(CONFIG_MAPS, "default", "a") == made
        patched = await client.patch(CONFIG_MAPS, "default", "a", {"data": {"k": None, "l": "1"}})
        assert patched["data"] == {"l": "1"}
        assert [item["metadata"]["name"] for item in (await client.list(CONFIG_MAPS, "default")).items] == ["a"]
        await client.delete(CONFIG_MAPS, "default", "a")
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "default", "a")
        assert caught.value.is_not_found

    run(main)


def test_lists_come_in_pages() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        client = Client(transport, page_size=3)
        for number in range(8):
            await client.create(CONFIG_MAPS, "default", config_map(f"c{number}"))
        listing = await client.list(CONFIG_MAPS, "default")
        assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(8)]

    run(main)


def test_pods_come_lean_to_who_wants_no_more() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        lean = HttpTransport(Connection(server.url), trims=True)
        try:
            await Client(transport).create(PODS, "default", make_pod("a", cpu="1"))
            whole, trimmed = await Client(transport).list(PODS), await Client(lean).list(PODS)
            (pod,) = whole.items
            expected = loads_lean(dumps(pod))
            assert "managedFields" not in expected["metadata"]
            assert trimmed.items == [expected]
            async with aclosing(lean.watch("/api/v1/pods", query=[("resourceVersion", "0")])) as stream:  # type: ignore[type-var]  # an async generator
                async for events in stream:
                    pods = [event.object for event in events if event.type == "ADDED"]
                    assert [(each["metadata"], each["spec"]) for each in pods] == [
                        (expected["metadata"], expected["spec"])
                    ]
                    break
        finally:
            await lean.aclose()

    run(main)


def test_watch_sees_later_writes_and_ends_when_the_server_stops() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        client = Client(transport)
        version = (await client.list(CONFIG_MAPS)).resource_version
        seen: WatchEvents = []
        started = asyncio.Event()

        async def read() -> None:
            async for events in client.watch(CONFIG_MAPS, resource_version=version):
                seen.extend(events)
                started.set()

        reader = asyncio.create_task(read())
        await client.create(CONFIG_MAPS, "default", config_map("a"))
        await started.wait()
        await client.delete(CONFIG_MAPS, "default", "a")
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        assert [(event.type, event.object["metadata"]["name"]) for event in seen] == [("ADDED", "a"), ("DELETED", "a")]
        await server.stop()
        await reader

    run(main)


def test_watch_from_a_forgotten_version_is_refused_with_expired() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        client = Client(transport)
        version = (await client.list(CONFIG_MAPS)).resource_version
        for number in range(5):
            await client.create(CONFIG_MAPS, "default", config_map(f"c{number}"))
        with pytest.raises(ApiError) as caught:
            async with aclosing(client.watch(CONFIG_MAPS, resource_version=version)) as stream:  # type: ignore[type-var]  # an async generator
                async for _ in stream:
                    pass
        assert (caught.value.code, caught.value.reason) == (410, "Expired")

    run(main, window=3)


def test_token_is_required_where_the_server_has_one() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        await Client(transport).list(CONFIG_MAPS)
        stranger = HttpTransport(Connection(server.url))
        answer = await stranger.request("GET", "/api/v1/configmaps")
        await stranger.aclose()
        assert answer.status == 401
        assert isinstance(answer.body, dict) and answer.body["reason"] == "Unauthorized"

    run(main, token="secret")


def test_server_that_is_not_there_is_a_transport_error() -> None:
    async def main() -> None:
        transport = HttpTransport(Connection("http://127.0.0.1:9"))
        with pytest.raises(TransportError):
            await transport.request("GET", "/version")
        with pytest.raises(TransportError):
            await anext(aiter(transport.watch("/api/v1/pods")))
        await transport.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "want_code", "want_reason"),
    [
        ("POST", "/api/v1/namespaces/default/configmaps", {}, b"{", 400, "BadRequest"),
        ("POST", "/api/v1/namespaces/default/configmaps", {}, b"x" * (3 * 2**20 + 1), 413, "RequestEntityTooLarge"),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"Content-Type": "application/xml"},
            b"<a/>",
            415,
            "UnsupportedMediaType",
        ),
        ("POST", "/api/v1/namespaces/default/configmaps", {"Content-Encoding": "gzip"}, b"abc", 400, "BadRequest"),
        (
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"Content-Type": "application/vnd.kubernetes.protobuf"},
            b"k8s\x00\xff",
            400,
            "BadRequest",
        ),
        ("GET", f"/api/v1/namespaces/default/pods/{'a' * 20000}", {}, None, 404, "NotFound"),
        ("GET", "/api/v1/pods", {"Accept": "application/xml"}, None, 406, "NotAcceptable"),
        ("GET", "/apis/apps/v9", {}, None, 404, "NotFound"),
    ],
)
def test_bad_requests_get_a_status(
    method: str, path: str, headers: dict[str, str], body: bytes | None, want_code: int, want_reason: str
) -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        answer = await transport.request(method, path, headers=headers, body=body)
        assert answer.status == want_code
        assert isinstance(answer.body, dict)
        assert (answer.body["kind"], answer.body["reason"], answer.body["code"]) == ("Status", want_reason, want_code)

    run(main)


def test_what_is_not_http_gets_a_status_too() -> None:
    async def main(server: HttpServer, transport: HttpTransport) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / NONSENSE\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.") and b" 400 " in answer and b'"kind":"Status"' in answer

    run(main)


def test_kubeconfig_makes_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config"
    write_kubeconfig(path, kubeconfig("https://127.0.0.1:1", token="t", ca="PEM"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_kubeconfig(path) == Connection("https://127.0.0.1:1", token="t", ca="PEM")
    assert default_path({"KUBECONFIG": f"{path}:/other"}) == path


@pytest.mark.parametrize("text", ["", "[1]", "kind: Config", "kind: Config\ncurrent-context: x", "{"])
def test_unusable_kubeconfig_is_one_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=str(path)):
        read_kubeconfig(path)
