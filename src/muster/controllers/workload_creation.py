"""Runs what makes Workloads and PodGroups for Jobs (`batch.job_workloads`) beside a scheduler of a real cluster."""

from __future__ import annotations

import asyncio
import logging
import random

from muster.api.resource import JOBS, PODS
from muster.client.client import Client
from muster.clock import Clock
from muster.controllers.batch.job_groups import GroupApi
from muster.controllers.batch.job_workloads import LABEL, JobWorkloads
from muster.controllers.discovery_runner import DiscoveryRunner
from muster.controllers.kinds import Kinds
from muster.controllers.runner import Backoff, Informers

logger = logging.getLogger(__name__)

GROUPS = ("scheduling.k8s.io", "scheduling.muster-k8s.dev")
"""Where the kinds may be, best first."""


class WorkloadCreation:
    """`scheduler_names`: those of the pods whose Jobs get objects. Follows what the server serves."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random, scheduler_names: frozenset[str]) -> None:
        self._scheduler_names = scheduler_names
        selectors = {}
        if len(scheduler_names) == 1:  # a field selector knows no "or"
            selectors[PODS] = f"spec.schedulerName={min(scheduler_names)}"
        self._informers = Informers(client, clock, selectors)
        self._runner = DiscoveryRunner(self._make, self._informers, client, clock, rng, backoff=Backoff(1.0, 60.0))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run())
            tasks.create_task(self._runner.run())

    def _make(self, kinds: Kinds) -> JobWorkloads | None:
        for group in GROUPS:
            workloads, groups = (kinds.find(group, plural) for plural in ("workloads", "podgroups"))
            if workloads is not None and groups is not None and kinds.find(JOBS.group, JOBS.plural) is not None:
                api = GroupApi("1.36", workloads, groups, tells_failures=True, labels=(LABEL,))
                return JobWorkloads(api, self._scheduler_names)
        logger.warning("no Workloads are made for Jobs: the server has no PodGroups (muster install defines them)")
        return None
