"""What must fit as a whole: a group, or a tree of groups that somebody else decides about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Bools
from muster.engine.decide import decide, verdict
from muster.engine.model import GroupRequest, Infeasible, Member, Placed, Placement
from muster.engine.nodes import NodeTable
from muster.engine.preemption.forms import Choice, Form, Parts, fewest
from muster.engine.profile import Profile
from muster.engine.snapshot import Snapshot
from muster.engine.topology.domains import domains_of
from muster.engine.topology.partition import partition_of


class View(Struct, frozen=True):
    """Where the preemptor may go as a whole: `nodes` bool[N], None for all; `domain`: the value of its topology key."""

    nodes: Bools | None = None
    domain: str | None = None


class Answer(Struct, frozen=True):
    """Where members go, enough of them or none. `certain`: without placements, there are none."""

    placements: tuple[Placement, ...] = ()
    certain: bool = True


class Wanted(Protocol):
    """A preemptor. At least `need` of its members must fit; the rest of what it asks is known to `decide`."""

    @property
    def key(self) -> str:
        """Whose nominations are its own."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The pending pods."""

    @property
    def need(self) -> int:
        """How many of them must fit at least."""

    @property
    def priority(self) -> int:
        """Whom it may evict: those below."""

    @property
    def may_preempt(self) -> bool:
        """Whether it may evict at all."""

    def views(self, table: NodeTable) -> list[View]:
        """Where it may go, the whole cluster or domain by domain."""

    def form(self, table: NodeTable, view: View, shapes: int) -> Form | None:
        """What must hold of the pods beyond their number, as far as that can be said in numbers."""

    def decide(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> Answer:
        """Where it would go in the domain."""

    def verdict(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> bool | None:
        """Whether it fits there; None if nobody knows."""


class GroupPreemptor(Struct, frozen=True):
    """A group that `decide` did not place. `need` of its members must fit, at least one."""

    request: GroupRequest
    priority: int
    may_preempt: bool = True

    @property
    def key(self) -> str:
        """That of the request."""
        return self.request.key

    @property
    def members(self) -> tuple[Member, ...]:
        """The pending pods."""
        return self.request.members

    @property
    def need(self) -> int:
        """How many of the pending members must fit."""
        return max(1, self.request.min_count - self.request.scheduled)

    def goal(self, domain: str | None) -> GroupRequest:
        """The request without scheduled members: `need` of the pending ones, in that domain of its topology key."""
        return replace(self.request, min_count=self.need, scheduled=0, topology_domain=domain)

    def views(self, table: NodeTable) -> list[View]:
        """The whole cluster, or each domain of the topology key (the pinned one alone)."""
        request = self.request
        if request.topology_key is None:
            return [View()]
        domains = domains_of(table, request.topology_key)
        found = []
        for value, rows in zip(domains.values, np.split(domains.rows, domains.starts[1:]), strict=True):
            if request.topology_domain is None or value == request.topology_domain:
                mask = np.zeros(len(table), dtype=np.bool_)
                mask[rows] = True
                found.append(View(mask, value))
        return found

    def form(self, table: NodeTable, view: View, shapes: int) -> Form | None:
        """Whole subgroups in domains, for members of one shape none of which runs."""
        layout = self.request.layout
        if layout is None or layout.terms.subgroups is None or shapes > 1 or layout.running:
            return None
        size = layout.terms.subgroups.size
        full, rest = divmod(len(self.members), size)
        ranks = sorted(layout.ranks)
        if ranks != list(range(ranks[0], ranks[0] + len(ranks))) or ranks[0] % size:
            return None  # members of a subgroup are missing: which of them go together is not a matter of counting
        keys = () if self.request.topology_key is None else (self.request.topology_key,)
        return Parts(size, full, rest, partition_of(table, (*keys, layout.terms.subgroups.key)).ids)

    def decide(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> Answer:
        """The engine's answer about enough of its pending members."""
        decision = decide(snapshot, self.goal(domain), profile=profile)
        if isinstance(decision, Placed):
            return Answer(decision.placements)
        return Answer((), isinstance(decision, Infeasible))

    def verdict(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> bool | None:
        """The same without saying where, which costs less."""
        return verdict(snapshot, self.goal(domain), profile=profile)


class TreePreemptor(Struct, frozen=True):
    """A tree of groups. `choice` says how many of which groups are enough; `place`, where they would go."""

    key: str
    members: tuple[Member, ...]
    choice: Choice
    place: Callable[[Snapshot], Answer]
    priority: int
    may_preempt: bool = True

    @property
    def need(self) -> int:
        """The fewest pods with which enough groups have enough."""
        return max(1, fewest(self.choice))

    def views(self, table: NodeTable) -> list[View]:
        """Domains are chosen by who places it."""
        return [View()]

    def form(self, table: NodeTable, view: View, shapes: int) -> Form | None:
        """Enough groups."""
        return self.choice

    def decide(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> Answer:
        """Asks who places it; the profile is known there."""
        return self.place(snapshot)

    def verdict(self, profile: Profile, snapshot: Snapshot, domain: str | None) -> bool | None:
        """Whether it is placed."""
        answer = self.place(snapshot)
        return True if answer.placements else False if answer.certain else None
