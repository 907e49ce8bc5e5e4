"""The state that a controller's reconcile function reads, made from objects, without a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from muster.api.codec import Object
from muster.api.meta import key_of
from muster.api.resource import Resource
from muster.client.client import Client
from muster.client.informer import Change, Informer
from muster.clock import RealClock
from muster.controllers.state import Read, State, Watched


class KnownObjects(Informer):
    """An informer that shows what it was told and asks nobody."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(cast(Client, None), RealClock(), resource)  # only `run` would use the client

    def put(self, obj: Object) -> Change:
        """The object appears or changes."""
        old = self.objects.get(key_of(obj))
        self.objects[key_of(obj)] = obj
        return self._told(Change("ADDED" if old is None else "MODIFIED", old, obj))

    def remove(self, obj: Object) -> Change:
        """The object goes away."""
        return self._told(Change("DELETED", self.objects.pop(key_of(obj)), None))

    def _told(self, change: Change) -> Change:
        self._tell([change])
        return change


class ControllerState(State):
    """A `State` whose objects, memories and live reads a test sets."""

    def __init__(self, *resources: Resource) -> None:
        self.known = {resource: KnownObjects(resource) for resource in resources}
        self.memories: dict[str, object] = {}
        super().__init__({resource: Watched(known) for resource, known in self.known.items()}, self.memories)

    def put(self, resource: Resource, *objects: Object) -> list[Change]:
        """Objects appear or change."""
        return [self.known[resource].put(obj) for obj in objects]

    def remove(self, resource: Resource, *objects: Object) -> list[Change]:
        """Objects go away."""
        return [self.known[resource].remove(obj) for obj in objects]

    def reading(self, reads: Iterable[Read], found: Mapping[str, Object] | None = None) -> State:
        """The state after reads that found these objects by name, and nothing else."""
        return self.with_live({read: (found or {}).get(read.name) for read in reads})
