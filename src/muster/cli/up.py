"""`muster up`: the embedded cluster for real use, in real time and over HTTP, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import uvloop
from cyclopts import Parameter
from msgspec.structs import replace

from muster.apiserver.store.memory import MemoryStore
from muster.apiserver.store.protocol import Store, StoreCorrupt, StoreFailed
from muster.cli.collection import raise_gc_thresholds
from muster.cli.errors import BadInput, CommandError
from muster.cli.inputs import read_node_specs
from muster.cli.logs import configure_logging
from muster.cli.options import DEFAULT_BEHAVIOUR, Behaviour, NodeSpecs, live_options
from muster.cli.up_access import DEFAULT_ACCESS, AccessOptions, Gate, opened
from muster.client.kubeconfig import kubeconfig, write_kubeconfig
from muster.clock import Clock, RealClock
from muster.nodes.leases import LEASE_S, REAL_LEASE_S
from muster.nodes.spec import NodeSpec
from muster.simulator.embedded import EmbeddedCluster
from muster.simulator.options import ClusterOptions

if TYPE_CHECKING:
    from muster.apiserver.http import HttpServer

DEFAULT_NODES = NodeSpec(count=4)
"""What a cluster has that is new and was asked for nothing else."""

COMPACT_EVERY_S = 300.0
CHECK_EVERY_S = 1.0
"""How often history older than this is forgotten. Source: kube-apiserver's default `--etcd-compaction-interval`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, checked as far as that is possible before anything is touched."""

    nodes: Sequence[NodeSpec]
    options: ClusterOptions
    data: Path | None
    port: int
    kubeconfig: Path | None
    access: AccessOptions = DEFAULT_ACCESS


def up(
    *,
    nodes: NodeSpecs = (),
    data: Path | None = None,
    port: int = 0,
    write_kubeconfig: Annotated[Path | None, Parameter(name="--write-kubeconfig")] = None,
    behaviour: Behaviour = DEFAULT_BEHAVIOUR,
    access: AccessOptions = DEFAULT_ACCESS,
) -> int:
    """Start an embedded cluster that kubectl can use.

    Prints one line when it is ready: the path of the kubeconfig to use. Ctrl-C stops it.

    Parameters
    ----------
    nodes
        Simulated nodes: a number, or such as count=16,cpu=32,memory=256Gi,nvidia.com/gpu=8,racks=4. Repeatable. Nodes
        that exist already stay as they are. Default: 4, if there are none yet.
    data
        Keep the cluster's state in this directory; in memory otherwise.
    port
        The port to listen on, on this machine only. Default: any free one.
    write_kubeconfig
        Write the kubeconfig into this file.
    """
    if not 0 <= port <= 65535:
        raise BadInput(f"--port {port}: must be a number from 0 to 65535")
    configure_logging()
    options = replace(live_options(behaviour), authorization_modes=access.modes, restricts_nodes="Node" in access.modes)
    plan = Plan(read_node_specs(nodes), options, data, port, write_kubeconfig, access)
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, _kubeconfig_path(plan) as path:
            runner.run(serve(plan, path))
    finally:
        gc.enable()
    return 0


