"""`muster up` on a data directory with 10,000 bound and 3,000 pending pods: from the start to the first decision."""

from __future__ import annotations

import asyncio
import shutil
import statistics
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
REPEATS = 3


def run(progress: Callable[[str], None]) -> Objects:
    """One row: median and worst of three starts, each on a copy of the same directory.

    The first decision is seen by a client: the first of the pending pods that has a node.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        filled = Path(directory) / "filled"
        progress(f"filling {BOUND} bound and {PENDING} pending pods")
        with running(["--data", str(filled), "--nodes", str(NODES), "--without", "scheduler"]) as server:
            asyncio.run(_fill(server.kubeconfig))
        starts: list[tuple[float, float, float, int]] = []
        for repeat in range(REPEATS):
            progress(f"start {repeat + 1} of {REPEATS}")
            starts.append(_start(Path(shutil.copytree(filled, Path(directory) / f"start-{repeat}"))))
    firsts_s, readies_s, cpus_s, peaks_mb = zip(*starts, strict=True)
    return [
        {
            "nodes": NODES,
            "bound": BOUND,
            "pending": PENDING,
            "ready_s": round(statistics.median(readies_s), 2),
            "first_decision_s": round(statistics.median(firsts_s), 2),
            "worst_s": round(max(firsts_s), 2),
            "cpu_s": round(statistics.median(cpus_s), 2),
            "peak_mb": max(peaks_mb),
        }
    ]


def _start(directory: Path) -> tuple[float, float, float, int]:
    """Seconds to the first decision and to being ready, processor seconds to the first decision, and peak memory."""
    with running(["--data", str(directory), "--nodes", str(NODES)]) as server:
        first_s = asyncio.run(_first_decision(server.kubeconfig)) - server.started_at
        return first_s, server.ready_s, server.cpu_s(), server.peak_mb()


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
