"""garbage-collector-controller: objects whose owners are all gone are deleted, in the way that the owner was.

An owner with the finalizer `foregroundDeletion` waits for the dependents that block it; one with `orphan` first loses
its dependents. Owners that the informers do not show are looked up on the server before anything is deleted.
Source of the rules: kube-controller-manager `pkg/controller/garbagecollector` (attemptToDeleteItem, graph_builder).
Unlike there, an owner of a kind that the server does not serve counts as present, without endless retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Delete, Emit, Patch, Result
from muster.controllers.kinds import Kinds
from muster.controllers.runner import Request
from muster.controllers.state import Read, State

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

SETTLE_S = 0.2
"""So long an object that waits for its dependents stays at least: who deletes it can still read the mark, as
with upstream's collector, which first reads a lot."""

Standing = Literal["solid", "dangling", "waiting"]
"""An owner exists; does not; or exists and waits for its dependents to go."""


class GarbageCollector:
    """Deletes what has lost its owners. Keys are `plural.group/key` of objects of all kinds."""

    name = "garbage-collector-controller"

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self.resources: tuple[Resource, ...] = kinds.watched
        self._by_name = {_resource_name(resource): resource for resource in kinds.watched}

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        old, new = change.old, change.new
        if new is None:
            return self._after_deletion(change.object, state)
        if old is None:
            if "ownerReferences" not in new["metadata"] and "deletionTimestamp" not in new["metadata"]:
                return ()
        elif _links(old) == _links(new):
            return ()
        return self._after_change(resource, old, new, state)

    def _after_deletion(self, obj: Object, state: State) -> list[Request]:
        found = [Request(_key(kind, dependent)) for kind, dependent in self._dependents(obj, state)]
        return found + self._waiting_owners(obj, _owners(obj), state)

    def _after_change(self, resource: Resource, old: Object | None, new: Object, state: State) -> Iterable[Request]:
        mode = _mode(new)
        if mode and (old is None or _mode(old) != mode):
            yield Request(_key(resource, new), SETTLE_S)
            if mode == FOREGROUND:
                for kind, dependent in self._dependents(new, state):
                    yield Request(_key(kind, dependent))
        owners = _owners(new)
        if any(self._standing(new, owner, state) != "solid" for owner in owners):
            yield Request(_key(resource, new))
        if old is not None:
            yield from self._waiting_owners(old, [owner for owner in _owners(old) if owner not in owners], state)

    def _waiting_owners(self, obj: Object, owners: Objects, state: State) -> list[Request]:
        """Owners that may have waited for this object to go or to let them go."""
        found: list[Request] = []
        for reference in owners:
            resource = self._resource(reference)
            owner = state[resource].get(_owner_key(obj, reference, resource)) if resource else None
            if resource and owner is not None and _mode(owner) == FOREGROUND:
                found.append(Request(_key(resource, owner)))
        return found

    def reads(self, key: str, state: State) -> Iterable[Read]:
        found = self._object(key, state)
        if found is None or is_deleting(found[1]):
            return []
        obj = found[1]
        return [
            _read(obj, owner, resource)
            for owner in _owners(obj)
            if (resource := self._resource(owner)) and self._standing(obj, owner, state) == "dangling"
        ]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        found = self._object(key, state)
        if found is None:
            return Result()
        resource, obj = found
        mode = _mode(obj)
        if mode == FOREGROUND:
            blocked = any(_blocks(dependent, uid_of(obj)) for _, dependent in self._dependents(obj, state))
            return Result(() if blocked else (_drop_finalizer(resource, obj, FOREGROUND),))
        if mode == ORPHAN:
            return Result((*self._orphan(obj, state), _drop_finalizer(resource, obj, ORPHAN)))
        if is_deleting(obj) or not _owners(obj):
            return Result()
        return Result(tuple(self._collect(resource, obj, state)))

    def _collect(self, resource: Resource, obj: Object, state: State) -> Iterable[Action]:
        """Delete the object if no owner is left; else drop the references to those that are gone or going."""
        standing = [(owner, self._standing(obj, owner, state, live=True)) for owner in _owners(obj)]
        yield from self._misplaced(resource, obj, [owner for owner, how in standing if how == "dangling"], state)
        solid = [owner for owner, how in standing if how == "solid"]
        if solid:
            if len(solid) < len(standing):
                yield _with_owners(resource, obj, solid)
            return
        dependents = [dependent for _, dependent in self._dependents(obj, state)]
        policy = (
            "Orphan" if ORPHAN in _finalizers(obj) else "Foreground" if FOREGROUND in _finalizers(obj) else "Background"
        )
        if dependents and any(how == "waiting" for _, how in standing):
            policy = "Foreground"
            if any(_mode(dependent) == FOREGROUND for dependent in dependents):
                # A circle of owners would wait for itself for ever: this object blocks nobody.
                yield _with_owners(resource, obj, [{**owner, "blockOwnerDeletion": False} for owner in _owners(obj)])
                return
        # The version, not the uid: whoever was adopted in the meantime stays.
        options: Object = {
            "propagationPolicy": policy,
            "preconditions": {"resourceVersion": obj["metadata"].get("resourceVersion")},
        }
        yield Delete(resource, namespace_of(obj), name_of(obj), options)

    def _orphan(self, owner: Object, state: State) -> Iterable[Action]:
        uid = uid_of(owner)
        for kind, dependent in self._dependents(owner, state):
            yield _with_owners(kind, dependent, [entry for entry in _owners(dependent) if entry.get("uid") != uid])

    def _misplaced(self, resource: Resource, obj: Object, owners: Objects, state: State) -> Iterable[Action]:
        """An event for each owner that exists, but in another namespace."""
        for reference in owners:
            kind = self._resource(reference)
            if kind is None or not kind.namespaced:
                continue
            if any(uid_of(other) == reference.get("uid") for other in state[kind].all()):
                yield _invalid_namespace(resource, obj, reference)

    def _standing(self, obj: Object, reference: Object, state: State, *, live: bool = False) -> Standing:
        """What an owner is by the informers, and if it is not there, by what was read from the server (`live`)."""
        resource = self._resource(reference)
        if resource is None or (resource.namespaced and not namespace_of(obj)):
            return "solid"
        owner = state[resource].get(_owner_key(obj, reference, resource))
        if live and (owner is None or uid_of(owner) != reference.get("uid")):
            read = _read(obj, reference, resource)
            if not state.was_read(read):
                return "solid"  # gone a moment ago: its deletion brings this object here again
            owner = state.live(read)
        if owner is None or uid_of(owner) != reference.get("uid"):
            return "dangling"
        return "waiting" if _mode(owner) == FOREGROUND else "solid"

    def _dependents(self, owner: Object, state: State) -> Iterable[tuple[Resource, Object]]:
        uid = uid_of(owner)
        for resource in self.resources:
            for dependent in state[resource].owned_by(uid):
                yield resource, dependent

    def _resource(self, reference: Object) -> Resource | None:
        return self._kinds.aliases.get((reference.get("apiVersion", ""), reference.get("kind", "")))

    def _object(self, key: str, state: State) -> tuple[Resource, Object] | None:
        name, _, rest = key.partition("/")
        resource = self._by_name[name]
        obj = state[resource].get(rest)
        return None if obj is None else (resource, obj)


