"""What the scheduler watches: nodes, pods and groups; what some rules look at; owners whose pods are a group.

Kinds that the server does not have yet are looked for again, since they may be defined any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from muster.api.codec import Object
from muster.api.grouping import Grouping
from muster.api.meta import has_condition
from muster.api.resource import (
    COMPOSITE_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    CUSTOM_RESOURCE_DEFINITIONS,
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
from muster.client.informer import RETRY_S, Change, Informer
from muster.clock import Clock
from muster.scheduler.served import hub_informer, served

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
LOOK_AGAIN_S = 60.0
"""How often kinds of owners that the server does not have are looked for."""


class Watches:
    """Informers of all that decisions depend on; `arrived` gets their changes by the hub's resource."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        grouping: Grouping | None,
        arrived: Callable[[Resource, list[Change]], None],
    ) -> None:
        self.found: dict[Resource, Resource] = {}
        """Under which group and version the server has each kind that is watched."""
        self._client = client
        self._clock = clock
        self._grouping = grouping
        self._arrived = arrived
        self._sees_topologies = False

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the informers and return once all have listed. A server without groups schedules pods alone."""
        informers = []
        owners = [] if self._grouping is None else self._grouping.resources
        for resource in (*OBSERVED, *NEEDED):
            found = await served(self._client, self._clock, resource, optional=resource in OBSERVED)
            if found is None:
                continue
            self.found[resource] = found
            informer = hub_informer(self._client, self._clock, found, partial(self._arrived, resource))
            if resource in owners:
                informer.add_handler(partial(self._owners_arrived, resource))
            tasks.create_task(informer.run())
            informers.append(informer)
        for resource in owners:
            if resource in NEEDED:
                continue
            if (informer_of_owners := await self._owners(resource)) is not None:
                tasks.create_task(informer_of_owners.run())
                informers.append(informer_of_owners)
            else:
                tasks.create_task(self._watch_owners_later(resource))
        await self._watch_definitions(tasks)
        for informer in informers:
            await informer.synced.wait()

    async def _owners(self, resource: Resource) -> Informer | None:
        """An informer of objects whose pods are a group; None if the server does not have them."""
        found = await served(self._client, self._clock, resource, optional=True)
        if found is None:
            return None
        informer = Informer(self._client, self._clock, found)
        informer.add_handler(partial(self._owners_arrived, resource))
        return informer

    async def _watch_owners_later(self, resource: Resource) -> None:
        while (informer := await self._owners(resource)) is None:
            await self._clock.sleep(LOOK_AGAIN_S, periodic=True)
        await informer.run()

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

    async def _watch_definitions(self, tasks: asyncio.TaskGroup) -> None:
        if await served(self._client, self._clock, CUSTOM_RESOURCE_DEFINITIONS, optional=True) is None:
            return
        selector = f"metadata.name={KUEUE_TOPOLOGIES.plural}.{KUEUE_TOPOLOGIES.group}"
        definitions = Informer(self._client, self._clock, CUSTOM_RESOURCE_DEFINITIONS, field_selector=selector)
        definitions.add_handler(partial(self._defined, tasks))
        tasks.create_task(definitions.run())

    def _defined(self, tasks: asyncio.TaskGroup, changes: list[Change]) -> None:
        """Watch Kueue's Topology objects once their kind is defined."""
        is_served = any(has_condition(change.new, "Established") for change in changes if change.new is not None)
        if is_served and not self._sees_topologies:
            self._sees_topologies = True
            tasks.create_task(self._watch_topologies())

    async def _watch_topologies(self) -> None:
        while (found := await served(self._client, self._clock, KUEUE_TOPOLOGIES, optional=True)) is None:
            await self._clock.sleep(RETRY_S, periodic=True)  # what was defined just before is served a moment later
        informer = Informer(self._client, self._clock, found)
        informer.add_handler(partial(self._arrived, KUEUE_TOPOLOGIES))
        await informer.run()


def _says_the_same(old: Object | None, new: Object | None) -> bool:
    """Whether two states of an owner, seen as a Workload, say the same: most of what happens to owners is status."""
    if old is None or new is None:
        return False
    same_spec: bool = old["spec"] == new["spec"]
    return same_spec and old["metadata"]["annotations"] == new["metadata"]["annotations"]
