"""The programs that bench/real.py lets bind pods in turn, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path

from muster.api.meta import name_of
from muster.api.resource import NODES, PODS
from muster.cli.bench.server import Server
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.informer import Change, Informer
from muster.client.kubeconfig import read_kubeconfig
from muster.clock import RealClock
from real_work import NAMESPACE

NAMES = {"muster": "muster", "kube-scheduler": "default-scheduler", "bare": "bare", "bare-2": "bare"}
"""The schedulerName of each one's pods."""
BENCH = Path(__file__).parent / "real.py"


@contextlib.contextmanager
def competitor(who: str, server: Server, folder: Path, gates: str, at_once: int) -> Iterator[list[Server]]:
    """The program, started; killed at the end. `bare-2` is two processes."""
    with tempfile.TemporaryDirectory() as name, (Path(name) / "log").open("w") as log, contextlib.ExitStack() as stack:
        config = ["--kubeconfig", str(server.kubeconfig)]
        if who == "muster":
            command = [sys.executable, "-m", "muster.cli.main", "scheduler", *config, "--no-leader-elect", "--port=0"]
            commands = [command]
        elif who == "kube-scheduler":
            path = _write_configuration(Path(name), server.kubeconfig)
            commands = [[str(folder / who), "--secure-port=0", f"--feature-gates={gates}", f"--config={path}"]]
        else:
            parts = 2 if who == "bare-2" else 1
            bare = [sys.executable, str(BENCH), "--bare", str(server.kubeconfig), "--at-once", str(at_once)]
            commands = [[*bare, "--part", f"{part}/{parts}"] for part in range(parts)]
        running = []
        for command in commands:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))
            stack.callback(_kill, process)
            running.append(Server(process, server.kubeconfig, 0.0, 0.0))
        yield running


def are_running(processes: Iterable[Server]) -> bool:
    return all(each.process.poll() is None for each in processes)


def check_running(processes: Iterable[Server]) -> None:
    """Raises RuntimeError for one that has ended by itself."""
    ended = [each.process.returncode for each in processes if each.process.poll() is not None]
    if ended:
        raise RuntimeError(f"the program ended by itself, with exit code {ended[0]}")


def _write_configuration(directory: Path, kubeconfig: Path) -> Path:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
    }
    path = directory / "config.yaml"
    path.write_text(json.dumps(config))
    return path


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def bind_all(kubeconfig: Path, at_once: int, part: str) -> None:
    """What `bare` is: every pod that names it goes to the next node. `part`: `0/2` takes every other pod."""
    mine, of = (int(number) for number in part.split("/"))
    transport = HttpTransport(read_kubeconfig(kubeconfig), max_connections=at_once, trims=True)
    client = Client(transport, user_agent="bare", streams_lists=True)
    nodes = cycle([name_of(node) for node in (await client.list(NODES)).items])
    todo: asyncio.Queue[str] = asyncio.Queue()

    def note(changes: list[Change]) -> None:
        for change in changes:
            pod = change.new
            if change.type == "ADDED" and pod is not None and pod["spec"].get("schedulerName") == "bare":
                name = name_of(pod)
                if zlib.crc32(name.encode()) % of == mine:
                    todo.put_nowait(name)

    async def bind() -> None:
        while True:
            name = await todo.get()
            target = {"apiVersion": "v1", "kind": "Node", "name": next(nodes)}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await client.create(PODS, NAMESPACE, body, name=name, subresource="binding")

    informer = Informer(client, RealClock(), PODS, namespace=NAMESPACE)
    informer.add_handler(note)
    await asyncio.gather(informer.run(), *(bind() for _ in range(at_once)))


class Meter:
    """What the competitor, the API server and the whole machine have used since it was made, in processor seconds."""

    def __init__(self, competitor: list[Server], server: Server) -> None:
        self._competitor = competitor
        self._server = server
        self._began = self._now()

    def used(self) -> tuple[float, float, float]:
        """Competitor, API server, and the share of the machine's processors that was idle."""
        began, now = self._began, self._now()
        total = now[3] - began[3]
        return now[0] - began[0], now[1] - began[1], (now[2] - began[2]) / total if total else 0.0

    def _now(self) -> tuple[float, float, float, float]:
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(each.cpu_s() for each in self._competitor), self._server.cpu_s(), fields[3] + fields[4], sum(fields)
