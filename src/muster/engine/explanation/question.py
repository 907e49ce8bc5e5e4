"""A group that does not fit, and the one way to ask whether it would with another snapshot or other terms.

A change is a pure edit of (snapshot, target), decided by the same engine. What that costs is counted in units of work,
so that an explanation does not depend on the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import Object
from muster.engine.decide import verdict
from muster.engine.mixed import binding, demands_of
from muster.engine.model import Diagnosis, GroupRequest, Member
from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

QUESTION_BUDGET = 8
"""Passes of the engine for one question; see `decide`."""
DEFAULT_EFFORT = 2048
"""Passes for all questions about one group."""
_MEMBERS_PER_UNIT = 64

Reshape = Callable[[Shape], Shape]


class Quota(Struct, frozen=True):
    """A number in the terms of a target that may be lowered: minCount of a group, minGroupCount of a tree.

    `owner`: the group that has it, "" where there is only one. `least`: a smaller value makes no sense.
    """

    name: str
    owner: str
    value: int
    least: int
    lowered: Callable[[int], Target]


class Target(Protocol):
    """A group or a tree of groups that wants to run."""

    @property
    def key(self) -> str:
        """Its name in reports."""

    @property
    def members(self) -> tuple[Member, ...]:
        """All pending pods."""

    @property
    def needed(self) -> int:
        """How many of them must be placed at least."""

    @property
    def is_complete(self) -> bool:
        """Whether enough members exist."""

    @property
    def topology_key(self) -> str | None:
        """The label of which all must be in one domain (of a tree: the outermost that some of it has)."""

    @property
    def domain_keys(self) -> Sequence[str]:
        """All labels of which pods must be in one domain, from the outermost on, where a new domain could help."""

    @property
    def request(self) -> GroupRequest:
        """All of it as one group, by which topology domains are ranked."""

    def reshaped(self, change: Reshape) -> Target:
        """The same with other shapes."""

    def quotas(self) -> Sequence[Quota]:
        """What could be lowered."""

    def relaxed(self) -> Sequence[tuple[str, str | None, Target]]:
        """The same without one of its topology constraints: (its name, None, the target)."""

    def other_domain(self, key: str) -> Target | None:
        """The same with another topology key; None if it has no key, or members that run."""

    def cost(self, snapshot: Snapshot, profile: Profile) -> int:
        """How many units of work a question about it takes at most."""

    def verdict(self, snapshot: Snapshot, profile: Profile) -> bool | None:
        """Whether it fits; None if that stays undecided."""


class GroupTarget(Struct, frozen=True):
    """One group, or a plain pod."""

    request: GroupRequest

    @property
    def key(self) -> str:
        return self.request.key

    @property
    def members(self) -> tuple[Member, ...]:
        return self.request.members

    @property
    def needed(self) -> int:
        return max(self.request.min_count - self.request.scheduled, 1)

    @property
    def is_complete(self) -> bool:
        return len(self.request.members) + self.request.scheduled >= self.request.min_count

    @property
    def topology_key(self) -> str | None:
        return self.request.topology_key

    @property
    def domain_keys(self) -> tuple[str, ...]:
        request, terms = self.request, None if self.request.layout is None else self.request.layout.terms
        outer = request.topology_key if request.topology_domain is None else None
        inner = None if terms is None or terms.subgroups is None else terms.subgroups.key
        return tuple(dict.fromkeys(key for key in (outer, inner) if key is not None))

    def reshaped(self, change: Reshape) -> GroupTarget:
        return GroupTarget(replace(self.request, members=reshaped(self.request.members, change)))

    def quotas(self) -> list[Quota]:
        request = self.request
        if request.min_count - 1 <= request.scheduled:
            return []
        return [Quota("minCount", "", request.min_count, request.scheduled + 1, self._with_min_count)]

    def _with_min_count(self, value: int) -> GroupTarget:
        return GroupTarget(replace(self.request, min_count=value))

    def relaxed(self) -> list[tuple[str, str | None, Target]]:
        request = self.request
        found: list[tuple[str, str | None, Target]] = []
        if request.topology_key is not None:
            free = replace(request, topology_key=None, topology_domain=None)
            found.append((request.topology_key, None, GroupTarget(free)))
        if request.layout is not None:
            found.append((TOPOLOGY_TERMS, None, GroupTarget(replace(request, layout=None))))
        return found

    def other_domain(self, key: str) -> GroupTarget | None:
        if self.request.topology_key is None or self.request.topology_domain is not None:
            return None
        return GroupTarget(replace(self.request, topology_key=key))

    def cost(self, snapshot: Snapshot, profile: Profile) -> int:
        demands = demands_of(self.request.members)
        is_counted = self.request.topology_key is None and self.request.layout is None
        if len(demands) == 1 and is_counted and not binding(profile, snapshot, demands):
            return 1
        return QUESTION_BUDGET * (1 + len(self.request.members) // _MEMBERS_PER_UNIT)

    def verdict(self, snapshot: Snapshot, profile: Profile) -> bool | None:
        return verdict(snapshot, self.request, budget=QUESTION_BUDGET, profile=profile)


TOPOLOGY_TERMS = "scheduling.muster-k8s.dev/topology"
"""What the further topology terms of a group are called: the annotation that has them."""


def reshaped(members: tuple[Member, ...], change: Reshape) -> tuple[Member, ...]:
    """The members with their shapes changed, each distinct shape once."""
    found: dict[Shape, Shape] = {}
    for member in members:
        if member.shape not in found:
            found[member.shape] = change(member.shape)
    return tuple(replace(member, shape=found[member.shape]) for member in members)


@dataclass(slots=True)
class Effort:
    """The units of work that are left."""

    left: int

    def take(self, units: int) -> bool:
        """Whether so much was left; it is spent then."""
        if self.left < units:
            return False
        self.left -= units
        return True


@dataclass(frozen=True, slots=True)
class Question:
    """A group that does not fit. `proved`: it was proved, so that any change that helps by one step is a smallest one.

    `lowers_quotas`: whether a smaller minCount is an answer.
    """

    snapshot: Snapshot
    target: Target
    profile: Profile
    proved: bool
    diagnosis: Diagnosis
    lowers_quotas: bool = True
    effort: Effort = field(default_factory=lambda: Effort(DEFAULT_EFFORT))
    blocked: Shape = field(init=False)
    """The shape of the member that the diagnosis is about."""
    shapes: list[Shape] = field(init=False)
    """The distinct shapes, the blocked one first."""
    cost: int = field(init=False)
    """The units of work of a question about the target as it is."""

    def __post_init__(self) -> None:
        members = self.target.members
        found = next((member for member in members if member.key == self.diagnosis.unplaced), None)
        blocked = (found or members[0]).shape
        distinct = dict.fromkeys([blocked, *(member.shape for member in members)])
        object.__setattr__(self, "blocked", blocked)
        object.__setattr__(self, "shapes", list(distinct)[:_MOST_SHAPES])
        object.__setattr__(self, "cost", self.target.cost(self.snapshot, self.profile))

    def fits(self, snapshot: Snapshot | None = None, target: Target | None = None) -> bool | None:
        """With another snapshot or target: whether it fits; None if that stays undecided, or no effort is left."""
        changed, asked = self.snapshot if snapshot is None else snapshot, self.target if target is None else target
        if not self.effort.take(self.cost if target is None else asked.cost(changed, self.profile)):
            return None
        return asked.verdict(changed, self.profile)

    def within(self, units: int) -> Question:
        """The same question with so much effort for what follows."""
        return dataclasses.replace(self, effort=Effort(units))

    def with_shape(self, old: Shape, new: Shape) -> Target:
        """The target with one shape in place of another."""
        return self.target.reshaped(lambda shape: new if shape == old else shape)


_MOST_SHAPES = 8


def change(kind: str, text: str, minimal: bool, **fields: object) -> Object:
    """A change that was tried and is enough. `minimal`: the next smaller one was proved not to be."""
    return {"kind": kind, "text": text, "verified": True, "minimal": minimal, **fields}


def smallest(enough: Callable[[int], bool | None], guess: int, most: int) -> int | None:
    """The smallest number in 1..most that is enough: the guess if it is right, else doubling and bisection."""
    low, high = 0, guess
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    if low == 0 and high > 1 and not enough(high - 1):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


def largest(fits: Callable[[int], bool | None], least: int, below: int) -> int | None:
    """The largest number in least..below-1 that fits, None if the least does not."""
    if below <= least or not fits(least):
        return None
    low, high = least, below
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
