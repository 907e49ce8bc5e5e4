"""Carry out plans of preemption: nominations, then the victims' conditions, deletions and events.

A request that may succeed later is repeated for as long as its pod is there, so a plan that was begun is finished. A
victim that the server refuses to delete is reported: the preemptor then plans anew. Source of the words and their
order: workload-scheduling.md 2.7 and recordings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.meta import has_condition, namespace_of, uid_of
from muster.api.resource import POD_GROUPS, PODS, Resource
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiError, TransportError
from muster.clock import Clock, rfc3339
from muster.scheduler.members import PodRecord
from muster.scheduler.preemption.planning import Victim
from muster.scheduler.preemption.units import BY_SCHEDULER, DISRUPTION_TARGET
from muster.scheduler.served import takes_strategic_patches

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0


class Eviction(Struct, frozen=True):
    """What one plan asks for. `kind` and `uid` of the preemptor; `place`: the node, `cluster` for a group.

    `nominated`: the node that is kept for each pod.
    """

    kind: str
    uid: str
    scheduler_name: str
    place: str
    nominated: Mapping[str, str]
    victims: tuple[Victim, ...]

    @property
    def condition_text(self) -> str:
        """The message of the condition DisruptionTarget."""
        return f"{self.scheduler_name}: preempting to accommodate a higher priority {self.kind}"

    @property
    def event_text(self) -> str:
        """The message of the event Preempted."""
        return f"Preempted by {self.kind} {self.uid} on node {self.place}"


class EvictionReports(Protocol):
    """Who wants to know what became of victims."""

    def eviction_refused(self, pod: str) -> None:
        """The server does not delete the pod."""


class Evictor:
    """Runs plans, many at a time; at most `concurrency` requests are under way.

    `pods` is the scheduler's live view. `marks_groups`: groups that are evicted as a whole get a condition, too.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        pods: Mapping[str, PodRecord],
        reports: EvictionReports,
        *,
        marks_groups: bool = True,
        concurrency: int = 16,
    ) -> None:
        self.group_resource: Resource = POD_GROUPS
        self._client = client
        self._clock = clock
        self._events = events
        self._pods = pods
        self._reports = reports
        self._marks_groups = marks_groups
        self._slots = asyncio.Semaphore(concurrency)
        self._nominations: dict[str, str] = {}
        self._submitted: asyncio.Queue[Eviction | str] = asyncio.Queue()

    @property
    def nominations(self) -> Mapping[str, str]:
        """The node that each pod is to have in its status, "" for none; those that are not in it are left alone."""
        return self._nominations

    def submit(self, eviction: Eviction) -> None:
        """Carry out a plan."""
        self._nominations.update(eviction.nominated)
        self._submitted.put_nowait(eviction)

    def clear(self, pod: str) -> None:
        """The pod is not nominated any more."""
        self._nominations[pod] = ""
        self._submitted.put_nowait(pod)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                submitted = await self._submitted.get()
                if isinstance(submitted, Eviction):
                    tasks.create_task(self._evict(submitted))
                else:
                    tasks.create_task(self._nominate(submitted))

    async def _evict(self, eviction: Eviction) -> None:
        async with asyncio.TaskGroup() as tasks:
            for pod in eviction.nominated:
                tasks.create_task(self._nominate(pod))
        groups = dict.fromkeys(victim.group for victim in eviction.victims if victim.group is not None)
        async with asyncio.TaskGroup() as tasks:
            for victim in eviction.victims:
                tasks.create_task(self._delete(victim, eviction))
            for group in groups if self._marks_groups else ():
                if group.is_pod_group:
                    tasks.create_task(self._mark_group(group.namespace, group.name, eviction))

    # -- nominations

    async def _nominate(self, pod: str) -> None:
        """Writes the newest wish for the pod, as long as it has no node."""
        namespace, _, name = pod.partition("/")

        async def write() -> None:
            record = self._pods.get(pod)
            if record is None or record.node:
                self._nominations.pop(pod, None)
                return
            patch = {
                "metadata": {"uid": uid_of(record.pod)},
                "status": {"nominatedNodeName": self._nominations.get(pod, "") or None},
            }
            await self._client.patch(PODS, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")

        await self._insist(write, lambda: pod in self._pods)

    # -- victims

    async def _delete(self, victim: Victim, eviction: Eviction) -> None:
        """Marks and deletes one pod. One that is gone, or another of its name, is as good as deleted."""
        pod = victim.record.pod
        namespace, name = namespace_of(pod), pod["metadata"]["name"]

        async def mark() -> None:
            patch = {"metadata": {"uid": victim.uid}, "status": {"conditions": [self._condition(eviction)]}}
            await self._client.patch(PODS, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")

        async def delete() -> None:
            await self._client.delete(PODS, namespace, name, {"preconditions": {"uid": victim.uid}})

        def is_there() -> bool:
            record = self._pods.get(victim.record.key)
            return record is not None and uid_of(record.pod) == victim.uid

        if not has_condition(pod, DISRUPTION_TARGET):
            await self._insist(mark, is_there)
        if not await self._insist(delete, is_there):
            self._reports.eviction_refused(victim.record.key)
            return
        self._events.record(_with_kind(pod), "Normal", "Preempted", eviction.event_text)

    async def _mark_group(self, namespace: str, name: str, eviction: Eviction) -> None:
        async def mark() -> None:
            resource, entry = self.group_resource, self._condition(eviction)
            others: Objects = []
            type_ = STRATEGIC_MERGE_PATCH
            if not takes_strategic_patches(resource):
                said = (await self._client.get(resource, namespace, name)).get("status") or {}
                others = [each for each in said.get("conditions") or () if each.get("type") != DISRUPTION_TARGET]
                type_ = MERGE_PATCH
            patch = {"status": {"conditions": [*others, entry]}}
            await self._client.patch(resource, namespace, name, patch, type_=type_, subresource="status")

        await self._insist(mark, lambda: True)

    def _condition(self, eviction: Eviction) -> Object:
        return {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": BY_SCHEDULER,
            "message": eviction.condition_text,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }

    async def _insist(self, request: Callable[[], Awaitable[None]], is_wanted: Callable[[], bool]) -> bool:
        """Sends a request until it succeeds or makes no sense any more; False if the server refuses it for good."""
        attempts = 0
        while is_wanted():
            try:
                async with self._slots:
                    await request()
                return True
            except TransportError:
                pass
            except ApiError as error:
                if error.code in (404, 409):
                    return True
                if not error.is_temporary:
                    return False
            await self._clock.sleep(min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30)))
            attempts += 1
        return True


def _with_kind(pod: Object) -> Object:
    """Pods out of a list carry neither kind nor apiVersion."""
    return pod if pod.get("kind") else {"apiVersion": "v1", "kind": "Pod", **pod}
