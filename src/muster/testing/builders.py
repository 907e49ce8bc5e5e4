"""Objects for tests in one line each: only what a test is about is written out."""

from __future__ import annotations

from muster.api.codec import Object


def make_node(
    name: str = "node",
    *,
    cpu: str = "32",
    memory: str = "256Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: list[Object] | None = None,
    unschedulable: bool = False,
    **extended: int | str,
) -> Object:
    """A ready Node. `extended`: further resources, `gpu=8` being `nvidia.com/gpu`."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": str(pods), **_resources(extended)}
    spec: Object = {}
    if taints:
        spec["taints"] = taints
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": allocatable,
            "capacity": dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    cpu: str | None = None,
    memory: str | None = None,
    node: str | None = None,
    group: str | None = None,
    labels: dict[str, str] | None = None,
    priority: int | None = None,
    spec: Object | None = None,
    annotations: dict[str, str] | None = None,
    **extended: int | str,
) -> Object:
    """A Pod with one container; `spec` is merged over the generated one."""
    requests: Object = {**_resources(extended)}
    if cpu is not None:
        requests["cpu"] = cpu
    if memory is not None:
        requests["memory"] = memory
    resources: Object = {"requests": requests} if requests else {}
    if extended:
        resources["limits"] = _resources(extended)
    merged: Object = {"containers": [{"name": "main", "image": "busybox", "resources": resources}]}
    if node is not None:
        merged["nodeName"] = node
    if group is not None:
        merged["schedulingGroup"] = {"podGroupName": group}
    if priority is not None:
        merged["priority"] = priority
    merged.update(spec or {})
    metadata: Object = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": merged, "status": {"phase": "Pending"}}


def make_group(
    name: str = "group",
    *,
    min_count: int | None = 1,
    namespace: str = "default",
    version: str = "v1alpha3",
    **spec: object,
) -> Object:
    """A PodGroup: a gang of `min_count`, or basic where that is None."""
    policy: Object = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def make_job(
    name: str = "job",
    *,
    parallelism: int = 1,
    completions: int | None = None,
    indexed: bool = False,
    namespace: str = "default",
    pod: Object | None = None,
    **spec: object,
) -> Object:
    """A Job whose pods are like `pod` (default: `make_pod()`)."""
    template = pod if pod is not None else make_pod()
    pod_spec = {"restartPolicy": "Never", **template["spec"]}
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations") if key in template["metadata"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            **({"completionMode": "Indexed"} if indexed else {}),
            "template": {"metadata": metadata, "spec": pod_spec},
            **spec,
        },
    }


def _resources(extended: dict[str, int | str]) -> dict[str, str]:
    names = {"gpu": "nvidia.com/gpu"}
    return {names.get(key, key): str(value) for key, value in extended.items()}
