"""Control planes to run real components on: `muster up`, or a real kube-apiserver with etcd and our simulated nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from releases import KubernetesRelease, release_of

from muster.api.codec import JSON, Object
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.http import HttpTransport
from muster.client.kubeconfig import read_kubeconfig, write_kubeconfig
from muster.clock import RealClock
from muster.nodes.agent import NodeAgent
from muster.nodes.leases import REAL_LEASE_S
from muster.nodes.spec import NodeSpec, make_nodes

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Plane:
    """A running control plane: where its kubeconfig is, and kubectl on it."""

    kubeconfig: Path
    program: str

    @property
    def release(self) -> KubernetesRelease:
        """That of its kubectl: a plane of ours emulates it."""
        return release_of(Path(self.program).parent)

    def say(self, *arguments: str) -> str:
        """What kubectl printed, to both of its streams, whether it failed or not."""
        done = self._run(arguments)
        return done.stdout + done.stderr

    def _run(self, arguments: tuple[str, ...], stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.kubeconfig.parent)}
        command = [self.program, "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl printed. Fails the test if it fails."""
        done = self._run(arguments, stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> JSON:
        return json.loads(self.kubectl(*arguments, "-o", "json"))

    def create(self, obj: Object) -> None:
        self.kubectl("create", "-f", "-", stdin=json.dumps(obj))


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Ask again and again; fails the test if it never holds."""
    end = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end, f"not within {patience_s:.0f} s: {what}"
        time.sleep(0.5)


@contextlib.contextmanager
def process(command: list[str], log: Path, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running program whose output goes to a file; ended at the end."""
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=directory)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@contextlib.contextmanager
def muster(directory: Path, assets: Path, *options: str) -> Iterator[Plane]:
    """`muster up` with these options, as the release of the binaries."""
    config = directory / "muster.kubeconfig"
    command = [sys.executable, "-m", "muster.cli.main", "up", "--nodes", "4"]
    command += ["--emulate", release_of(assets).minor]
    command += ["--write-kubeconfig", str(config), *options]
    with process(command, directory / "muster.log", directory):
        wait_until(config.exists, "muster up writes its kubeconfig")
        yield Plane(config, str(assets / "kubectl"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def real(directory: Path, assets: Path) -> Iterator[Plane]:
    """A real kube-apiserver and etcd with all of the group API, and four simulated nodes of ours."""
    etcd_url, port = f"http://127.0.0.1:{_free_port()}", _free_port()
    peer_url = f"http://127.0.0.1:{_free_port()}"
    key(directory)
    (directory / "tokens.csv").write_text("admintoken,admin,admin,system:masters\n")
    config = directory / "real.kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    write_kubeconfig(
        config,
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": "admintoken"}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
            "current-context": "real",
        },
    )
    etcd = [str(assets / "etcd"), "--name=one", f"--data-dir={directory / 'etcd'}", "--unsafe-no-fsync=true"]
    etcd += [f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}"]
    etcd += [f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}"]
    etcd += [f"--initial-cluster=one={peer_url}"]
    server = [str(assets / "kube-apiserver"), f"--etcd-servers={etcd_url}", f"--secure-port={port}"]
    server += ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none", f"--cert-dir={directory / 'certs'}"]
    server += ["--service-cluster-ip-range=10.0.0.0/16", "--service-account-issuer=https://localhost"]
    server += ["--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"]
    server += [
        "--token-auth-file=tokens.csv",
        "--authorization-mode=AlwaysAllow",
        "--disable-admission-plugins=ServiceAccount",
    ]
    server += [release_of(assets).job_feature_gates, release_of(assets).runtime_config]
    with (
        process(etcd, directory / "etcd.log", directory),
        process(server, directory / "apiserver.log", directory) as running,
    ):
        wait_until(lambda: _is_ready(port, running, directory / "apiserver.log"), "kube-apiserver is ready")
        with _nodes(config):
            yield Plane(config, str(assets / "kubectl"))


def key(directory: Path) -> Path:
    """A private key for tokens, with its public half beside it."""
    private = directory / "sa.key"
    if not private.exists():
        subprocess.run(["openssl", "genrsa", "-out", str(private), "2048"], check=True, capture_output=True)
        public = ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(directory / "sa.pub")]
        subprocess.run(public, check=True, capture_output=True)
    return private


def _is_ready(port: int, running: subprocess.Popen[bytes], log: Path) -> bool:
    assert running.poll() is None, log.read_text()[-2000:]
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": "Bearer admintoken"})
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def _nodes(kubeconfig: Path) -> Iterator[None]:
    """Simulated nodes on a server, in a thread of their own."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        from muster.api.resource import NODES

        clock, rng = RealClock(), random.Random(1)
        transport = HttpTransport(read_kubeconfig(kubeconfig))
        client = Client(transport, user_agent="muster-nodes")
        for node in make_nodes([NodeSpec(count=4)], clock.now()):
            created = await client.create(NODES, None, node)
            spec = {key: value for key, value in (created.get("spec") or {}).items() if key != "taints"}
            await client.update(NODES, {**created, "spec": spec})
        recorder = EventRecorder(client, clock, rng, "kubelet")
        agent = NodeAgent(client, clock, recorder=recorder, lease_s=REAL_LEASE_S)
        tasks = [loop.create_task(agent.run()), loop.create_task(recorder.run())]
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await transport.aclose()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def scheduler_command(plane: Plane, assets: Path) -> list[str]:
    """The real kube-scheduler on a plane."""
    command = [str(assets / "kube-scheduler"), f"--kubeconfig={plane.kubeconfig}", "--secure-port=0"]
    return [*command, release_of(assets).feature_gates]


def controllers_command(plane: Plane, assets: Path, directory: Path) -> list[str]:
    """The real kube-controller-manager on a plane."""
    command = [str(assets / "kube-controller-manager"), f"--kubeconfig={plane.kubeconfig}", "--secure-port=0"]
    command += ["--controllers=*,-node-ipam-controller", f"--service-account-private-key-file={key(directory)}"]
    command += ["--use-service-account-credentials=false", "--kube-api-qps=500", "--kube-api-burst=1000"]
    return [*command, release_of(assets).job_feature_gates, f"--flex-volume-plugin-dir={directory / 'volumes'}"]


_LINE = re.compile(r"^[EF]\d{4} \S+ +\d+ ([^\]]+)\] (.*)$")
_BY_CHANCE = (
    "is not as new as written version",  # a controller was quicker than its watch, and looks again
    "the object has been modified",  # two controllers wrote at once, and one looks again
    "Failed to update lock optimistically",
    "context canceled",
    "leaderelection lost",
)


def error_lines(log: Path) -> set[str]:
    """What a component's log says at level error, without what differs from run to run."""
    found: set[str] = set()
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None or any(text in line for text in _BY_CHANCE):
            continue
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>", match[2])
        text = re.sub(r"https?://[0-9.:]+", "<server>", text)
        found.add(f"{match[1].rpartition(':')[0]}: {re.sub(r'-[a-z0-9]{5,10}(?=[^a-z0-9]|$)', '-<hash>', text)}")
    return {re.sub(r"\d+", "<n>", text) for text in found}
