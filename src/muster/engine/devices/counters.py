"""Counters that the devices of a pool share. Source: `allocator_*.go` (checkAvailableCounters, 1.36)."""

from __future__ import annotations

from muster.engine.devices.allocated import Allocated
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device, PoolId
from muster.engine.devices.pools import Pool


class Counters:
    """What is left of the counters during one search. `take` and `give` undo each other.

    As upstream does it, counters are known by the name of the pool alone, and one that is overdrawn blocks all devices
    that use counters of the pool.
    """

    def __init__(self, allocated: Allocated, features: Features) -> None:
        self._allocated, self._features = allocated, features
        self._left: dict[PoolId | str, dict[tuple[str, str], int]] = {}
        self._published: dict[PoolId | str, frozenset[tuple[str, str]]] = {}

    def take(self, pool: Pool, device: Device) -> bool:
        """Takes what the device consumes, if the counters have it."""
        left = self._of(pool)
        self._move(left, device, -1)
        own = {(entry.counter_set, name) for entry in device.consumes for name, _ in entry.counters}
        looked_at = self._published[self._key(pool)] if self._features.upstream else own
        if all(left[key] >= 0 for key in looked_at):
            return True
        self._move(left, device, 1)
        return False

    def give(self, pool: Pool, device: Device) -> None:
        """Gives back what `take` took."""
        self._move(self._of(pool), device, 1)

    def _move(self, left: dict[tuple[str, str], int], device: Device, sign: int) -> None:
        for entry in device.consumes:
            for name, amount in entry.counters:
                key = entry.counter_set, name
                left[key] = left.get(key, 0) + sign * amount

    def _key(self, pool: Pool) -> PoolId | str:
        return pool.id.pool if self._features.upstream else pool.id

    def _of(self, pool: Pool) -> dict[tuple[str, str], int]:
        key = self._key(pool)
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = {
                (counter_set, name): amount
                for counter_set, counters in (pool.counters or {}).items()
                for name, amount in counters.items()
            }
            self._published[key] = frozenset(left)
            use = self._allocated.of(pool.id)
            for device in (*pool.devices, *pool.elsewhere):
                if device.consumes and (device.id.device in use.exclusive or device.id.device in use.shared):
                    self._move(left, device, -1)
        return left
