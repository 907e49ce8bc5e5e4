"""Leader election by a Lease, as kube-scheduler does it: who holds the lease decides, the others stand by.

A holder renews every `retry_s`. It counts itself out when it could not renew for `renew_s`, which is before anybody
else may take over (`lease_s` after the last change that the other has seen, by the other's own clock: clocks need not
agree). Source: client-go `tools/leaderelection` (same rules, names and defaults).

         acquired                renew_s without a renewal
 STANDBY ────────► LEADING ──────────────────────────────► STANDBY
                      │ release: holderIdentity "", the next one need not wait
"""

from __future__ import annotations

import asyncio
import logging
import random

from msgspec import Struct

from muster.api.codec import Object
from muster.api.resource import LEASES
from muster.client.client import Client
from muster.client.transport import ApiError, ClientError
from muster.clock import Clock, rfc3339_micro

logger = logging.getLogger(__name__)

JITTER = 1.2
"""Candidates ask again after `retry_s` to (1 + JITTER) times that."""


class LeaseTerms(Struct, frozen=True):
    """Which lease, and its times in seconds; the defaults are kube-scheduler's."""

    name: str = "muster-scheduler"
    namespace: str = "kube-system"
    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0


def may_take(spec: Object, identity: str, observed_s: float, now_s: float) -> bool:
    """Whether a candidate may write itself into a lease that has not changed since `observed_s`."""
    holder = spec.get("holderIdentity") or ""
    if not holder or holder == identity:
        return True
    return now_s >= observed_s + float(spec.get("leaseDurationSeconds") or 0)


class Election:
    """One candidate. `identity` must be unique. Times between answers are taken from the event loop's own clock, which
    does not jump; `clock` gives what is written."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random, terms: LeaseTerms, identity: str) -> None:
        self.terms = terms
        self.identity = identity
        self.holder = ""
        """Who holds the lease, as far as is known."""
        self._client = client
        self._clock = clock
        self._rng = rng
        self._seen: Object | None = None
        self._seen_spec: Object = {}
        self._observed_s = 0.0
        self._renewed_s: float | None = None

    @property
    def is_leading(self) -> bool:
        """Whether this one holds the lease and nobody else can have taken it: writes are safe."""
        return self._renewed_s is not None and _now_s() < self._renewed_s + self.terms.renew_s

    @property
    def is_stuck(self) -> bool:
        """Whether it should have counted itself out long ago: its process does not get to do anything."""
        return self._renewed_s is not None and _now_s() > self._renewed_s + self.terms.lease_s + 20.0

    async def acquire(self) -> None:
        """Return when this one leads."""
        while not await self._try():
            await self._clock.sleep(self.terms.retry_s * self._rng.uniform(1.0, 1.0 + JITTER), periodic=True)
        logger.info("leading", extra={"lease": self.terms.name, "identity": self.identity})

    async def keep(self) -> None:
        """Renew for as long as that works; return when this one does not lead any more."""
        while self.is_leading:
            await self._clock.sleep(self.terms.retry_s, periodic=True)
            left_s = self._left_s()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await self._try()
            except TimeoutError:
                break
            if self.holder not in ("", self.identity):
                break
        self._renewed_s = None
        logger.warning("not leading any more", extra={"lease": self.terms.name, "holder": self.holder})

    async def release(self) -> None:
        """Let the next one lead at once, if this one leads; a failure only means that the next one waits."""
        if self._renewed_s is None or self._seen is None:
            return
        self._renewed_s = None
        spec = {**self._seen_spec, "holderIdentity": "", "leaseDurationSeconds": 1, **self._renewal()}
        try:
            await self._client.update(LEASES, {**self._seen, "spec": spec})
        except ClientError as error:
            logger.warning("lease not released", extra={"lease": self.terms.name, "error": str(error)})

    def _left_s(self) -> float:
        return 0.0 if self._renewed_s is None else self._renewed_s + self.terms.renew_s - _now_s()

    async def _try(self) -> bool:
        """Acquire or renew once; whether this one holds the lease now."""
        began_s = _now_s()
        try:
            held = await self._write()
        except ApiError as error:
            if not error.is_conflict and not error.is_already_exists:
                logger.warning("lease refused", extra={"lease": self.terms.name, "error": str(error)})
            return False
        except ClientError as error:
            logger.warning("lease not reached", extra={"lease": self.terms.name, "error": str(error)})
            return False
        if held:
            self._renewed_s = began_s  # the others count from when they see the change, which is not earlier
        return held

    async def _write(self) -> bool:
        terms = self.terms
        try:
            lease = await self._client.get(LEASES, terms.namespace, terms.name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            metadata = {"name": terms.name, "namespace": terms.namespace}
            fresh = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
            spec = self._spec({})
            self._observe(await self._client.create(LEASES, terms.namespace, {**fresh, "spec": spec}))
            return True
        self._observe(lease)
        if not may_take(self._seen_spec, self.identity, self._observed_s, _now_s()):
            return False
        self._observe(await self._client.update(LEASES, {**lease, "spec": self._spec(self._seen_spec)}))
        return True

    def _observe(self, lease: Object) -> None:
        """Note a lease; what counts is when it changed, as seen from here."""
        spec = lease.get("spec") or {}
        if self._seen is None or spec != self._seen_spec:
            self._observed_s = _now_s()
        self._seen, self._seen_spec, self.holder = lease, spec, spec.get("holderIdentity") or ""

    def _spec(self, old: Object) -> Object:
        is_ours = old.get("holderIdentity") == self.identity
        transitions = int(old.get("leaseTransitions") or 0)
        return {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.terms.lease_s)),
            "leaseTransitions": transitions if is_ours or not old else transitions + 1,
            **self._renewal(),
            "acquireTime": old.get("acquireTime") if is_ours else rfc3339_micro(self._clock.now()),
        }

    def _renewal(self) -> Object:
        return {"renewTime": rfc3339_micro(self._clock.now())}


def _now_s() -> float:
    return asyncio.get_running_loop().time()
