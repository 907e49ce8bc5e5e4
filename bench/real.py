"""Pods a second to bound on a real kube-apiserver: ours, the real kube-scheduler, and bindings alone, in turn.

    KUBEBUILDER_ASSETS=FOLDER python bench/real.py [--nodes 1000] [--pods 2000] [--work plain,gang-4,gang-100,gang-1000]
                                                   [--who bare,muster,kube-scheduler] [--rounds 3] [--start]

Every round starts etcd and kube-apiserver anew and creates the nodes; then each competitor in turn gets the same pods,
created before it starts. Counted is from the first pod bound to the last, as a client of its own sees them in a watch;
`cpu_ms` is what a pod costs in the competitor's own processor time in that span (in all, with `--start`). `bare` is a
Python client that binds pods to nodes in turn and does nothing else: no decision, no event, no condition. The others
write an event a pod.
`share` compares with the bare client of the same round. `--start` measures instead the time from the start of the
process to the first pod bound with 11,000 bound and 3,000 waiting pods, and the most memory. The order of the
competitors changes from round to round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import uvloop

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.api.resource import NODES, POD_GROUPS, PODS, Resource
from muster.cli.bench.load import make_gang, make_pod
from muster.cli.bench.real_server import assets, running_real
from muster.cli.bench.server import Server
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.informer import Change, Informer
from muster.client.kubeconfig import read_kubeconfig
from muster.clock import RealClock
from muster.nodes.spec import make_nodes, parse_node_spec

GATES = "GenericWorkload=true,GangScheduling=true"
SERVER = (f"--feature-gates={GATES}", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
GROUPS = Resource(POD_GROUPS.group, "v1alpha2", POD_GROUPS.plural, POD_GROUPS.kind)
NAMESPACE = "default"
AT_ONCE = 32
PATIENCE_S = 600.0
"""Deleting thousands of pods is one request."""
NAMES = {"muster": "muster", "kube-scheduler": "default-scheduler", "bare": "bare"}
BOUND_ONLY = "spec.nodeName!="


@dataclass(frozen=True)
class Row:
    """One run: the work, who did it, and what came of it. `pods_per_s` 0: not all were bound in time."""

    work: str
    who: str
    bound: int
    pods_per_s: float
    first_s: float
    cpu_ms: float
    peak_mb: int


def main() -> None:
    """Measures and prints a table, or JSON."""
    parser = argparse.ArgumentParser(description="Bind pods on a real kube-apiserver, with three programs in turn.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--work", default="plain,gang-4,gang-100,gang-1000")
    parser.add_argument("--who", default="bare,muster,kube-scheduler")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a run is given up")
    parser.add_argument("--start", action="store_true", help="time to the first decision on a full cluster")
    parser.add_argument("--bound", type=int, default=11_000, help="bound pods of --start")
    parser.add_argument("--waiting", type=int, default=3_000, help="waiting pods of --start")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--write", type=Path, help="write the JSON into this file, too")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare is not None:
        uvloop.run(bind_all(options.bare))
        return
    if assets() is None:
        sys.exit("bench/real.py: KUBEBUILDER_ASSETS has no etcd and kube-apiserver (see hack/build-kube)")
    rows: list[Row] = []
    for number in range(options.rounds):
        rows += asyncio.run(run_round(options, number))
    result = summary(rows, options)
    if options.write is not None:
        options.write.write_text(json.dumps(result, indent=2))
    print(json.dumps(result, indent=2) if options.output == "json" else table(result))


# -- one round -------------------------------------------------------------------------------------------------------


async def run_round(options: argparse.Namespace, number: int) -> list[Row]:
    """All works by all competitors on one server."""
    folder = assets()
    assert folder is not None
    who = options.who.split(",")
    who = who[number % len(who) :] + who[: number % len(who)]
    rows = []
    if options.start:
        for each in who:
            async with prepared(folder, options.nodes) as (server, client):
                say(f"round {number + 1}: start of {each}")
                rows.append(await run_start(client, server, folder, each, options))
        return rows
    async with prepared(folder, options.nodes) as (server, client):
        for work in options.work.split(","):
            for each in who:
                say(f"round {number + 1}: {work} by {each}")
                rows.append(await run_work(client, server, folder, each, work, options))
                await clear(client)
    return rows


@contextlib.asynccontextmanager
async def prepared(folder: Path, nodes: int) -> AsyncIterator[tuple[Server, Client]]:
    """A server with nodes, and a client."""
    with running_real(folder, SERVER) as server:
        transport = HttpTransport(
            read_kubeconfig(server.kubeconfig), max_connections=AT_ONCE, request_timeout_s=PATIENCE_S
        )
        client = Client(transport, user_agent="bench")
        try:
            await create_nodes(client, nodes)
            yield server, client
        finally:
            await transport.aclose()


async def run_work(
    client: Client, server: Server, folder: Path, who: str, work: str, options: argparse.Namespace
) -> Row:
    """The pods of a work from the first one bound to the last."""
    groups, pods = work_of(work, options.pods, NAMES[who])
    await at_once([lambda group=group: client.create(GROUPS, NAMESPACE, group) for group in groups])
    await at_once([lambda pod=pod: client.create(PODS, NAMESPACE, pod) for pod in pods])
    async with watching(client) as seen:
        with competitor(who, server, folder) as process:
            began, before = time.perf_counter(), [0.0]
            seen.on_first = lambda: before.append(process.cpu_s())
            times = await seen.until(len(pods), options.limit)
            cpu_s = process.cpu_s() - before[-1]
            peak_mb = process.peak_mb()
    is_whole = len(times) == len(pods) and len(times) > 1
    rate = (len(times) - 1) / (times[-1] - times[0]) if is_whole else 0.0
    first_s = times[0] - began if times else 0.0
    return Row(work, who, len(times), rate, first_s, 1000 * cpu_s / max(1, len(times)), peak_mb)


async def run_start(client: Client, server: Server, folder: Path, who: str, options: argparse.Namespace) -> Row:
    """From the start of the process to the first pod bound, on a cluster with many bound and many waiting pods."""
    name, nodes = NAMES[who], cycle(node_names(options.nodes))
    bound = [make_pod(f"bound-{number}", node=next(nodes)) for number in range(options.bound)]
    groups, waiting = work_of("gang-100", options.waiting, name)
    for group in groups:
        group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 101  # all of them wait, and are looked at
    last = [{**pod, "spec": {**pod["spec"], "schedulerName": name}} for pod in [make_pod("last")]]
    await at_once([lambda pod=pod: client.create(PODS, NAMESPACE, pod) for pod in bound])
    await at_once([lambda group=group: client.create(GROUPS, NAMESPACE, group) for group in groups])
    await at_once([lambda pod=pod: client.create(PODS, NAMESPACE, pod) for pod in (*waiting, *last)])
    async with watching(client, after=len(bound)) as seen:
        began = time.perf_counter()
        with competitor(who, server, folder) as process:
            times = await seen.until(1, options.limit)
            cpu_s, peak_mb = process.cpu_s(), process.peak_mb()
    first_s = times[0] - began if times else 0.0
    return Row("start", who, len(times), 0.0, first_s, 1000 * cpu_s, peak_mb)


def work_of(work: str, count: int, scheduler: str) -> tuple[Objects, Objects]:
    """Groups and pods: `plain`, or `gang-SIZE`."""
    if work == "plain":
        pods = [make_pod(f"pod-{number}") for number in range(count)]
        groups: Objects = []
    else:
        size = int(work.removeprefix("gang-"))
        numbers = range(max(1, count // size))
        groups = [{**make_gang(f"g{number}", size), "apiVersion": GROUPS.api_version} for number in numbers]
        pods = [make_pod(f"g{number}-{at}", group=f"g{number}") for number in numbers for at in range(size)]
    for pod in pods:
        pod["spec"]["schedulerName"] = scheduler
    return groups, pods


def node_names(count: int) -> list[str]:
    return [name_of(node) for node in nodes_of(count)]


def nodes_of(count: int) -> Objects:
    return make_nodes([parse_node_spec(f"count={count},cpu=32,memory=256Gi,racks={max(1, count // 20)}")], 0.0)


async def create_nodes(client: Client, count: int) -> None:
    """Nodes that are ready, without kubelets."""

    async def create(node: Object) -> None:
        await client.create(NODES, None, node)
        await client.patch(NODES, None, name_of(node), {"spec": {"taints": None}})

    await at_once([lambda node=node: create(node) for node in nodes_of(count)])


async def clear(client: Client) -> None:
    """Delete pods, groups and events."""
    for path in (PODS.path(NAMESPACE), GROUPS.path(NAMESPACE), f"/api/v1/namespaces/{NAMESPACE}/events"):
        await client.transport.request("DELETE", path, query=[("gracePeriodSeconds", "0")])
    patch = {"metadata": {"finalizers": None}}
    names = [name_of(group) for group in (await client.list(GROUPS, NAMESPACE)).items]
    await at_once([lambda name=name: client.patch(GROUPS, NAMESPACE, name, patch) for name in names])


async def at_once(calls: list[object]) -> None:
    """Await the coroutines that these make, `AT_ONCE` at a time."""
    remaining = iter(calls)

    async def work() -> None:
        for call in remaining:
            await call()  # type: ignore[operator]  # what is passed are functions without arguments

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


class Seen:
    """When pods were seen bound, as `time.perf_counter()`."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.on_first: Callable[[], None] = lambda: None
        self._wanted = 0
        self._reached = asyncio.Event()

    def note(self, changes: list[Change]) -> None:
        now = time.perf_counter()
        if not self.times:
            self.on_first()
        self.times += [now for change in changes if change.type == "ADDED"]
        if len(self.times) >= self._wanted:
            self._reached.set()

    async def until(self, count: int, limit_s: float) -> list[float]:
        """The times once there are so many; fewer at the limit."""
        self._wanted = count
        self._reached.clear()
        if len(self.times) < count:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reached.wait(), limit_s)
        return self.times[:count]


