"""Instances of groups that want to run: a cluster and pods.

An instance is plain numbers first (`Node`, `Pod`), so that a placement can be judged without the engine (`judging`),
and Kubernetes objects second, so that everybody can replay it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from muster.api.codec import Object, Objects
from muster.cli.bench.between import KEYS, NO_RULES, Rules
from muster.cli.bench.shelf import Claim, Volume, storage_objects

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
"""In cores, Gi and devices."""

POOL_LABEL = "pool"


@dataclass(frozen=True, slots=True)
class Node:
    """Free amounts of RESOURCES, pod slots, the pool it is labelled with, a taint key or "", host ports in use, its
    zone and rack ("": no label)."""

    free: tuple[int, ...]
    pods: int = 110
    pool: str = ""
    taint: str = ""
    ports: frozenset[int] = frozenset()
    zone: str = ""
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """Requests of RESOURCES, the pool it must be in or "", taint keys it tolerates, the host port it wants or 0, its
    rules about other pods, the claims it mounts."""

    asks: tuple[int, ...]
    pool: str = ""
    tolerates: frozenset[str] = frozenset()
    port: int = 0
    rules: Rules = NO_RULES
    claims: tuple[str, ...] = ()

    def allowed(self, node: Node) -> bool:
        """Whether the rules other than room let it onto the node."""
        return (
            self.pool in ("", node.pool)
            and (not node.taint or node.taint in self.tolerates)
            and (not self.port or self.port not in node.ports)
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster and a group. `fits`: whether min_count pods fit, None where nobody knows.

    `running`: pods that run already, by node; what nodes have free is what these leave. `domain`: "zone" or "rack" of
    which the whole group must be in one, or "".
    """

    family: str
    seed: int
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    min_count: int
    fits: bool | None = None
    running: tuple[tuple[int, Pod], ...] = ()
    domain: str = ""
    volumes: tuple[Volume, ...] = ()
    claims: tuple[Claim, ...] = ()
    most: int | None = field(default=None, compare=False)
    """The most pods that fit at all, where it is known."""

    def node_objects(self) -> Objects:
        """The nodes; ports in use are held by the pods of `running_objects`."""
        here = [sum(at == each for each, _ in self.running) for at in range(len(self.nodes))]
        return [
            _node_object(at, replace(node, pods=node.pods + taken))
            for at, (node, taken) in enumerate(zip(self.nodes, here, strict=True))
        ]

    def running_objects(self) -> list[tuple[str, Object]]:
        """(node name, pod) of the pods that hold host ports, and of the others that run."""
        others = [(node_name(at), _pod_object(f"runs-{place}", pod)) for place, (at, pod) in enumerate(self.running)]
        return others + [
            (node_name(at), _pod_object(f"holds-{at}-{port}", Pod((0, 0, 0), port=port)))
            for at, node in enumerate(self.nodes)
            for port in sorted(node.ports)
        ]

    def storage_objects(self) -> list[tuple[str, Object]]:
        """(kind, object) of classes, volumes and claims."""
        return storage_objects(self.volumes, self.claims, node_name)

    def pod_objects(self) -> Objects:
        """The pending pods, `pod-<position>`."""
        return [_pod_object(f"pod-{at:04d}", pod) for at, pod in enumerate(self.pods)]


def node_name(at: int) -> str:
    """The name of a node; names sort as positions do."""
    return f"node-{at:05d}"


# -- objects -----------------------------------------------------------------------------------------------------------


def _node_object(at: int, node: Node) -> Object:
    cpu, memory, gpus = node.free
    allocatable = {"cpu": str(cpu), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus)}
    allocatable["pods"] = str(node.pods + len(node.ports))
    labels = {KEYS["host"]: node_name(at), POOL_LABEL: node.pool, KEYS["zone"]: node.zone, KEYS["rack"]: node.rack}
    labels = {key: value for key, value in labels.items() if value}
    taints = [{"key": node.taint, "effect": "NoSchedule"}] if node.taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(at), "labels": labels},
        "spec": {"taints": taints} if taints else {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod_object(name: str, pod: Pod) -> Object:
    cpu, memory, gpus = pod.asks
    requests = {"cpu": str(cpu), "memory": f"{memory}Gi", "nvidia.com/gpu": str(gpus)}
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)}}
    container: Object = {"name": "main", "image": "busybox", "resources": resources}
    if pod.port:
        container["ports"] = [{"containerPort": pod.port, "hostPort": pod.port, "protocol": "TCP"}]
    spec: Object = {"containers": [container]}
    if pod.claims:
        spec["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in pod.claims]
    if pod.pool:
        spec["nodeSelector"] = {POOL_LABEL: pod.pool}
    if pod.tolerates:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in sorted(pod.tolerates)]
    found: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    pod.rules.into(found)
    return found
