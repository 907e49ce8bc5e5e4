"""Runs a controller: informers → keys → work queue → pure reconcile → actions executed by the client.

A key is reconciled again only after the informers have seen what its own last writes did: reconcile functions never
work on a state that lacks their own creations (what client-go's controllers call expectations).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.meta import is_deleting, name_of, uid_of
from muster.api.resource import Resource
from muster.client.client import Client
from muster.client.events import EventRecorder
from muster.client.informer import Change, Informer
from muster.client.transport import ApiError, ClientError
from muster.clock import Clock
from muster.controllers.action import Action, Create, Delete, Emit, Patch, Result, Update
from muster.controllers.queue import WorkQueue
from muster.controllers.state import Read, State, Watched
from muster.controllers.timers import Timers

logger = logging.getLogger(__name__)


class Request(Struct, frozen=True):
    """Reconcile `key`, `after_s` from now (an earlier request of that key stays)."""

    key: str
    after_s: float = 0.0


class Controller(Protocol):
    """What makes up a controller. Its `name` is that of kube-controller-manager, such as `job-controller`."""

    name: str
    resources: tuple[Resource, ...]
    """What it watches."""

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        """Which keys a change concerns (`state` shows it already). Pure."""

    def reconcile(self, key: str, state: State, now: float) -> Result:
        """What to do about a key. Pure: reads only its arguments."""


@runtime_checkable
class LiveReads(Protocol):
    """What a controller has besides if it must not trust the informers alone."""

    def reads(self, key: str, state: State) -> Iterable[Read]:
        """What to read from the server before this key is reconciled (then in `State.live`). Pure."""


class Backoff(Struct, frozen=True):
    """Wait `base_s` · 2ⁿ, at most `limit_s`, after the n-th failure in a row."""

    base_s: float = 0.005
    limit_s: float = 1000.0

    def after(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row (at least one)."""
        return min(self.base_s * 2.0 ** min(failures - 1, 40), self.limit_s)


DEFAULT_BACKOFF = Backoff()

HOPELESS_S = 60.0
"""A retry that waits so long or longer does not keep a simulation going."""


class _ActionFailed(Exception):
    """The server refused an action, or could not be asked. Retryable; the text is the server's."""

    def __init__(self, action: Action, error: ClientError) -> None:
        super().__init__(str(error))
        self.action = action


class Informers:
    """One informer a resource, shared by all controllers of a process and stopped when the last one releases it.

    `field_selectors`: of resources of which only a part is looked at.
    """

    def __init__(
        self, client: Client, clock: Clock, field_selectors: Mapping[Resource, str] = MappingProxyType({})
    ) -> None:
        self._client = client
        self._clock = clock
        self._field_selectors = field_selectors
        self._watched: dict[Resource, Watched] = {}
        self._users: Counter[Resource] = Counter()
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def watched(self, resource: Resource) -> Watched:
        """The objects of a resource; one that nobody asked for before is watched from now on."""
        if resource not in self._watched:
            selector = self._field_selectors.get(resource, "")
            informer = Informer(self._client, self._clock, resource, field_selector=selector)
            watched = self._watched[resource] = Watched(informer)
            if self._group is not None:
                self._tasks[resource] = self._group.create_task(watched.informer.run())
        self._users[resource] += 1
        return self._watched[resource]

    def release(self, resource: Resource) -> None:
        """Undo one `watched`; a resource that nobody uses any more is not watched."""
        self._users[resource] -= 1
        if self._users[resource] <= 0:
            del self._users[resource], self._watched[resource]
            if resource in self._tasks:
                self._tasks.pop(resource).cancel()

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for resource, watched in self._watched.items():
                self._tasks[resource] = group.create_task(watched.informer.run())
            await asyncio.Event().wait()  # resources may still come


@dataclass(slots=True)
class _Unseen:
    """What a key's own writes did and the informers must show before the key is reconciled again."""

    versions: dict[Watched, int] = field(default_factory=dict)
    deleted: list[tuple[Watched, str, str]] = field(default_factory=list)
    """Resource, key and uid of deleted objects: they must be gone, or known to be going."""

    def wrote(self, watched: Watched, version: str) -> None:
        if version.isdecimal():
            self.versions[watched] = max(self.versions.get(watched, 0), int(version))

    def is_seen(self) -> bool:
        for watched, version in self.versions.items():
            seen = watched.informer.version
            if seen.isdecimal() and int(seen) < version:
                return False
        while self.deleted:
            watched, key, uid = self.deleted[-1]
            obj = watched.get(key)
            if obj is not None and uid_of(obj) == uid and not is_deleting(obj):
                return False
            self.deleted.pop()
        return True


