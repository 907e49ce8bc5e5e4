"""How shapes, amounts and groups are called in sentences that people read."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.quantity import format_units
from muster.engine.devices.demand import DeviceDemand
from muster.engine.devices.requests import ALL
from muster.engine.mixed import Demand
from muster.engine.shape import Shape

_PREFIX = "Insufficient "
_LAST = {"memory": 2, "ephemeral-storage": 3}


def amount_of(resource: str, units: int) -> str:
    """`2 nvidia.com/gpu`, `500m cpu`, `4Gi memory`."""
    return f"{format_units(resource, units)} {resource}"


def shape_text(shape: Shape, resources: tuple[str, ...] = ()) -> str:
    """What a pod of the shape requests, of these resources only if any are given: `2 cpu and 4Gi memory`."""
    asked = [(name, units) for name, units in shape.usage.requests if not resources or name in resources]
    asked.sort(key=lambda item: (_LAST.get(item[0], 1 if item[0] == "cpu" else 0), item[0]))
    devices = shape.usage.devices
    told = [] if devices is None or resources else list(_devices_told(devices))
    return " and ".join([*told, *(amount_of(name, units) for name, units in asked)]) or "no resources"


def _devices_told(demand: DeviceDemand) -> Iterator[str]:
    """`2 gpu devices` for each class in claims of its own, by the first alternative; `claim team/nics` for others."""
    numbers: dict[str, int | None] = {}
    for use in demand.claims:
        for entry in () if use.spec is None else use.spec.entries:
            for choice in entry.choices[:1]:
                before = numbers.get(choice.device_class, 0)
                numbers[choice.device_class] = None if before is None or choice.mode == ALL else before + choice.count
    for name, number in numbers.items():
        yield f"all {name} devices" if number is None else _plural(number, f"{name} device")
    yield from (f"claim {use.key}" for use in demand.claims if use.key)


def pods(count: int) -> str:
    """`1 pod`, `4 pods`."""
    return _plural(count, "pod")


def nodes(count: int) -> str:
    """`1 node`, `4 nodes`."""
    return _plural(count, "node")


def groups(count: int) -> str:
    """`1 group`, `4 groups`."""
    return _plural(count, "group")


def insufficient(reasons: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """The resources that a diagnosis names as insufficient, most frequent first."""
    return tuple(reason.removeprefix(_PREFIX) for reason, _ in reasons if reason.startswith(_PREFIX))


def demand_text(demands: list[Demand], needed: int, resources: tuple[str, ...]) -> str:
    """`4 pods of 2 nvidia.com/gpu each`, or the kinds of pods where they differ. `resources` are those that matter."""
    if len(demands) == 1:
        each = " each" if needed > 1 else ""
        return f"{pods(needed)} of {shape_text(demands[0].shape, resources)}{each}"
    kinds = [f"{len(demand.places)} of {_told(demand.shape, resources)}" for demand in demands[:_MOST_KINDS]]
    more = len(demands) - len(kinds)
    rest = f", and {more} more kinds" if more else ""
    return f"{pods(needed)} ({', '.join(kinds)}{rest})"


def _told(shape: Shape, resources: tuple[str, ...]) -> str:
    """What matters of a shape; all that it requests, if it requests none of the resources that matter."""
    matters = any(name in resources for name, _ in shape.usage.requests)
    return shape_text(shape, resources if matters else ())


_MOST_KINDS = 4


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
