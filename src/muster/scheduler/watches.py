"""What the scheduler watches: nodes, pods and groups; what some rules look at; owners whose pods are a group.

Kinds that the server does not have yet are looked for again, since they may be defined any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count

from muster.api.codec import Object
from muster.api.grouping import Grouping
from muster.api.resource import (
    COMPOSITE_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    JOBS,
    KUEUE_TOPOLOGIES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    WORKLOADS,
    Resource,
)
from muster.client.client import Client
from muster.client.informer import Change, Informer
from muster.clock import Clock
from muster.scheduler.served import find, hub_informer

logger = logging.getLogger(__name__)

OBSERVED = (
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
)
"""Objects that only some rules look at: without the right to see them, those rules see none."""
NEEDED = (NODES, COMPOSITE_POD_GROUPS, POD_GROUPS, WORKLOADS, JOBS, POD_DISRUPTION_BUDGETS, PODS)
ALWAYS_THERE = frozenset({"", "apps", "batch", "policy", "storage.k8s.io"})
"""Groups that are built into every server."""
LOOK_AGAIN_S = 10.0
"""How often it is asked what the server has; soon after a change more often: kinds are defined in quick succession."""
FIRST_LOOK_S = 1.0
ALL_ANEW = 6
"""Every so many looks Kubernetes' own groups are asked for, too: a server may start anew with other gates."""
PATIENCE = 2
"""So many times in a row a kind must be missing before its objects count as gone: servers that start list less."""


@dataclass(slots=True)
class Watched:
    """A kind that is watched, and how often in a row the server has not listed it."""

    place: Resource
    informer: Informer
    task: asyncio.Task[None]
    missing: int = 0


class Watches:
    """Informers of all that decisions depend on; `arrived` gets their changes by the hub's resource.

    What the server has is asked again and again: kinds are defined and taken away, and servers are upgraded, while this
    runs. `moved` is told what was found when that was different from before.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        grouping: Grouping | None,
        arrived: Callable[[Resource, list[Change]], None],
        moved: Callable[[Mapping[Resource, Resource]], None] = lambda found: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._grouping = grouping
        self._arrived = arrived
        self._moved = moved
        self._owners = () if grouping is None else tuple(grouping.resources)
        self._optional = frozenset({*OBSERVED, *self._owners, KUEUE_TOPOLOGIES} - {*NEEDED})
        self._wanted = tuple(dict.fromkeys((*OBSERVED, *NEEDED, *self._owners, KUEUE_TOPOLOGIES)))
        self._watched: dict[Resource, Watched] = {}
        self._known: dict[str, set[str]] = {}

    @property
    def found(self) -> dict[Resource, Resource]:
        """Under which group and version the server has each kind that is watched."""
        return {resource: watched.place for resource, watched in self._watched.items()}

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the informers and return once all have listed. A server without groups schedules pods alone."""
        await self._look(tasks)
        for watched in tuple(self._watched.values()):
            await watched.informer.synced.wait()
        tasks.create_task(self._look_again(tasks))

    async def _look_again(self, tasks: asyncio.TaskGroup) -> None:
        pause_s = FIRST_LOOK_S
        for number in count(1):
            await self._clock.sleep(pause_s, periodic=True)
            if number % ALL_ANEW == 0:
                self._known.clear()
            pause_s = FIRST_LOOK_S if await self._look(tasks) else min(2.0 * pause_s, LOOK_AGAIN_S)

    async def _look(self, tasks: asyncio.TaskGroup) -> bool:
        """Ask what the server has; watch what has come, and no more what has gone. Whether anything did."""
        wanted = [resource for resource in self._wanted if resource not in self._watched or _may_move(resource)]
        optional = self._optional.difference(self._watched)
        places = await find(self._client, self._clock, wanted, optional=optional, known=self._known)
        has_changed = False
        for resource in wanted:
            place, watched = places.get(resource), self._watched.get(resource)
            if watched is not None and place is None:
                watched.missing += 1
            elif watched is not None:
                watched.missing = 0
            if watched is not None and (watched.missing >= PATIENCE or place not in (None, watched.place)):
                self._end(resource, watched)
                watched, has_changed = None, True
            if watched is None and place is not None:
                self._begin(tasks, resource, place)
                has_changed = True
        if has_changed:
            self._moved(self.found)
        return has_changed

    def _begin(self, tasks: asyncio.TaskGroup, resource: Resource, place: Resource) -> None:
        is_owner = resource in self._owners
        if is_owner and resource not in NEEDED:
            informer = Informer(self._client, self._clock, place)
        else:
            informer = hub_informer(self._client, self._clock, place, partial(self._arrived, resource))
        if is_owner:
            informer.add_handler(partial(self._owners_arrived, resource))
        self._watched[resource] = Watched(place, informer, tasks.create_task(informer.run()))
        logger.info("watched", extra={"resource": place.plural, "version": place.api_version})

    def _end(self, resource: Resource, watched: Watched) -> None:
        watched.task.cancel()
        watched.informer.clear()
        del self._watched[resource]
        place = watched.place
        logger.info("not served any more", extra={"resource": place.plural, "version": place.api_version})

    def _owners_arrived(self, resource: Resource, changes: list[Change]) -> None:
        """Objects whose pods are a group are Workloads to everybody else."""
        grouping = self._grouping
        assert grouping is not None

        def seen(obj: Object | None) -> Object | None:
            return None if obj is None else grouping.workload(resource, obj)

        workloads = [Change(change.type, seen(change.old), seen(change.new)) for change in changes]
        said = [change for change in workloads if not _says_the_same(change.old, change.new)]
        if said:
            self._arrived(WORKLOADS, said)


def _may_move(resource: Resource) -> bool:
    """Whether a server may take the resource away, or serve it elsewhere: not what every release has at one place."""
    return resource.group not in ALWAYS_THERE


def _says_the_same(old: Object | None, new: Object | None) -> bool:
    """Whether two states of an owner, seen as a Workload, say the same: most of what happens to owners is status."""
    if old is None or new is None:
        return False
    same_spec: bool = old["spec"] == new["spec"]
    return same_spec and old["metadata"]["annotations"] == new["metadata"]["annotations"]
