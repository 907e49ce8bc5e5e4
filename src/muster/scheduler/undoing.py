"""Delete the bound members of groups that are given up (`repair`): once each, with a condition and an event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from muster.api.codec import Object
from muster.api.meta import name_of, namespace_of, uid_of
from muster.api.resource import PODS
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.transport import STRATEGIC_MERGE_PATCH, ApiError, TransportError
from muster.clock import Clock, rfc3339
from muster.scheduler.members import PodRecord
from muster.scheduler.preemption.units import DISRUPTION_TARGET
from muster.scheduler.repair import Undo

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0


class Undoer:
    """Carries out what `Repairs` says. `pods` is the scheduler's live view."""

    def __init__(self, client: Client, clock: Clock, events: EventRecorder, pods: Mapping[str, PodRecord]) -> None:
        self._client = client
        self._clock = clock
        self._events = events
        self._pods = pods
        self._submitted: asyncio.Queue[Undo] = asyncio.Queue()

    def submit(self, undo: Undo) -> None:
        """Delete the members."""
        self._submitted.put_nowait(undo)

    async def run(self) -> None:
        """Work until cancelled, one group at a time."""
        while True:
            undo = await self._submitted.get()
            async with asyncio.TaskGroup() as tasks:
                for record in undo.members:
                    tasks.create_task(self._delete(record.key, record.pod, undo))

    async def _delete(self, key: str, pod: Object, undo: Undo) -> None:
        namespace, name, uid = namespace_of(pod), name_of(pod), uid_of(pod)

        async def mark() -> None:
            entry = {
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": undo.reason,
                "message": undo.message,
                "lastTransitionTime": rfc3339(self._clock.now()),
            }
            patch = {"metadata": {"uid": uid}, "status": {"conditions": [entry]}}
            await self._client.patch(PODS, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status")

        async def delete() -> None:
            await self._client.delete(PODS, namespace, name, {"preconditions": {"uid": uid}})

        def is_there() -> bool:
            record = self._pods.get(key)
            return record is not None and uid_of(record.pod) == uid

        await self._insist(mark, is_there)
        if await self._insist(delete, is_there):
            about = pod if pod.get("kind") else {"apiVersion": "v1", "kind": "Pod", **pod}
            self._events.record(about, "Warning", undo.reason, undo.message)

    async def _insist(self, request: Callable[[], Awaitable[None]], is_wanted: Callable[[], bool]) -> bool:
        """Send a request until it succeeds (True), makes no sense any more or is refused for good (False)."""
        attempts = 0
        while is_wanted():
            try:
                await request()
                return True
            except TransportError:
                pass
            except ApiError as error:
                if not error.may_pass:
                    return False
            await self._clock.sleep(min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30)))
            attempts += 1
        return False
