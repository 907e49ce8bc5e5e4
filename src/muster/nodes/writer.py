"""Pods on simulated nodes, and the writer that keeps what the API server says about them up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.api.meta import is_deleting, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PODS
from muster.client.client import Client
from muster.client.transport import STRATEGIC_MERGE_PATCH, ApiError, ClientError
from muster.clock import Clock
from muster.nodes.stages import Kind, Life, Plan, Stages
from muster.nodes.status import status_of

logger = logging.getLogger(__name__)

RETRY_S = 1.0
ENDED_PHASES = ("Succeeded", "Failed")
REFUSALS = (400, 403, 409, 422)


@dataclass(slots=True)
class SimulatedNode:
    """A node of ours; while it is not `up`, its pods stand still and nothing is written about them."""

    object: Object
    host_ip: str
    up: bool = True
    runs: dict[str, Run] = field(default_factory=dict)
    """Its pods by key."""


@dataclass(slots=True)
class Run:
    """A pod on a node of ours. `pod` is its newest known state, `owner` the uid of its controlling owner, or ""."""

    pod: Object
    node: SimulatedNode
    plan: Plan
    life: Life
    ip: str
    owner: str
    dirty: bool = False
    """Whether its life has changed since its status was written."""
    writing: bool = False
    is_removed: bool = False
    """Whether there is nothing left to do: it is gone, or its removal was asked for and granted."""


class Spawner:
    """Tasks that end by themselves, or with their owner (`cancel`)."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> None:
        """Run a coroutine in a task of its own."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def cancel(self) -> None:
        """End all tasks."""
        for task in list(self._tasks):
            task.cancel()


class PodWriter:
    """Writes each pod's newest status, one request at a time a pod, and removes pods that ended and are to go."""

    def __init__(self, client: Client, clock: Clock, data: Stages, tasks: Spawner) -> None:
        self._client = client
        self._clock = clock
        self._data = data
        self._tasks = tasks

    def write(self, run: Run) -> None:
        """The pod's life changed, or it is to go: see to it that the server knows."""
        run.dirty = True
        if not run.writing and not run.is_removed:
            run.writing = True
            self._tasks.spawn(self._write(run), f"nodes: pod {key_of(run.pod)}")

    async def _write(self, run: Run) -> None:
        try:
            while run.dirty and run.node.up and not run.is_removed:
                run.dirty = False
                await self._write_status(run)
                if run.life.kind is Kind.ENDED and is_deleting(run.pod) and not run.dirty:
                    await self._remove(run)
        finally:
            run.writing = False

    async def _write_status(self, run: Run) -> None:
        if (run.pod.get("status") or {}).get("phase") in ENDED_PHASES:
            return
        status = status_of(
            run.pod, run.life, self._data, pod_ip=run.ip, host_ip=run.node.host_ip, now=self._clock.now()
        )
        patch = {"metadata": {"uid": uid_of(run.pod)}, "status": status}
        namespace, name = namespace_of(run.pod), name_of(run.pod)
        try:
            run.pod = await self._client.patch(
                PODS, namespace, name, patch, type_=STRATEGIC_MERGE_PATCH, subresource="status"
            )
        except ClientError as error:
            await self._retry(run, error)

    async def _remove(self, run: Run) -> None:
        if run.pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            return  # it is only finalizers that keep it
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(run.pod)}}
        try:
            await self._client.delete(PODS, namespace_of(run.pod), name_of(run.pod), options)
            run.is_removed = True
        except ClientError as error:
            await self._retry(run, error)

    async def _retry(self, run: Run, error: ClientError) -> None:
        """After a while write again, unless the pod is gone (the watch will say so) or the server will not have it."""
        if isinstance(error, ApiError) and (error.is_not_found or error.code in REFUSALS):
            if not error.is_not_found and not error.is_conflict:
                logger.error("pod status refused", extra={"pod": key_of(run.pod), "error": str(error)})
            return
        await self._clock.sleep(RETRY_S)
        run.dirty = True
