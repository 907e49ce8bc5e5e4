"""Nodes, pods and groups for bench/real.py, and when pods are seen bound."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.api.resource import NODES, POD_GROUPS, PODS, Resource
from muster.cli.bench.load import make_gang, make_pod
from muster.client.client import Client
from muster.client.informer import Change, Informer
from muster.client.transport import TransportError
from muster.clock import RealClock
from muster.nodes.spec import make_nodes, parse_node_spec

GROUPS = Resource(POD_GROUPS.group, "v1alpha2", POD_GROUPS.plural, POD_GROUPS.kind)
NAMESPACE = "default"
AT_ONCE = 32
RACK = 20
"""Nodes in a rack: 250 racks of 5,000 nodes."""
RACK_KEY = "topology.kubernetes.io/rack"
BOUND_ONLY = "spec.nodeName!="


def work_of(work: str, count: int, scheduler: str) -> tuple[Objects, Objects]:
    """Groups and pods: `plain`, `gang-SIZE`, or `rack-SIZE` (gangs that must be in one rack each)."""
    kind, _, text = work.partition("-")
    groups: Objects = []
    if kind == "plain":
        pods = [make_pod(f"pod-{number}") for number in range(count)]
    else:
        size = int(text)
        names = [f"g{number}" for number in range(max(1, count // size))]
        groups = [{**make_gang(name, size), "apiVersion": GROUPS.api_version} for name in names]
        pods = [make_pod(f"{name}-{at}", group=name) for name in names for at in range(size)]
    if kind == "rack":
        for group in groups:
            group["spec"]["schedulingConstraints"] = {"topology": [{"key": RACK_KEY}]}
    for pod in pods:
        pod["spec"]["schedulerName"] = scheduler
    return groups, pods


def node_names(count: int) -> list[str]:
    return [name_of(node) for node in nodes_of(count)]


def nodes_of(count: int) -> Objects:
    return make_nodes([parse_node_spec(f"count={count},cpu=32,memory=256Gi,racks={max(1, count // RACK)}")], 0.0)


async def create_nodes(client: Client, count: int) -> None:
    """Nodes that are ready, without kubelets."""

    async def create(node: Object) -> None:
        await client.create(NODES, None, node)
        await client.patch(NODES, None, name_of(node), {"spec": {"taints": None}})

    await at_once(create(node) for node in nodes_of(count))


async def create_all(client: Client, groups: Objects, pods: Objects) -> None:
    await at_once(client.create(GROUPS, NAMESPACE, group) for group in groups)
    await at_once(client.create(PODS, NAMESPACE, pod) for pod in pods)


async def create_bound(client: Client, nodes: int, first: int, end: int) -> None:
    """Pods that have their nodes already, from one number to before another, in turn over so many nodes."""
    names = node_names(nodes)
    await create_all(client, [], [make_pod(f"bound-{at}", node=names[at % nodes]) for at in range(first, end)])


async def remove(client: Client, groups: Objects, pods: Objects) -> None:
    """Delete these."""
    now = {"gracePeriodSeconds": 0}
    await at_once(client.delete(PODS, NAMESPACE, name_of(pod), now) for pod in pods)
    patch = {"metadata": {"finalizers": None}}
    await at_once(client.delete(GROUPS, NAMESPACE, name_of(group)) for group in groups)
    names = [name_of(group) for group in (await client.list(GROUPS, NAMESPACE)).items]
    await at_once(client.patch(GROUPS, NAMESPACE, name, patch) for name in names)


async def clear(client: Client) -> None:
    """Delete pods, groups and events, however long the server takes."""
    for path in (PODS.path(NAMESPACE), GROUPS.path(NAMESPACE), f"/api/v1/namespaces/{NAMESPACE}/events"):
        with contextlib.suppress(TransportError):
            await client.transport.request("DELETE", path, query=[("gracePeriodSeconds", "0")])
    names = [name_of(group) for group in (await client.list(GROUPS, NAMESPACE)).items]
    patch = {"metadata": {"finalizers": None}}
    await at_once(client.patch(GROUPS, NAMESPACE, name, patch) for name in names)
    while names := [name_of(pod) for pod in (await client.list(PODS, NAMESPACE)).items]:
        await at_once(client.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0}) for name in names)


async def at_once(calls: Iterable[Awaitable[object]]) -> None:
    """Await all of these, `AT_ONCE` at a time."""
    remaining = iter(calls)

    async def work() -> None:
        for call in remaining:
            await call

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

    async def until(self, count: int, limit_s: float, goes_on: Callable[[], bool]) -> list[float]:
        """The times once there are so many; fewer at the limit, or when nobody `goes_on`."""
        self._wanted = count
        self._reached.clear()
        end_s = time.monotonic() + limit_s
        while len(self.times) < count and time.monotonic() < end_s and goes_on():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reached.wait(), 0.5)
        return self.times[:count]


@contextlib.asynccontextmanager
async def watching(client: Client, name: str = "") -> AsyncIterator[Seen]:
    """A watch of bound pods, or of the one with a name; none is bound yet."""
    which = f"{BOUND_ONLY},metadata.name={name}" if name else BOUND_ONLY
    informer = Informer(client, RealClock(), PODS, namespace=NAMESPACE, field_selector=which)
    seen = Seen()
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced.wait()
        assert not informer.objects, f"{len(informer.objects)} pods are bound already"
        informer.add_handler(seen.note)
        yield seen
    finally:
        task.cancel()
        await asyncio.wait([task])
