"""A real kube-apiserver and etcd that tests can stop and start, and what lives on it: nodes, kubelets, owners."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from control_planes import PATIENCE_S, _free_port, _is_ready, key, process, wait_until
from releases import KubernetesRelease, folders, release_of

from muster.api.codec import Object, Objects
from muster.api.groups import POD_GROUP_KEY
from muster.api.meta import is_deleting, key_of, name_of, uid_of
from muster.api.quantity import resource_units
from muster.api.resource import JOBS, NODES, PODS, Resource
from muster.client.client import Client
from muster.client.http import HttpTransport
from muster.client.informer import Change, Informer
from muster.client.kubeconfig import read_kubeconfig, write_kubeconfig
from muster.client.transport import ApiError, ClientError
from muster.clock import RealClock
from muster.nodes.spec import NodeSpec, make_nodes
from muster.scheduler.served import MUSTER_GROUP
from muster.testing import make_group

TOKEN = "admintoken"
SCHEDULER_TOKEN = "schedulertoken"
SCHEDULER_USER = "system:serviceaccount:muster-system:muster-scheduler"
POOL = "tests.muster-k8s.dev/pool"
"""A label of nodes: tests that share a server have nodes of their own."""
CUSTOM_GROUPS = Resource(MUSTER_GROUP, "v1beta1", "podgroups", "PodGroup")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


def find_assets(programs: tuple[str, ...] = ("etcd", "kube-apiserver", "kubectl")) -> Path:
    """The folder of the binaries; skips where there is none, unless MUSTER_REAL is set."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    missing = [name for name in programs if not folder or not (Path(folder) / name).exists()]
    if missing:
        message = f"KUBEBUILDER_ASSETS has no {', '.join(missing)} (see hack/build-kube)"
        if os.environ.get("MUSTER_REAL"):
            pytest.fail(message)
        pytest.skip(message)
    return Path(folder)


def find_release(minor: str) -> Path:
    """The folder of a release's binaries; skips where there is none, unless MUSTER_REAL names the release, too."""
    found = next((folder for folder in folders() if release_of(folder).minor == minor), None)
    if found is None:
        message = f"NOT RUN: needs binaries of Kubernetes {minor}, too: make test-upgrade builds them (see releases.py)"
        if minor in os.environ.get("MUSTER_REAL", ""):
            pytest.fail(message)
        pytest.skip(message)
    return found


