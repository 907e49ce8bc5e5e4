"""Checks that no device is given to two claims that each have it for themselves, from the writes to the store alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.meta import key_of, uid_of

Device: TypeAlias = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(slots=True)
class DeviceUse:
    """Who has which device: claims by uid, with whether they share it."""

    _users: dict[Device, dict[str, bool]] = field(default_factory=dict)
    _devices: dict[str, dict[Device, bool]] = field(default_factory=dict)

    def observe(self, claim: Object | None, before: Object | None) -> Iterator[tuple[str, str]]:
        """Take in a write to a claim; (claim, text) of each device that it should not have been given."""
        if before is not None:
            for device in self._devices.pop(uid_of(before), {}):
                self._users[device].pop(uid_of(before), None)
        if claim is None:
            return
        had = dict(devices_of(before))
        found = self._devices[uid_of(claim)] = dict(devices_of(claim))
        for device, is_shared in found.items():
            users = self._users.setdefault(device, {})
            if device not in had and users and not (is_shared and all(users.values())):
                yield key_of(claim), f"device {'/'.join(device)} is given to {key_of(claim)}, and another claim has it"
            users[uid_of(claim)] = is_shared


def devices_of(claim: Object | None) -> Iterator[tuple[Device, bool]]:
    """The devices that a claim takes from others, and whether it shares them."""
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not result.get("adminAccess"):
            yield (result["driver"], result["pool"], result["device"]), bool(result.get("shareID"))
