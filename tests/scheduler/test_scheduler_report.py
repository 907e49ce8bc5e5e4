"""What is told of decisions reaches pods on a server that refuses some of the writes."""

from __future__ import annotations

import asyncio
import random
from unittest.mock import AsyncMock, MagicMock

from muster.client.transport import ApiError
from muster.clock import VirtualClock, run_virtual
from muster.scheduler.members import PodRecord
from muster.scheduler.report import Reporter
from muster.testing import make_pod


def telling_s(rate: float, pods: int, until_s: float = 0.0) -> float:
    """Simulated seconds until all pods were told, on a server that answers that part of the writes with 500."""
    rng, told = random.Random(7), set[str]()

    async def main(clock: VirtualClock) -> float:
        async def patch(resource: object, namespace: str, name: str, *rest: object, **options: object) -> None:
            if clock.elapsed_s < until_s or rng.random() < rate:
                raise ApiError({"code": 500, "reason": "InternalError", "message": "not now"})
            told.add(name)

        client = MagicMock(patch=AsyncMock(side_effect=patch))
        records = {f"default/p{at}": PodRecord(f"default/p{at}", make_pod(f"p{at}"), None, True) for at in range(pods)}
        idle = asyncio.Event()
        idle.set()
        reporter = Reporter(client, clock, MagicMock(), idle, records, {}, {})
        for key in records:
            reporter.pod(key, "Unschedulable", "no room")
        task = asyncio.create_task(reporter.run())
        while not reporter.is_done:
            await clock.sleep(0.1)
        task.cancel()
        return clock.elapsed_s

    duration_s = run_virtual(main)
    assert len(told) == pods
    return duration_s


def test_writes_that_fail_do_not_hold_up_those_that_do_not() -> None:
    assert telling_s(0.4, 400) < 60


def test_a_server_that_refuses_everything_is_asked_more_and_more_seldom() -> None:
    assert telling_s(0.0, 8, until_s=60.0) > 60