@dataclass
class RealServer:
    """etcd and kube-apiserver in a folder. `options`: further ones of kube-apiserver.

    `serves_groups`: with all gates of the feature and every version of the group API that the release has.
    """

    directory: Path
    assets: Path
    options: tuple[str, ...] = ()
    authorization: str = "AlwaysAllow"
    serves_groups: bool = False
    port: int = field(default_factory=_free_port)
    kubeconfig: Path = field(init=False)

    def __post_init__(self) -> None:
        self.kubeconfig = self.write_kubeconfig("kubeconfig", f"https://127.0.0.1:{self.port}")
        self._running = contextlib.ExitStack()
        self._etcd_url = f"http://127.0.0.1:{_free_port()}"

    @property
    def release(self) -> KubernetesRelease:
        return release_of(self.assets)

    def write_kubeconfig(self, name: str, server: str, token: str = TOKEN) -> Path:
        """A kubeconfig for an administrator, or for whom the token is, at an address."""
        cluster = {"server": server, **({"insecure-skip-tls-verify": True} if server.startswith("https") else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
            "current-context": "real",
        }
        write_kubeconfig(self.directory / name, config)
        return self.directory / name

    @contextlib.contextmanager
    def running(self) -> Iterator[RealServer]:
        """The server, ready; ended at the end."""
        key(self.directory)
        (self.directory / "tokens.csv").write_text(
            f"{TOKEN},admin,admin,system:masters\n{SCHEDULER_TOKEN},{SCHEDULER_USER},scheduler,system:serviceaccounts\n"
        )
        peer = f"http://127.0.0.1:{_free_port()}"
        etcd = [str(self.assets / "etcd"), "--name=one", f"--data-dir={self.directory / 'etcd'}", "--unsafe-no-fsync"]
        etcd += [f"--listen-client-urls={self._etcd_url}", f"--advertise-client-urls={self._etcd_url}"]
        etcd += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}"]
        with process(etcd, self.directory / "etcd.log", self.directory), self._running:
            self.start()
            yield self

    def start(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        command = [str(self.assets / "kube-apiserver"), f"--etcd-servers={self._etcd_url}", "--bind-address=127.0.0.1"]
        command += [f"--secure-port={self.port}", "--endpoint-reconciler-type=none", "--token-auth-file=tokens.csv"]
        command += [f"--cert-dir={self.directory / 'certs'}", "--service-cluster-ip-range=10.0.0.0/16"]
        command += ["--service-account-issuer=https://localhost", "--service-account-key-file=sa.pub"]
        command += ["--service-account-signing-key-file=sa.key", f"--authorization-mode={self.authorization}"]
        command += ["--disable-admission-plugins=ServiceAccount", *self.options]
        if self.serves_groups:
            command += [self.release.feature_gates, self.release.runtime_config]
        log = self.directory / "apiserver.log"
        self._process = self._running.enter_context(process(command, log, self.directory))
        wait_until(lambda: _is_ready(self.port, self._process, log), "kube-apiserver is ready")

    def kill(self) -> None:
        """End kube-apiserver as a crash would."""
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def controllers(self, *names: str) -> Iterator[None]:
        """These controllers of the release's kube-controller-manager, running."""
        command = [str(self.assets / "kube-controller-manager"), "--kubeconfig", str(self.kubeconfig)]
        command += ["--leader-elect=false", "--secure-port=0", f"--controllers={','.join(names)}"]
        command += ["--service-account-private-key-file=sa.key", self.release.feature_gates]
        with process(command, self.directory / "controllers.log", self.directory):
            yield

    def upgrade(self, assets: Path) -> None:
        """Stop, and start another release on the same data."""
        self._process.terminate()
        self._process.wait(60)
        self.assets = assets
        self.start()

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl printed. Fails the test if it fails."""
        command = [str(self.assets / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout


@dataclass
class Muster:
    """A `muster scheduler` process."""

    running: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """kill -9."""
        self.running.kill()
        self.running.wait()

    def end(self) -> int:
        """SIGTERM; the exit code."""
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(30)

    @property
    def said(self) -> str:
        return self.log.read_text()


_numbers = itertools.count()


def install(server: RealServer, *options: str) -> Object:
    """What `muster install` said."""
    command = [sys.executable, "-m", "muster.cli.main", "install", "--kubeconfig", str(server.kubeconfig)]
    done = subprocess.run([*command, "-o", "json", *options], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    said: Object = json.loads(done.stdout)
    return said


@contextlib.contextmanager
def muster_scheduler(directory: Path, kubeconfig: Path, *options: str) -> Iterator[Muster]:
    """`muster scheduler` on a server; without an election unless the options say so."""
    command = [sys.executable, "-m", "muster.cli.main", "scheduler", "--kubeconfig", str(kubeconfig), "--port", "0"]
    if not any("leader-elect" in option for option in options):
        command.append("--no-leader-elect")
    log = directory / f"muster-{next(_numbers)}.log"
    with process([*command, *options], log, directory) as running:
        yield Muster(running, log)


@dataclass
class Cluster:
    """A client of a server, and one test's part of it: a namespace and a pool of nodes, both of this name."""

    client: Client
    name: str
    release: KubernetesRelease

    async def add_nodes(self, count: int, cpu: int, **labels: str) -> list[str]:
        """Nodes that are ready, without kubelets."""
        spec = NodeSpec(count=count, name=self.name, capacity={"cpu": str(cpu), "memory": "64Gi", "pods": "110"})
        for node in make_nodes([spec], RealClock().now()):
            node["metadata"]["labels"] = {**node["metadata"].get("labels", {}), POOL: self.name, **labels}
            await self.client.create(NODES, None, node)
            await self.client.patch(NODES, None, name_of(node), {"spec": {"taints": None}})
        return [name_of(node) for node in make_nodes([spec], 0.0)]

    def pod(self, name: str, *, group: str = "", cpu: str = "1", scheduler: str = "muster", **spec: object) -> Object:
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        link = self.release.link(group) if group else {}
        body = {
            "schedulerName": scheduler,
            "nodeSelector": {POOL: self.name},
            "containers": [container],
            **link,
            **spec,
        }
        metadata = {"name": name, "namespace": self.name}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}

    def group(self, name: str, least: int) -> Object:
        return self.release.group(name, self.name, least)

    def custom_group(self, name: str, least: int) -> Object:
        """A gang as a custom resource."""
        return {**make_group(name, min_count=least, namespace=self.name), "apiVersion": CUSTOM_GROUPS.api_version}

    def marked_pod(self, name: str, group: str, cpu: str = "1", grace_s: int = 30) -> Object:
        """A pod whose label says its group: real servers that lack the feature drop the field."""
        pod = self.pod(name, cpu=cpu, terminationGracePeriodSeconds=grace_s)
        return {**pod, "metadata": {**pod["metadata"], "labels": {POD_GROUP_KEY: group}}}

    async def create(self, *objects: Object) -> None:
        kinds = {resource.api_version + resource.kind: resource for resource in (PODS, JOBS, CUSTOM_GROUPS)}
        for obj in objects:
            kind = kinds.get(obj["apiVersion"] + obj["kind"], self.release.groups)
            await self.client.create(kind, self.name, obj)

    async def create_gang(self, name: str, size: int, cpu: str = "1") -> None:
        await self.create(self.group(name, size))
        await self.create(*(self.pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(size)))

    async def pods(self, prefix: str = "") -> Objects:
        """Those that have not ended."""
        listing = await self.client.list(PODS, self.name)
        alive = [pod for pod in listing.items if pod["status"].get("phase") not in ("Failed", "Succeeded")]
        return [pod for pod in alive if name_of(pod).startswith(prefix)]

    async def bound(self, prefix: str = "") -> dict[str, str]:
        return {name_of(pod): pod["spec"]["nodeName"] for pod in await self.pods(prefix) if pod["spec"].get("nodeName")}

    async def bind(self, pod: str, node: str) -> None:
        """A binding by somebody else."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": pod, "namespace": self.name}, "target": target}
        await self.client.create(PODS, self.name, body, name=pod, subresource="binding")

    async def until_bound(self, count: int, prefix: str = "", patience_s: float = PATIENCE_S) -> None:
        await self.until(f"{count} pods {prefix} are bound", lambda bound: len(bound) == count, prefix, patience_s)

    async def until(
        self, what: str, holds: Callable[[dict[str, str]], bool], prefix: str = "", patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until the bound pods are as they should be."""
        end_s = asyncio.get_running_loop().time() + patience_s
        while True:
            with contextlib.suppress(ClientError):
                found = await self.bound(prefix)
                if holds(found):
                    return
            assert asyncio.get_running_loop().time() < end_s, f"not within {patience_s:.0f} s: {what}: {found}"
            await asyncio.sleep(0.2)

    async def crowded_nodes(self) -> dict[str, int]:
        """Nodes of which more cpu is taken than there is, in millicores over."""
        nodes = {name_of(node): node for node in (await self.client.list(NODES)).items}
        free = {name: _cpu(node["status"]["allocatable"]) for name, node in nodes.items()}
        for pod in await self.pods():
            if pod["spec"].get("nodeName"):
                free[pod["spec"]["nodeName"]] -= _pod_cpu(pod)
        return {name: -left for name, left in free.items() if left < 0}


