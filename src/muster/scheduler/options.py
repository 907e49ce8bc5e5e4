"""What can be set about the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from muster.scheduler.errors import UnsupportedOption
from muster.scheduler.queue import Backoff

PlacementMode: TypeAlias = Literal["exact", "upstream-1.36", "upstream-1.37"]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """`scheduler_names`: pods with another schedulerName are not placed; what they use counts nevertheless.

    `pod_by_pod` ignores groups: each pod is scheduled alone, as kube-scheduler does without the gate GenericWorkload.
    `say_why_held` writes a condition on members that PreEnqueue holds; real servers say nothing.
    `batch` and `passes`: how many entities, and how many that differ, are decided between two turns of the event loop.
    `bindings`: how many bind requests are under way at once. Times are in seconds.
    """

    scheduler_names: frozenset[str] = frozenset({"default-scheduler", "muster"})
    placement: PlacementMode = "exact"
    pod_by_pod: bool = False
    say_why_held: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    flush_after_s: float = 300.0
    flush_every_s: float = 30.0
    say_why_held_after_s: float = 1.0
    batch: int = 1000
    passes: int = 32
    bindings: int = 32

    def __post_init__(self) -> None:
        if self.placement != "exact":
            raise UnsupportedOption(f"placement {self.placement!r} is not available yet; use 'exact'")
