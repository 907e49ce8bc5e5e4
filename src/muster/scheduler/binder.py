"""Send decided bindings to the API server: bounded concurrency, retries, and an answer for each pod.

A commit is what one attempt placed. All its pods are assumed before the first request is sent, so nobody else is
promised their room. A request that may succeed later is repeated with a growing delay for as long as the pod and the
node are there: a gang that is half bound when faults begin is whole when they end. A pod that cannot be bound any more
(deleted, bound by somebody else, refused, its node gone) is reported as failed; the core forgets it and its group
decides about the rest with the bound members counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.api.meta import uid_of
from muster.api.resource import PODS
from muster.client.client import Client
from muster.client.transport import ApiError, TransportError
from muster.clock import Clock

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0
AHEAD = 4
"""So many requests a worker are queued while the next decisions are made: the server has work meanwhile."""


@dataclass(slots=True)
class Commit:
    """The placements of one attempt; `waiting` of them have no answer yet."""

    ref: GroupRef | None
    waiting: int


@dataclass(slots=True)
class BindRequest:
    """One pod to bind. `pod` is the object as it was decided about; it gets the `annotations` with its binding."""

    key: str
    pod: Object
    node: str
    commit: Commit
    annotations: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0

    @property
    def body(self) -> Object:
        """The Binding object; the uid makes sure that a pod of the same name created meanwhile is not bound."""
        metadata = self.pod["metadata"]
        named: Object = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata.get("uid", "")}
        if self.annotations:
            named["annotations"] = dict(self.annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": named, "target": target}


class Answer(Enum):
    """What became of one request."""

    BOUND = "bound"
    FAILED = "failed"
    RETRY = "retry"


class BindingReports(Protocol):
    """Who wants to know how bindings went, and knows whether they still make sense."""

    def can_bind(self, request: BindRequest) -> bool:
        """Whether pod and node are still there and the pod is assumed on that node."""

    def bound(self, request: BindRequest) -> None:
        """The pod is bound."""

    def bind_failed(self, request: BindRequest) -> None:
        """The pod will not be bound by this request."""


class Binder:
    """Workers over one queue, first come first served."""

    def __init__(self, client: Client, clock: Clock, reports: BindingReports, *, concurrency: int = 32) -> None:
        self.idle = asyncio.Event()
        """Set while nothing is queued or under way; requests that wait to be repeated do not count."""
        self.idle.set()
        self.answered = asyncio.Event()
        """Set while every request has its final answer."""
        self.answered.set()
        self.hungry = asyncio.Event()
        """Set while so little is queued that the workers may soon have nothing to do."""
        self.hungry.set()
        self._client = client
        self._clock = clock
        self._reports = reports
        self._concurrency = concurrency
        self._queue: deque[BindRequest] = deque()
        self._arrived = asyncio.Event()
        self._busy = 0
        self._unanswered = 0
        self._start: Callable[[BindRequest, float], None] = lambda request, delay_s: None

    def submit(self, request: BindRequest) -> None:
        """Queue one binding; the pod must be assumed already."""
        self._unanswered += 1
        self.answered.clear()
        self._enqueue(request)

    def _enqueue(self, request: BindRequest) -> None:
        self._queue.append(request)
        if len(self._queue) > AHEAD * self._concurrency:
            self.hungry.clear()
        self._arrived.set()
        self.idle.clear()

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._start = lambda request, delay_s: _keep(group.create_task(self._later(request, delay_s)))
            for _ in range(self._concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            request = self._queue.popleft()
            if len(self._queue) <= AHEAD * self._concurrency:
                self.hungry.set()
            self._busy += 1
            try:
                self._take(request, await self._send(request))
            finally:
                self._busy -= 1
                if not self._queue and not self._busy:
                    self.idle.set()

    def _take(self, request: BindRequest, answer: Answer) -> None:
        if answer is Answer.RETRY:
            delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(request.attempts, 30))
            request.attempts += 1
            self._start(request, delay_s)
            return
        request.commit.waiting -= 1
        self._unanswered -= 1
        if not self._unanswered:
            self.answered.set()
        if answer is Answer.BOUND:
            self._reports.bound(request)
        else:
            self._reports.bind_failed(request)

    async def _later(self, request: BindRequest, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        self._enqueue(request)

    async def _send(self, request: BindRequest) -> Answer:
        if not self._reports.can_bind(request):
            return Answer.FAILED
        metadata = request.pod["metadata"]
        try:
            await self._client.create(
                PODS, metadata["namespace"], request.body, name=metadata["name"], subresource="binding"
            )
            return Answer.BOUND
        except TransportError:
            return Answer.RETRY
        except ApiError as error:
            if error.is_temporary:
                return Answer.RETRY
            return await self._after_conflict(request) if error.code == 409 else Answer.FAILED

    async def _after_conflict(self, request: BindRequest) -> Answer:
        """Read the pod: an earlier request of ours may have succeeded though its answer was lost."""
        metadata = request.pod["metadata"]
        try:
            pod = await self._client.get(PODS, metadata["namespace"], metadata["name"])
        except TransportError:
            return Answer.RETRY
        except ApiError as error:
            return Answer.RETRY if error.is_temporary else Answer.FAILED
        if uid_of(pod) != uid_of(request.pod):
            return Answer.FAILED
        node = pod["spec"].get("nodeName")
        if node:
            return Answer.BOUND if node == request.node else Answer.FAILED
        is_refused = pod["metadata"].get("deletionTimestamp") or pod["spec"].get("schedulingGates")
        return Answer.FAILED if is_refused else Answer.RETRY


def _keep(task: asyncio.Task[None]) -> None:
    """The task group holds the task; nothing else is to be done with it."""
