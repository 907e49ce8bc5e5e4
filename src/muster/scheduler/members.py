"""Live pods and the groups that they are members of, as the scheduler keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.api.codec import Object
from muster.api.groups import GroupRef
from muster.api.meta import name_of
from muster.scheduler.natural import natural

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

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
