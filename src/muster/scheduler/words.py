"""What a scheduler that goes by upstream's rules says after a group cycle, pod by pod and group by group."""

from __future__ import annotations

from msgspec import Struct

from muster.engine.upstream.model import Trace


class PodWords(Struct, frozen=True):
    """The condition PodScheduled=False and the event FailedScheduling of a pod (by key)."""

    pod: str
    reason: str
    message: str


class GroupWords(Struct, frozen=True):
    """The PodGroup's condition."""

    status: str
    reason: str
    message: str


class Words(Struct, frozen=True):
    """About one group. `trace`: what the whole cycle did, with the first of its groups; `root`: whose cycle it was."""

    pods: tuple[PodWords, ...]
    group: GroupWords
    trace: Trace | None = None
    root: str = ""
