"""Capacity of devices that several results share. Source: `structured/internal/*/consumable_capacity.go` (1.36)."""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.quantity import NANO, Quantity
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Capacity, Device
from muster.engine.devices.requests import DeviceRequest


def consumption(request: DeviceRequest, device: Device, features: Features) -> dict[str, Quantity] | None:
    """What a result takes of each capacity of the device, rounded by its policies.

    None if the device lacks a capacity that is asked for, or a policy does not allow so much.
    """
    wanted: dict[str, Quantity] = {}
    for name, amount in request.capacity or ():
        known = _known_name(name, device, features)
        if known is None:
            return None
        wanted[known] = amount
    taken = {name: _rounded(wanted.get(name), capacity) for name, capacity in device.capacity.items()}
    allowed = all(_is_allowed(taken[name], capacity) for name, capacity in device.capacity.items())
    return taken if allowed else None


def fits(taken: Mapping[str, Quantity], device: Device, *others: Mapping[str, int]) -> bool:
    """Whether the device has that much capacity beside what others (nano units by name) take."""
    return all(
        amount.nano + sum(other.get(name, 0) for other in others) <= device.capacity[name].value.nano
        for name, amount in taken.items()
    )


def _known_name(name: str, device: Device, features: Features) -> str | None:
    """The name under which the device has that capacity."""
    if name in device.capacity or features.upstream:
        return name if name in device.capacity else None
    domain, slash, identifier = name.partition("/")
    other = identifier if slash and domain == device.id.driver else f"{device.id.driver}/{name}"
    return other if other in device.capacity else None


def _rounded(wanted: Quantity | None, capacity: Capacity) -> Quantity:
    if wanted is None:
        return capacity.value if capacity.default is None else capacity.default
    if capacity.minimum is not None:
        return _in_range(wanted, capacity.minimum, capacity.step)
    return next((each for each in capacity.values if wanted.nano <= each.nano), wanted)


def _in_range(wanted: Quantity, minimum: Quantity, step: Quantity | None) -> Quantity:
    if wanted.nano < minimum.nano:
        return minimum
    if step is None or step.units() <= 0:
        return wanted
    steps = -(-(wanted.units() - minimum.units()) // step.units())
    return Quantity((minimum.units() + steps * step.units()) * NANO, step.format)


def _is_allowed(amount: Quantity, capacity: Capacity) -> bool:
    if not capacity.has_policy or amount == capacity.default:
        return True
    if capacity.minimum is not None or capacity.maximum is not None or capacity.step is not None:
        if capacity.maximum is not None and amount.nano > capacity.maximum.nano:
            return False
        if capacity.step is None or capacity.step.units() <= 0:
            return True
        least = 0 if capacity.minimum is None else capacity.minimum.units()
        return (amount.units() - least) % capacity.step.units() == 0
    return not capacity.values or any(amount.nano == each.nano for each in capacity.values)
