"""What a controller sees of the cluster: the watched objects by key, with the indexes that controllers ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import controller_of, key_of, namespace_of
from muster.api.resource import Resource
from muster.client.informer import Change, Informer


class Read(Struct, frozen=True):
    """An object to be read from the server itself just before a reconcile, because informers may lag."""

    resource: Resource
    namespace: str
    name: str


class Watched:
    """The objects of one resource, as its informer has them, indexed by namespace, by owner and (pods) by node.

    Iteration is in order of arrival. Objects are shared: never change them.
    """

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self._by_namespace: dict[str, dict[str, Object]] = {}
        self._by_owner: dict[str, dict[str, Object]] = {}
        self._by_node: dict[str, dict[str, Object]] = {}
        self._uncontrolled: dict[str, dict[str, Object]] = {}
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

    def any_in_namespace(self, namespace: str) -> bool:
        """Whether a namespace has any of these objects."""
        return namespace in self._by_namespace

    def on_node(self, name: str) -> list[Object]:
        """The objects whose `spec.nodeName` is that node."""
        return list(self._by_node.get(name, {}).values())

    def __len__(self) -> int:
        return len(self.informer.objects)

    def controlled_by(self, uid: str) -> list[Object]:
        """The objects whose controller reference names that uid."""
        return [obj for obj in self.owned_by(uid) if (controller_of(obj) or {}).get("uid") == uid]

    def without_controller(self, namespace: str) -> list[Object]:
        """The objects of a namespace that no other object controls."""
        return list(self._uncontrolled.get(namespace, {}).values())

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
        if node := _node_of(obj):
            self._by_node.setdefault(node, {})[key] = obj
        if controller_of(obj) is None:
            self._uncontrolled.setdefault(namespace_of(obj), {})[key] = obj

    def _remove(self, key: str) -> None:
        obj = self._indexed.pop(key, None)
        if obj is None:
            return
        _discard(self._by_namespace, namespace_of(obj), key)
        for owner in obj["metadata"].get("ownerReferences") or ():
            _discard(self._by_owner, owner.get("uid", ""), key)
        if node := _node_of(obj):
            _discard(self._by_node, node, key)
        if controller_of(obj) is None:
            _discard(self._uncontrolled, namespace_of(obj), key)


def _node_of(obj: Object) -> str:
    node: str = (obj.get("spec") or {}).get("nodeName") or ""
    return node


def _discard(index: dict[str, dict[str, Object]], entry: str, key: str) -> None:
    members = index.get(entry)
    if members is None:
        return
    members.pop(key, None)
    if not members:
        del index[entry]


class State:
    """All resources that a controller watches, what it remembers about each key, and what was read for this key."""

    def __init__(
        self,
        watched: Mapping[Resource, Watched],
        memories: Mapping[str, object],
        live: Mapping[Read, Object | None] | None = None,
    ) -> None:
        self._watched = watched
        self._memories = memories
        self._live = live or {}

    def __getitem__(self, resource: Resource) -> Watched:
        return self._watched[resource]

    def memory(self, key: str) -> object | None:
        """`Result.memory` of the last reconcile of that key whose actions all succeeded."""
        return self._memories.get(key)

    def live(self, read: Read) -> Object | None:
        """What the server answered to a read that `Controller.reads` asked for; None if there is no such object."""
        return self._live[read]

    def was_read(self, read: Read) -> bool:
        """Whether `reads` asked for that object (it may not have, if the informers changed since)."""
        return read in self._live

    def with_live(self, live: Mapping[Read, Object | None]) -> State:
        """The same state together with what was read from the server."""
        return State(self._watched, self._memories, live)
