"""Binding a pod to a node. Source: upstream `pkg/registry/core/pod/storage` (assignPod) and recordings."""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver import errors
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified
from muster.apiserver.resources import Served

TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

_PODS = Qualified("", "pods")
_BINDING = Qualified("", "pods/binding")


def bound(pod: Object, binding: Object, ctx: Context, served: Served) -> Object:
    """The pod on the node that the Binding names. Raises StatusError (409, 500) if it may not go there."""
    node = _target(binding)
    old_meta, spec = pod["metadata"], pod["spec"]
    name = old_meta["name"]
    given = binding.get("metadata") or {}
    _check(pod, name, given)
    meta = dict(old_meta)
    labels = {**(meta.get("labels") or {}), **_topology(ctx, node), **(given.get("labels") or {})}
    if labels:
        meta["labels"] = labels
    if given.get("annotations"):
        meta["annotations"] = {**(meta.get("annotations") or {}), **given["annotations"]}
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = _scheduled(status.get("conditions") or [], ctx, meta.get("generation"))
    return {**pod, "metadata": meta, "spec": {**spec, "nodeName": node}, "status": status}


def _target(binding: Object) -> str:
    target = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        raise errors.failure(
            500, "", f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        )
    node: str = target.get("name") or ""
    if not node:
        raise errors.failure(500, "", "target.name: Required value")
    return node


def _check(pod: Object, name: str, given: Object) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    uid = given.get("uid")
    if uid and uid != meta.get("uid"):
        key = f"/registry/pods/{meta['namespace']}/{name}"
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
            f"failed: UID in precondition: {uid}, UID in object meta: {meta.get('uid')}"
        )
        raise errors.conflict(_PODS, name, why)
    if meta.get("deletionTimestamp"):
        raise errors.conflict(_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise errors.conflict(_BINDING, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise errors.conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")


def _topology(ctx: Context, node_name: str) -> dict[str, str]:
    node = ctx.read("nodes", "", node_name)
    labels = (node["metadata"].get("labels") or {}) if node else {}
    return {key: labels[key] for key in TOPOLOGY_LABELS if labels.get(key)}


def _scheduled(conditions: list[Object], ctx: Context, generation: int | None) -> list[Object]:
    """The conditions with PodScheduled true."""
    entry: Object = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": ctx.timestamp,
    }
    kept = [condition for condition in conditions if condition.get("type") != "PodScheduled"]
    if len(kept) == len(conditions):
        return [*conditions, entry]
    return [entry if condition.get("type") == "PodScheduled" else condition for condition in conditions]
