"""Timers by name: at most one a name, replaced or cancelled at will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from muster.clock import Clock


@dataclass(slots=True)
class _Timer:
    due_s: float
    task: asyncio.Task[None]


class Timers:
    """Calls back after a time. A cancelled or replaced timer leaves nothing behind, so it keeps no simulation going."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[Hashable, _Timer] = {}

    def set(self, name: Hashable, seconds: float, callback: Callable[[], None], *, periodic: bool = False) -> None:
        """Call back after that time, instead of when the earlier timer of that name would have."""
        self.cancel(name)
        task = asyncio.get_running_loop().create_task(self._fire(name, seconds, callback, periodic))
        self._timers[name] = _Timer(self._clock.now() + seconds, task)

    def set_earlier(self, name: Hashable, seconds: float, callback: Callable[[], None]) -> None:
        """Like `set`, but an earlier timer of that name stays."""
        timer = self._timers.get(name)
        if timer is None or timer.due_s > self._clock.now() + seconds:
            self.set(name, seconds, callback)

    def cancel(self, name: Hashable) -> None:
        """Forget the timer of that name, if there is one."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.task.cancel()

    def close(self) -> None:
        """Cancel all."""
        for name in list(self._timers):
            self.cancel(name)

    async def _fire(self, name: Hashable, seconds: float, callback: Callable[[], None], periodic: bool) -> None:
        await self._clock.sleep(seconds, periodic=periodic)
        self._timers.pop(name, None)
        callback()
