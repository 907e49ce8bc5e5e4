"""Objects besides nodes and pods that rules look at: namespaces, services, owners of pods, volumes and their kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from muster.api.codec import Object
from muster.api.meta import key_of, name_of, namespace_of
from muster.api.selectors import LabelSelector, Operator, Requirement, SelectorError, label_selector

NAMESPACE = "Namespace"
SERVICE = "Service"
REPLICATION_CONTROLLER = "ReplicationController"
REPLICA_SET = "ReplicaSet"
STATEFUL_SET = "StatefulSet"
PERSISTENT_VOLUME = "PersistentVolume"
PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
STORAGE_CLASS = "StorageClass"
CSI_NODE = "CSINode"
CSI_DRIVER = "CSIDriver"
CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
DEVICE_CLASS = "DeviceClass"
DEVICE_TAINT_RULE = "DeviceTaintRule"
RESOURCE_CLAIM = "ResourceClaim"
RESOURCE_SLICE = "ResourceSlice"

KINDS = (
    NAMESPACE,
    SERVICE,
    REPLICATION_CONTROLLER,
    REPLICA_SET,
    STATEFUL_SET,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    CSI_NODE,
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)
"""What `ClusterState.set_object` takes."""

T = TypeVar("T")

_NONE: Mapping[str, Object] = {}


class ObjectStore:
    """Objects by kind and key (`namespace/name`, or the name). `copy()` is cheap; stored objects are never changed.

    `version(kind)` is a number that is different after every change of that kind, for whoever remembers results.
    """

    __slots__ = ("_changed", "_derived", "_kinds", "_own", "_spaces", "_versions")

    def __init__(self) -> None:
        self._derived: dict[str, tuple[int, object]] = {}
        self._spaces: dict[str, dict[str, list[Object]]] = {}
        self._kinds: dict[str, dict[str, Object]] = {}
        self._own: set[str] = set()
        self._versions: dict[str, int] = {}
        self._changed: dict[str, dict[str, None]] = {}  # by kind: keys since something was derived

    def copy(self) -> ObjectStore:
        """The objects of this moment."""
        other = ObjectStore()
        other._kinds, other._versions = dict(self._kinds), dict(self._versions)
        other._spaces, other._derived = dict(self._spaces), dict(self._derived)
        other._changed = {kind: dict(keys) for kind, keys in self._changed.items()}
        self._own.clear()
        return other

    def set(self, kind: str, obj: Object) -> bool:
        """Adds or replaces an object; whether it is a different one now."""
        key = key_of(obj)
        if self._kinds.get(kind, _NONE).get(key) == obj:
            return False
        self._writable(kind, key)[key] = obj
        return True

    def remove(self, kind: str, key: str) -> bool:
        """Forgets an object; whether it was known."""
        if key not in self._kinds.get(kind, _NONE):
            return False
        del self._writable(kind, key)[key]
        return True

    def get(self, kind: str, key: str) -> Object | None:
        """The object, if it is known."""
        return self._kinds.get(kind, _NONE).get(key)

    def all(self, kind: str) -> Mapping[str, Object]:
        """All objects of a kind by key, in no particular order."""
        return self._kinds.get(kind, _NONE)

    def in_namespace(self, kind: str, namespace: str) -> list[Object]:
        """The objects of a kind in a namespace by name."""
        spaces = self._spaces.get(kind)
        if spaces is None:
            spaces = self._spaces[kind] = {}
            for _, obj in sorted(self.all(kind).items()):
                spaces.setdefault(namespace_of(obj), []).append(obj)
        return spaces.get(namespace, [])

    def derived(self, kind: str, compute: Callable[[T | None], T]) -> T:
        """What `compute` makes of the objects of a kind, kept until one of them changes. One thing a kind.

        `compute` is given what it made before the change, if anything; `changed` tells what is different since.
        """
        version, found = self._derived.get(kind, (-1, None))
        if version != self.version(kind) or found is None:
            found = compute(cast(T | None, found))  # there is one function a kind, so the type is its own
            self._derived[kind] = (self.version(kind), found)
            self._changed[kind] = {}
        return cast(T, found)  # as above

    def changed(self, kind: str) -> Iterable[str]:
        """The keys of objects of a kind that changed, came or went since something was derived of it."""
        return self._changed.get(kind, ())

    def version(self, kind: str) -> int:
        """The number of changes of this kind so far."""
        return self._versions.get(kind, 0)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none if it is not known."""
        found = self.get(NAMESPACE, name)
        labels: Mapping[str, str] = {} if found is None else found["metadata"].get("labels") or {}
        return labels

    def _writable(self, kind: str, key: str) -> dict[str, Object]:
        self._versions[kind] = self._versions.get(kind, 0) + 1
        self._changed.setdefault(kind, {})[key] = None
        self._spaces.pop(kind, None)
        if kind not in self._own:
            self._kinds[kind] = dict(self._kinds.get(kind, _NONE))
            self._own.add(kind)
        return self._kinds[kind]


def relevant(kind: str, obj: Object) -> Object:
    """What rules look at in an object; of those that change often for other reasons, a small part."""
    if kind in (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET):
        selector = (obj.get("spec") or {}).get("selector")
        metadata = {"name": name_of(obj), "namespace": namespace_of(obj)}
        return {"metadata": metadata, "spec": {} if selector is None else {"selector": selector}}
    if kind == NAMESPACE:
        return {"metadata": {"name": name_of(obj), "labels": obj["metadata"].get("labels") or {}}}
    return obj


def selectors_of(kind: str, obj: Object) -> Iterable[LabelSelector]:
    """The selectors by which an object of this kind chooses pods; a malformed one chooses none."""
    spec = obj.get("spec") or {}
    if kind in (SERVICE, REPLICATION_CONTROLLER):
        return [equal_to(spec["selector"])] if spec.get("selector") else []
    if kind in (REPLICA_SET, STATEFUL_SET):
        try:
            return [label_selector(spec.get("selector"))]
        except SelectorError:
            return []
    return []


def equal_to(labels: Mapping[str, str]) -> LabelSelector:
    """The selector of pods that have all these labels."""
    return LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in sorted(labels.items())))
