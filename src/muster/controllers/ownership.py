"""Which objects belong to a controller: orphans that match are adopted, what no longer matches is let go.

Source of the rules: kube-controller-manager `pkg/controller/controller_ref_manager.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster.api.codec import Object
from muster.api.meta import controller_of, is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import Resource
from muster.api.selectors import LabelSelector, label_selector
from muster.client.informer import Change
from muster.client.transport import STRATEGIC_MERGE_PATCH
from muster.controllers.action import Patch
from muster.controllers.state import State


def owner_reference(owner: Object, resource: Resource) -> Object:
    """The reference by which an object controls another one."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector_of(owner: Object) -> LabelSelector:
    """What an object selects: nothing without a selector."""
    return label_selector(owner["spec"].get("selector"))


def controller_key(obj: Object, resource: Resource) -> str | None:
    """The key of the object of that kind that controls `obj`, if one of that kind does."""
    owner = controller_of(obj)
    if owner is None or owner.get("kind") != resource.kind:
        return None
    if owner.get("apiVersion", "").partition("/")[0] != resource.api_version.partition("/")[0]:
        return None
    return f"{namespace_of(obj)}/{owner['name']}"


def keys_of_owners(
    change: Change, resource: Resource, state: State, selector: Callable[[Object], LabelSelector] = selector_of
) -> list[str]:
    """The objects of that kind that a changed pod belongs to, or may be adopted by, as it was and as it is."""
    found: dict[str, None] = {}
    for obj in (change.old, change.new):
        if obj is None:
            continue
        if controller_of(obj) is not None:
            key = controller_key(obj, resource)
            if key is not None:
                found[key] = None
        elif labels := obj["metadata"].get("labels"):
            for owner in state[resource].in_namespace(namespace_of(obj)):
                if selector(owner).matches(labels):
                    found[key_of(owner)] = None
    return list(found)


def _any(obj: Object) -> bool:
    return True


def claims(
    owner: Object,
    owner_resource: Resource,
    resource: Resource,
    owned: Iterable[Object],
    orphans: Iterable[Object],
    may_adopt: Callable[[Object], bool] = _any,
) -> list[Patch]:
    """The patches that adopt and release objects of `resource`; none while the owner is being deleted."""
    if is_deleting(owner):
        return []
    selector = selector_of(owner)
    released = [_release(owner, resource, obj) for obj in owned if not selector.matches(obj["metadata"].get("labels"))]
    adopted = [
        _adopt(owner, owner_resource, resource, obj)
        for obj in orphans
        if not is_deleting(obj) and may_adopt(obj) and selector.matches(obj["metadata"].get("labels"))
    ]
    return [*released, *adopted]


def _adopt(owner: Object, owner_resource: Resource, resource: Resource, obj: Object) -> Patch:
    metadata = {"uid": uid_of(obj), "ownerReferences": [owner_reference(owner, owner_resource)]}
    return Patch(resource, namespace_of(obj), name_of(obj), {"metadata": metadata}, STRATEGIC_MERGE_PATCH)


def _release(owner: Object, resource: Resource, obj: Object) -> Patch:
    metadata = {"uid": uid_of(obj), "ownerReferences": [{"$patch": "delete", "uid": uid_of(owner)}]}
    return Patch(resource, namespace_of(obj), name_of(obj), {"metadata": metadata}, STRATEGIC_MERGE_PATCH)
