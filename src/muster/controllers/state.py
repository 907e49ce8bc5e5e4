"""What a controller sees of the cluster: the watched objects by key, with the indexes that controllers ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.api.codec import Object
from muster.api.meta import controller_of, key_of, namespace_of
from muster.api.resource import Resource
from muster.client.informer import Change, Informer


class Watched:
    """The objects of one resource, as its informer has them, indexed by namespace and by owner.

    Iteration is in order of arrival. Objects are shared: never change them.
    """

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._by_owner: dict[str, dict[str, Object]] = {}
        self._indexed: dict[str, Object] = {}
        informer.add_handler(self._update)

    def get(self, key: str) -> Object | None:
        """The object of that key (`namespace/name`, or the name in the cluster scope)."""
        return self.informer.objects.get(key)

    def all(self) -> Iterable[Object]:
        """All objects."""
        return list(self.informer.objects.values())

    def in_namespace(self, namespace: str) -> list[Object]:
        """The objects of one namespace."""
        return list(self._by_namespace.get(namespace, {}).values())

    def controlled_by(self, uid: str) -> list[Object]:
        """The objects whose controller reference names that uid."""
        return [obj for obj in self.owned_by(uid) if (controller_of(obj) or {}).get("uid") == uid]

    def owned_by(self, uid: str) -> list[Object]:
        """The objects with any owner reference to that uid."""
        return list(self._by_owner.get(uid, {}).values())

    def _update(self, changes: list[Change]) -> None:
        for change in changes:
            self._remove(key_of(change.object))
            if change.new is not None:
                self._add(change.new)

    def _add(self, obj: Object) -> None:
        key = key_of(obj)
        self._indexed[key] = obj
        self._by_namespace.setdefault(namespace_of(obj), {})[key] = obj
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._by_owner.setdefault(owner.get("uid", ""), {})[key] = obj

    def _remove(self, key: str) -> None:
        obj = self._indexed.pop(key, None)
        if obj is None:
            return
        _discard(self._by_namespace, namespace_of(obj), key)
        for owner in obj["metadata"].get("ownerReferences") or ():
            _discard(self._by_owner, owner.get("uid", ""), key)


def _discard(index: dict[str, dict[str, Object]], entry: str, key: str) -> None:
    members = index.get(entry)
    if members is None:
        return
    members.pop(key, None)
    if not members:
        del index[entry]


class State:
    """All resources that a controller watches, and what it remembers about each key."""

    def __init__(self, watched: Mapping[Resource, Watched], memories: Mapping[str, object]) -> None:
        self._watched = watched
        self._memories = memories

    def __getitem__(self, resource: Resource) -> Watched:
        return self._watched[resource]

    def memory(self, key: str) -> object | None:
        """`Result.memory` of the last reconcile of that key whose actions all succeeded."""
        return self._memories.get(key)
