"""Probes and metrics of `muster scheduler` over plain HTTP: /healthz, /livez, /readyz, /metrics."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from muster.cli.errors import BadInput
from muster.scheduler.election import Election

if TYPE_CHECKING:
    from muster.cli.scheduler import Serving
    from muster.scheduler.service import Scheduler

logger = logging.getLogger(__name__)

USUAL_PORT = 10259
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    """What the probes say. A dead one is restarted; one that is not ready has not listed everything yet."""

    def __init__(self, election: Callable[[], Election | None]) -> None:
        self.scheduler: Scheduler | None = None
        self.registry = CollectorRegistry()
        self._election = election

    def new_registry(self) -> CollectorRegistry:
        """An empty registry for the next scheduler, with what the process itself tells."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        status = Gauge(
            "leader_election_master_status",
            "Whether this process leads: 1, or 0",
            ["name"],
            registry=self.registry,
        )
        election = self._election()
        if election is not None:
            status.labels(election.terms.name).set_function(lambda: float(election.is_leading))
        return self.registry

    def faults_of_life(self) -> list[str]:
        """Why the process should be restarted; nothing if it lives."""
        election = self._election()
        return ["leaderElection: the lease could not be renewed"] if election is not None and election.is_stuck else []

    def faults_of_readiness(self) -> list[str]:
        """Why it cannot decide yet, or could not if it were to lead."""
        is_synced = self.scheduler is not None and self.scheduler.synced.is_set()
        return self.faults_of_life() + ([] if is_synced else ["informer-sync: not all objects are listed yet"])


class Endpoints:
    """The HTTP server, as an async context. Raises `BadInput` if the port that was asked for cannot be had."""

    def __init__(self, serving: Serving, health: Health) -> None:
        self._serving = serving
        self._health = health
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Endpoints:
        if self._serving.port == 0:
            return self
        app = web.Application()
        for path in ("/healthz", "/livez"):
            app.router.add_get(path, self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await self._listen(self._runner)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        address, port = self._serving.address, self._serving.port
        try:
            await web.TCPSite(runner, address, USUAL_PORT if port is None else port).start()
        except OSError as error:
            if port is not None or error.errno != errno.EADDRINUSE:
                raise BadInput(f"--bind-address {address} --port {port}: {error.strerror or error}") from error
            await web.TCPSite(runner, address, 0).start()
        logger.info("serving probes and metrics", extra={"address": str(runner.addresses[0])})

    async def _live(self, request: web.Request) -> web.Response:
        return _answer(self._health.faults_of_life())

    async def _ready(self, request: web.Request) -> web.Response:
        return _answer(self._health.faults_of_readiness())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._health.registry), headers={"Content-Type": METRICS_TYPE})


def _answer(faults: list[str]) -> web.Response:
    if not faults:
        return web.Response(text="ok")
    return web.Response(status=500, text="".join(f"[-]{fault}\n" for fault in faults))
