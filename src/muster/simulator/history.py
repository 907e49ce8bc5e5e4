"""What happened in a simulation: a pure fold over the writes to the store, with their times."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import Struct

from muster.api.codec import Object
from muster.api.groups import group_of
from muster.api.meta import condition, key_of, uid_of

PODS_PREFIX = "/pods/"
EVENTS_PREFIX = "/events/"
_GROUP_PREFIXES = ("/podgroups/", "/compositepodgroups/")
PREEMPTED = "PreemptionByScheduler"
"""The reason of the condition DisruptionTarget on a pod that the scheduler preempted."""

_PREEMPTED_BY = re.compile(r"Preempted by (?:\w+ )?(\S+)")
_TERMINAL = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodHistory:
    """One pod (one uid). Times in seconds since the simulation began, None: never. `last` is its last state."""

    last: Object
    group: str | None
    """`namespace/name` of its group."""
    scheduled_s: float | None = None
    finished_s: float | None = None
    deleted_s: float | None = None
    evicted_s: float | None = None
    evicted_for: str = ""
    """Reason of its DisruptionTarget condition."""


class EventRecord(Struct, frozen=True):
    """A Kubernetes event, when it was first written or repeated."""

    time_s: float
    kind: str
    namespace: str
    name: str
    type: str
    reason: str
    message: str


class History:
    """Pods by uid and events, in the order in which they came."""

    def __init__(self) -> None:
        self.pods: dict[str, PodHistory] = {}
        self.events: list[EventRecord] = []
        self.preemptors: dict[str, str] = {}
        """By uid of a preempted pod: what its event says it was preempted by (a uid, or a name)."""
        self.groups: dict[str, str] = {}
        """Keys of groups by uid."""

    def observe(self, key: str, value: Object | None, before: Object | None, time_s: float) -> None:
        """Take in one write (see `observed.Observer`)."""
        if key.startswith(PODS_PREFIX):
            self._observe_pod(value, before, time_s)
        elif key.startswith(EVENTS_PREFIX) and value is not None:
            self._observe_event(value, time_s)
        elif key.startswith(_GROUP_PREFIXES) and value is not None:
            self.groups[uid_of(value)] = key_of(value)

    def _observe_pod(self, pod: Object | None, before: Object | None, time_s: float) -> None:
        if pod is None:
            assert before is not None
            known = self.pods.get(uid_of(before))
            if known is not None:
                known.deleted_s = time_s
            return
        entry = self.pods.get(uid_of(pod))
        if entry is None:
            group = group_of(pod)
            entry = self.pods[uid_of(pod)] = PodHistory(pod, group.key if group else None)
        entry.last = pod
        if entry.scheduled_s is None and pod["spec"].get("nodeName"):
            entry.scheduled_s = time_s
        if entry.finished_s is None and (pod.get("status") or {}).get("phase") in _TERMINAL:
            entry.finished_s = time_s
        if entry.evicted_s is None:
            disruption = condition(pod, "DisruptionTarget")
            if disruption is not None and disruption.get("status") == "True":
                entry.evicted_s = time_s
                entry.evicted_for = disruption.get("reason", "")

    def _observe_event(self, event: Object, time_s: float) -> None:
        about = event.get("involvedObject") or event.get("regarding") or {}
        record = EventRecord(
            time_s=time_s,
            kind=about.get("kind", ""),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            type=event.get("type", ""),
            reason=event.get("reason", ""),
            message=event.get("message") or event.get("note") or "",
        )
        self.events.append(record)
        found = _PREEMPTED_BY.match(record.message) if record.reason == "Preempted" else None
        if found:
            self.preemptors[about.get("uid", "")] = found[1]