@contextlib.asynccontextmanager
async def cluster(server: RealServer, name: str, *, keeps: bool = False) -> AsyncIterator[Cluster]:
    """A part of a server; its nodes go at the end, and so do its pods, unless it `keeps` them."""
    transport = HttpTransport(read_kubeconfig(server.kubeconfig), max_connections=32)
    client = Client(transport, user_agent="tests")
    try:
        await client.create(NAMESPACES, None, {"metadata": {"name": name}})
    except ApiError as error:
        if not error.is_already_exists:
            raise
    try:
        yield Cluster(client, name, server.release)
    finally:
        if not keeps:
            await client.transport.request("DELETE", PODS.path(name), query=[("gracePeriodSeconds", "0")])
            await client.transport.request("DELETE", NODES.path(), query=[("labelSelector", f"{POOL}={name}")])
        await transport.aclose()


class Kubelets:
    """Takes pods onto the nodes of a cluster in the order in which it sees them, rejects those without room, and ends
    those that are deleted. `rejects`: the first ones that it sees, as if something else had taken their room."""

    def __init__(self, of: Cluster, rejects: int = 0) -> None:
        self.rejected: list[str] = []
        self._rejects = rejects
        self._cluster = of
        self._taken: dict[str, tuple[str, int]] = {}
        self._capacity: dict[str, int] = {}
        self._todo: asyncio.Queue[Object] = asyncio.Queue()

    async def run(self) -> None:
        for node in (await self._cluster.client.list(NODES)).items:
            self._capacity[name_of(node)] = _cpu(node["status"]["allocatable"])
        informer = Informer(self._cluster.client, RealClock(), PODS, namespace=self._cluster.name)
        informer.add_handler(self._see)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            while True:
                pod = await self._todo.get()
                with contextlib.suppress(ClientError):
                    await self._handle(pod)

    def _see(self, changes: list[Change]) -> None:
        for change in changes:
            if change.new is None:
                self._taken.pop(key_of(change.object), None)
            elif change.new["spec"].get("nodeName"):
                self._todo.put_nowait(change.new)

    async def _handle(self, pod: Object) -> None:
        name, uid = name_of(pod), uid_of(pod)
        if is_deleting(pod):
            await self._cluster.client.delete(
                PODS, self._cluster.name, name, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            )
            self._taken.pop(key_of(pod), None)
        elif key_of(pod) not in self._taken and pod["status"].get("phase") == "Pending":
            node, cpu = pod["spec"]["nodeName"], _pod_cpu(pod)
            used = sum(amount for where, amount in self._taken.values() if where == node)
            status: Object = {"phase": "Running"}
            if used + cpu > self._capacity.get(node, 0) or len(self.rejected) < self._rejects:
                status = {"phase": "Failed", "reason": "OutOfcpu", "message": "no room"}
                self.rejected.append(name)
            else:
                self._taken[key_of(pod)] = (node, cpu)
            await self._cluster.client.patch(PODS, self._cluster.name, name, {"status": status}, subresource="status")