async def serve(plan: Plan, path: Path) -> None:
    """Start the cluster, say that it is ready, and run it until a signal comes. Raises `BadInput`."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = open_store(plan.data)
    try:
        await _serve_from(store, plan, path, stop)
    except Exception as error:
        if failure := await _failure_of(store):
            text = f"--data {plan.data}: cannot be written: {failure} (what was acknowledged is kept)"
            raise CommandError(text) from error
        raise
    finally:
        await store.close()


async def _failure_of(store: Store) -> str:
    """Why the store takes no more writes, "" if it does."""
    try:
        await store.durable(store.revision)
    except StoreFailed as error:
        return str(error)
    return ""


async def _serve_from(store: Store, plan: Plan, path: Path, stop: asyncio.Event) -> None:
    clock = RealClock()
    # Where our own controllers do not judge nodes others may, who expect the leases of real ones.
    judged = "node-lifecycle-controller" in plan.options.controller_names()
    lease_s = LEASE_S if judged else REAL_LEASE_S
    cluster = EmbeddedCluster(store, clock, random.Random(), plan.options, lease_s=lease_s)
    with _no_certificates():
        from muster.apiserver.http import HttpServer
    async with opened(plan.access, cluster, clock, plan.data) as gate:
        await _serve_through(
            HttpServer(gate.front, port=plan.port, ssl_context=gate.ssl_context), gate, cluster, plan, path, stop
        )


async def _serve_through(
    http: HttpServer, gate: Gate, cluster: EmbeddedCluster, plan: Plan, path: Path, stop: asyncio.Event
) -> None:
    store = cluster.server.store
    await _listen(http, plan.port)
    components: asyncio.Task[None] | None = None
    try:
        await cluster.create_nodes(_nodes_to_create(plan, store))
        components = asyncio.create_task(_run(cluster, store, cluster.clock))
        _write_kubeconfig(path, http.url, gate)
        raise_gc_thresholds()
        _say_ready(path, http.url)
        await _until(stop, components)
    finally:
        await http.stop()
        if components is not None:
            components.cancel()
            await asyncio.wait([components])


async def _run(cluster: EmbeddedCluster, store: Store, clock: Clock) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.run(scheduler_first=True), name="cluster")
        group.create_task(_compact(store, clock), name="compaction")
        group.create_task(_check(store, clock), name="disk")


async def _check(store: Store, clock: Clock) -> None:
    """End with `StoreFailed` if the disk takes no more writes."""
    while True:
        await clock.sleep(CHECK_EVERY_S, periodic=True)
        await store.durable(store.revision)


async def _compact(store: Store, clock: Clock) -> None:
    """Forget history as time goes on; watches that lag behind by more begin anew."""
    while True:
        revision = store.revision
        await clock.sleep(COMPACT_EVERY_S, periodic=True)
        store.compact(revision)


async def _until(stop: asyncio.Event, components: asyncio.Task[None]) -> None:
    """Return when told to stop. Raises what the components die of."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([stopped, components], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if components.done():
        components.result()


def open_store(data: Path | None) -> Store:
    """The store of a data directory, or one in memory. Raises `BadInput` if the directory cannot be used."""
    if data is None:
        return MemoryStore()
    from muster.apiserver.store.sqlite import SqliteStore

    try:
        return SqliteStore.open(data)
    except StoreCorrupt as error:
        raise BadInput(f"--data: {error}") from error
    except OSError as error:
        raise BadInput(f"--data {data}: cannot be used: {error.strerror or error}") from error


async def _listen(http: HttpServer, port: int) -> None:
    try:
        await http.start()
    except OSError as error:
        known = {errno.EADDRINUSE: "is in use by another program", errno.EACCES: "needs more rights than this user has"}
        raise BadInput(f"--port {port}: {known.get(error.errno or 0, str(error))}") from error


def _nodes_to_create(plan: Plan, store: Store) -> Sequence[NodeSpec]:
    if plan.nodes:
        return plan.nodes
    return () if store.list("/nodes/", limit=1).items else (DEFAULT_NODES,)


@contextlib.contextmanager
def _no_certificates() -> Iterator[None]:
    """Let OpenSSL find no certificates of the system: aiohttp reads them all when it is imported, which takes a tenth
    of a second, and this process calls nobody."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _kubeconfig_path(plan: Plan) -> Iterator[Path]:
    """Where the kubeconfig goes: where it was asked for, else beside the data, else a place that is cleaned up."""
    if plan.kubeconfig is not None:
        yield plan.kubeconfig.absolute()
    elif plan.data is not None:
        yield plan.data.absolute() / "kubeconfig"
    else:
        with tempfile.TemporaryDirectory(prefix="muster-") as directory:
            yield Path(directory) / "kubeconfig"


def _write_kubeconfig(path: Path, url: str, gate: Gate) -> None:
    try:
        write_kubeconfig(path, kubeconfig(url, token=gate.token, ca=gate.certificate))
    except OSError as error:
        raise BadInput(f"--write-kubeconfig {path}: cannot be written: {error.strerror}") from error


def _say_ready(path: Path, url: str) -> None:
    print(path, flush=True)
    if sys.stderr.isatty():
        print(f"Ready at {url}. In another terminal: export KUBECONFIG={path}; kubectl get nodes", file=sys.stderr)
        print("Ctrl-C stops it.", file=sys.stderr)
