"""Groups that are bound in part: when they are given up, so that none holds room for nothing. Pure; time is passed in.

A gang can be left with fewer than minCount members on nodes though it never ran: a binding was refused, a scheduler
died between two bindings, a kubelet rejected a member because somebody else had taken the room. First its other members
are tried like any others, with the bound ones counted. If it is not whole `after_s` later, its bound members are
deleted, each once, and the group is fenced: it is not tried again before a time that doubles with every undoing and has
a random part, so that two schedulers (or two copies of this one) that take each other's room get out of step.

                  some bound, too few          after_s passed               fence over
     (as others) ────────────────────► PARTIAL ───────────────► FENCED ────────────────► (as others)
                  ◄────────────────────
                    whole, or none bound

A gang that was whole once is left alone: members that it loses later are replaced by whoever owns them
(workload-api.md 8.75). Unless it is to be kept together (`keeping`): then it is given up in the same way, but after its
own time, and it may be tried again at once. How it is known that it was whole: its condition, else what this process
has seen. A group without a PodGroup (a Workload's template of 1.35, the pods of an owner) has no condition: each of its
bindings notes on the pod which members there were (`bound_with`), and it never was whole if these are all still there.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct

from muster.api.codec import Object
from muster.api.groups import INITIALLY_SCHEDULED, GroupRef, GroupTerms
from muster.api.meta import condition, has_condition, is_deleting, uid_of
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.group_book import KEEP_TOGETHER_KEY
from muster.scheduler.keeping import KeepError, keep_together_s
from muster.scheduler.members import BOUND_WITH_KEY, Members, PodRecord, bound_with, was_never_whole

FIRST_FENCE_S = 5.0
MAX_FENCE_S = 300.0
JITTER = 0.5
"""A fence lasts up to so much longer than its plain time."""
EXTENSION = 5
"""A group that waits for victims to go, or for answers to its bindings, is given so many times `after_s`."""

_REJECTED = (
    "OutOf",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeUnschedulable",
    "TaintToleration",
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
)
"""How reasons begin with which a kubelet refuses a pod that it was given (`pkg/kubelet/lifecycle/predicate.go`)."""


UNDONE = "PodGroupUndone"
NOT_WHOLE = "PodGroupNotWhole"
"""Reasons of events: a gang never was whole; one that is to be kept together is whole no more."""


class Undo(Struct, frozen=True):
    """Bound members of a group to delete, until when it is not tried again, and why, for programs and people."""

    ref: GroupRef
    members: tuple[PodRecord, ...]
    fenced_until_s: float
    message: str
    reason: str = UNDONE


class Repairs:
    """Watches over groups; `after_s` None: never gives one up. `keeps`: whether gangs may be kept together.

    `faults`: annotations that cannot be read, by group, for whoever tells people; taken by the service.
    """

    def __init__(self, cache: SchedulerCache, rng: random.Random, after_s: float | None, *, keeps: bool = True) -> None:
        self.faults: dict[str, str] = {}
        self._keeps = keeps
        self._kept: dict[str, float] = {}
        self._cache = cache
        self._rng = rng
        self._after_s = after_s
        self._touched: dict[str, None] = {}
        self._whole: dict[str, None] = {}
        self._certain: dict[str, None] = {}
        self._partial: dict[str, float] = {}
        self._undone: dict[str, int] = {}
        self._deleted: dict[str, None] = {}

    def touch(self, group: str) -> None:
        """Something happened to members of the group."""
        if self._after_s is not None or self._keeps:
            self._touched[group] = None

    def failed(self, group: str) -> None:
        """A member could not be bound, or was rejected by its node: the group is not whole, whatever was said."""
        if self._after_s is not None:
            self._whole.pop(group, None)
            self._certain[group] = None
            self._touched[group] = None

    def forget(self, group: str) -> None:
        """The group is gone."""
        for kept in (self._whole, self._certain, self._partial, self._undone, self._kept):
            kept.pop(group, None)

    def forget_pod(self, uid: str) -> None:
        """The pod is gone."""
        self._deleted.pop(uid, None)

    def notes(self, ref: GroupRef | None) -> dict[str, str]:
        """Annotations for pods of a group that are about to be bound; its PodGroup, if it has one, says enough."""
        members = None if ref is None or self._after_s is None else self._cache.groups.get(ref.key)
        if members is None or (members.ref.is_pod_group and members.ref.key in self._cache.pod_groups):
            return {}
        terms = self._cache.terms(members.ref)
        if terms is None or not terms.is_gang or terms.min_count < 2:
            return {}
        return {BOUND_WITH_KEY: bound_with(members, terms.min_count)}

    def due(self, now: float, is_busy: Callable[[str], bool]) -> list[Undo]:
        """Examine what was touched; what is to be undone now. `is_busy`: whether a group waits for its victims."""
        touched, self._touched = self._touched, {}
        for group in touched:
            self._examine(group, now)
        late = [group for group in self._partial if now >= self._deadline_s(group, is_busy)]
        return [undo for group in late if (undo := self._undo(group, now)) is not None]

    def next_s(self, is_busy: Callable[[str], bool]) -> float | None:
        """When something may be due; None without any partial group."""
        return min((self._deadline_s(group, is_busy) for group in self._partial), default=None)

    def _deadline_s(self, group: str, is_busy: Callable[[str], bool]) -> float:
        if group in self._kept:
            return self._partial[group] + self._kept[group]
        assert self._after_s is not None, "without a limit nothing is noted"
        members = self._cache.groups.get(group)
        waits = is_busy(group) or (members is not None and any(each.assumed for each in members.scheduled.values()))
        return self._partial[group] + self._after_s * (EXTENSION if waits else 1)

    def _examine(self, group: str, now: float) -> None:
        members = self._cache.groups.get(group)
        terms = self._cache.terms(members.ref) if members is not None else None
        if members is None or terms is None or not terms.is_gang:
            self._partial.pop(group, None)
            return
        useful, bound = _useful(members), _bound(members)
        if len(useful) + self._cache.done(members) >= terms.min_count:
            self._partial.pop(group, None)
            self._kept.pop(group, None)
            if not any(record.assumed for record in useful):
                self._whole[group] = None
                self._certain.pop(group, None)
        elif bound and self._was_whole(members):
            self._examine_kept(members, terms, now)
        elif not bound or self._after_s is None:
            self._partial.pop(group, None)
            self._kept.pop(group, None)
        else:
            self._kept.pop(group, None)
            self._partial.setdefault(group, now)

    def _examine_kept(self, members: Members, terms: GroupTerms, now: float) -> None:
        """A gang that was whole has too few members: whether that is only to be for a time.

        Members that ended well are not missing: a gang that comes to its end is left alone.
        """
        group = members.ref.key
        try:
            keep_s = keep_together_s(self._cache, members) if self._keeps else None
        except KeepError as error:
            keep_s = None
            self.faults[group] = str(error)
        if keep_s is None or len(_useful(members)) + len(members.succeeded) >= terms.min_count:
            self._partial.pop(group, None)
            self._kept.pop(group, None)
        else:
            self._kept[group] = keep_s
            self._partial.setdefault(group, now)

    def _was_whole(self, members: Members) -> bool:
        key = members.ref.key
        if key in self._certain:
            return False
        if key in self._whole:
            return True
        pod_group = self._cache.pod_groups.get(key) if members.ref.is_pod_group else None
        if pod_group is None:
            return not was_never_whole(members)
        return has_condition(pod_group, INITIALLY_SCHEDULED) or _is_made_anew(pod_group, members)

    def _undo(self, group: str, now: float) -> Undo | None:
        """Give a group up and fence it. None: it turned out to be whole, or nothing of it is ours to delete."""
        self._examine(group, now)
        since_s, keep_s = self._partial.pop(group, None), self._kept.pop(group, None)
        members = self._cache.groups.get(group)
        if since_s is None or members is None:
            return None
        mine = [record for record in _bound(members) if record.ours and uid_of(record.pod) not in self._deleted]
        terms = self._cache.terms(members.ref)
        if not mine or terms is None:
            return None
        self._deleted.update((uid_of(record.pod), None) for record in mine)
        self._certain.pop(group, None)
        if keep_s is not None:
            return Undo(members.ref, tuple(mine), now, self._kept_words(members, terms, keep_s), NOT_WHOLE)
        count = self._undone[group] = self._undone.get(group, 0) + 1
        plain_s = min(MAX_FENCE_S, FIRST_FENCE_S * 2.0 ** min(count - 1, 30))
        fenced_until_s = now + plain_s * self._rng.uniform(1.0, 1.0 + JITTER)
        return Undo(members.ref, tuple(mine), fenced_until_s, self._words(members, terms, now - since_s))

    def _kept_words(self, members: Members, terms: GroupTerms, keep_s: float) -> str:
        left = len(_useful(members)) + len(members.succeeded)
        return (
            f"pod group {members.ref.key} has {left} of at least {terms.min_count} pods and was not refilled within "
            f"{keep_s:g} s: it is evicted and queued again as a whole ({KEEP_TOGETHER_KEY})"
        )

    def _words(self, members: Members, terms: GroupTerms, seconds: float) -> str:
        bound = len(_useful(members)) + self._cache.done(members)
        return (
            f"pod group {members.ref.key} was bound in part ({bound} of at least {terms.min_count} pods) for "
            f"{seconds:.0f} s and could not be completed: its bound pods are deleted"
        )


def is_rejection(pod: Object) -> bool:
    """Whether a kubelet refused a pod that was bound to its node: nothing of it ever ran."""
    status = pod.get("status") or {}
    if status.get("phase") != "Failed" or not str(status.get("reason") or "").startswith(_REJECTED):
        return False
    states = (entry.get("state") or {} for entry in status.get("containerStatuses") or ())
    return not any("running" in state or "terminated" in state for state in states)


def _useful(members: Members) -> list[PodRecord]:
    """Members that have a node, or are on the way to it, and that nobody deletes."""
    return [record for record in members.scheduled.values() if not is_deleting(record.pod)]


def _bound(members: Members) -> list[PodRecord]:
    """Members that the API server has on nodes and that nobody deletes already."""
    return [record for record in members.scheduled.values() if not record.assumed and not is_deleting(record.pod)]


def _is_made_anew(pod_group: Object, members: Members) -> bool:
    """Whether members were bound before the PodGroup was made: it was deleted and made again while they ran."""
    made: str = pod_group["metadata"].get("creationTimestamp") or ""
    bound = (condition(record.pod, "PodScheduled") or {} for record in members.scheduled.values())
    return any(str(entry.get("lastTransitionTime") or made) < made for entry in bound)
