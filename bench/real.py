"""Pods a second to bound on a real kube-apiserver: ours, the real kube-scheduler, and bindings alone, in turn.

    KUBEBUILDER_ASSETS=FOLDER python bench/real.py --quick     a minute or two: everything, small
    KUBEBUILDER_ASSETS=FOLDER python bench/real.py --all       20 minutes: everything at 1,000 and 5,000 nodes, as many
                                                               rounds as there is time for (--minutes), three at most
    KUBEBUILDER_ASSETS=FOLDER python bench/real.py [--nodes 1000,5000] [--pods 3000] [--work plain,gang-4,rack-4]
                                                   [--who bare,muster,kube-scheduler] [--rounds 3]

Every round starts etcd and kube-apiserver anew and creates the nodes, in racks of 20; then each competitor in turn gets
the same pods, created before it starts. The order of the competitors changes from round to round. Each run says a line
when it ends; one that fails, or takes too long (--limit), ends alone. Ctrl-C prints what there is.

Works: `plain` pods; `gang-SIZE`: gangs of so many; `rack-SIZE`: such gangs, each in one rack; `start`: from the start
of the process to the first pod bound, with 11,000 bound and 3,000 waiting pods (--bound, --waiting); `memory`: the
same with 50,000 bound pods (--stored) and none that wait: look at `peak_mb`. These two on the most nodes alone.

Counted is from the first pod bound to the last, or to the limit, as a client of its own sees them in a watch. `bare` is
a Python client that binds pods to nodes in turn and does nothing else: no decision, no event, no condition; `bare-2` is
two processes of it, which are faster only if one did not use the server up. The others write an event a pod. `share`
compares with the bare client of the same round. `cpu_ms` and `server_ms` are what a pod costs in the competitor's and
in kube-apiserver's own processor time in that span (in all, for `start` and `memory`), `idle` the share of the
machine's processor time that nobody used then: near 0, the machine is the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from muster.api.codec import Object, Objects
from muster.cli.bench.load import make_pod
from muster.cli.bench.real_server import assets, running_real
from muster.cli.bench.server import Server
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.kubeconfig import read_kubeconfig
from real_competitors import NAMES, Meter, are_running, bind_all, check_running, competitor
from real_work import AT_ONCE, clear, create_all, create_bound, create_nodes, remove, watching, work_of

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
SERVER = (f"--feature-gates={GATES}", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
BEGAN_S = time.monotonic()
PATIENCE_S = 600.0
"""Deleting thousands of pods is one request."""
PREPARING_S = 180.0
"""How long a turn may take to create its pods and delete them."""
STARTS = ("start", "memory")
"""Works that are about many bound pods, in the order in which these become more."""
WORKS = "plain,gang-4,gang-100,gang-1000,rack-4,start,memory"
QUICK = {
    "nodes": "200",
    "pods": 400,
    "work": "plain,gang-4,gang-100,rack-4,start,memory",
    "rounds": 1,
    "bound": 600,
    "waiting": 300,
    "stored": 1500,
}
ALL = {"nodes": "1000,5000", "work": WORKS, "limit": 45, "minutes": 20}


@dataclass(frozen=True)
class Turn:
    """What is to be run next: a work, who does it, in which round."""

    nodes: int
    work: str
    who: str
    number: int


@dataclass(frozen=True)
class Row:
    """One run: the work, who did it, and what came of it. `pods_per_s`: of those that were bound in time."""

    number: int
    nodes: int
    work: str
    who: str
    bound: int
    pods_per_s: float
    first_s: float
    cpu_ms: float
    server_ms: float
    idle: float
    peak_mb: int


def main() -> None:
    """Measures and prints a table, or JSON."""
    options = read_options()
    if options.bare is not None:
        uvloop.run(bind_all(options.bare, options.at_once, options.part))
        return
    folder = assets()
    if folder is None:
        sys.exit("bench/real.py: KUBEBUILDER_ASSETS has no etcd and kube-apiserver (see hack/build-kube)")
    if "kube-scheduler" in options.who.split(",") and not (folder / "kube-scheduler").exists():
        sys.exit(f"bench/real.py: {folder} has no kube-scheduler: build it, or say --who bare,muster")
    rows: list[Row] = []
    end_s = BEGAN_S + 60 * options.minutes if options.minutes else math.inf
    with contextlib.suppress(KeyboardInterrupt):  # what there is is printed
        for number in range(options.rounds):
            for nodes in (int(each) for each in options.nodes.split(",")):
                rows += asyncio.run(run_round(options, folder, nodes, number, end_s))
                if options.write is not None:
                    options.write.write_text(json.dumps(summary(rows, options), indent=2))
    if not rows:
        sys.exit("bench/real.py: nothing was measured")
    result = summary(rows, options)
    print(json.dumps(result, indent=2) if options.output == "json" else table(result))


def read_options() -> argparse.Namespace:
    """What the command line says; `--quick` and `--all` are defaults of the rest."""
    parser = argparse.ArgumentParser(description="Bind pods on a real kube-apiserver, with three programs in turn.")
    parser.add_argument("--quick", action="store_true", help="everything, small")
    parser.add_argument("--all", action="store_true", help="everything, at full size")
    parser.add_argument("--nodes", default="1000", help="how many; several with commas between them")
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--work", default="plain,gang-4,gang-100,gang-1000,rack-4", help=WORKS)
    parser.add_argument("--who", default="bare,muster,kube-scheduler", help=",".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a run is given up")
    parser.add_argument("--minutes", type=float, default=0, help="begin no run after so many (0: no limit)")
    parser.add_argument("--bound", type=int, default=11_000, help="bound pods of the work start")
    parser.add_argument("--waiting", type=int, default=3_000, help="waiting pods of the work start")
    parser.add_argument("--stored", type=int, default=50_000, help="bound pods of the work memory")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many bindings bare has under way")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--write", type=Path, help="write the JSON into this file, too, after each round")
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", default="0/1", help=argparse.SUPPRESS)
    chosen = parser.parse_known_args()[0]
    parser.set_defaults(**(QUICK if chosen.quick else ALL if chosen.all else {}))
    options = parser.parse_args()
    unknown = [each for each in options.who.split(",") if each not in NAMES]
    unknown += [each for each in options.work.split(",") if not _is_work(each)]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; --who takes {', '.join(NAMES)}, --work {WORKS}")
    return options


def _is_work(text: str) -> bool:
    kind, _, size = text.partition("-")
    return text in ("plain", "start", "memory") or (kind in ("gang", "rack") and size.isdecimal() and int(size) > 0)


# -- one round -------------------------------------------------------------------------------------------------------


async def run_round(options: argparse.Namespace, folder: Path, nodes: int, number: int, end_s: float) -> list[Row]:
    """All works by all competitors. Those that look at many bound pods are for the largest number of nodes."""
    who = options.who.split(",")
    who = who[number % len(who) :] + who[: number % len(who)]
    works = options.work.split(",")
    turns = [Turn(nodes, work, each, number) for work in works if work not in STARTS for each in who]
    rows = await take_turns(options, folder, turns, end_s)
    if nodes == max(int(each) for each in options.nodes.split(",")):
        starters = [each for each in who if not each.startswith("bare")]
        turns = [Turn(nodes, work, each, number) for work in STARTS if work in works for each in starters]
        rows += await take_turns(options, folder, turns, end_s)
    return rows


async def take_turns(options: argparse.Namespace, folder: Path, turns: Sequence[Turn], end_s: float) -> list[Row]:
    """One after the other on one server; after a fault, which ends its turn alone, on another one. None begins after
    `end_s` (by `time.monotonic`)."""
    rows: list[Row] = []
    left = deque(turns)
    while left:
        if time.monotonic() >= end_s:
            say(options, left[0], f"not begun, and {len(left) - 1} after it: --minutes is over")
            break
        turn, began = left[0], False
        try:
            async with prepared(folder, turn.nodes) as (server, client):
                bound = 0
                while left and time.monotonic() < end_s:
                    turn, began = left.popleft(), True
                    row, bound = await run_turn(client, server, folder, turn, bound, options)
                    rows.append(row)
                    say(options, turn, f"{row.bound} bound, {_result(row)}")
        except Exception as error:  # one competitor, or one server, must not end the measurement
            say(options, turn, f"failed: {type(error).__name__}: {str(error)[-300:]}")
            if not began:
                break
    return rows


async def run_turn(
    client: Client, server: Server, folder: Path, turn: Turn, bound: int, options: argparse.Namespace
) -> tuple[Row, int]:
    """One row, and how many bound pods it leaves (`bound`: how many it finds). Raises TimeoutError where all of it,
    creating and deleting included, takes too long."""
    async with asyncio.timeout(options.limit + PREPARING_S):
        if turn.work in STARTS:
            count = max(bound, options.stored if turn.work == "memory" else options.bound)
            await create_bound(client, turn.nodes, bound, count)
            return await run_start(client, server, folder, turn, options), count
        row = await run_work(client, server, folder, turn, options)
        await clear(client)
        return row, 0


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


async def run_work(client: Client, server: Server, folder: Path, turn: Turn, options: argparse.Namespace) -> Row:
    """The pods of a work from the first one bound to the last, or to the limit."""
    groups, pods = work_of(turn.work, options.pods, NAMES[turn.who])
    await create_all(client, groups, pods)
    async with watching(client) as seen:
        with competitor(turn.who, server, folder, GATES, options.at_once) as processes:
            began = time.perf_counter()
            meters = [Meter(processes, server)]
            seen.on_first = lambda: meters.append(Meter(processes, server))
            times = await seen.until(len(pods), options.limit, lambda: are_running(processes))
            check_running(processes)
            ended = times[-1] if len(times) == len(pods) else time.perf_counter()
            cpu_s, server_s, idle = meters[-1].used()
            peak_mb = sum(each.peak_mb() for each in processes)
    rate = (len(times) - 1) / max(1e-6, ended - times[0]) if len(times) > 1 else 0.0
    first_s = times[0] - began if times else 0.0
    count = max(1, len(times))
    costs = (1000 * cpu_s / count, 1000 * server_s / count, idle, peak_mb)
    return Row(turn.number, turn.nodes, turn.work, turn.who, len(times), rate, first_s, *costs)


async def run_start(client: Client, server: Server, folder: Path, turn: Turn, options: argparse.Namespace) -> Row:
    """From the start of the process to the first pod bound, on a cluster with many bound and many waiting pods."""
    name = NAMES[turn.who]
    groups, waiting = work_of("gang-100", options.waiting, name) if turn.work == "start" else ([], [])
    for group in groups:
        group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 101  # all of them wait, and are looked at
    last = make_pod("last")
    last["spec"]["schedulerName"] = name
    await create_all(client, groups, [*waiting, last])
    async with watching(client, name="last") as seen:
        began = time.perf_counter()
        with competitor(turn.who, server, folder, GATES, options.at_once) as processes:
            meter = Meter(processes, server)
            times = await seen.until(1, options.limit, lambda: are_running(processes))
            check_running(processes)
            cpu_s, server_s, idle = meter.used()
            peak_mb = sum(each.peak_mb() for each in processes)
    await remove(client, groups, [*waiting, last])
    first_s = times[0] - began if times else 0.0
    costs = (1000 * cpu_s, 1000 * server_s, idle, peak_mb)
    return Row(turn.number, turn.nodes, turn.work, turn.who, len(times), 0.0, first_s, *costs)


# -- words -----------------------------------------------------------------------------------------------------------


def summary(rows: list[Row], options: argparse.Namespace) -> Object:
    """Medians over the rounds, and shares of what the bare client of the same round reached."""
    found: Objects = []
    for nodes, work, who in dict.fromkeys((row.nodes, row.work, row.who) for row in rows):
        mine = [row for row in rows if (row.nodes, row.work, row.who) == (nodes, work, who)]
        bare = {row.number: row.pods_per_s for row in rows if (row.nodes, row.work, row.who) == (nodes, work, "bare")}
        shares = [row.pods_per_s / bare[row.number] for row in mine if bare.get(row.number)]
        found.append(
            {
                "nodes": nodes,
                "work": work,
                "who": who,
                "bound": min(row.bound for row in mine),
                "pods_per_s": round(statistics.median(row.pods_per_s for row in mine), 1),
                "share": round(statistics.median(shares), 2) if shares else None,
                "first_s": round(statistics.median(row.first_s for row in mine), 2),
                "cpu_ms": round(statistics.median(row.cpu_ms for row in mine), 2),
                "server_ms": round(statistics.median(row.server_ms for row in mine), 2),
                "idle": round(statistics.median(row.idle for row in mine), 2),
                "peak_mb": max(row.peak_mb for row in mine),
            }
        )
    setting: Object = {"pods": options.pods, "rounds": options.rounds, "cores": os.cpu_count()}
    setting |= {"bound": options.bound, "waiting": options.waiting, "stored": options.stored}
    setting["load_1min"] = round(os.getloadavg()[0], 1)
    return {"setting": setting, "rows": found}


def table(result: Object) -> str:
    """The rows for people."""
    names = tuple(result["rows"][0])
    lines = [" ".join(f"{name:>14}" for name in names)]
    lines += [
        " ".join(f"{row[name] if row[name] is not None else '-':>14}" for name in names) for row in result["rows"]
    ]
    return "\n".join([*lines, f"setting: {result['setting']}"])


def say(options: argparse.Namespace, turn: Turn, text: str) -> None:
    """One line of progress."""
    minutes = (time.monotonic() - BEGAN_S) / 60
    where = f"round {turn.number + 1} of {options.rounds}, {turn.nodes} nodes: {turn.work} by {turn.who}"
    print(f"{minutes:5.1f} min  {where}: {text}", file=sys.stderr, flush=True)


def _result(row: Row) -> str:
    if row.work in STARTS:
        return f"after {row.first_s:.1f} s, {row.peak_mb} MB"
    return f"{row.pods_per_s:.0f} pods/s"


if __name__ == "__main__":
    main()
