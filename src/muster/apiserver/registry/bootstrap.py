"""The objects that every cluster has from the start."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from importlib import resources

from muster.api.codec import Object, loads
from muster.apiserver.registry.services import SERVICE_NETWORK
from muster.apiserver.resources import ResourceTable, Served
from muster.clock import rfc3339

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_CLASSES = (
    ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their node."),
)
NEWEST_POLICY = "1.37"
"""The release whose roles a server makes that emulates none."""
TOKEN_TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
"""The ConfigMap that tells since when the use of old tokens is noted; kube-controller-manager looks for it."""


def bootstrap_objects(table: ResourceTable, now: float) -> Iterator[tuple[Served, str, Object]]:
    """What every cluster has, each with its table entry and namespace; `now` is in seconds."""
    namespaces = table.find("", "v1", "namespaces")
    classes = table.find("scheduling.k8s.io", "v1", "priorityclasses")
    assert namespaces is not None
    assert classes is not None
    for name in NAMESPACES:
        yield namespaces, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name, value, description in SYSTEM_CLASSES:
        yield (
            classes,
            "",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": description,
            },
        )
    services = table.find("", "v1", "services")
    assert services is not None
    yield services, "default", _api_service()
    config_maps = table.find("", "v1", "configmaps")
    assert config_maps is not None
    tracking: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TOKEN_TRACKING}}
    yield config_maps, "kube-system", {**tracking, "data": {"since": rfc3339(now)[:10]}}


def policy_objects(table: ResourceTable, emulate: str | None) -> Iterator[tuple[Served, str, Object]]:
    """The roles and bindings that every cluster with RBAC has, each with its table entry and namespace."""
    text = resources.files("muster.apiserver.authorization").joinpath("bootstrap-policy.json.gz").read_bytes()
    policy = loads(gzip.decompress(text))
    assert isinstance(policy, dict)
    group = "rbac.authorization.k8s.io"
    for plural, objects in policy[emulate or NEWEST_POLICY].items():
        served = table.find(group, "v1", plural)
        assert served is not None
        for obj in objects:
            whole = {"apiVersion": f"{group}/v1", "kind": served.resource.kind, **obj}
            yield served, obj["metadata"].get("namespace", ""), whole


def _api_service() -> Object:
    """The Service by which pods find the API server."""
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
    spec = {"type": "ClusterIP", "clusterIP": str(SERVICE_NETWORK[1]), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
