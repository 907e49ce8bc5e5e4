"""Keeps what follows from CustomResourceDefinitions: granted names, what is served, and the end of deleted ones.

Real servers do this in controllers a moment later; here it is done with the write itself, so that a definition is
served as soon as its creation is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.api.codec import Object, Objects
from muster.api.meta import name_of
from muster.apiserver.bodies import DeleteOptions
from muster.apiserver.context import Context
from muster.apiserver.custom.definition import (
    CLEANUP,
    GROUP,
    PLURAL,
    STORAGE,
    is_established,
    is_terminating,
    settled,
    terminating,
)
from muster.apiserver.custom.entries import CustomKind, entries_of
from muster.apiserver.decoding import Types
from muster.apiserver.resources import ResourceTable, Served
from muster.apiserver.verbs import Verbs


class DefinitionKeeper:
    """Makes the resource table and the types follow the stored definitions."""

    def __init__(self, verbs: Verbs, resources: ResourceTable, types: Types) -> None:
        self._verbs = verbs
        self._resources = resources
        self._types = types
        self._seen = -1
        self._ending: dict[str, int] = {}
        """How often the objects of each definition that is being deleted were written when they were last looked at."""

    def is_due(self, ctx: Context) -> bool:
        """Whether something was written that definitions follow from."""
        writes = ctx.notes.writes
        if writes.get(STORAGE, 0) != self._seen:
            return True
        return any(writes.get(storage, 0) != count for storage, count in self._ending.items())

    def follow(self, context: Callable[[Served], Context]) -> None:
        """Do what is due; `context` makes the contexts of the writes."""
        served = self._resources.find(GROUP, "v1", PLURAL)
        if served is None:
            return
        ctx = context(served)
        self._settle(ctx, served)
        self._serve()
        for crd in self._stored(served):
            if is_terminating(crd):
                self._end(ctx, served, crd, context)
        self._settle(ctx, served)
        self._serve()
        self._seen = ctx.notes.writes.get(STORAGE, 0)
        ending = [name_of(crd) for crd in self._stored(served) if is_terminating(crd)]
        self._ending = {storage: ctx.notes.writes.get(storage, 0) for storage in ending}

    def _stored(self, served: Served) -> Objects:
        return self._verbs.store.list(served.prefix()).items

    def _settle(self, ctx: Context, served: Served) -> None:
        """Grant names until nothing changes; what one definition gives up another may get."""
        changed = True
        while changed:
            changed = False
            for crd in self._stored(served):
                if is_terminating(crd):
                    continue
                status = settled(crd, self._stored(served), ctx.now)
                if status != crd.get("status"):
                    self._write(ctx, served, crd, status)
                    changed = True

    def _write(self, ctx: Context, served: Served, crd: Object, status: Object) -> None:
        self._verbs.commit(ctx, served, crd, {**crd, "metadata": dict(crd["metadata"]), "status": status})

    def _serve(self) -> None:
        served = self._resources.find(GROUP, "v1", PLURAL)
        assert served is not None
        entries: list[Served] = []
        kinds: dict[object, CustomKind] = {}
        for crd in self._stored(served):
            if is_established(crd):
                for entry, kind in entries_of(crd):
                    entries.append(entry)
                    kinds[kind.resource] = kind
        self._resources.set_custom(entries)
        self._types.set_custom({kind.resource: kind for kind in kinds.values()})

    def _end(self, ctx: Context, served: Served, crd: Object, context: Callable[[Served], Context]) -> None:
        """Delete the objects of a definition that is being deleted, and the definition after the last of them."""
        finalizers = crd["metadata"].get("finalizers") or []
        if CLEANUP not in finalizers:
            return
        message = "CustomResource deletion is in progress"
        crd = self._told(ctx, served, crd, "True", "InstanceDeletionInProgress", message)
        entry = next((entry for entry in self._resources.entries if entry.storage == name_of(crd)), None)
        if entry is not None and self._objects_left(entry, context(entry)):
            return
        done = ("InstanceDeletionCompleted", "removed all instances")
        if not is_established(crd):
            done = ("NeverEstablished", "resource was never established")
        meta = {**crd["metadata"], "finalizers": [name for name in finalizers if name != CLEANUP]}
        status = terminating(crd, *done, ctx.now, value="False")
        self._verbs.commit(ctx, served, crd, {**crd, "metadata": meta, "status": status})

    def _told(self, ctx: Context, served: Served, crd: Object, value: str, reason: str, message: str) -> Object:
        status = terminating(crd, reason, message, ctx.now, value=value)
        if status != crd.get("status"):
            self._write(ctx, served, crd, status)
        return self._verbs.stored(served, "", name_of(crd))

    def _objects_left(self, entry: Served, ctx: Context) -> bool:
        for obj in self._verbs.store.list(entry.prefix()).items:
            meta = obj["metadata"]
            if not meta.get("deletionTimestamp"):
                self._verbs.delete(ctx, entry, meta.get("namespace", ""), meta["name"], DeleteOptions())
        return bool(self._verbs.store.list(entry.prefix(), limit=1).items)