class ControllerRunner:
    """One controller at work. `initial`: requests to make at the start, besides those that the objects cause."""

    def __init__(
        self,
        controller: Controller,
        informers: Informers,
        client: Client,
        clock: Clock,
        rng: random.Random,
        *,
        workers: int = 5,
        backoff: Backoff = DEFAULT_BACKOFF,
        initial: Sequence[Request] = (),
    ) -> None:
        self.controller = controller
        self.events = EventRecorder(client, clock, rng, controller.name, combines=True)
        self._reads = controller.reads if isinstance(controller, LiveReads) else None
        self._client = client
        self._clock = clock
        self._workers = workers
        self._backoff = backoff
        self._initial = initial
        self._informers = informers
        self._watched = {resource: informers.watched(resource) for resource in controller.resources}
        self._memories: dict[str, object] = {}
        self._state = State(self._watched, self._memories)
        self._queue = WorkQueue()
        self._timers = Timers(clock)
        self._failures: dict[str, int] = {}
        self._unseen: dict[str, _Unseen] = {}
        self._blocked: dict[str, None] = {}
        self._handlers = {resource: partial(self._changed, resource) for resource in self._watched}
        for resource, watched in self._watched.items():
            watched.informer.add_handler(self._handlers[resource])

    async def run(self) -> None:
        """Work until cancelled, once. The informers run elsewhere."""
        try:
            for watched in self._watched.values():
                await watched.informer.synced.wait()
            self._ask(self._initial)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.events.run())
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            self._timers.close()
            for resource, watched in self._watched.items():
                watched.informer.remove_handler(self._handlers[resource])
                self._informers.release(resource)

    def _changed(self, resource: Resource, changes: list[Change]) -> None:
        for change in changes:
            requests = self.controller.requests(resource, change, self._state)
            if requests:  # most changes concern few controllers
                self._ask(requests)
        if self._blocked:
            self._unblock()

    def _ask(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.after_s > 0:
                self._timers.set_earlier(("asked", request.key), request.after_s, partial(self._queue.add, request.key))
            else:
                self._queue.add(request.key)

    def _unblock(self) -> None:
        for key in [key for key in self._blocked if self._has_seen(key)]:
            del self._blocked[key]
            self._queue.add(key)

    def _has_seen(self, key: str) -> bool:
        unseen = self._unseen.get(key)
        if unseen is not None and not unseen.is_seen():
            return False
        self._unseen.pop(key, None)
        return True

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                if self._has_seen(key):
                    await self._reconcile(key)
                else:
                    self._blocked[key] = None
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: str) -> None:
        result = Result()
        try:
            state = await self._read(key)
            result = self.controller.reconcile(key, state, self._clock.now())
            await self._execute(key, result.actions)
        except (ClientError, _ActionFailed) as error:
            logger.debug("action failed", extra={"controller": self.controller.name, "key": key, "error": str(error)})
            if isinstance(error, _ActionFailed) and result.on_failure is not None:
                await self._tell(key, result.on_failure(error.action, str(error)))
            self._retry(key)
        except Exception:
            logger.exception("reconcile failed", extra={"controller": self.controller.name, "key": key})
            self._retry(key)
        else:
            self._finish(key, result)

    async def _tell(self, key: str, actions: Sequence[Action]) -> None:
        """Make the writes that tell of a failure; what fails of them is written at the next one."""
        try:
            await self._execute(key, actions)
        except _ActionFailed as error:
            logger.debug("not told", extra={"controller": self.controller.name, "key": key, "error": str(error)})

    async def _read(self, key: str) -> State:
        """The state, with what the controller wants to have read from the server."""
        if self._reads is None:
            return self._state
        live: dict[Read, Object | None] = {}
        for read in self._reads(key, self._state):
            try:
                live[read] = await self._client.get(read.resource, read.namespace or None, read.name)
            except ApiError as error:
                if not error.is_not_found:
                    raise
                live[read] = None
        return self._state.with_live(live)

    def _retry(self, key: str) -> None:
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = self._backoff.after(self._failures[key])
        # What failed so often may fail for ever; a simulation is not kept going by it.
        periodic = wait_s >= HOPELESS_S
        self._timers.set(("again", key), wait_s, partial(self._queue.add, key), periodic=periodic)

    def _finish(self, key: str, result: Result) -> None:
        self._failures.pop(key, None)
        if result.memory is None:
            self._memories.pop(key, None)
        else:
            self._memories[key] = result.memory
        if result.requeue_after_s is None:
            self._timers.cancel(("again", key))
        else:
            self._timers.set(
                ("again", key),
                max(0.0, result.requeue_after_s),
                partial(self._queue.add, key),
                periodic=result.periodic,
            )

    async def _execute(self, key: str, actions: Sequence[Action]) -> None:
        for batch in _batches(actions):
            if len(batch) == 1:
                await self._act(key, batch[0])
                continue
            outcomes = await asyncio.gather(*(self._act(key, action) for action in batch), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _act(self, key: str, action: Action) -> None:
        if isinstance(action, Emit):
            self.events.record(action.about, action.type_, action.reason, action.message)
            return
        try:
            written = await self._write(action)
        except ClientError as error:
            if not (isinstance(error, ApiError) and _counts_as_done(action, error)):
                if not isinstance(action, Update) and action.failed is not None:
                    self._emit(action.failed, "", str(error))
                raise _ActionFailed(action, error) from error
            return
        self._expect(key, action, written)
        if not isinstance(action, Update) and action.done is not None:
            self._emit(action.done, name_of(written) if "metadata" in written else "", "")

    async def _write(self, action: Create | Update | Patch | Delete) -> Object:
        match action:
            case Create(resource, obj):
                return await self._client.create(resource, obj["metadata"].get("namespace"), obj)
            case Update(resource, obj, subresource):
                return await self._client.update(resource, obj, subresource=subresource)
            case Patch(resource, namespace, name, patch, type_, subresource):
                return await self._client.patch(
                    resource, namespace or None, name, patch, type_=type_, subresource=subresource
                )
            case Delete(resource, namespace, name, options):
                return await self._client.delete(resource, namespace or None, name, options)

    def _expect(self, key: str, action: Create | Update | Patch | Delete, written: Object) -> None:
        watched = self._watched.get(action.resource)
        if watched is None:
            return
        unseen = self._unseen.setdefault(key, _Unseen())
        if isinstance(action, Delete):
            deleted_key = f"{action.namespace}/{action.name}" if action.namespace else action.name
            obj = watched.get(deleted_key)
            if obj is not None:
                unseen.deleted.append((watched, deleted_key, uid_of(obj)))
        else:
            unseen.wrote(watched, written.get("metadata", {}).get("resourceVersion", ""))

    def _emit(self, emit: Emit, name: str, error: str) -> None:
        message = emit.message.replace("{name}", name).replace("{error}", error)
        ready = replace(emit, message=message)
        self.events.record(ready.about, ready.type_, ready.reason, ready.message)


def _counts_as_done(action: Create | Update | Patch | Delete, error: ApiError) -> bool:
    match action:
        case Create():
            # Where the namespace is being deleted every creation fails, so there is no use in trying again.
            return _namespace_goes(error) or (action.ignore_exists and error.is_already_exists)
        case Patch():
            return action.ignore_missing and error.is_not_found
        case Delete():
            preconditions = action.options.get("preconditions") or {}
            return error.is_not_found or ("uid" in preconditions and error.is_conflict)
        case Update():
            return False


def _namespace_goes(error: ApiError) -> bool:
    causes = (error.status.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _batches(actions: Sequence[Action]) -> Iterator[Sequence[Action]]:
    """Neighbouring creations, deletions or patches of one resource, in batches of 1, 2, 4, …; all else alone.

    The slow start (kube-controller-manager's `slowStartBatch`) keeps a write that always fails from being made
    a thousand times.
    """
    start = 0
    while start < len(actions):
        end = start + 1
        while end < len(actions) and _are_alike(actions[start], actions[end]):
            end += 1
        size = 1
        while start < end:
            yield actions[start : min(end, start + size)]
            start += size
            size *= 2
        start = end


def _are_alike(first: Action, second: Action) -> bool:
    if isinstance(first, Emit | Update) or isinstance(second, Emit | Update):
        return False
    return type(first) is type(second) and first.resource == second.resource
