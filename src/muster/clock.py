"""Time and chance as parameters: the real clock, and an event loop whose time is virtual.

Every component sleeps and waits through a `Clock` and never asks the operating system for the time. Under
`VirtualLoop` a whole cluster runs as a deterministic simulation: when nothing is ready, time jumps to the next timer.

A timer is *periodic* when it recurs for ever by itself (lease renewals, resyncs). Only other timers keep a simulation
going: it is quiet when no callback is ready and no timer but periodic ones is set (`VirtualClock.pending`).
"""

from __future__ import annotations

import asyncio
import datetime
import selectors
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache
from types import FrameType
from typing import Protocol, TypeVar

T = TypeVar("T")

SIMULATION_EPOCH_S = 1_767_225_600.0
"""Where virtual time starts: 2026-01-01T00:00:00Z, in seconds since the Unix epoch."""


class Clock(Protocol):
    """Time as a component sees it; all values in seconds."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        """Return after `seconds`; at once, but after a turn of the loop, if they are not positive."""


async def wait(clock: Clock, event: asyncio.Event, timeout_s: float | None, *, periodic: bool = False) -> bool:
    """Wait until `event` is set or `timeout_s` has passed (None: for ever); whether it is set. Does not clear it."""
    if event.is_set():
        return True
    if timeout_s is None:
        return await event.wait()
    if timeout_s <= 0:
        return False
    loop = asyncio.get_running_loop()
    timer = loop.create_task(clock.sleep(timeout_s, periodic=periodic))
    waiter = loop.create_task(event.wait())
    done = loop.create_future()
    for task in (timer, waiter):
        task.add_done_callback(lambda _: None if done.done() else done.set_result(None))
    try:
        await done
    finally:
        timer.cancel()
        waiter.cancel()
    return event.is_set()


class RealClock:
    """The wall clock and the loop's own timers."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        await asyncio.sleep(max(0.0, seconds))


class VirtualClock:
    """The clock of a `VirtualLoop`; counts the timers that are not periodic (`pending`)."""

    def __init__(self, loop: VirtualLoop, epoch_s: float = SIMULATION_EPOCH_S) -> None:
        self._loop = loop
        self._epoch_s = epoch_s
        self.pending = 0

    def now(self) -> float:
        return self._epoch_s + self._loop.time()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the simulation began."""
        return self._loop.time()

    async def sleep(self, seconds: float, *, periodic: bool = False) -> None:
        if periodic:
            await asyncio.sleep(max(0.0, seconds))
            return
        self.pending += 1
        try:
            await asyncio.sleep(max(0.0, seconds))
        finally:
            self.pending -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timeout, moves the loop's time to it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            return []  # callbacks are ready; whatever woke the loop from outside can wait until they are done
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.loop.idle(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0 and jumps from timer to timer. Nothing in it may wait for real I/O."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self
        self.on_idle: Callable[[float | None], bool] = lambda timeout: timeout is not None
        """Called when nothing is ready, with the seconds to the next timer (None: there is none). True: jump there;
        False: stop the loop."""

    def time(self) -> float:
        return self._virtual_s

    def run_interruptibly(self) -> None:
        """Run until stopped. Ctrl-C ends it between two steps of its tasks, so that none of them is torn.

        Raises KeyboardInterrupt then. A second Ctrl-C does not wait for the step to end.
        """
        interrupted = False

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            interrupted = True
            self.stop()
            signal.signal(signal.SIGINT, signal.default_int_handler)

        is_ours = threading.current_thread() is threading.main_thread()
        is_ours = is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_ours:
            signal.signal(signal.SIGINT, interrupt)
        try:
            self.run_forever()
        finally:
            if is_ours:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        if interrupted:
            raise KeyboardInterrupt

    def advance_to(self, seconds: float) -> None:
        """Let that much time have passed since the start; for `on_idle` alone, which then must stop the loop."""
        self._virtual_s = max(self._virtual_s, seconds)

    def idle(self, timeout: float | None) -> None:
        """Nothing is ready: jump to the next timer, or stop."""
        if self.on_idle(timeout) and timeout is not None:
            # The tiny excess makes sure that rounding cannot leave the timer a moment in the future for ever.
            self._virtual_s += timeout + 1e-9
        else:
            self.stop()


class Stalled(RuntimeError):
    """The simulation went quiet before the coroutine that should end it did. Not retryable."""


def run_virtual(main: Callable[[VirtualClock], Coroutine[object, object, T]]) -> T:
    """Run `main(clock)` to its end under virtual time and return its result.

    Raises `Stalled` if nothing is left that could wake it.
    """
    loop = VirtualLoop()
    try:
        task = loop.create_task(main(VirtualClock(loop)))
        task.add_done_callback(lambda _: loop.stop())
        loop.run_interruptibly()
        if not task.done():
            raise Stalled("nothing is left to wait for, but the main coroutine has not ended")
        return task.result()
    finally:
        cancel_all(loop)
        loop.close()


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel every task of a loop that no longer runs, and let them end."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


def rfc3339(seconds: float) -> str:
    """Seconds since the Unix epoch as Kubernetes writes a `Time`: UTC, whole seconds."""
    return _whole_seconds(int(seconds))


@lru_cache(maxsize=256)
def _whole_seconds(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Seconds since the Unix epoch as Kubernetes writes a `MicroTime`: UTC, microseconds."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """The seconds since the Unix epoch of a Kubernetes `Time` or `MicroTime`. Raises ValueError."""
    return datetime.datetime.fromisoformat(text).timestamp()
