"""Which pods stand at which barrier, and whether the time of each counts.

A barrier is open to a pod that asks for `count` while at least that many pods with its name are in the stage that the
barrier guards. Members that ended well hold nobody up: they go on counting for the others of the same owner.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.nodes.stages import Barrier


class Barriers:
    """Members of barriers, by pod key, in the order in which they came."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], dict[str, str]] = {}
        self._done: dict[tuple[tuple[str, str], str], int] = {}

    def join(self, barrier: Barrier, pod: str, owner: str) -> None:
        """The pod entered the stage. `owner` is the uid of its controlling owner, or ""."""
        self._members.setdefault(barrier.name, {})[pod] = owner

    def leave(self, barrier: Barrier, pod: str, *, ended_well: bool) -> None:
        """The pod left the stage (idempotent)."""
        members = self._members.get(barrier.name, {})
        owner = members.pop(pod, None)
        if owner is None:
            return
        if not members:
            del self._members[barrier.name]
        if ended_well and owner:
            done = (barrier.name, owner)
            self._done[done] = self._done.get(done, 0) + 1

    def members(self, barrier: Barrier) -> Iterable[str]:
        """The pods of all that stand at a barrier of this name."""
        return list(self._members.get(barrier.name, ()))

    def is_open(self, barrier: Barrier, owner: str) -> bool:
        """Whether time counts for a member with this owner."""
        present = len(self._members.get(barrier.name, ()))
        return present + self._done.get((barrier.name, owner), 0) >= barrier.count
