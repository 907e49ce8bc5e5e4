"""Bind the volumes of pods before the pods themselves: write what the reservations say, wait until claims are bound.

The pods of one commit go together: a gang whose volumes are all there is bound, and if one volume fails, or takes too
long, none of the gang is. Source: kube-scheduler `volumebinding` (PreBind).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from muster.api.codec import Object
from muster.api.resource import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from muster.client.client import Client
from muster.client.transport import ApiError, TransportError
from muster.clock import Clock, wait
from muster.engine.objects import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from muster.engine.state import ClusterState
from muster.scheduler.binder import BindRequest
from muster.scheduler.volumes.checks import BindingFailed, Progress, is_complete, writes

RETRY_S = 1.0
_RESOURCES = {PERSISTENT_VOLUME: PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIM: PERSISTENT_VOLUME_CLAIMS}


class VolumeReports(Protocol):
    """Who wants to know how it went."""

    def can_bind(self, request: BindRequest) -> bool:
        """Whether pod and node are still there and the pod is assumed on that node."""

    def volumes_bound(self, requests: Sequence[BindRequest]) -> None:
        """All volumes of these pods are there."""

    def volumes_failed(self, requests: Sequence[BindRequest], failed: BindRequest | None, why: str) -> None:
        """None of these pods can be bound, for that reason; `failed`: the pod that it is about, if it is about one."""


class VolumeBinder:
    """Commits whose pods wait for volumes, each a task of its own."""

    def __init__(self, client: Client, clock: Clock, state: ClusterState, reports: VolumeReports) -> None:
        self._client = client
        self._clock = clock
        self._state = state
        self._reports = reports
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Volumes, claims, pods or nodes are not as they were."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def bind(self, requests: Sequence[BindRequest], timeout_s: float) -> None:
        """Bind the volumes of these pods, which are assumed already, and report the outcome."""
        progress = {
            request.key: Progress(reservation)
            for request in requests
            if (reservation := self._state.reservation(request.key)) is not None
        }
        until = self._clock.now() + timeout_s
        while True:
            changed, retry = self._changed, False
            for request in requests:
                try:
                    if not self._reports.can_bind(request):
                        self._reports.volumes_failed(requests, None, f"pod {request.key} or its node is gone")
                        return
                    retry = await self._write(progress.get(request.key)) or retry
                except BindingFailed as error:
                    self._reports.volumes_failed(requests, request, str(error))
                    return
            failed, complete = self._look(requests, progress)
            if failed is not None:
                self._reports.volumes_failed(requests, *failed)
                return
            if complete:
                self._reports.volumes_bound(requests)
                return
            left_s = until - self._clock.now()
            if left_s <= 0:
                self._reports.volumes_failed(requests, _first(requests, progress), "context deadline exceeded")
                return
            await wait(self._clock, changed, min(left_s, RETRY_S) if retry else left_s)

    def _look(
        self, requests: Sequence[BindRequest], progress: dict[str, Progress]
    ) -> tuple[tuple[BindRequest, str] | None, bool]:
        """The pod whose volumes failed and why, if one has; and whether all have their volumes."""
        complete = True
        for request in requests:
            each = progress.get(request.key)
            try:
                complete = (each is None or is_complete(each, self._state)) and complete
            except BindingFailed as error:
                return (request, str(error)), False
        return None, complete

    async def _write(self, progress: Progress | None) -> bool:
        """Write what is missing; whether something has to be tried again. Raises BindingFailed."""
        retry = False
        if progress is None:
            return retry
        for kind, key, obj in tuple(writes(progress, self._state)):
            try:
                written = await self._client.update(_RESOURCES[kind], obj)
            except TransportError:
                retry = True
            except ApiError as error:
                if not error.may_pass:
                    raise BindingFailed(str(error)) from error
                retry = True  # on a conflict the newer object is on its way
            else:
                progress.written[kind, key] = _version(written)
        return retry


def _version(obj: Object) -> int:
    version = obj["metadata"].get("resourceVersion") or ""
    return int(version) if version.isdecimal() else 0


def _first(requests: Sequence[BindRequest], progress: dict[str, Progress]) -> BindRequest | None:
    """The first pod that waits for volumes."""
    return next((request for request in requests if request.key in progress), None)
