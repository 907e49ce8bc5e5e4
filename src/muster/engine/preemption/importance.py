"""The order in which victims are spared: the most important first. Source: workload-scheduling.md 2.4."""

from __future__ import annotations

from collections.abc import Iterable

from muster.engine.preemption.model import Unit


def by_importance(units: Iterable[Unit], now_s: float) -> list[Unit]:
    """Priority descending, groups before members of groups before single pods, more pods, earlier start, key."""
    return sorted(units, key=lambda unit: importance(unit, now_s))


def importance(unit: Unit, now_s: float) -> tuple[int, int, int, float, str]:
    """Sorts the most important first."""
    rank = 0 if unit.is_group or unit.in_group else 1
    return -unit.priority, rank, -len(unit.pods), unit.earliest_start_s(now_s), unit.key
