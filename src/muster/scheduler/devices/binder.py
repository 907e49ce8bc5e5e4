"""Write the claims of pods before the pods are bound, and take back what was written for those that are not.

The pods of one commit go together: if one claim cannot be written, none of the pods is bound, and the others lose what
they got. Claims are written side by side, each once for all pods of the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from muster.api.codec import Object
from muster.api.meta import key_of, name_of, namespace_of, uid_of
from muster.api.resource import PODS, RESOURCE_CLAIMS
from muster.client.client import Client
from muster.client.transport import MERGE_PATCH, ApiError, TransportError
from muster.clock import Clock, rfc3339, wait
from muster.engine.state import ClusterState
from muster.scheduler.binder import BindRequest
from muster.scheduler.devices.writing import (
    BindingFailed,
    ClaimWrite,
    Consumer,
    GroupLookup,
    claim_writes,
    extended_claim,
    freed,
    is_in_the_way,
    next_step,
    unready,
    without,
)

FIRST_RETRY_S = 0.1
MAX_RETRY_S = 10.0
_AT_ONCE = 32

T = TypeVar("T")


class DeviceReports(Protocol):
    """Who wants to know how it went."""

    def can_bind(self, request: BindRequest) -> bool:
        """Whether pod and node are still there and the pod is assumed on that node."""

    def devices_bound(self, requests: Sequence[BindRequest]) -> None:
        """All claims of these pods are written, and their devices ready."""

    def devices_failed(self, requests: Sequence[BindRequest], failed: BindRequest | None, why: str) -> None:
        """None of these pods can be bound, for that reason; `failed`: the pod that it is about, if it is about one."""


@dataclass(slots=True)
class _Taken:
    """What a pod got by our writes: claims with its consumer there, and whether their devices came with it."""

    claims: dict[str, tuple[Consumer, bool]] = field(default_factory=dict)
    made: tuple[str, str] | None = None
    """Namespace and name of its claim for extended resources."""


class DeviceBinder:
    """Commits whose pods use claims, each a task of its own. `group` looks up PodGroups."""

    def __init__(
        self, client: Client, clock: Clock, state: ClusterState, reports: DeviceReports, group: GroupLookup
    ) -> None:
        self._client, self._clock, self._state, self._reports, self._group = client, clock, state, reports, group
        self._changed = asyncio.Event()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._taken: dict[str, _Taken] = {}
        self._freeing: set[str] = set()

    def changed(self) -> None:
        """Claims, pods or nodes are not as they were."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def bind(self, requests: Sequence[BindRequest], timeout_s: float) -> None:
        """Write the claims of these pods, which are assumed already, and report the outcome."""
        try:
            await self._write_all(requests)
            await self._until_ready(requests, timeout_s)
        except _Failed as failed:
            await asyncio.gather(*(self.unbind(request.key) for request in requests))
            self._reports.devices_failed(requests, failed.request, str(failed))
        else:
            self._reports.devices_bound(requests)

    def bound(self, pod: str) -> None:
        """The pod is bound: what it got is its own."""
        self._taken.pop(pod, None)

    def has_written(self, pod: str) -> bool:
        """Whether something was written for a pod that is not bound yet."""
        return pod in self._taken

    async def unbind(self, pod: str) -> None:
        """Take back what was written for a pod that is not bound. Idempotent."""
        taken = self._taken.pop(pod, None)
        if taken is None:
            return
        for key, (consumer, deallocates) in taken.claims.items():
            if any(key in other.claims and other.claims[key][0] == consumer for other in self._taken.values()):
                continue  # a group that others of its pods go on using
            await self._rewrite(key, partial(without, consumers=[consumer], deallocates=deallocates))
        if taken.made is not None:
            await self._remove(*taken.made)

    async def free(self, key: str, consumers: frozenset[str]) -> None:
        """Take the devices of a claim that nobody but these (uids) is noted to use, and who are on no node."""
        if key in self._freeing:
            return
        self._freeing.add(key)
        try:
            await self._rewrite(key, lambda claim: freed(claim) if is_in_the_way(claim, consumers) else None)
        finally:
            self._freeing.discard(key)

    # -- writing

    async def _write_all(self, requests: Sequence[BindRequest]) -> None:
        """Raises _Failed, once nothing is under way any more."""
        for request in requests:
            reserved = self._state.device_reservation(request.key)
            if reserved is not None and reserved.missing:
                raise _Failed(request, reserved.missing)
        writes = claim_writes(requests, self._state.device_reservation, self._group)
        made = [
            request
            for request in requests
            if (reserved := self._state.device_reservation(request.key)) is not None and reserved.extended is not None
        ]
        outcomes = await asyncio.gather(
            *(self._write(write) for write in writes),
            *(self._make_extended(request) for request in made),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write(self, write: ClaimWrite) -> None:
        async with self._places:
            claim = self._state.devices.own(write.key, self._state.objects)
            allocates = False
            while True:
                try:
                    step = next_step(claim, write, rfc3339(self._clock.now()))
                except BindingFailed as error:
                    raise _Failed(write.requests[0], str(error)) from error
                if step is None:
                    break
                allocates = allocates or step.what.startswith("add allocation")
                claim = await self._put(write, step.claim, step.subresource, step.what)
            for request in write.requests:
                taken = self._taken.setdefault(request.key, _Taken())
                for consumer in write.consumers:
                    if consumer.resource != "pods" or consumer.uid == uid_of(request.pod):
                        taken.claims[write.key] = (consumer, allocates)

    async def _put(self, write: ClaimWrite, claim: Object, subresource: str, what: str) -> Object | None:
        """The claim after the write, or as it is now if somebody else has written it. Raises _Failed."""
        request = write.requests[0]

        async def put() -> Object | None:
            try:
                written = await self._client.update(RESOURCE_CLAIMS, claim, subresource=subresource)
                if subresource:
                    self._state.devices.note_written(written)
                return written
            except ApiError as error:
                if not error.is_conflict:
                    raise
                return await self._read(write.key)

        try:
            return await self._insist(put, request)
        except ApiError as error:
            raise _Failed(request, f"{what} claim {write.key}: {error}") from error

    async def _read(self, key: str) -> Object | None:
        namespace, _, name = key.partition("/")
        try:
            return await self._client.get(RESOURCE_CLAIMS, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _make_extended(self, request: BindRequest) -> None:
        """Make the claim for extended resources, allocate it, and say so in the pod's status. Raises _Failed."""
        reserved = self._state.device_reservation(request.key)
        assert reserved is not None and reserved.extended is not None
        extended, pod = reserved.extended, request.pod
        async with self._places:
            try:
                made = await self._insist(
                    lambda: self._client.create(RESOURCE_CLAIMS, namespace_of(pod), extended_claim(pod, extended)),
                    request,
                )
            except ApiError as error:
                raise _Failed(request, f"create claim for extended resources {request.key}: {error}") from error
            taken = self._taken.setdefault(request.key, _Taken())
            taken.made = (namespace_of(made), name_of(made))
            consumer = Consumer("pods", name_of(pod), uid_of(pod))
            write = ClaimWrite(key_of(made), extended.allocation, {consumer: None}, [request])
            claim: Object | None = made
            while (step := next_step(claim, write, rfc3339(self._clock.now()))) is not None:
                claim = await self._put(write, step.claim, step.subresource, step.what)
            said = {"resourceClaimName": name_of(made), "requestMappings": extended.mappings}
            patch = {"metadata": {"uid": uid_of(pod)}, "status": {"extendedResourceClaimStatus": said}}

            def tell() -> Awaitable[Object]:
                return self._client.patch(
                    PODS, namespace_of(pod), name_of(pod), patch, type_=MERGE_PATCH, subresource="status"
                )

            try:
                await self._insist(tell, request)
            except ApiError as error:
                raise _Failed(request, f"update pod {request.key} ExtendedResourceClaimStatus: {error}") from error

    async def _until_ready(self, requests: Sequence[BindRequest], timeout_s: float) -> None:
        """Wait until the devices are ready that have to be made so. Raises _Failed."""
        until = self._clock.now() + timeout_s
        while True:
            changed = self._changed
            waiting = [request for request in requests if self._is_waiting(request)]
            if not waiting:
                return
            left_s = until - self._clock.now()
            if left_s <= 0:
                raise _Failed(waiting[0], "timed out waiting for binding conditions of devices")
            await wait(self._clock, changed, left_s)
            if not self._reports.can_bind(waiting[0]):
                raise _Failed(None, f"pod {waiting[0].key} or its node is gone")

    def _is_waiting(self, request: BindRequest) -> bool:
        for key in self._taken.get(request.key, _Taken()).claims:
            claim = self._state.objects.get("ResourceClaim", key)
            try:
                if claim is not None and unready(claim):
                    return True
            except BindingFailed as error:
                raise _Failed(request, str(error)) from error
        return False

    # -- taking back

    async def _rewrite(self, key: str, change: Callable[[Object], Object | None]) -> None:
        """Write the status of a claim, as it is read now, in the way that `change` says; None: it stays."""

        async def rewrite() -> None:
            claim = await self._read(key)
            changed = None if claim is None else change(claim)
            if changed is not None:
                written = await self._client.update(RESOURCE_CLAIMS, changed, subresource="status")
                self._state.devices.note_written(written)

        await self._try(rewrite)

    async def _remove(self, namespace: str, name: str) -> None:
        async def remove() -> None:
            claim = await self._read(f"{namespace}/{name}")
            if claim is not None and claim["metadata"].get("finalizers"):
                metadata = {name: value for name, value in claim["metadata"].items() if name != "finalizers"}
                await self._client.update(RESOURCE_CLAIMS, {**claim, "metadata": metadata})
            await self._client.delete(RESOURCE_CLAIMS, namespace, name)

        await self._try(remove)

    async def _try(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Until it succeeds, or the server refuses: what is left then is freed once the pod is gone."""
        attempts = 0
        while True:
            try:
                await attempt()
                return
            except TransportError:
                pass
            except ApiError as error:
                if not error.may_pass:
                    return
            await self._clock.sleep(_delay_s(attempts))
            attempts += 1

    async def _insist(self, attempt: Callable[[], Awaitable[T]], request: BindRequest) -> T:
        """The answer of the server, however long it takes. Raises ApiError, and _Failed if the pod is gone."""
        attempts = 0
        while True:
            if not self._reports.can_bind(request):
                raise _Failed(None, f"pod {request.key} or its node is gone")
            try:
                return await attempt()
            except TransportError:
                pass
            except ApiError as error:
                if not error.is_temporary:
                    raise
            await self._clock.sleep(_delay_s(attempts))
            attempts += 1


class _Failed(Exception):
    """The commit fails; `request`: the pod that it is about, if it is about one."""

    def __init__(self, request: BindRequest | None, why: str) -> None:
        super().__init__(why)
        self.request = request


def _delay_s(attempts: int) -> float:
    return min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30))
