"""The vocabulary of preemption: who runs, what can only be evicted together, budgets, nominations, plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from muster.engine.model import Placement
from muster.engine.shape import Shape

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod on a node. `key` is `namespace/name`, `started_s` in seconds since the epoch (None: just now).

    `leaving`: it is being deleted. `preempted`: because a scheduler preempted it.
    """

    key: str
    node: str
    started_s: float | None = None
    labels: Labels = field(default_factory=dict)
    leaving: bool = False
    preempted: bool = False

    @property
    def namespace(self) -> str:
        """The part of the key before the slash."""
        return self.key.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is evicted as one: a pod, or all pods of a group whose disruption mode is `all` (upstream: `PodGroup`).

    `priority` is the group's for members of groups, also for those that are units of their own (`in_group`).
    """

    key: str
    priority: int
    pods: tuple[RunningPod, ...]
    is_group: bool = False
    in_group: bool = False
    evicted: tuple[RunningPod, ...] = field(init=False, repr=False, compare=False)
    """The pods that an eviction of the unit would delete: those that are not leaving anyway."""

    def __post_init__(self) -> None:
        leaving = any(pod.leaving for pod in self.pods)
        object.__setattr__(
            self, "evicted", tuple(pod for pod in self.pods if not pod.leaving) if leaving else self.pods
        )

    def earliest_start_s(self, now_s: float) -> float:
        """When the oldest of its pods started."""
        return min(now_s if pod.started_s is None else pod.started_s for pod in self.pods)

    def age_s(self, now_s: float) -> float:
        """The run time that an eviction loses: of pods that are not leaving anyway, summed."""
        starts = [now_s if pod.started_s is None else pod.started_s for pod in self.evicted]
        if max(starts, default=now_s) <= now_s:
            return len(starts) * now_s - sum(starts)
        return sum(max(0.0, now_s - start) for start in starts)


class Nomination(Struct, frozen=True):
    """Room on a node that is kept for a pending pod. `entity`: the group (or pod) that it belongs to."""

    pod: str
    node: str
    priority: int
    shape: Shape
    entity: str = ""


class Plan(Struct, frozen=True):
    """The preemptor fits as placed once the victims, and the pods that are leaving already (`waits_for`), are gone.

    `violations`: evictions beyond what disruption budgets allow. `proved`: no better victim set exists; otherwise
    `fewest_pods` is the proved lower bound of evicted pods, and the plan may be so much worse.
    """

    placements: tuple[Placement, ...]
    victims: tuple[Unit, ...]
    violations: int = 0
    waits_for: tuple[str, ...] = ()
    proved: bool = True
    fewest_pods: int = 0
    work: int = 0

    @property
    def evicted(self) -> tuple[str, ...]:
        """Keys of the pods to delete, in the order of the victims."""
        return tuple(pod.key for unit in self.victims for pod in unit.evicted)

    @property
    def gap(self) -> int:
        """How many pods fewer might suffice, as far as is known."""
        return 0 if self.proved else max(0, len(self.evicted) - self.fewest_pods)


class NoPlan(Struct, frozen=True):
    """Nobody is to be evicted. `text`: why, in upstream's words where it has any."""

    text: str
    is_waiting: bool = False
    """Victims of an earlier preemption are still on their way out."""
    is_final: bool = False
    """No eviction could ever help (upstream: UnschedulableAndUnresolvable)."""
