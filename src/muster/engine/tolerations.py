"""Taints and tolerations as values, and which tolerates which (kubernetes `core/v1/toleration.go`)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import Object

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(Struct, frozen=True, order=True):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class Toleration(Struct, frozen=True, order=True):
    """A toleration of a pod. An empty key with Exists tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it covers the taint; unknown operators cover nothing."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator == "Equal" and bool(self.key) and self.value == taint.value


def parse_taints(entries: Iterable[Object]) -> tuple[Taint, ...]:
    """The taints of `spec.taints`, in their order."""
    return tuple(Taint(each.get("key", ""), each.get("value") or "", each.get("effect", "")) for each in entries)


def parse_tolerations(entries: Iterable[Object]) -> tuple[Toleration, ...]:
    """The tolerations of `spec.tolerations`, sorted, without repetitions."""
    found = {
        Toleration(
            each.get("key") or "", each.get("operator") or "Equal", each.get("value") or "", each.get("effect") or ""
        )
        for each in entries
    }
    return tuple(sorted(found))


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> list[Taint]:
    """The taints that none of the tolerations covers, in their order."""
    known = tuple(tolerations)
    return [taint for taint in taints if not any(each.tolerates(taint) for each in known)]
