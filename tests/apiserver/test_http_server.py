"""The HTTP server's own duties: streams that end, clients that go."""

from __future__ import annotations

import asyncio
import io
import random
import time

import aiohttp
import pytest

from muster.apiserver.access import Access
from muster.apiserver.authentication.accounts import Accounts, SigningKey
from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authorization.authorizer import authorizer
from muster.apiserver.front import Front
from muster.apiserver.http import MAX_BODY_BYTES, Encoder, HttpServer
from muster.apiserver.request import User
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.clock import RealClock


async def open_watch(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A watch by a client of few words; returns once its headers have come."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /api/v1/configmaps?watch=1&resourceVersion=1000000 HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def start() -> HttpServer:
    clock = RealClock()
    server = HttpServer(Front(ApiServer(MemoryStore(), clock, random.Random(1)), clock))
    await server.start()
    return server


def test_stop_ends_open_watches_at_once() -> None:
    async def main() -> None:
        server = await start()
        _, writer = await open_watch(server)
        begin = time.monotonic()
        await server.stop()
        await server.stop()
        assert time.monotonic() - begin < 1
        writer.close()

    asyncio.run(main())


def test_client_that_goes_away_leaves_no_watch() -> None:
    async def main() -> None:
        server = await start()
        _, writer = await open_watch(server)
        assert len(server._streams) == 1
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            while server._streams:
                await asyncio.sleep(0.01)
        await server.stop()

    asyncio.run(main())


def test_stored_objects_are_encoded_once() -> None:
    encoder = Encoder(size=2)
    obj = {"kind": "Pod"}
    assert encoder.encode(obj) is encoder.encode(obj)
    others = [{"kind": str(number)} for number in range(3)]
    assert [encoder.encode(other) for other in others] == [b'{"kind":"%d"}' % number for number in range(3)]
    assert encoder.encode({"items": []}) == b'{"items":[]}'


JSON_BODY = {"Content-Type": "application/json"}


async def post(server: HttpServer, body: bytes) -> tuple[int, dict[str, object]]:
    """Send a ConfigMap's worth of bytes; the code and the Status that comes back."""
    url = f"{server.url}/api/v1/namespaces/default/configmaps"
    sent = io.BytesIO(body)
    async with aiohttp.ClientSession() as session, session.post(url, data=sent, headers=JSON_BODY) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b'{"data": {"a": "' + b"x" * MAX_BODY_BYTES + b'"}}', 413, "RequestEntityTooLarge"),
        (b'{"data": ' * 20_000 + b"1" + b"}" * 20_000, 400, "BadRequest"),
    ],
)
def test_bodies_beyond_the_limits_are_refused_and_the_server_goes_on(body: bytes, code: int, reason: str) -> None:
    async def main() -> None:
        server = await start()
        status, answer = await post(server, body)
        assert (status, answer["kind"], answer["reason"]) == (code, "Status", reason)
        good = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "after"}}'
        assert (await post(server, good))[0] == 201
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("length", "want"), [(100_000, 200), (1_300_000, 431)], ids=["long", "too-long"])
def test_tokens_may_be_long_but_not_endless(length: int, want: int) -> None:
    async def main() -> int:
        server = await start()
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"x" * length + b"\r\n\r\n")
        status = await reader.readline()
        writer.close()
        await server.stop()
        return int(status.split()[1])

    assert asyncio.run(main()) == want


def test_a_header_that_is_there_several_times_names_several_groups() -> None:
    async def main() -> list[str]:
        clock = RealClock()
        store = MemoryStore()
        server = ApiServer(store, clock, random.Random(1))
        accounts = Accounts(SigningKey.generate)
        static = {"secret": User("admin", ("system:masters",))}
        authenticator = Authenticator(store, clock, accounts=accounts, static=static)
        access = Access(authenticator, authorizer(("RBAC",), store))
        http = HttpServer(Front(server, clock, access))
        await http.start()
        groups = [("Impersonate-Group", "a"), ("Impersonate-Group", "system:masters")]
        headers = [("Authorization", "Bearer secret"), ("Impersonate-User", "jane"), *groups]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        url = f"{http.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as answer:
            found: list[str] = (await answer.json())["status"]["userInfo"]["groups"]
        await http.stop()
        return found

    assert asyncio.run(main()) == ["a", "system:masters", "system:authenticated"]
