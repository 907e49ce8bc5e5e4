"""The work queue of a controller: keys in order, each at most once, never two workers on one key.

Source of the rules: client-go `util/workqueue`.
"""

from __future__ import annotations

import asyncio


class WorkQueue:
    """First in, first out; a key that is added while it is worked on comes again afterwards."""

    def __init__(self) -> None:
        self._ready: dict[str, None] = {}
        self._again: dict[str, None] = {}
        self._working: set[str] = set()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._again)

    def add(self, key: str) -> None:
        """Queue a key, unless it is queued already."""
        if key in self._working:
            self._again[key] = None
        elif key not in self._ready:
            self._ready[key] = None
            self._wake.set()

    async def get(self) -> str:
        """The next key; it counts as worked on until `done`."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        key = next(iter(self._ready))
        del self._ready[key]
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        """The work on a key ended."""
        self._working.discard(key)
        if key in self._again:
            del self._again[key]
            self.add(key)