class Owner:
    """Keeps so many live pods of each gang (or of plain pods, for the group ""), as a Job would."""

    def __init__(self, of: Cluster, sizes: dict[str, int], cpu: str = "1", scheduler: str = "muster") -> None:
        self._cluster = of
        self._sizes = sizes
        self._cpu = cpu
        self._scheduler = scheduler
        self._number = 0

    async def run(self) -> None:
        while True:
            with contextlib.suppress(ClientError):
                await self.sync()
            await asyncio.sleep(0.3)

    async def sync(self) -> None:
        alive = [pod for pod in await self._cluster.pods() if not is_deleting(pod)]
        for name, size in self._sizes.items():
            there = sum(name_of(pod).startswith(f"{name}-") for pod in alive)
            for _ in range(size - there):
                self._number += 1
                group = name if self._scheduler == "muster" else ""
                pod = self._cluster.pod(f"{name}-{self._number}", group=group, cpu=self._cpu, scheduler=self._scheduler)
                try:
                    await self._cluster.create(pod)
                except ApiError as error:
                    if not error.is_already_exists:
                        raise


def _pod_cpu(pod: Object) -> int:
    requests = (entry.get("resources", {}).get("requests", {}) for entry in pod["spec"]["containers"])
    return sum(_cpu(each) for each in requests)


def _cpu(amounts: Object) -> int:
    return resource_units("cpu", amounts.get("cpu", "0"))
