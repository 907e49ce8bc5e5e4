"""What `muster scheduler` runs: connection, election, scheduler, probes; and how it ends.

On SIGTERM or Ctrl-C it decides nothing more, lets the bindings that are under way finish, and gives the lease back.
When the lease is lost it begins anew as one that stands by: all state is in the API.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import signal
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from muster.cli.collection import raise_gc_thresholds
from muster.cli.errors import BadInput, CommandError
from muster.cli.first_answer import check_credentials
from muster.cli.scheduler_endpoints import Endpoints, Health
from muster.cli.scheduler_words import say_deed
from muster.client.client import Client
from muster.client.credentials import CredentialsError
from muster.client.http import HttpTransport
from muster.client.retrying import RetryingTransport
from muster.client.transport import Transport, TransportError, UntrustedServer
from muster.clock import Clock, RealClock
from muster.controllers.workload_creation import WorkloadCreation
from muster.scheduler.election import Election
from muster.scheduler.fence import DryTransport, FencedTransport
from muster.scheduler.service import Scheduler

if TYPE_CHECKING:
    from muster.cli.scheduler import SchedulerPlan

logger = logging.getLogger(__name__)

BIND_S = 20.0
TELL_S = 3.0
"""How long bindings may take to finish after the signal, and then events and conditions; pods get 30 s to end."""
FIRST_ANSWER_S = 30.0
PAUSE_S = 1.0
PAGE_SIZE = 500


class Unreachable(CommandError):
    """The server gave no answer in time."""


async def serve(plan: SchedulerPlan) -> int:
    """Run until a signal comes. Raises `BadInput` for a server that does not know us, `Unreachable`."""
    clock, rng = RealClock(), random.Random()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _transport(plan, clock, rng) as (transport, lease_transport):
        await _check(transport, clock, stop, plan)
        service = Service(plan, transport, lease_transport, clock, rng)
        async with Endpoints(plan.serving, service.health):
            await service.run(stop)
    return 0


@contextlib.asynccontextmanager
async def _transport(
    plan: SchedulerPlan, clock: Clock, rng: random.Random
) -> AsyncIterator[tuple[Transport, Transport]]:
    """The way to the server, and another one for the lease: it must not wait behind anything."""
    agent = "muster-scheduler"
    bindings = plan.options.bindings
    http = HttpTransport(plan.connection, clock=clock, user_agent=agent, trims=True, max_connections=bindings + 16)
    lease = HttpTransport(
        plan.connection, clock=clock, user_agent=f"{agent}/leader-election", max_connections=2, request_timeout_s=5.0
    )
    try:
        yield RetryingTransport(http, clock, rng), lease
    finally:
        await http.aclose()
        await lease.aclose()


async def _check(transport: Transport, clock: Clock, stop: asyncio.Event, plan: SchedulerPlan) -> None:
    """Ask the server who it is before anything else, so that what is wrong is said at once."""
    server, end_s = plan.connection.server, clock.now() + FIRST_ANSWER_S
    while not stop.is_set():
        try:
            answer = await transport.request("GET", "/version")
        except (TransportError, CredentialsError) as error:
            if clock.now() >= end_s or isinstance(error, CredentialsError | UntrustedServer):
                raise Unreachable(f"{server}: {error}") from error
            logger.warning("server not reached", extra={"server": server, "error": str(error)})
            await clock.sleep(PAUSE_S)
            continue
        check_credentials(answer, plan.connection)
        if 400 <= answer.status < 500 and answer.status not in (403, 429):
            raise BadInput(f"{server} is no Kubernetes API server: /version answers with {answer.status}")
        if answer.status < 500:
            version = answer.body.get("gitVersion", "") if isinstance(answer.body, dict) else ""
            logger.info("connected", extra={"server": server, "version": version})
            return
        if clock.now() >= end_s:
            raise Unreachable(f"{server}: answers with {answer.status}")
        await clock.sleep(PAUSE_S)


class Service:
    """One scheduler at a time, and the election that says when it may decide."""

    def __init__(
        self, plan: SchedulerPlan, transport: Transport, lease_transport: Transport, clock: Clock, rng: random.Random
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._rng = rng
        self._election: Election | None = None
        if plan.lease is not None:
            lease_client = Client(lease_transport, user_agent="muster-scheduler/leader-election")
            self._election = Election(lease_client, clock, rng, plan.lease, plan.identity)
            transport = FencedTransport(transport, lambda: self._leads)
        if plan.dry_run:
            transport = DryTransport(transport, lambda deed: say_deed(deed, plan.output))
        self._client = Client(transport, user_agent="muster-scheduler", page_size=PAGE_SIZE, streams_lists=True)
        self.health = Health(lambda: self._election)

    @property
    def _leads(self) -> bool:
        return self._election is None or self._election.is_leading

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, lead, stand by again; until told to stop."""
        while not stop.is_set():
            scheduler = Scheduler(
                self._client, self._clock, self._rng, self._plan.options, registry=self.health.new_registry()
            )
            self.health.scheduler = scheduler
            lead = asyncio.Event()
            running = asyncio.create_task(self._work(scheduler, lead), name="scheduler")
            holding = asyncio.create_task(self._hold(scheduler, lead), name="lease")
            stopping = asyncio.create_task(stop.wait(), name="stop")
            try:
                await asyncio.wait([running, holding, stopping], return_when=asyncio.FIRST_COMPLETED)
                may_finish = stop.is_set() and lead.is_set() and self._leads and not running.done()
                if may_finish and not await scheduler.drain(BIND_S, TELL_S):
                    logger.warning("ended with bindings unanswered")
            finally:
                for task in (running, holding, stopping):
                    task.cancel()
                await asyncio.wait([running, holding, stopping])
            if self._election is not None and stop.is_set():
                await self._election.release()
            _raise_faults(running, holding)
            gc.collect()

    async def _work(self, scheduler: Scheduler, lead: asyncio.Event) -> None:
        """Schedule; and where that is wanted, make the objects of Jobs while leading."""
        grouping = self._plan.options.grouping
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run(lead))
            if grouping is not None and grouping.objects_for_jobs:
                names = self._plan.options.scheduler_names
                creation = WorkloadCreation(self._client, self._clock, self._rng, names)
                await lead.wait()
                tasks.create_task(creation.run())

    async def _hold(self, scheduler: Scheduler, lead: asyncio.Event) -> None:
        """Wait until this one may decide, let it, and return when it may not any more."""
        if self._election is not None:
            await self._election.acquire()
        lead.set()
        await scheduler.synced.wait()
        raise_gc_thresholds()
        self._say_ready(scheduler)
        if self._election is None:
            await asyncio.Event().wait()
        else:
            await self._election.keep()

    def _say_ready(self, scheduler: Scheduler) -> None:
        groups = scheduler.served.get("PodGroup") or scheduler.served.get("Workload") or "annotations and labels only"
        names = ", ".join(sorted(self._plan.options.scheduler_names))
        how = "would schedule" if self._plan.dry_run else "schedules"
        text = f"muster {how} pods with schedulerName {names} on {self._plan.connection.server}; groups: {groups}"
        print(text, file=sys.stderr if self._plan.dry_run else sys.stdout, flush=True)
        logger.info("scheduling", extra={"groups": groups, "scheduler_names": names})


def _raise_faults(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            task.result()
