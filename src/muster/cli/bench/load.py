"""Pods and gangs made over HTTP at full speed, and watched until they are bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from muster.api.codec import Object, Objects
from muster.api.meta import key_of, namespace_of
from muster.api.resource import POD_GROUPS, PODS
from muster.client.client import Client

NAMESPACE = "default"
CREATORS = 32
"""How many requests are under way at once."""


def make_pod(name: str, *, group: str | None = None, node: str | None = None, cpu: str = "100m") -> Object:
    """A small pod as clients send it."""
    spec: Object = {
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]
    }
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def make_gang(name: str, size: int, topology: Sequence[Object] = ()) -> Object:
    """A PodGroup that wants `size` members; `topology`: the constraints on where they are."""
    constraints = {"schedulingConstraints": {"topology": [*topology]}} if topology else {}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}, **constraints},
    }


async def create_pods(client: Client, pods: Objects) -> None:
    """Create pods, `CREATORS` at once."""
    remaining = iter(pods)

    async def creator() -> None:
        for pod in remaining:
            await client.create(PODS, namespace_of(pod), pod)

    await asyncio.gather(*(creator() for _ in range(CREATORS)))


@dataclass(frozen=True, slots=True)
class Bound:
    """When pods were seen with a node (`time.perf_counter()`), by key."""

    at: dict[str, float]

    def last(self) -> float:
        """When the last one was."""
        return max(self.at.values())

    def quantile(self, start: float, share: float) -> float:
        """The seconds from `start` after which that share of the pods was bound."""
        times = sorted(self.at.values())
        return times[min(len(times) - 1, int(len(times) * share))] - start


async def watch_until_bound(client: Client, keys: Sequence[str], version: str) -> Bound:
    """Watch from a version on until all these pods have a node."""
    missing = set(keys)
    at: dict[str, float] = {}
    while missing:
        async for events in client.watch(PODS, NAMESPACE, resource_version=version):
            now = time.perf_counter()
            for event in events:
                version = event.object["metadata"].get("resourceVersion", version)
                if event.type == "BOOKMARK" or not event.object["spec"].get("nodeName"):
                    continue
                key = key_of(event.object)
                if key in missing:
                    missing.discard(key)
                    at[key] = now
            if not missing:
                break
    return Bound(at)
