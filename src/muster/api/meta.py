"""What all objects share: names, owners, conditions."""

from __future__ import annotations

from muster.api.codec import Object


def name_of(obj: Object) -> str:
    """`metadata.name`, or "" while it has none."""
    name: str = obj["metadata"].get("name", "")
    return name


def namespace_of(obj: Object) -> str:
    """`metadata.namespace`, or "" for objects of the cluster."""
    namespace: str = obj["metadata"].get("namespace", "")
    return namespace


def key_of(obj: Object) -> str:
    """`namespace/name`, or the name alone for objects of the cluster."""
    metadata = obj["metadata"]
    namespace, name = metadata.get("namespace"), metadata.get("name", "")
    return f"{namespace}/{name}" if namespace else name


def uid_of(obj: Object) -> str:
    """`metadata.uid`, or "" before it is stored."""
    uid: str = obj["metadata"].get("uid", "")
    return uid


def is_deleting(obj: Object) -> bool:
    """Whether the object has a deletionTimestamp."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def controller_of(obj: Object) -> Object | None:
    """The owner reference with `controller: true`, if there is one."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def condition(obj: Object, type_: str) -> Object | None:
    """The entry of `status.conditions` with that type."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry.get("type") == type_:
            found: Object = entry
            return found
    return None


def has_condition(obj: Object, type_: str, status: str = "True") -> bool:
    """Whether the object's condition of that type has that status."""
    entry = condition(obj, type_)
    return entry is not None and entry.get("status") == status
