"""Requests a second of the API server by verb, lists, watches, memory; beside a real one where its binaries are."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp

from muster.api.codec import Object, Objects
from muster.api.resource import CONFIG_MAPS, NODES, PODS
from muster.cli.bench.load import CREATORS, NAMESPACE, create_pods, make_pod
from muster.cli.bench.real_server import assets, running_real
from muster.cli.bench.server import Server, running
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import Connection, read_kubeconfig

REQUESTS = 2000
LISTED = 10_000
LISTS = 3
WATCHERS = 100
EVENTS = 5000
BARE = ["--without", "nodes,scheduler,controllers", "--nodes", "1"]

Act = Callable[[int], Awaitable[object]]


def run(progress: Callable[[str], None]) -> Objects:
    """A row a server: `muster up` without anything else, and kube-apiserver with etcd if KUBEBUILDER_ASSETS has it."""
    return [{"server": name, **_row(server, name, progress)} for name, server in _servers()]


def _servers() -> Iterator[tuple[str, Server]]:
    with running(BARE) as server:
        yield "muster", server
    folder = assets()
    if folder is not None:
        with running_real(folder) as server:
            yield "kube-apiserver + etcd", server


def _row(server: Server, name: str, progress: Callable[[str], None]) -> Object:
    row: Object = {"ready_s": round(server.ready_s, 2)}
    connection = read_kubeconfig(server.kubeconfig)
    asyncio.run(_measure(connection, server, row, lambda text: progress(f"{name}, {text}")))
    return row


async def _measure(connection: Connection, server: Server, row: Object, progress: Callable[[str], None]) -> None:
    transport = HttpTransport(connection)
    client = Client(transport, user_agent="muster-bench")
    try:
        with contextlib.suppress(Exception):
            await client.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})
        before_kb = _resident_kb(server)
        progress("POST")
        row["post"] = await _rate(lambda index: client.create(PODS, NAMESPACE, make_pod(f"p{index}")))
        progress("GET")
        row["get"] = await _rate(lambda index: client.get(PODS, NAMESPACE, f"p{index}"))
        progress("PATCH")
        patch = {"metadata": {"labels": {"a": "b"}}}
        row["patch"] = await _rate(lambda index: client.patch(PODS, NAMESPACE, f"p{index}", patch))
        progress("bind")
        row["bind"] = await _rate(lambda index: _bind(transport, f"p{index}"))
        progress(f"{LISTED} pods")
        await create_pods(client, [make_pod(f"q{index}") for index in range(LISTED - REQUESTS)])
        grown_kb = _resident_kb(server) - before_kb
        row["kb_per_pod"] = round(grown_kb / LISTED, 1) if before_kb else None
        row["list_10k_s"] = await _list_s(transport)
        progress(f"{WATCHERS} watchers")
        row["watch_events"] = await _fan_out(connection, client)
    finally:
        await transport.aclose()


async def _rate(act: Act) -> int:
    """How many a second, with `CREATORS` under way at once."""
    remaining = iter(range(REQUESTS))

    async def worker() -> None:
        for index in remaining:
            await act(index)

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CREATORS)))
    return round(REQUESTS / (time.perf_counter() - start))


async def _bind(transport: HttpTransport, name: str) -> None:
    target = {"kind": "Node", "name": "node-0"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = PODS.path(NAMESPACE, name, "binding")
    answer = await transport.request("POST", path, body=body)
    if answer.status != 201:
        raise RuntimeError(f"binding failed: {answer.body!r}")


async def _list_s(transport: HttpTransport) -> float:
    """Seconds for a list of all pods, the best of a few, with its decoding here."""
    times: list[float] = []
    for _ in range(LISTS):
        start = time.perf_counter()
        await transport.request("GET", PODS.path(NAMESPACE))
        times.append(time.perf_counter() - start)
    return round(min(times), 2)


async def _fan_out(connection: Connection, client: Client) -> int:
    """Events a second that all watchers together receive while one ConfigMap is written again and again.

    Lines are counted, not decoded, so that this side costs little.
    """
    made = await client.create(CONFIG_MAPS, NAMESPACE, _config_map(0))
    version = made["metadata"]["resourceVersion"]
    context = connection.ssl_context()
    connector = aiohttp.TCPConnector(limit=0, ssl=context) if context is not None else aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
    url = f"{connection.server}{CONFIG_MAPS.path(NAMESPACE)}?watch=true&resourceVersion={version}"
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with asyncio.TaskGroup() as group:
            ready = asyncio.Semaphore(0)
            for _ in range(WATCHERS):
                group.create_task(_count(session, url, ready))
            for _ in range(WATCHERS):
                await ready.acquire()
            start = time.perf_counter()
            remaining = iter(range(EVENTS))

            async def writer() -> None:
                for index in remaining:
                    body = {"data": {"n": str(index + 1)}}
                    await client.patch(CONFIG_MAPS, NAMESPACE, "bench", body)

            for _ in range(CREATORS):
                group.create_task(writer())
        return round(WATCHERS * EVENTS / (time.perf_counter() - start))


async def _count(session: aiohttp.ClientSession, url: str, ready: asyncio.Semaphore) -> None:
    seen = 0
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        ready.release()
        async for data in answer.content.iter_any():
            seen += data.count(b"\n")
            if seen >= EVENTS:
                return
    raise RuntimeError(f"a watch ended after {seen} of {EVENTS} events")


def _config_map(number: int) -> Object:
    data = {"n": str(number), "text": "x" * 500}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"}, "data": data}


def _resident_kb(server: Server) -> int:
    """The memory that the server has now, or 0 where the system does not tell."""
    try:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s*(\d+) kB", status)
    return int(match[1]) if match else 0
