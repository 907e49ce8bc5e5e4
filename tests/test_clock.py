"""Virtual time: it jumps, it is deterministic, and it knows when a simulation is quiet."""

from __future__ import annotations

import asyncio
import random

import pytest

from muster.clock import (
    SIMULATION_EPOCH_S,
    RealClock,
    Stalled,
    VirtualClock,
    parse_rfc3339,
    rfc3339,
    rfc3339_micro,
    run_virtual,
    wait,
)


def test_sleeping_a_day_takes_no_time_and_moves_the_clock_by_a_day() -> None:
    async def main(clock: VirtualClock) -> float:
        await clock.sleep(86_400)
        return clock.elapsed_s

    assert run_virtual(main) == pytest.approx(86_400)


def test_sleepers_wake_in_the_order_of_their_times() -> None:
    delays = random.Random(3).sample(range(1000), 100)

    async def main(clock: VirtualClock) -> list[int]:
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleeper(seconds) for seconds in delays))
        return woken

    assert run_virtual(main) == sorted(delays)


def test_only_timers_that_are_not_periodic_count_as_pending() -> None:
    async def main(clock: VirtualClock) -> list[int]:
        seen = []
        tasks = [asyncio.create_task(clock.sleep(10, periodic=True)), asyncio.create_task(clock.sleep(5))]
        for _ in range(2):
            await clock.sleep(0, periodic=True)
            seen.append(clock.pending)
            await clock.sleep(6, periodic=True)
        await asyncio.gather(*tasks)
        return seen

    assert run_virtual(main) == [1, 0]


@pytest.mark.parametrize(("set_after_s", "timeout_s", "want_set", "want_s"), [(3, 10, True, 3), (10, 3, False, 3)])
def test_wait_ends_with_the_event_or_at_the_timeout(
    set_after_s: float, timeout_s: float, want_set: bool, want_s: float
) -> None:
    async def main(clock: VirtualClock) -> tuple[bool, float]:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(set_after_s, event.set)
        return await wait(clock, event, timeout_s), clock.elapsed_s

    was_set, elapsed_s = run_virtual(main)
    assert was_set is want_set
    assert elapsed_s == pytest.approx(want_s)


def test_wait_without_time_left_does_not_wait() -> None:
    async def main(clock: VirtualClock) -> list[bool]:
        event = asyncio.Event()
        first = await wait(clock, event, 0)
        event.set()
        return [first, await wait(clock, event, None)]

    assert run_virtual(main) == [False, True]


def test_a_program_that_waits_for_nothing_is_stalled_not_hung() -> None:
    async def main(clock: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        run_virtual(main)


def test_an_exception_comes_out_of_virtual_time() -> None:
    async def main(clock: VirtualClock) -> None:
        await clock.sleep(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_virtual(main)


def test_the_real_clock_sleeps_and_does_not_go_back() -> None:
    async def main() -> float:
        clock = RealClock()
        before = clock.now()
        await clock.sleep(0.001)
        return clock.now() - before

    assert asyncio.run(main()) >= 0


def test_times_are_written_as_kubernetes_writes_them_and_read_back() -> None:
    assert rfc3339(SIMULATION_EPOCH_S + 61.9) == "2026-01-01T00:01:01Z"
    assert rfc3339_micro(SIMULATION_EPOCH_S + 0.25) == "2026-01-01T00:00:00.250000Z"
    assert parse_rfc3339("2026-01-01T00:01:01Z") == SIMULATION_EPOCH_S + 61
