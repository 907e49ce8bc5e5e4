"""The objects that every cluster has from the start."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import Object
from muster.apiserver.resources import ResourceTable, Served

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SYSTEM_CLASSES = (
    ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their node."),
)


def bootstrap_objects(table: ResourceTable) -> Iterator[tuple[Served, Object]]:
    """Namespaces and priority classes, each with its table entry."""
    namespaces = table.find("", "v1", "namespaces")
    classes = table.find("scheduling.k8s.io", "v1", "priorityclasses")
    assert namespaces is not None
    assert classes is not None
    for name in NAMESPACES:
        yield namespaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name, value, description in SYSTEM_CLASSES:
        yield (
            classes,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": description,
            },
        )
