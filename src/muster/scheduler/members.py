"""Live pods and the groups that they are members of, as the scheduler keeps them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.api.meta import is_deleting, name_of, uid_of
from muster.scheduler.natural import natural

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

BOUND_WITH_KEY = "scheduling.muster-k8s.dev/bound-with"
"""An annotation that pods of groups without a PodGroup get with their binding (see `bound_with`)."""

MemberOrder = tuple[int, str, int, tuple[tuple[int, int, str], ...]]
"""Priority descending, creation time, completion index, name (numbers in it by value)."""


@dataclass(slots=True)
class PodRecord:
    """A live pod. `node` is where it is assigned, or `assumed` to be while its binding is on the way."""

    key: str
    pod: Object
    ref: GroupRef | None
    ours: bool
    node: str = ""
    assumed: bool = False
    _order: MemberOrder | None = None

    @property
    def order(self) -> MemberOrder:
        """Where the pod comes among the members of its group; worked out when first asked for."""
        if self._order is None:
            self._order = member_order(self.pod)
        return self._order

    @property
    def priority(self) -> int:
        """`spec.priority`, 0 without."""
        return priority_of(self.pod)

    @property
    def created(self) -> str:
        """`metadata.creationTimestamp`, which sorts as text."""
        return str(self.pod["metadata"].get("creationTimestamp") or "")


@dataclass(slots=True)
class Members:
    """The live pods of one group. A pending pod that is leaving (deleted, disrupted) is in neither set."""

    ref: GroupRef
    pending: dict[str, PodRecord] = field(default_factory=dict)
    scheduled: dict[str, PodRecord] = field(default_factory=dict)
    gated: dict[str, PodRecord] = field(default_factory=dict)
    scheduler_names: Counter[str] = field(default_factory=Counter)
    succeeded: dict[str, str] = field(default_factory=dict)
    """Members that ended well and still exist, with the uid of their controller (see `SchedulerCache.done`)."""
    ended: dict[str, Object] = field(default_factory=dict)
    """Their metadata."""

    @property
    def known(self) -> int:
        """How many members exist, wherever they are."""
        return len(self.pending) + len(self.scheduled)

    def live(self) -> Iterator[PodRecord]:
        """Those that wait, then those that have a node."""
        yield from self.pending.values()
        yield from self.scheduled.values()

    def to_place(self) -> list[PodRecord]:
        """Our pending members in the order in which they are placed."""
        return sorted((record for record in self.pending.values() if record.ours), key=lambda record: record.order)


def bound_with(members: Members, min_count: int) -> str:
    """What is noted on a member as it is bound: how many the group needed, and which members it had, as a digest.

    As long as all members that have a node say the same, and the digest is that of the members there are, none of the
    group has gone since the first of them was bound: with fewer than it needed on nodes, it never was whole.
    """
    uids = sorted(uid_of(record.pod) for record in members.live())
    return f"{min_count}-{hashlib.sha256(' '.join(uids).encode()).hexdigest()[:16]}"


def was_never_whole(members: Members) -> bool:
    """Whether members are on nodes and it is sure that there never were enough of them, by what is noted on them."""
    bound = [record for record in members.scheduled.values() if not record.assumed and not is_deleting(record.pod)]
    notes = {str((record.pod["metadata"].get("annotations") or {}).get(BOUND_WITH_KEY)) for record in bound}
    needed = next(iter(notes)).partition("-")[0] if len(notes) == 1 else ""
    return needed.isdecimal() and len(bound) < int(needed) and notes == {bound_with(members, int(needed))}


def scheduler_name_of(pod: Object) -> str:
    """The pod's `spec.schedulerName`, or the default."""
    name: str = pod["spec"].get("schedulerName") or "default-scheduler"
    return name


def priority_of(pod: Object) -> int:
    """The pod's `spec.priority`, or 0."""
    return int(pod["spec"].get("priority") or 0)


def member_order(pod: Object) -> MemberOrder:
    """Where a pod comes among the members of its group."""
    metadata: Mapping[str, Object] = pod["metadata"]
    index = str((metadata.get("annotations") or {}).get(COMPLETION_INDEX, ""))
    created = str(metadata.get("creationTimestamp") or "")
    return (-priority_of(pod), created, int(index) if index.isdecimal() else -1, natural(name_of(pod)))
