"""What is allocated already: which devices, to how many that share them, how much of their capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from muster.api.codec import Object
from muster.api.quantity import parse_quantity
from muster.engine.devices.inventory import DeviceId, PoolId


class Use(Struct, frozen=True):
    """What one result of an allocation takes. `is_shared`: others may take of the device as well; amounts in nano."""

    device: DeviceId
    is_shared: bool
    consumed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PoolUse:
    """What is taken of one pool: device → number of results, and of shared ones what they consume. Never changed."""

    exclusive: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)
    consumed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


NOTHING = PoolUse()


class Allocated:
    """Uses by pool. The use of a pool is another object after each change of it, for whoever remembers results."""

    __slots__ = ("_pools",)

    def __init__(self, pools: Mapping[PoolId, PoolUse] | None = None) -> None:
        self._pools: dict[PoolId, PoolUse] = {} if pools is None else dict(pools)

    def copy(self) -> Allocated:
        """The uses of this moment, to be changed apart."""
        return Allocated(self._pools)

    def of(self, pool: PoolId) -> PoolUse:
        """What is taken of a pool."""
        return self._pools.get(pool, NOTHING)

    def add(self, uses: Iterable[Use], sign: int = 1) -> None:
        """Counts these uses (takes them away, with sign -1)."""
        by_pool: dict[PoolId, list[Use]] = {}
        for use in uses:
            by_pool.setdefault(PoolId(use.device.driver, use.device.pool), []).append(use)
        for pool, found in by_pool.items():
            self._pools[pool] = _changed(self.of(pool), found, sign)


def _changed(before: PoolUse, uses: Iterable[Use], sign: int) -> PoolUse:
    exclusive, shared, consumed = dict(before.exclusive), dict(before.shared), dict(before.consumed)
    for use in uses:
        name = use.device.device
        counts = shared if use.is_shared else exclusive
        counts[name] = counts.get(name, 0) + sign
        if counts[name] <= 0:
            del counts[name]
        if use.consumed:
            taken = dict(consumed.get(name, {}))
            for capacity, amount in use.consumed:
                taken[capacity] = taken.get(capacity, 0) + sign * amount
            consumed[name] = {capacity: amount for capacity, amount in taken.items() if amount}
            if not consumed[name]:
                del consumed[name]
    return PoolUse(exclusive, shared, consumed)


def uses_of(allocation: Object | None) -> tuple[Use, ...]:
    """The uses of a claim's `status.allocation`; results with admin access take nothing."""
    found = []
    for result in ((allocation or {}).get("devices") or {}).get("results") or ():
        if result.get("adminAccess"):
            continue
        device = DeviceId(result.get("driver") or "", result.get("pool") or "", result.get("device") or "")
        is_shared = bool(result.get("shareID"))
        amounts = (result.get("consumedCapacity") or {}) if is_shared else {}
        consumed = tuple(sorted((name, parse_quantity(value).nano) for name, value in amounts.items()))
        found.append(Use(device, is_shared, consumed))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimBook:
    """All claims with what they have allocated."""

    uses: Mapping[str, tuple[Use, ...]]
    allocated: Allocated


def keep_book(claims: Mapping[str, Object], before: ClaimBook | None, changed: Iterable[str]) -> ClaimBook:
    """The book of these claims by key, from the one before if there is one and what has `changed` since."""
    allocated = Allocated() if before is None else before.allocated.copy()
    uses = {} if before is None else dict(before.uses)
    gone: list[Use] = []
    come: list[Use] = []
    for key in claims if before is None else changed:
        known, claim = uses.pop(key, None), claims.get(key)
        gone += known or ()
        if claim is not None:
            uses[key] = uses_of((claim.get("status") or {}).get("allocation"))
            come += uses[key]
    allocated.add(gone, -1)
    allocated.add(come)
    return ClaimBook(uses, allocated)