@contextlib.asynccontextmanager
async def watching(client: Client, after: int = 0) -> AsyncIterator[Seen]:
    """A watch of bound pods. `after`: so many are bound already, and do not count."""
    informer = Informer(client, RealClock(), PODS, namespace=NAMESPACE, field_selector=BOUND_ONLY)
    seen = Seen()
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    assert len(informer.objects) == after, f"{len(informer.objects)} pods are bound, not {after}"
    informer.add_handler(seen.note)
    seen.times.clear()
    yield seen
    task.cancel()
    await asyncio.wait([task])


# -- competitors -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def competitor(who: str, server: Server, folder: Path) -> Iterator[Server]:
    """The program, started; killed at the end."""
    with tempfile.TemporaryDirectory() as name, (Path(name) / "log").open("w") as log:
        command = {
            "muster": [sys.executable, "-m", "muster.cli.main", "scheduler", "--kubeconfig", str(server.kubeconfig)],
            "bare": [sys.executable, __file__, "--bare", str(server.kubeconfig)],
            "kube-scheduler": [str(folder / "kube-scheduler"), "--secure-port=0", f"--feature-gates={GATES}"],
        }[who]
        if who == "muster":
            command += ["--no-leader-elect", "--port=0"]
        if who == "kube-scheduler":
            config = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 5000, "burst": 5000},
            }
            (Path(name) / "config.yaml").write_text(json.dumps(config))
            command.append(f"--config={name}/config.yaml")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))
        try:
            yield Server(process, server.kubeconfig, 0.0, 0.0)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def bind_all(kubeconfig: Path) -> None:
    """What `bare` is: every pod that names it goes to the next node."""
    transport = HttpTransport(read_kubeconfig(kubeconfig), max_connections=AT_ONCE, trims=True)
    client = Client(transport, user_agent="bare", streams_lists=True)
    nodes = cycle([name_of(node) for node in (await client.list(NODES)).items])
    todo: asyncio.Queue[str] = asyncio.Queue()

    def note(changes: list[Change]) -> None:
        for change in changes:
            pod = change.new
            if change.type == "ADDED" and pod is not None and pod["spec"].get("schedulerName") == "bare":
                todo.put_nowait(name_of(pod))

    async def bind() -> None:
        while True:
            name = await todo.get()
            target = {"apiVersion": "v1", "kind": "Node", "name": next(nodes)}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await client.create(PODS, NAMESPACE, body, name=name, subresource="binding")

    informer = Informer(client, RealClock(), PODS, namespace=NAMESPACE)
    informer.add_handler(note)
    await asyncio.gather(informer.run(), *(bind() for _ in range(AT_ONCE)))


