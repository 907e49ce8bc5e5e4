"""Taints of devices and the tolerations of requests. Source: `dynamic-resource-allocation/resourceclaim` (1.36)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import Object
from muster.engine.tolerations import NO_EXECUTE, NO_SCHEDULE, Taint


class DeviceToleration(Struct, frozen=True):
    """A toleration of a request. Unlike one of a pod it may say Equal without a key."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint does not matter because of it."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class TaintRule(Struct, frozen=True):
    """A DeviceTaintRule: the taint of all devices with these names ("" for any)."""

    driver: str
    pool: str
    device: str
    taint: Taint

    def covers(self, driver: str, pool: str, device: str) -> bool:
        """Whether the device gets the taint."""
        return (
            self.driver in ("", driver)
            and (not self.pool or self.pool == pool)
            and (not self.device or self.device == device)
        )


def device_taint(entry: Object) -> Taint:
    """The taint of an entry of `taints`."""
    return Taint(entry.get("key") or "", entry.get("value") or "", entry.get("effect") or "")


def device_toleration(entry: Object) -> DeviceToleration:
    """The toleration of an entry of `tolerations`."""
    fields = (entry.get(name) or "" for name in ("key", "operator", "value", "effect"))
    return DeviceToleration(*fields)


def taint_rules(rules: Iterable[Object]) -> tuple[TaintRule, ...]:
    """The rules of DeviceTaintRule objects, by name; one without a selector is about no device."""
    found = []
    for rule in sorted(rules, key=lambda rule: str(rule["metadata"].get("name"))):
        selector = rule["spec"].get("deviceSelector")
        if selector is None:
            continue
        names = [selector.get(name) or "" for name in ("driver", "pool", "device")]
        found.append(TaintRule(names[0], names[1], names[2], device_taint(rule["spec"].get("taint") or {})))
    return tuple(found)


def keeps_away(taints: Iterable[Taint], tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether one of the taints prevents a new allocation: those of other effects keep nobody away."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(each.tolerates(taint) for each in tolerations)
        for taint in taints
    )
