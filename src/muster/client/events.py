"""Record Kubernetes events about objects: asynchronous, joined when repeated, never a reason to fail.

Source of the rules: client-go `tools/record` (an equal event within ten minutes raises the count of the first; with
`combines`, as the older recorder does that controllers use, events that differ only in their message are combined from
the tenth on, and one object gets 25 events at once and then one every five minutes).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from dataclasses import dataclass

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import name_of, namespace_of, uid_of
from muster.api.resource import EVENTS
from muster.client.client import Client
from muster.client.transport import ClientError
from muster.clock import Clock, rfc3339

logger = logging.getLogger(__name__)

REMEMBERED = 4096
JOIN_WITHIN_S = 600.0
COMBINE_FROM = 10
BURST = 25
REFILL_S = 300.0


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    last_s: float


@dataclass(slots=True)
class _Similar:
    """Messages of events that are alike otherwise; at most `COMBINE_FROM` are kept."""

    messages: dict[str, None]
    last_s: float


@dataclass(slots=True)
class _Tokens:
    """How many events about one object may still be written."""

    left: float
    since_s: float

    def take(self, now: float) -> bool:
        self.left = min(float(BURST), self.left + (now - self.since_s) / REFILL_S)
        self.since_s = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class _Pending(Struct, frozen=True):
    event: Object
    repeats: str | None
    count: int


class EventRecorder:
    """Queues events of one component and writes them in order; when the queue is full, the newest are dropped."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: random.Random,
        component: str,
        *,
        queue_limit: int = 10_000,
        combines: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._component = component
        self._combines = combines
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._tokens: OrderedDict[str, _Tokens] = OrderedDict()
        self._queue: asyncio.Queue[_Pending] = asyncio.Queue(queue_limit)
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._is_writing = False
        self.dropped = 0

    @property
    def is_done(self) -> bool:
        """Whether all that was recorded has been written or given up."""
        return self._queue.empty() and not self._is_writing

    def record(self, about: Object, type_: str, reason: str, message: str) -> None:
        """Queue one event about an object (with apiVersion, kind and metadata). `type_`: `Normal` or `Warning`."""
        now = self._clock.now()
        kind = (uid_of(about), about.get("kind", ""), namespace_of(about), name_of(about), type_, reason)
        identity: tuple[str, ...] = (*kind, message)
        if self._combines:
            if not self._may_write(about, now):
                self.dropped += 1
                return
            if self._is_one_of_many(kind, message, now):
                identity, message = kind, f"(combined from similar events): {message}"
        series = self._series.get(identity)
        if series is not None and now - series.last_s < JOIN_WITHIN_S:
            series.count += 1
            series.last_s = now
            self._put(_Pending(self._event(about, type_, reason, message, now), series.name, series.count))
            return
        event = self._event(about, type_, reason, message, now)
        self._series[identity] = _Series(event["metadata"]["name"], 1, now)
        while len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        self._put(_Pending(event, None, 1))

    def _may_write(self, about: Object, now: float) -> bool:
        tokens = self._tokens.setdefault(uid_of(about) or name_of(about), _Tokens(float(BURST), now))
        while len(self._tokens) > REMEMBERED:
            self._tokens.popitem(last=False)
        return tokens.take(now)

    def _is_one_of_many(self, kind: tuple[str, ...], message: str, now: float) -> bool:
        """Whether so many like it came lately that this event is combined with others."""
        similar = self._similar.get(kind)
        if similar is None or now - similar.last_s > JOIN_WITHIN_S:
            similar = self._similar[kind] = _Similar({}, now)
            while len(self._similar) > REMEMBERED:
                self._similar.popitem(last=False)
        similar.last_s = now
        similar.messages[message] = None
        if len(similar.messages) < COMBINE_FROM:
            return False
        del similar.messages[message]
        return True

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            pending = await self._queue.get()
            self._is_writing = True
            try:
                await self._write(pending)
            except ClientError as error:
                logger.debug("event not written", extra={"error": str(error)})
            finally:
                self._is_writing = False

    def _put(self, pending: _Pending) -> None:
        try:
            self._queue.put_nowait(pending)
        except asyncio.QueueFull:
            self.dropped += 1

    async def _write(self, pending: _Pending) -> None:
        namespace = pending.event["metadata"]["namespace"]
        if pending.repeats is not None:
            kept = ("lastTimestamp", "message")
            patch = {"count": pending.count, **{key: pending.event[key] for key in kept}}
            try:
                await self._client.patch(EVENTS, namespace, pending.repeats, patch)
                return
            except ClientError:
                pass  # it was deleted meanwhile: write it anew
        await self._client.create(EVENTS, namespace, pending.event)

    def _event(self, about: Object, type_: str, reason: str, message: str, now: float) -> Object:
        namespace = namespace_of(about) or "default"
        name = f"{name_of(about)}.{int(now * 1e9):x}{self._rng.getrandbits(16):04x}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.get("apiVersion", ""),
                "kind": about.get("kind", ""),
                "namespace": namespace_of(about),
                "name": name_of(about),
                "uid": uid_of(about),
                "resourceVersion": about["metadata"].get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "type": type_,
            "count": 1,
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
            "eventTime": None,
        }
