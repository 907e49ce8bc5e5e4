"""Stored objects of the apps group, and their pods, for tests of controllers."""

from __future__ import annotations

from muster.api.codec import Object, copy_object
from muster.clock import SIMULATION_EPOCH_S, rfc3339

NOW = SIMULATION_EPOCH_S
LABELS = {"app": "web"}


def stored(
    kind: str, name: str = "web", *, image: str = "app:1", status: Object | None = None, **spec: object
) -> Object:
    """An object with a pod template as the API server stores it."""
    template = {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "generation": 1,
            "creationTimestamp": rfc3339(NOW),
        },
        "spec": {"selector": {"matchLabels": dict(LABELS)}, "template": template, **spec},
        "status": status or {},
    }


def pod_of(
    owner: Object,
    name: str,
    phase: str = "Running",
    *,
    ready_s: float | None = 0.0,
    node: str = "node",
    labels: dict[str, str] | None = None,
    deleting: bool = False,
    age_s: float = 0.0,
    annotations: dict[str, str] | None = None,
) -> Object:
    """A pod that `owner` controls. `ready_s`: since how many seconds it is ready; None: it is not."""
    metadata: Object = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{name}",
        "labels": {**LABELS, **(labels or {})},
        "creationTimestamp": rfc3339(NOW - age_s),
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = annotations
    if deleting:
        metadata["deletionTimestamp"] = rfc3339(NOW)
    conditions = []
    if ready_s is not None and phase == "Running":
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(NOW - ready_s)})
    spec = copy_object(owner["spec"]["template"]["spec"])
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "conditions": conditions},
    }
