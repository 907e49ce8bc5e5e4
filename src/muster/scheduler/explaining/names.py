"""Which entities a person means by `podgroup/NAME`, `job/NAME` and the like."""

from __future__ import annotations

from muster.api.meta import controller_of
from muster.scheduler.core import SchedulerCore
from muster.scheduler.entities import GROUP, TREE

_KINDS = {
    "pod": "Pod",
    "podgroup": "PodGroup",
    "workload": "Workload",
    "compositepodgroup": "CompositePodGroup",
    "job": "Job",
}
_SHORT = {"po": "pod", "pg": "podgroup", "cpg": "compositepodgroup"}


class UnknownName(ValueError):
    """A name that means no object of the cluster. Not retryable."""


def is_name(text: str) -> bool:
    """Whether a text is of the form `kind/name` of something that can be explained."""
    word, slash, rest = text.partition("/")
    return bool(slash and rest and "/" not in rest and _kind_of(word))


def _kind_of(word: str) -> str | None:
    word = word.lower().partition(".")[0]
    return _KINDS.get(_SHORT.get(word, word)) or _KINDS.get(word.removesuffix("s"))


def entities_of(core: SchedulerCore, name: str, namespace: str) -> list[str]:
    """The entities that a `kind/name` of a namespace stands for, each once. Raises `UnknownName`.

    A member stands for its group, a group of a tree for the tree, a Job or Workload for the groups of its pods.
    """
    word, slash, rest = name.partition("/")
    kind = _kind_of(word)
    if not slash or not rest or kind is None:
        known = ", ".join(f"{each}/NAME" for each in _KINDS)
        raise UnknownName(f"{name!r}: must be one of {known}")
    found = _FINDERS[kind](core, f"{namespace}/{rest}")
    if not found:
        others = sorted(each for each in _namespaces(core) if _FINDERS[kind](core, f"{each}/{rest}"))
        without = "" if kind in ("Pod", "PodGroup", "CompositePodGroup") else ", or it has no pods"
        hint = f" (there is one in {', '.join(others)}: -n {others[0]})" if others else ""
        raise UnknownName(f"there is no {kind} {rest!r} in namespace {namespace!r}{without}{hint}")
    return list(dict.fromkeys(found))


def _namespaces(core: SchedulerCore) -> set[str]:
    keys = (*core.cache.pods, *core.cache.pod_groups, *core.cache.hierarchy.composites)
    return {key.partition("/")[0] for key in keys}


def _pod(core: SchedulerCore, key: str) -> list[str]:
    return [core.entities.of_pod(key)] if key in core.cache.pods else []


def _pod_group(core: SchedulerCore, key: str) -> list[str]:
    if key not in core.cache.pod_groups and key not in core.cache.groups:
        return []
    root = core.entities.root_of(key)
    return [GROUP + key if root is None else TREE + root]


def _workload(core: SchedulerCore, key: str) -> list[str]:
    groups = [each for each, members in core.cache.groups.items() if members.ref.object_key == key]
    namespace, _, name = key.partition("/")
    for each, group in core.cache.pod_groups.items():
        ref = group["spec"].get("workloadRef") or group["spec"].get("podGroupTemplateRef") or {}
        names = (ref.get("workloadName"), (ref.get("workload") or {}).get("workloadName"))
        if each.startswith(f"{namespace}/") and name in names:
            groups.append(each)
    return [entity for each in sorted(groups) for entity in _pod_group(core, each)]


def _composite(core: SchedulerCore, key: str) -> list[str]:
    if key not in core.cache.hierarchy.composites:
        return []
    return [TREE + (core.cache.hierarchy.chain(key).root or key)]


def _job(core: SchedulerCore, key: str) -> list[str]:
    namespace, _, name = key.partition("/")
    found = []
    for each, record in core.cache.pods.items():
        owner = controller_of(record.pod)
        named = None if owner is None else (owner.get("kind"), owner.get("name"))
        if each.startswith(f"{namespace}/") and named == ("Job", name):
            found.append(core.entities.of_pod(each))
    return sorted(set(found))


_FINDERS = {"Pod": _pod, "PodGroup": _pod_group, "Workload": _workload, "CompositePodGroup": _composite, "Job": _job}