def _resource_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def _key(resource: Resource, obj: Object) -> str:
    return f"{_resource_name(resource)}/{key_of(obj)}"


def _links(obj: Object) -> tuple[object, object, object]:
    """What of an object matters to the collector."""
    metadata = obj["metadata"]
    deleted = metadata.get("deletionTimestamp")
    return metadata.get("ownerReferences"), deleted, metadata.get("finalizers") if deleted else None


def _owners(obj: Object) -> Objects:
    owners: Objects = obj["metadata"].get("ownerReferences") or []
    return owners


def _finalizers(obj: Object) -> list[str]:
    finalizers: list[str] = obj["metadata"].get("finalizers") or []
    return finalizers


def _mode(obj: Object) -> str:
    """The collector's finalizer on an object that is being deleted; "" if there is none."""
    if not is_deleting(obj):
        return ""
    return next((finalizer for finalizer in (FOREGROUND, ORPHAN) if finalizer in _finalizers(obj)), "")


def _blocks(dependent: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in _owners(dependent))


def _owner_key(obj: Object, reference: Object, resource: Resource) -> str:
    name: str = reference.get("name", "")
    return f"{namespace_of(obj)}/{name}" if resource.namespaced else name


def _read(obj: Object, reference: Object, resource: Resource) -> Read:
    return Read(resource, namespace_of(obj) if resource.namespaced else "", reference.get("name", ""))


def _with_owners(resource: Resource, obj: Object, owners: Objects) -> Patch:
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion"), "ownerReferences": owners or None}
    return Patch(resource, namespace_of(obj), name_of(obj), {"metadata": metadata})


def _drop_finalizer(resource: Resource, obj: Object, finalizer: str) -> Patch:
    kept = [name for name in _finalizers(obj) if name != finalizer]
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion"), "finalizers": kept or None}
    return Patch(resource, namespace_of(obj), name_of(obj), {"metadata": metadata})


def _invalid_namespace(resource: Resource, obj: Object, reference: Object) -> Emit:
    about: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": obj["metadata"]}
    namespace = namespace_of(obj)
    identity = (
        f"[{reference.get('apiVersion')}/{reference.get('kind')}, namespace: {namespace}, "
        f"name: {reference.get('name')}, uid: {reference.get('uid')}]"
    )
    message = f'ownerRef {identity} does not exist in namespace "{namespace}"'
    return Emit(about, "Warning", "OwnerRefInvalidNamespace", message)
