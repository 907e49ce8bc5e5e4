"""The vocabulary of the greedy group cycle: what is asked, what came of it, and in which words upstream says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec import Struct

from muster.engine.model import Code, Diagnosis, Member, Placement
from muster.engine.preemption.model import Unit

Release: TypeAlias = Literal["1.36", "1.37"]

UNSCHEDULABLE_GROUP = "pod group is unschedulable"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group with its pending members in the order in which they are tried; a basic group has min_count 1.

    `scheduled`: members that have a node, pod key → node name. `topology_key`: all must be in one domain of that label.
    `done`: further members that count as scheduled though no pod of theirs is left.
    """

    key: str
    members: tuple[Member, ...]
    min_count: int = 1
    scheduled: Mapping[str, str] = field(default_factory=dict)
    topology_key: str | None = None
    done: int = 0

    @property
    def number_scheduled(self) -> int:
        """How many members count as scheduled before the cycle."""
        return len(self.scheduled) + self.done


class CompositeGroup(Struct, frozen=True):
    """A group of groups: `min_groups` of its children must succeed."""

    key: str
    children: tuple[PodGroup | CompositeGroup, ...]
    min_groups: int = 1
    topology_key: str | None = None


Group: TypeAlias = PodGroup | CompositeGroup


def leaves(group: Group) -> Iterator[PodGroup]:
    """The groups of pods in a tree, in order."""
    if isinstance(group, PodGroup):
        yield group
    else:
        for child in group.children:
            yield from leaves(child)


@dataclass(slots=True, eq=False)
class Word:
    """A status as upstream hands it about: a code, an error, reasons.

    Results may share one, and then its changes: what preemption adds is said by all of them.
    """

    code: Code
    error: str = ""
    reasons: list[str] = field(default_factory=list)

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """All of it, as conditions and events show it."""
        return ", ".join(filter(None, (self.error, *self.reasons)))

    @property
    def as_error(self) -> str:
        """What is left of it inside of another error."""
        return self.error or ", ".join(self.reasons)

    def copy(self) -> Word:
        """The same at this moment."""
        return Word(self.code, self.error, list(self.reasons))


def unschedulable(*reasons: str) -> Word:
    """A group that does not fit, in upstream's words."""
    return Word(Code.UNSCHEDULABLE, UNSCHEDULABLE_GROUP, list(reasons))


class PodResult(Struct, frozen=True):
    """What came of one member: its node, or the `diagnosis` why none fits, or (not tried) the `word` of its group."""

    member: Member
    node: str = ""
    diagnosis: Diagnosis | None = None
    word: Word | None = None


@dataclass(slots=True)
class GroupResult:
    """What came of one group: `pods` are those that were tried (all members, once the result is complete)."""

    group: Group
    word: Word
    pods: list[PodResult] = field(default_factory=list)
    any_scheduled: bool = False

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where members go, if the group succeeds."""
        return tuple(Placement(each.member.key, each.node) for each in self.pods if each.node)


Results: TypeAlias = dict[str, GroupResult]
"""By the key of the group."""


@dataclass(slots=True)
class Trace:
    """What a cycle did, as upstream's log tells it. `runs`: how often a group was tried in a placement; `order`: the
    members of the first run; `placements`: the names of all domains; `tree`: the steps of the recursion;
    `results`: what is said of each group of pods in the end."""

    runs: int = 0
    order: list[str] | None = None
    placements: list[str] = field(default_factory=list)
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    tree: list[tuple[str, str]] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)


class Choices:
    """What upstream leaves to chance. This one takes the first everywhere."""

    def order(self, group: str, members: Sequence[Member]) -> Sequence[Member]:
        """The members of a group that a cycle has popped, in the order in which it tries them."""
        return members

    def node(self, pod: str, nodes: Sequence[str]) -> str:
        """One of the nodes with the best score."""
        return nodes[0]

    def domains(self, group: str, names: Sequence[str]) -> Sequence[str]:
        """The topology domains in the order in which they are tried."""
        return names

    def domain(self, group: str, names: Sequence[str]) -> str:
        """One of the domains with the best score."""
        return names[0]

    def equally_important(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Victims that are equally important, those first that are spared first."""
        return units
