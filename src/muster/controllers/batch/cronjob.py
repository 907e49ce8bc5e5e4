"""cronjob-controller: makes Jobs at the times of a schedule.

The wait for a CronJob's next time is a periodic timer: a simulation ends although schedules never do, and CronJobs run
in it only as long as something else goes on, or until a time that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.meta import key_of, uid_of
from muster.api.resource import CRON_JOBS, JOBS, Resource
from muster.client.informer import Change
from muster.controllers.action import Result
from muster.controllers.batch.cronjob_sync import sync
from muster.controllers.ownership import controller_key
from muster.controllers.runner import Request
from muster.controllers.state import State


class CronJobController:
    """Reconciles CronJobs; keys are `namespace/name`."""

    name = "cronjob-controller"
    resources: tuple[Resource, ...] = (CRON_JOBS, JOBS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == CRON_JOBS:
            return [Request(key_of(change.object))] if change.new is not None else []
        key = controller_key(change.object, CRON_JOBS)
        return [Request(key)] if key is not None else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        cron_job = state[CRON_JOBS].get(key)
        return Result() if cron_job is None else sync(cron_job, state[JOBS].controlled_by(uid_of(cron_job)), now)
