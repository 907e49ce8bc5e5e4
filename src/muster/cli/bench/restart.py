"""`muster up` on a data directory with 10,000 bound and 3,000 pending pods: from the start to the first decision."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from muster.api.codec import Object, Objects
from muster.api.resource import PODS
from muster.cli.bench.load import NAMESPACE, create_pods, make_pod
from muster.cli.bench.server import running
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import read_kubeconfig

NODES = 1000
BOUND = 10_000
PENDING = 3_000


def run(progress: Callable[[str], None]) -> Objects:
    """One row. The first decision is seen by a client: the first of the pending pods that has a node."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        arguments = ["--data", directory, "--nodes", str(NODES)]
        progress(f"filling {BOUND} bound and {PENDING} pending pods")
        with running([*arguments, "--without", "scheduler"]) as server:
            asyncio.run(_fill(server.kubeconfig))
        progress("starting again")
        with running(arguments) as server:
            first_s = asyncio.run(_first_decision(server.kubeconfig)) - server.started_at
            row: Object = {
                "nodes": NODES,
                "bound": BOUND,
                "pending": PENDING,
                "ready_s": round(server.ready_s, 2),
                "first_decision_s": round(first_s, 2),
                "peak_mb": server.peak_mb(),
            }
    return [row]


async def _fill(kubeconfig: Path) -> None:
    transport = HttpTransport(read_kubeconfig(kubeconfig))
    try:
        bound = [make_pod(f"bound-{number}", node=f"node-{number % NODES}") for number in range(BOUND)]
        pending = [make_pod(f"pending-{number}") for number in range(PENDING)]
        await create_pods(Client(transport), [*bound, *pending])
    finally:
        await transport.aclose()


async def _first_decision(kubeconfig: Path) -> float:
    """The moment (`time.perf_counter()`) at which the first of the pending pods is seen with a node."""
    transport = HttpTransport(read_kubeconfig(kubeconfig))
    client = Client(transport)
    try:
        listing = await client.list(PODS, NAMESPACE, field_selector="spec.nodeName=")
        if len(listing.items) < PENDING:
            return time.perf_counter()
        async for events in client.watch(PODS, NAMESPACE, resource_version=listing.resource_version):
            for event in events:
                if _is_decided(event.object):
                    return time.perf_counter()
    finally:
        await transport.aclose()
    raise RuntimeError("the watch ended before a pod was bound")


def _is_decided(pod: Object) -> bool:
    return pod["metadata"].get("name", "").startswith("pending-") and bool(pod["spec"].get("nodeName"))
