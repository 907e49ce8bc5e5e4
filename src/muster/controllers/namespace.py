"""namespace-controller: empties a namespace that is being deleted, pods first, and then lets it go.

Source of the rules: kube-controller-manager `pkg/controller/namespace/deletion` (KEP-5080: pods before all else).
Unlike there, nothing is polled: the controller sees what is left, and looks again when something went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import condition, is_deleting, name_of, namespace_of
from muster.api.resource import EVENTS, NAMESPACES, PODS, Resource
from muster.client.informer import Change
from muster.clock import rfc3339
from muster.controllers.action import Action, Delete, Result, Update
from muster.controllers.kinds import Kinds
from muster.controllers.runner import Request
from muster.controllers.state import State

FINALIZER = "kubernetes"
THROTTLE_S = 1.0
"""How often at most the conditions of a namespace follow what is left in it."""

SWEPT = "swept"
"""Remembered after the server itself deleted whatever the informers may not have shown yet."""


class NamespaceController:
    """Empties namespaces. Keys are their names."""

    name = "namespace-controller"

    def __init__(self, kinds: Kinds) -> None:
        self.resources: tuple[Resource, ...] = tuple(dict.fromkeys((NAMESPACES, PODS, *kinds.watched)))
        self._content = tuple(resource for resource in self.resources if resource.namespaced and resource != PODS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == NAMESPACES:
            return [Request(name_of(change.object))] if change.new is not None and is_deleting(change.new) else []
        name = namespace_of(change.object)
        namespace = state[NAMESPACES].get(name) if name else None
        if namespace is None or not is_deleting(namespace):
            return []
        last = change.new is None and not state[resource].any_in_namespace(name)
        return [Request(name, 0.0 if last else THROTTLE_S)]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        namespace = state[NAMESPACES].get(key)
        if namespace is None or not is_deleting(namespace):
            return Result()
        if FINALIZER not in _finalizers(namespace):
            return Result()
        pods = state[PODS].in_namespace(key)
        if pods:
            return Result((*_deletions(PODS, pods), *_status(namespace, {}, {}, now)))
        left = {resource: state[resource].in_namespace(key) for resource in self._content}
        deletions = [action for resource, objects in left.items() for action in _deletions(resource, objects)]
        if deletions:
            return Result(tuple(deletions))
        if any(left.values()):
            return Result(tuple(_status(namespace, _counts(left), _held(left), now)))
        if state.memory(key) != SWEPT:
            sweep = [Delete(resource, key, "") for resource in (PODS, *self._content, EVENTS)]
            return Result((*sweep, *_status(namespace, {}, {}, now)), requeue_after_s=0.0, memory=SWEPT)
        return Result((_finalized(namespace),))


def _finalizers(namespace: Object) -> list[str]:
    finalizers: list[str] = (namespace.get("spec") or {}).get("finalizers") or []
    return finalizers


def _deletions(resource: Resource, objects: Objects) -> Iterable[Action]:
    for obj in objects:
        if not is_deleting(obj):
            yield Delete(resource, namespace_of(obj), name_of(obj), {"propagationPolicy": "Background"})


def _counts(left: dict[Resource, Objects]) -> dict[str, int]:
    return {f"{resource.plural}.{resource.group}": len(objects) for resource, objects in left.items() if objects}


def _held(left: dict[Resource, Objects]) -> Counter[str]:
    found: Counter[str] = Counter()
    for objects in left.values():
        for obj in objects:
            found.update(obj["metadata"].get("finalizers") or ())
    return found


def _finalized(namespace: Object) -> Update:
    changed = copy_object(namespace)
    changed["spec"]["finalizers"] = [name for name in _finalizers(namespace) if name != FINALIZER]
    return Update(NAMESPACES, changed, "finalize")


def _status(namespace: Object, counts: dict[str, int], held: dict[str, int], now: float) -> Iterable[Update]:
    """The update that says what is left (by resource, and by finalizer), if the namespace does not say so already."""
    wanted = deletion_conditions(counts, held)
    old = namespace.get("status") or {}
    if old.get("phase") == "Terminating" and all(_says(namespace, entry) for entry in wanted):
        return
    changed = copy_object(namespace)
    types = {entry["type"] for entry in wanted}
    kept = [entry for entry in old.get("conditions") or () if entry.get("type") not in types]
    conditions = [{**entry, "lastTransitionTime": _since(namespace, entry, now)} for entry in wanted]
    changed["status"] = {**old, "phase": "Terminating", "conditions": kept + conditions}
    yield Update(NAMESPACES, changed, "status")


def _says(namespace: Object, wanted: Object) -> bool:
    entry = condition(namespace, wanted["type"]) or {}
    return all(entry.get(field) == value for field, value in wanted.items())


def _since(namespace: Object, wanted: Object, now: float) -> str:
    entry = condition(namespace, wanted["type"]) or {}
    since: str = entry.get("lastTransitionTime") or ""
    return since if since and entry.get("status") == wanted["status"] else rfc3339(now)


def deletion_conditions(counts: dict[str, int], held: dict[str, int]) -> Objects:
    """The conditions of a terminating namespace: `counts` objects are left by `plural.group`, `held` by finalizer."""
    content = ("False", "ContentRemoved", "All content successfully removed")
    if counts:
        parts = [f"{name} has {count} resource instances" for name, count in sorted(counts.items())]
        content = ("True", "SomeResourcesRemain", "Some resources are remaining: " + ", ".join(parts))
    finalizers = ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished")
    if held:
        parts = [f"{name} in {count} resource instances" for name, count in sorted(held.items())]
        text = "Some content in the namespace has finalizers remaining: " + ", ".join(parts)
        finalizers = ("True", "SomeFinalizersRemain", text)
    done = "All content successfully deleted, may be waiting on finalization"
    return [
        {"type": type_, "status": status, "reason": reason, "message": message}
        for type_, (status, reason, message) in {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": ("False", "ContentDeleted", done),
            "NamespaceContentRemaining": content,
            "NamespaceFinalizersRemaining": finalizers,
        }.items()
    ]
