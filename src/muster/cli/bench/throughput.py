"""Pods created over HTTP by one client until they are seen bound: single ones, gangs, and gangs of one rack each."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from muster.api.codec import Object, Objects, loads
from muster.api.meta import key_of
from muster.api.resource import POD_GROUPS, PODS
from muster.cli.bench.load import NAMESPACE, create_pods, make_gang, make_pod, watch_until_bound
from muster.cli.bench.server import running
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import read_kubeconfig

REPEATS = 3
RACK_LABEL = "topology.kubernetes.io/rack"


@dataclass(frozen=True, slots=True)
class Load:
    """So many pods, in gangs of `gang` (1: single ones). `racks`: each gang must be in one of so many; 0: anywhere."""

    nodes: int
    pods: int
    gang: int = 1
    racks: int = 0

    @property
    def name(self) -> str:
        """The load in words."""
        if self.gang == 1:
            return f"{self.pods} single pods"
        where = f", each in one of {self.racks} racks" if self.racks else ""
        return f"{self.pods // self.gang} gangs of {self.gang}{where}"

    @property
    def node_spec(self) -> str:
        """The nodes, as `--nodes` takes them."""
        racks = f",racks={self.racks}" if self.racks else ""
        return f"count={self.nodes},cpu=32,memory=256Gi,pods=110{racks}"

    def groups(self) -> Objects:
        """The PodGroups."""
        if self.gang == 1:
            return []
        topology = [{"key": RACK_LABEL}] if self.racks else []
        return [make_gang(f"gang-{number}", self.gang, topology) for number in range(self.pods // self.gang)]

    def members(self) -> Objects:
        """The pods."""
        if self.gang == 1:
            return [make_pod(f"single-{number}") for number in range(self.pods)]
        return [
            make_pod(f"gang-{number}-{index}", group=f"gang-{number}")
            for number in range(self.pods // self.gang)
            for index in range(self.gang)
        ]


LOADS = (
    Load(1_000, 5_000),
    Load(1_000, 5_000, 100),
    Load(5_000, 4_000, 4, 50),
    Load(5_000, 4_000, 4, 250),
    Load(5_000, 4_000, 1_000, 50),
)


def run(progress: Callable[[str], None]) -> Objects:
    """A row a kind of load, from three runs, each on a new cluster.

    Pods a second from the first create to the last pod bound (median and worst), when all were created, half bound and
    all bound in the median run, what processor time a pod costs in the server and in the client; and, from the last
    run, what the server spends it on, in percent: to look at that costs it two or three parts in a hundred.
    """
    rows: Objects = []
    for load in LOADS:
        runs: Objects = []
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
            path = Path(directory) / "shares.json"
            for repeat in range(REPEATS):
                progress(f"{load.name} on {load.nodes} nodes, run {repeat + 1} of {REPEATS}")
                runs.append(measure(load, shares=path if repeat == REPEATS - 1 else None))
            shares: dict[str, float] = loads(path.read_bytes())
        runs.sort(key=lambda row: float(row["pods_per_s"]))
        worst, median = runs[0], runs[len(runs) // 2]
        rows.append(
            {
                "load": load.name,
                "nodes": load.nodes,
                "pods_per_s": median["pods_per_s"],
                "worst_pods_per_s": worst["pods_per_s"],
                **{key: value for key, value in median.items() if key != "pods_per_s"},
                "server_percent": ", ".join(f"{part} {share:.0f}" for part, share in shares.items()),
            }
        )
    return rows


def measure(load: Load, shares: Path | None = None) -> Object:
    """One run on a new cluster, its server a process of its own. `shares`: the file for what it spends its time on."""
    with running(["--nodes", load.node_spec], shares=shares) as server:
        server.settle()
        if shares is not None:
            server.begin_shares()
        before_s = (server.cpu_s(), time.process_time())
        row = asyncio.run(_measure(server.kubeconfig, load.groups(), load.members()))
        used_s = (server.cpu_s() - before_s[0], time.process_time() - before_s[1])
        row["server_cpu_ms_per_pod"], row["client_cpu_ms_per_pod"] = (round(1000 * s / load.pods, 2) for s in used_s)
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
