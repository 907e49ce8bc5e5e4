"""What pods and nodes use: metrics.k8s.io, computed when it is asked for. Nothing of it is stored.

Simulated pods do not measure anything: a running container is said to use what it requests, and a little where it
requests nothing.
"""

from __future__ import annotations

from collections import defaultdict

from muster.api.codec import Object, Objects
from muster.api.quantity import format_units, resource_units
from muster.apiserver.context import Context
from muster.apiserver.registry.strategy import Strategy

WINDOW = "30s"
_DEFAULTS = {"cpu": 1, "memory": 2**20}


class _UsageStrategy(Strategy):
    kind = ""

    def _metrics(self, of: Object, ctx: Context) -> Object:
        meta = of["metadata"]
        kept = ("name", "namespace", "labels")
        return {
            "kind": self.kind,
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {
                **{key: meta[key] for key in kept if key in meta},
                "creationTimestamp": ctx.timestamp,
            },
            "timestamp": ctx.timestamp,
            "window": WINDOW,
        }


class PodUsageStrategy(_UsageStrategy):
    """PodMetrics of the pods that run."""

    kind = "PodMetrics"

    def computed(self, ctx: Context, namespace: str) -> Objects:
        return [
            {
                **self._metrics(pod, ctx),
                "containers": [
                    {"name": container["name"], "usage": _quantities(_container_usage(container))}
                    for container in pod["spec"]["containers"]
                ],
            }
            for pod in _running(ctx, namespace)
        ]


class NodeUsageStrategy(_UsageStrategy):
    """NodeMetrics: the sum of what runs on each node."""

    kind = "NodeMetrics"

    def computed(self, ctx: Context, namespace: str) -> Objects:
        sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_DEFAULTS, 0))
        for pod in _running(ctx, ""):
            used = sums[pod["spec"].get("nodeName", "")]
            for container in pod["spec"]["containers"]:
                for name, amount in _container_usage(container).items():
                    used[name] += amount
        nodes = ctx.store.list("/nodes/").items
        return [{**self._metrics(node, ctx), "usage": _quantities(sums[node["metadata"]["name"]])} for node in nodes]


def _running(ctx: Context, namespace: str) -> Objects:
    pods = ctx.store.list(f"/pods/{namespace}/" if namespace else "/pods/").items
    return [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]


def _container_usage(container: Object) -> dict[str, int]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {
        name: resource_units(name, requests[name]) if name in requests else least for name, least in _DEFAULTS.items()
    }


def _quantities(used: dict[str, int]) -> dict[str, str]:
    return {name: format_units(name, amount) for name, amount in used.items()}
