"""ControllerRevisions: the history of the pod template of a StatefulSet or DaemonSet.

Source of the rules: kube-controller-manager `pkg/controller/history/controller_history.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from muster.api.codec import Object, Objects, copy_object
from muster.api.meta import name_of, namespace_of
from muster.api.resource import CONTROLLER_REVISIONS, Resource
from muster.controllers.action import Action, Create, Delete, Update
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_templates import template_hash

_NAME_LIMIT = 223
"""A revision's name begins with at most so much of its owner's."""


class History(Struct, frozen=True):
    """The revisions of one object, oldest first. `hash_label`: which label of theirs shows the hash."""

    owner: Object
    resource: Resource
    revisions: Sequence[Object]
    hash_label: str

    @classmethod
    def of(cls, owner: Object, resource: Resource, revisions: Iterable[Object], hash_label: str) -> History:
        """The history made of those revisions, in order."""
        ordered = sorted(
            revisions,
            key=lambda entry: (
                entry.get("revision") or 0,
                entry["metadata"].get("creationTimestamp") or "",
                name_of(entry),
            ),
        )
        return cls(owner, resource, ordered, hash_label)

    @property
    def next_number(self) -> int:
        """The number of the next revision."""
        return (self.revisions[-1].get("revision") or 0) + 1 if self.revisions else 1

    def present(self) -> tuple[Object, Action | None]:
        """The present template's revision, and what must be written first: a new one, or an old one made newest."""
        data = data_of(self.owner["spec"]["template"])
        equal = [entry for entry in self.revisions if entry.get("data") == data]
        if not equal:
            made = self._new(data)
            return made, Create(CONTROLLER_REVISIONS, made)
        newest = equal[-1]
        if newest is self.revisions[-1]:
            return newest, None
        moved = {**newest, "revision": self.next_number}
        return moved, Update(CONTROLLER_REVISIONS, moved)

    def named(self, name: str) -> Object | None:
        """The revision of that name."""
        return next((entry for entry in self.revisions if name_of(entry) == name), None)

    def _new(self, data: Object) -> Object:
        owner = self.owner
        collisions = (owner.get("status") or {}).get("collisionCount")
        hash_ = template_hash(data, collisions or None)
        labels: Mapping[str, str] = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
        metadata: Object = {
            "name": f"{name_of(owner)[:_NAME_LIMIT]}-{hash_}",
            "namespace": namespace_of(owner),
            "labels": {**labels, self.hash_label: hash_},
            "ownerReferences": [owner_reference(owner, self.resource)],
        }
        if owner["metadata"].get("annotations"):
            metadata["annotations"] = dict(owner["metadata"]["annotations"])
        head = {"apiVersion": CONTROLLER_REVISIONS.api_version, "kind": CONTROLLER_REVISIONS.kind}
        return {**head, "metadata": metadata, "data": data, "revision": self.next_number}

    def surplus(self, live: frozenset[str]) -> list[Action]:
        """The deletions of the oldest revisions beyond the limit; those named in `live` are in use."""
        limit = self.owner["spec"].get("revisionHistoryLimit")
        unused = [entry for entry in self.revisions if name_of(entry) not in live]
        count = max(0, len(unused) - (10 if limit is None else limit))
        return [Delete(CONTROLLER_REVISIONS, namespace_of(entry), name_of(entry)) for entry in unused[:count]]

    def hash_of(self, revision: Object) -> str:
        """The hash that a revision is labelled with."""
        hash_: str = (revision["metadata"].get("labels") or {}).get(self.hash_label, "")
        return hash_


def data_of(template: Object) -> Object:
    """What a revision keeps of an object: a patch that restores its template."""
    return {"spec": {"template": {**copy_object(template), "$patch": "replace"}}}


def template_of(revision: Object) -> Object:
    """The template that a revision restores."""
    template: Object = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def collides(made: Object, existing: Objects) -> bool:
    """Whether another object has the name of a revision that is to be made."""
    return any(name_of(entry) == name_of(made) for entry in existing)
