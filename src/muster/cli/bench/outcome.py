"""What came of an instance, and the row of a family of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from muster.api.codec import Object


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one instance. `wrong`: the answer contradicts the truth, or the placement breaks a rule. `ffd`,
    `upstream`: whether first-fit-decreasing (which knows no rules between pods) and kube-scheduler's greedy group cycle
    place the group.

    `ms` by the wall clock, `cpu_ms` of this process, which other work on the machine disturbs less. `held`: on how many
    places pods sit for nothing if each is placed by itself, first-fit-decreasing, and the group does not become whole.
    """

    answer: str
    wrong: bool
    ms: float
    cpu_ms: float
    ffd: bool
    upstream: bool
    held: int = 0


def row(family: str, pods: str, outcomes: Sequence[Outcome]) -> Object:
    """Answers, times of our decisions, and what the others do with the same instances."""
    times, cpu = sorted(each.ms for each in outcomes), sorted(each.cpu_ms for each in outcomes)
    count = [outcome.answer for outcome in outcomes].count
    return {
        "family": family,
        "pods": pods,
        "instances": len(outcomes),
        "placed": count("Placed"),
        "proved": count("Infeasible"),
        "undecided": count("Undecided"),
        "wrong": sum(outcome.wrong for outcome in outcomes),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(_part(times, 0.99), 1),
        "max_ms": round(times[-1], 1),
        "cpu_p99_ms": round(_part(cpu, 0.99), 1),
        "cpu_max_ms": round(cpu[-1], 1),
        "ffd_places": sum(outcome.ffd for outcome in outcomes),
        "ffd_holds_pods": sum(outcome.held for outcome in outcomes),
        "upstream_places": sum(outcome.upstream for outcome in outcomes),
    }


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