# -- words -----------------------------------------------------------------------------------------------------------


def summary(rows: list[Row], options: argparse.Namespace) -> Object:
    """Medians over the rounds, and shares of what the bare client of the same round reached."""
    found: Objects = []
    for work, who in dict.fromkeys((row.work, row.who) for row in rows):
        mine = [row for row in rows if (row.work, row.who) == (work, who)]
        bare = [row for row in rows if (row.work, row.who) == (work, "bare")]
        shares = [row.pods_per_s / other.pods_per_s for row, other in zip(mine, bare, strict=False) if other.pods_per_s]
        found.append(
            {
                "work": work,
                "who": who,
                "bound": min(row.bound for row in mine),
                "pods_per_s": round(statistics.median(row.pods_per_s for row in mine), 1),
                "share": round(statistics.median(shares), 2) if shares else None,
                "first_s": round(statistics.median(row.first_s for row in mine), 2),
                "cpu_ms": round(statistics.median(row.cpu_ms for row in mine), 2),
                "peak_mb": max(row.peak_mb for row in mine),
            }
        )
    setting = {"nodes": options.nodes, "pods": options.pods, "rounds": options.rounds, "cores": os.cpu_count()}
    setting["load_1min"] = round(os.getloadavg()[0], 1)
    return {"setting": setting, "rows": found}


def table(result: Object) -> str:
    """The rows for people."""
    names = ("work", "who", "bound", "pods_per_s", "share", "first_s", "cpu_ms", "peak_mb")
    lines = [" ".join(f"{name:>14}" for name in names)]
    lines += [
        " ".join(f"{row[name] if row[name] is not None else '-':>14}" for name in names) for row in result["rows"]
    ]
    return "\n".join([*lines, f"setting: {result['setting']}"])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
