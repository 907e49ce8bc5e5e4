"""Pods created over HTTP by one client until they are seen bound: 5,000 single ones, and 50 gangs of 100."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from muster.api.codec import Object, Objects
from muster.api.meta import key_of
from muster.api.resource import POD_GROUPS, PODS
from muster.cli.bench.load import NAMESPACE, create_pods, make_gang, make_pod, watch_until_bound
from muster.cli.bench.server import running
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import read_kubeconfig

NODES = 1000
SINGLES = 5000
GANGS = 50
GANG_SIZE = 100
REPEATS = 3


def run(progress: Callable[[str], None]) -> Objects:
    """A row a kind of load, from three runs, each on a new cluster.

    Pods a second from the first create to the last pod bound (median and worst), when all were created, half bound and
    all bound in the median run, and what processor time a pod costs in the server and in the client.
    """
    rows: Objects = []
    gangs = [make_gang(f"gang-{number}", GANG_SIZE) for number in range(GANGS)]
    members = [
        make_pod(f"gang-{number}-{index}", group=f"gang-{number}")
        for number in range(GANGS)
        for index in range(GANG_SIZE)
    ]
    singles = [make_pod(f"single-{number}") for number in range(SINGLES)]
    for name, groups, pods in (
        (f"{SINGLES} single pods", [], singles),
        (f"{GANGS} gangs of {GANG_SIZE}", gangs, members),
    ):
        runs: Objects = []
        for repeat in range(REPEATS):
            progress(f"{name} on {NODES} nodes, run {repeat + 1} of {REPEATS}")
            runs.append(_run(groups, pods))
        runs.sort(key=lambda row: float(row["pods_per_s"]))
        worst, median = runs[0], runs[len(runs) // 2]
        rows.append(
            {
                "load": name,
                "nodes": NODES,
                "pods_per_s": median["pods_per_s"],
                "worst_pods_per_s": worst["pods_per_s"],
                **{key: value for key, value in median.items() if key != "pods_per_s"},
            }
        )
    return rows


def _run(groups: Objects, pods: Objects) -> Object:
    """One run on a new cluster, its server a process of its own."""
    with running(["--nodes", str(NODES)]) as server:
        before_s = (server.cpu_s(), time.process_time())
        row = asyncio.run(_measure(server.kubeconfig, groups, pods))
        used_s = (server.cpu_s() - before_s[0], time.process_time() - before_s[1])
        row["server_cpu_ms_per_pod"], row["client_cpu_ms_per_pod"] = (round(1000 * s / len(pods), 2) for s in used_s)
        return {**row, "server_peak_mb": server.peak_mb()}


async def _measure(kubeconfig: Path, groups: Objects, pods: Objects) -> Object:
    transport = HttpTransport(read_kubeconfig(kubeconfig))
    client = Client(transport)
    try:
        for group in groups:
            await client.create(POD_GROUPS, NAMESPACE, group)
        version = (await client.list(PODS, NAMESPACE)).resource_version
        keys = [key_of(pod) for pod in pods]
        watching = asyncio.create_task(watch_until_bound(client, keys, version))
        start = time.perf_counter()
        await create_pods(client, pods)
        created_s = time.perf_counter() - start
        bound = await watching
    finally:
        await transport.aclose()
    all_s = bound.last() - start
    return {
        "pods_per_s": round(len(pods) / all_s),
        "created_s": round(created_s, 2),
        "half_bound_s": round(bound.quantile(start, 0.5), 2),
        "all_bound_s": round(all_s, 2),
    }
