"""PreEnqueue: what holds a group or a pod back before any attempt, and in which words people are told. Pure.

Source of the rules: workload-api.md 2.2, 3.2. Upstream writes nothing about held pods; the words here are ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import Object
from muster.api.groups import GroupRef, GroupTerms
from muster.scheduler.hierarchy import Chain

GATED = "SchedulingGated"
ERROR = "SchedulerError"


class Hold(Struct, frozen=True):
    """Why an entity is not tried. `reason` is that of the pods' PodScheduled condition."""

    reason: str
    message: str


class GroupFacts(Struct, frozen=True):
    """What PreEnqueue looks at. `terms` None: the object that says what the group asks for is missing.

    `has_workload`: for a group of a Workload's template, whether at least the Workload exists. `known` counts all
    live members; `gated` names those with scheduling gates; `scheduler_names` are those of all live members.
    """

    ref: GroupRef
    terms: GroupTerms | None
    known: int
    gated: tuple[str, ...] = ()
    scheduler_names: tuple[str, ...] = ()
    has_workload: bool = False
    claims: str = ""
    """Why the claims for devices of one of the gated cannot be used yet."""


def hold_of_group(facts: GroupFacts) -> Hold | None:
    """What holds the whole group back: the first rule that says no; None if it may be tried."""
    ref, terms = facts.ref, facts.terms
    if terms is None:
        return Hold(GATED, _missing(facts))
    if terms.fault:
        return Hold(ERROR, f"pod group {ref.key} cannot be scheduled: {terms.fault}")
    if terms.is_gang and facts.known < terms.min_count:
        exist = f"{facts.known} of {terms.min_count} members exist"
        return Hold(GATED, f"waiting for more members of pod group {ref.key}: {exist}")
    if facts.gated and facts.claims:
        return Hold(GATED, facts.claims)
    if facts.gated:
        return Hold(GATED, f"waiting until the scheduling gates of {_names(facts.gated)} are removed")
    if len(facts.scheduler_names) > 1:
        names = " and ".join(sorted(facts.scheduler_names))
        return Hold(ERROR, f"all pods in a single pod group should have the same .spec.schedulerName set, got: {names}")
    return None


class TreeFacts(Struct, frozen=True):
    """What PreEnqueue looks at in a tree of groups: `ready` children of the root have enough members, `needed` are.

    `gated`, `scheduler_names`: of all live members in the tree.
    """

    root: str
    ready: int
    needed: int
    gated: tuple[str, ...] = ()
    scheduler_names: tuple[str, ...] = ()
    claims: str = ""
    faults: tuple[str, ...] = ()
    """What of the terms of its groups cannot be read."""


def hold_of_tree(facts: TreeFacts) -> Hold | None:
    """What holds a whole tree back; None if it may be tried."""
    if facts.faults:
        return Hold(ERROR, f"composite pod group {facts.root} cannot be scheduled: {facts.faults[0]}")
    if facts.ready < facts.needed:
        enough = f"{facts.ready} of {facts.needed} groups have enough members"
        return Hold(GATED, f"waiting for more members in composite pod group {facts.root}: {enough}")
    if facts.gated and facts.claims:
        return Hold(GATED, facts.claims)
    if facts.gated:
        return Hold(GATED, f"waiting until the scheduling gates of {_names(facts.gated)} are removed")
    if len(facts.scheduler_names) > 1:
        names = " and ".join(sorted(facts.scheduler_names))
        return Hold(ERROR, f"all pods of a composite pod group should have the same .spec.schedulerName, got: {names}")
    return None


def hold_of_orphan(ref: GroupRef, chain: Chain) -> Hold | None:
    """What holds a group back whose composite groups lead to no root; None if they do."""
    if chain.missing:
        return Hold(GATED, f"waiting for CompositePodGroup {chain.missing}, which does not exist")
    if chain.fault:
        return Hold(GATED, f"pod group {ref.key} cannot be scheduled: {chain.fault}")
    return None


def is_gated(pod: Object) -> bool:
    """Whether the pod has scheduling gates; the API server says so in its condition."""
    return bool(pod["spec"].get("schedulingGates"))


def _missing(facts: GroupFacts) -> str:
    ref = facts.ref
    if ref.is_pod_group:
        return f"waiting for PodGroup {ref.object_key}, which does not exist"
    if facts.has_workload:
        return f"waiting for pod group {ref.template!r} in Workload {ref.object_key}, which has no such template"
    return f"waiting for Workload {ref.object_key}, which does not exist"


def _names(keys: Iterable[str]) -> str:
    names = sorted(keys)
    if len(names) == 1:
        return f"pod {names[0]}"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"pods {', '.join(names[:3])}{more}"
