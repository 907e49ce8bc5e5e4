"""Constraints between the devices of a claim: one value of an attribute for all, or a different one for each.

Source: `structured/internal/*/constraint.go` and `allocator_*.go` (1.36). A constraint is asked before a device is
taken and told when it is given back, in the opposite order.
"""

from __future__ import annotations

from typing import Protocol

from muster.api.codec import JSON, Object
from muster.engine.devices.features import Features
from muster.engine.devices.inventory import Device
from muster.engine.devices.requests import ConstraintSpec, DeviceRequest

_SCALARS = ("string", "int", "bool", "version")
_LISTS = {"strings": "string", "ints": "int", "bools": "bool", "versions": "version"}


class Constraint(Protocol):
    """What a claim asks of its devices together."""

    def add(self, request: DeviceRequest, device: Device) -> bool:
        """Whether the device may be taken as well; it then counts."""

    def remove(self, request: DeviceRequest, device: Device) -> None:
        """The device that was added last is given back."""


def constraint_of(spec: ConstraintSpec, features: Features) -> Constraint | None:
    """A fresh constraint; None for one of a kind that is not known."""
    rule: Constraint
    if spec.kind == "match":
        rule = _UpstreamMatch(spec.attribute) if features.upstream else _Match(spec.attribute, features)
    elif spec.kind == "distinct":
        rule = _UpstreamDistinct(spec.attribute) if features.upstream else _Distinct(spec.attribute, features)
    else:
        return None
    return _Of(spec.requests, rule) if spec.requests else rule


class _Of:
    """A constraint of some requests only, named with or without the alternative that was chosen."""

    def __init__(self, requests: frozenset[str], rule: Constraint) -> None:
        self._requests, self._rule = requests, rule

    def add(self, request: DeviceRequest, device: Device) -> bool:
        return not self._covers(request) or self._rule.add(request, device)

    def remove(self, request: DeviceRequest, device: Device) -> None:
        if self._covers(request):
            self._rule.remove(request, device)

    def _covers(self, request: DeviceRequest) -> bool:
        return request.full_name in self._requests or (request.parent or request.name) in self._requests


def _values(attribute: Object | None, features: Features) -> frozenset[tuple[str, JSON]] | None:
    """The values of an attribute with their type; None if there are none that can be compared."""
    for kind, value in (attribute or {}).items():
        if kind in _SCALARS:
            return frozenset({(kind, value)})
        if kind in _LISTS and features.list_attributes:
            return frozenset((_LISTS[kind], each) for each in value)
    return None


class _Match:
    """All devices have a value of the attribute in common."""

    def __init__(self, attribute: str, features: Features) -> None:
        self._attribute, self._features = attribute, features
        self._common: list[frozenset[tuple[str, JSON]]] = []

    def add(self, request: DeviceRequest, device: Device) -> bool:
        values = _values(device.attribute(self._attribute), self._features)
        if values is not None and self._common:
            values &= self._common[-1]
        if not values:
            return False
        self._common.append(values)
        return True

    def remove(self, request: DeviceRequest, device: Device) -> None:
        self._common.pop()


class _Distinct:
    """No two devices have a value of the attribute in common."""

    def __init__(self, attribute: str, features: Features) -> None:
        self._attribute, self._features = attribute, features
        self._seen: list[frozenset[tuple[str, JSON]]] = []

    def add(self, request: DeviceRequest, device: Device) -> bool:
        values = _values(device.attribute(self._attribute), self._features)
        if values is None or any(values & each for each in self._seen):
            return False
        self._seen.append(values)
        return True

    def remove(self, request: DeviceRequest, device: Device) -> None:
        self._seen.pop()


class _UpstreamMatch:
    """As 1.36 does it: the value of the first device counts, and lists are never equal."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute
        self._value: tuple[str, JSON] | None = None
        self._number = 0

    def add(self, request: DeviceRequest, device: Device) -> bool:
        attribute = device.attribute(self._attribute)
        if attribute is None:
            return False
        value = _scalar(attribute)
        if self._number == 0:
            self._value, self._number = value, 1
            return True
        if value is None or value != self._value:
            return False
        self._number += 1
        return True

    def remove(self, request: DeviceRequest, device: Device) -> None:
        self._number -= 1


class _UpstreamDistinct:
    """As 1.36 does it: one value is remembered for each request, and forgotten with any device of it."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute
        self._seen: dict[str, tuple[str, JSON] | None] = {}
        self._number = 0

    def add(self, request: DeviceRequest, device: Device) -> bool:
        attribute = device.attribute(self._attribute)
        if attribute is None:
            return False
        value = _scalar(attribute)
        if self._number and (value is None or value in self._seen.values()):
            return False
        self._seen[request.parent or request.name] = value
        self._number += 1
        return True

    def remove(self, request: DeviceRequest, device: Device) -> None:
        self._seen.pop(request.parent or request.name, None)
        self._number -= 1


def _scalar(attribute: Object) -> tuple[str, JSON] | None:
    return next(((kind, value) for kind, value in attribute.items() if kind in _SCALARS), None)
