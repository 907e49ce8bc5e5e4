"""Pods whose priority is not that of their group, or of the root of its tree: kube-scheduler 1.37 places none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from muster.api.codec import Object
from muster.api.groups import group_of
from muster.api.meta import name_of, namespace_of

_TEMPLATES = ("Job", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
_MOST_LEVELS = 4


def unlike_priority(obj: Object, groups: Mapping[tuple[str, str], Object], admitted: Callable[[Object], Object]) -> str:
    """What is to be said of a Pod, or of what makes pods, if the root of its group has another priority; "" if nothing.

    `groups`: PodGroups and CompositePodGroups by kind and key; `admitted`: an object as the server would store it.
    """
    pod = _pod(obj)
    ref = None if pod is None else group_of(pod)
    root = None if ref is None else _root(("PodGroup", ref.key), groups)
    if pod is None or root is None:
        return ""
    own, wanted = _priority(admitted(pod)), _priority(admitted(root))
    if own == wanted:
        return ""
    of = "group" if root["kind"] == "PodGroup" else "tree"
    whose = "its priority is" if obj["kind"] == "Pod" else "its pods have priority"
    return (
        f"{whose} {own}, but {root['kind']} {name_of(root)} has {wanted}: kube-scheduler places nothing "
        f"of a {of} with unlike priorities; Muster takes that of the {root['kind']} for all"
    )


def group_index(objects: Sequence[Object]) -> dict[tuple[str, str], Object]:
    """The groups among them by kind and key."""
    groups = (each for each in objects if each["kind"] in ("PodGroup", "CompositePodGroup"))
    return {(each["kind"], _key(each, name_of(each))): each for each in groups}


def _key(obj: Object, name: str) -> str:
    return f"{namespace_of(obj) or 'default'}/{name}"


def _pod(obj: Object) -> Object | None:
    """The pod itself, or one that is made from the template; None if the object stands for none."""
    if obj["kind"] == "Pod":
        metadata, spec = obj["metadata"], obj["spec"]
    elif obj["kind"] in _TEMPLATES:
        template = obj["spec"].get("template") or {}
        metadata, spec = {**(template.get("metadata") or {}), "name": name_of(obj)}, template.get("spec") or {}
    else:
        return None
    metadata = {**metadata, "namespace": namespace_of(obj) or "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _root(at: tuple[str, str], groups: Mapping[tuple[str, str], Object]) -> Object | None:
    """The group that has no parent, above this one or itself; None if the chain does not lead to one."""
    for _ in range(_MOST_LEVELS):
        group = groups.get(at)
        parent = None if group is None else (group.get("spec") or {}).get("parentCompositePodGroupName")
        if group is None or not parent:
            return group
        at = "CompositePodGroup", _key(group, parent)
    return None


def _priority(stored: Object) -> int:
    return int((stored.get("spec") or {}).get("priority") or 0)
