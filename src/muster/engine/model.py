"""The vocabulary of decisions: why a node does not fit, what is asked for, and what was decided.

A decision is a value. Three answers are never mixed: `Placed`, `Infeasible` (proved), `Undecided` (budget spent).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from muster.engine.shape import Shape
    from muster.engine.topology.layout import Layout


class Code(Enum):
    """Outcome codes of kube-scheduler's framework (`framework/interface.go`)."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


class Status(Struct, frozen=True, order=True):
    """Why a pod does not fit on a node, in kube-scheduler's words. `resolvable`: preemption could help.

    `is_fault`: something is wrong with what the pod refers to, so that the rule has no answer (upstream: Error).
    """

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool = True
    is_fault: bool = False


class ScoreError(Exception):
    """Pods of a shape cannot be scored, so that no choice among several nodes is possible. Upstream: SchedulerError."""


class Member(Struct, frozen=True):
    """One pending pod of a group. `key` is `namespace/name`; `nominated`: the node cleared for it, tried first."""

    key: str
    shape: Shape
    nominated: str = ""


class GroupRequest(Struct, frozen=True):
    """A group that wants to run; a plain pod is a group of one member with min_count 1.

    `members` are the pending pods in the order in which they are to be placed (the first k of them when just k fit).
    `scheduled` members already have a node and count towards `min_count`; for an upstream topology constraint
    (`topology_key`) they pin the domain: `topology_domain` is its value, None while no member runs. `priority`: room
    reserved for nominated pods of at least this priority is not used.
    """

    key: str
    members: tuple[Member, ...]
    min_count: int
    scheduled: int = 0
    topology_key: str | None = None
    priority: int = 0
    topology_domain: str | None = None
    layout: Layout | None = None
    """What it asks of the topology beyond the one domain; its ranks are parallel to `members`."""
    one_by_one: bool = False
    """The members are pods that have nothing to do with each other: each gets a node as if it asked alone, after those
    before it."""


class Placement(NamedTuple):
    """A pod and the node chosen for it. A tuple, since a plan has thousands and they are made in one go."""

    pod: str
    node: str


class Diagnosis(Struct, frozen=True):
    """Why a shape fits on no further node: how many nodes there are and the count of each reason, most frequent first.

    A node that fails for several reasons of its first failing plugin counts under each, as in kube-scheduler's
    FitError.
    `unplaced`: the member (key) that this is about. `text()` is kube-scheduler's wording:
    `0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 2 node(s) were unschedulable.`
    """

    unplaced: str
    nodes: int
    reasons: tuple[tuple[str, int], ...]
    plugins: frozenset[str] = frozenset()
    """The plugins that rejected at least one node: what the pod waits for."""
    verdict: str = ""
    """Why the pod fits nowhere whatever the nodes are (upstream: a PreFilter failure); `text()` then says only that."""

    def text(self) -> str:
        """The FitError text of kube-scheduler for these counts (reasons sorted as upstream sorts them: as texts)."""
        if not self.nodes:
            return "no nodes available to schedule pods"
        if self.verdict:
            return f"0/{self.nodes} nodes are available: {self.verdict}."
        parts = sorted(f"{count} {reason}" for reason, count in self.reasons)
        suffix = f" {', '.join(parts)}." if parts else ""
        return f"0/{self.nodes} nodes are available:{suffix}"


class Placed(Struct, frozen=True):
    """At least min_count members run or were placed. `unplaced` members fit nowhere now; `diagnosis` says why."""

    placements: tuple[Placement, ...]
    unplaced: tuple[str, ...] = ()
    diagnosis: Diagnosis | None = None


class Infeasible(Struct, frozen=True):
    """Proved: no min_count of the members fit. `proof` is one sentence that names what binds."""

    proof: str
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither placed nor proved infeasible within the budget. `spent` is in units of work."""

    spent: int
    reason: str
    diagnosis: Diagnosis
    best_found: tuple[Placement, ...] = field(default=())


Decision: TypeAlias = Placed | Infeasible | Undecided
