"""Tell people what was decided: conditions of pods and groups, events. After the binds, latest state only.

Under pressure events are dropped first. Conditions are not: autoscalers count the pods that say Unschedulable, and a
gang of which some members say nothing would get nodes for a part of it. There is one a live pod at most.

Source of the rules: workload-api.md 1.5 (group condition: True is for ever, equal content is not written twice), 3.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.groups import COMPOSITE_INITIALLY_SCHEDULED, INITIALLY_SCHEDULED, initially_scheduled_in
from muster.api.meta import condition, name_of, namespace_of, uid_of
from muster.api.resource import COMPOSITE_POD_GROUPS, POD_GROUPS, PODS, Resource
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiError, ClientError
from muster.clock import Clock, rfc3339, wait
from muster.scheduler.members import PodRecord
from muster.scheduler.served import takes_strategic_patches

logger = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
REPEAT_EVENT_S = 300.0
BUSY_PAUSE_S = 1.0
FIRST_RETRY_S = 0.5
MAX_RETRY_S = 10.0


class Wanted(Struct, frozen=True):
    """How a condition should read. `marks`: annotations that a pod has to have before it says so."""

    status: str
    reason: str
    message: str
    marks: tuple[tuple[str, str], ...] = ()


class _Event(Struct, frozen=True):
    about: Object
    type: str
    reason: str
    message: str


class Reporter:
    """Writes conditions and passes events on while no binding is under way (`idle`), else a few a second.

    `pods` and `groups` (by resource) are the scheduler's live views: what is written is compared with them at the last
    moment. `nominations`: the node that a pod is to get once victims are gone, by key. It is written with the
    condition, as kube-scheduler does, since a pod that says Unschedulable and has none asks autoscalers for a node.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        idle: asyncio.Event,
        pods: Mapping[str, PodRecord],
        groups: Mapping[Resource, Mapping[str, Object]],
        nominations: Mapping[str, str],
        *,
        limit: int = 20_000,
        concurrency: int = 8,
    ) -> None:
        self.dropped = 0
        self.group_resource = POD_GROUPS
        """The version in which the server knows PodGroups."""
        self.composite_resource = COMPOSITE_POD_GROUPS
        self._client = client
        self._clock = clock
        self._recorder = events
        self._idle = idle
        self._pods = pods
        self._groups = groups
        self._nominations = nominations
        self._limit = limit
        self._concurrency = concurrency
        self._wanted: dict[tuple[Resource, str], Wanted] = {}
        self._events: deque[_Event] = deque()
        self._said: dict[str, tuple[str, float]] = {}
        self._arrived = asyncio.Event()
        self._writing = 0

    def pod(self, key: str, reason: str, message: str, marks: Mapping[str, str] | None = None) -> None:
        """The pod should say PodScheduled=False with these words, and have these annotations before."""
        self._want(PODS, key, Wanted("False", reason, message, tuple((marks or {}).items())))

    def group(self, key: str, status: str, reason: str, message: str) -> None:
        """The PodGroup should say whether it was scheduled initially; a group without such an object says nothing."""
        self._want(POD_GROUPS, key, Wanted(status, reason, message))

    def composite(self, key: str, status: str, reason: str, message: str) -> None:
        """The CompositePodGroup should say whether it was scheduled initially."""
        self._want(COMPOSITE_POD_GROUPS, key, Wanted(status, reason, message))

    def scheduled(self, pod: Object, node: str) -> None:
        """Event: the pod has a node."""
        self._said.pop(f"{namespace_of(pod)}/{name_of(pod)}", None)
        text = f"Successfully assigned {namespace_of(pod)}/{name_of(pod)} to {node}"
        self._put(_Event(pod, "Normal", "Scheduled", text))

    def failed(self, record: PodRecord, message: str) -> None:
        """Event: an attempt failed. The same words about the same pod are repeated every five minutes at most."""
        now = self._clock.now()
        said, when_s = self._said.get(record.key, ("", now))
        if said == message and now - when_s < REPEAT_EVENT_S:
            return
        self._said[record.key] = (message, now)
        self._put(_Event(record.pod, "Warning", "FailedScheduling", message))

    def ignored(self, group: str, text: str) -> None:
        """Event: an annotation of a group cannot be read and is ignored."""
        obj = self._groups[POD_GROUPS].get(group)
        if obj is not None and self._said.get(f"ignored {group}", ("", 0.0))[0] != text:
            self._said[f"ignored {group}"] = (text, self._clock.now())
            kinded = obj if obj.get("kind") else {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", **obj}
            self._put(_Event(kinded, "Warning", "AnnotationIgnored", text))

    def forget(self, key: str) -> None:
        """The pod is gone: nothing of it is to be remembered."""
        self._said.pop(key, None)
        self._wanted.pop((PODS, key), None)

    @property
    def is_done(self) -> bool:
        """Whether all that there was to tell has been told or given up."""
        return not self._wanted and not self._events and not self._writing

    async def run(self) -> None:
        """Write until cancelled."""
        failures = 0
        while True:
            if not self._wanted and not self._events:
                self._arrived.clear()
                await self._arrived.wait()
            await wait(self._clock, self._idle, BUSY_PAUSE_S)
            for event in (self._events.popleft() for _ in range(min(100, len(self._events)))):
                self._recorder.record(_with_kind(event.about), event.type, event.reason, event.message)
            batch = list(islice(self._wanted.items(), self._concurrency))
            for target, _ in batch:
                del self._wanted[target]
            self._writing = len(batch)
            async with asyncio.TaskGroup() as group:
                writes = [group.create_task(self._write(target, wanted)) for target, wanted in batch]
            self._writing = 0
            answers = [write.result() for write in writes]
            failures = 0 if all(answers) else 1 if any(answers) else failures + 1
            if failures:
                await self._clock.sleep(min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 30)))

    def _want(self, resource: Resource, key: str, wanted: Wanted) -> None:
        self._wanted[resource, key] = wanted
        self._arrived.set()

    def _put(self, event: _Event) -> None:
        if len(self._events) >= self._limit:
            self.dropped += 1
            return
        self._events.append(event)
        self._arrived.set()

    async def _write(self, target: tuple[Resource, str], wanted: Wanted) -> bool:
        """Write one condition; False if it is to be tried again. One that the server refuses is dropped."""
        resource, key = target
        if wanted.marks and not await self._mark(key, wanted):
            self._wanted.setdefault(target, wanted)
            return False
        patch = self._pod_patch(key, wanted) if resource == PODS else self._group_patch(resource, key, wanted)
        resource = self._in_server(resource)
        if patch is None:
            return True
        namespace, _, name = key.partition("/")
        type_ = STRATEGIC_MERGE_PATCH if takes_strategic_patches(resource) else MERGE_PATCH
        try:
            await self._client.patch(resource, namespace, name, patch, type_=type_, subresource="status")
        except ClientError as error:
            if isinstance(error, ApiError) and not error.may_pass:
                self.dropped += 1
                return True
            self._wanted.setdefault(target, wanted)
            return False
        return True

    async def _mark(self, key: str, wanted: Wanted) -> bool:
        """Give a pod its annotations; False if that is to be tried again. Without the right it stays without."""
        record = self._pods.get(key)
        known = {} if record is None else record.pod["metadata"].get("annotations") or {}
        if record is None or record.node or all(known.get(name) == value for name, value in wanted.marks):
            return True
        namespace, _, name = key.partition("/")
        patch = {"metadata": {"uid": uid_of(record.pod), "annotations": dict(wanted.marks)}}
        try:
            await self._client.patch(PODS, namespace, name, patch)
        except ClientError as error:
            if isinstance(error, ApiError) and not error.may_pass:
                logger.warning("pod not annotated", extra={"pod": key, "error": str(error)})
                return True
            return False
        return True

    def _pod_patch(self, key: str, wanted: Wanted) -> Object | None:
        record = self._pods.get(key)
        if record is None or record.node:
            return None
        entry = changed_condition(record.pod, POD_SCHEDULED, wanted, self._clock.now())
        if entry is None:
            return None
        status: Object = {"conditions": [{"lastProbeTime": None, **entry}]}
        if node := self._nominations.get(key):
            status["nominatedNodeName"] = node
        return {"status": status}

    def _group_patch(self, resource: Resource, key: str, wanted: Wanted) -> Object | None:
        group = self._groups[resource].get(key)
        if group is None:
            return None
        is_composite = resource == COMPOSITE_POD_GROUPS
        hub_type = COMPOSITE_INITIALLY_SCHEDULED if is_composite else INITIALLY_SCHEDULED
        current = condition(group, hub_type)
        if wanted.status == "False" and current is not None and current.get("status") == "True":
            return None
        entry = changed_condition(group, hub_type, wanted, self._clock.now())
        type_ = hub_type if is_composite else initially_scheduled_in(self.group_resource.version)
        if entry is None:
            return None
        others: Objects = []
        if not takes_strategic_patches(self._in_server(resource)):
            said = (group.get("status") or {}).get("conditions") or []
            others = [each for each in said if each.get("type") != hub_type]
        return {"status": {"conditions": [*others, {**entry, "type": type_}]}}

    def _in_server(self, resource: Resource) -> Resource:
        """The resource as the server has it."""
        known = {POD_GROUPS: self.group_resource, COMPOSITE_POD_GROUPS: self.composite_resource}
        return known.get(resource, resource)


def changed_condition(obj: Object, type_: str, wanted: Wanted, now: float) -> Object | None:
    """The entry to write, or None if the object says so already. The transition time follows the status only."""
    current = condition(obj, type_) or {}
    said = (current.get("status"), current.get("reason"), current.get("message") or "")
    if said == (wanted.status, wanted.reason, wanted.message):
        return None
    since = current.get("lastTransitionTime") if current.get("status") == wanted.status else None
    entry: Object = {
        "type": type_,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": since or rfc3339(now),
    }
    generation = obj["metadata"].get("generation")
    return {**entry, "observedGeneration": generation} if generation else entry


def _with_kind(obj: Object) -> Object:
    """Pods out of a list carry neither kind nor apiVersion."""
    return obj if obj.get("kind") else {"apiVersion": "v1", "kind": "Pod", **obj}
