"""Checks in every simulation what must always hold (design.md, section 7), from the writes to the store alone.

Every write: no decision overcommits a node (2). At rest: a gang is scheduled whole or not at all (1), the preemptor got
the room that was made for it (3), and no pod waits without a reason (4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.groups import find_terms, group_of
from muster.api.meta import condition, is_deleting, key_of, name_of, uid_of
from muster.api.quantity import resource_units
from muster.engine.requests import host_ports, pod_requests
from muster.simulator.device_use import DeviceUse
from muster.simulator.history import PREEMPTED, History, PodHistory
from muster.simulator.options import ClusterOptions

WHOLE_GANGS = "whole-gangs"
NO_OVERCOMMIT = "no-overcommit"
PURPOSEFUL_EVICTIONS = "purposeful-evictions"
NOTHING_LOST = "nothing-lost"

IN_FLIGHT_S = 0.5
"""So long after a node has been deleted a pod may be bound to it: what was decided before could not know."""
_TERMINAL = ("Succeeded", "Failed")


class Violation(Struct, frozen=True):
    """Something that must never be. `object` is `Kind namespace/name`."""

    invariant: str
    object: str
    time_s: float
    text: str


@dataclass(slots=True)
class _Usage:
    """What the pods of a node take, by resource (pods among them), and their host ports."""

    amounts: dict[str, int]
    ports: dict[tuple[str, str, int], int]


class _Bound(Struct, frozen=True):
    node: str
    amounts: tuple[tuple[str, int], ...]
    ports: tuple[tuple[str, str, int], ...]


class InvariantChecker:
    """Keeps sums a node, so that a write costs what it changes."""

    def __init__(self, options: ClusterOptions) -> None:
        self.violations: list[Violation] = []
        self._options = options
        self._allocatable: dict[str, dict[str, int]] = {}
        self._gone_s: dict[str, float] = {}
        self._usage: dict[str, _Usage] = {}
        self._bound: dict[str, _Bound] = {}
        self._groups: dict[str, dict[str, Object]] = {"podgroups": {}, "workloads": {}}
        self._needed: dict[str, int] = {}
        """By group: the smallest minCount that it had when one of its members was bound."""
        self._devices = DeviceUse()

    def observe(self, key: str, value: Object | None, before: Object | None, time_s: float) -> None:
        """Take in one write (see `observed.Observer`)."""
        if key.startswith("/pods/"):
            self._observe_pod(value, before, time_s)
        elif key.startswith("/nodes/"):
            self._observe_node(value, before, time_s)
        elif key.startswith(("/podgroups/", "/workloads/")):
            self._observe_group(key.split("/")[1], value, before)
        elif key.startswith("/resourceclaims/"):
            for claim, text in self._devices.observe(value, before):
                self._report(NO_OVERCOMMIT, f"ResourceClaim {claim}", time_s, text)

    def check_rest(self, objects: Mapping[str, Objects], history: History, time_s: float) -> None:
        """Check what holds when nothing is under way. `objects`: by plural, in stored form."""
        if not self._options.has("scheduler"):
            return
        if not self._options.pod_by_pod:
            self._check_gangs(history, time_s)
        self._check_preemptions(history, time_s)
        self._check_waiting(objects["pods"], time_s)

    # Overcommitment

    def _observe_node(self, node: Object | None, before: Object | None, time_s: float) -> None:
        if node is None:
            assert before is not None
            self._allocatable.pop(name_of(before), None)
            self._gone_s[name_of(before)] = time_s
            return
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        if before is None or allocatable != (before.get("status") or {}).get("allocatable"):
            self._allocatable[name_of(node)] = {
                name: resource_units(name, value) for name, value in allocatable.items()
            }

    def _observe_pod(self, pod: Object | None, before: Object | None, time_s: float) -> None:
        holds = pod is not None and _holds_room(pod)
        held = self._bound.get(uid_of(before)) if before is not None else None
        if held is not None and not holds:
            assert before is not None
            self._count(self._bound.pop(uid_of(before)), -1)
        elif pod is not None and holds and held is None:
            by_devices = _given_by_devices(pod)
            requests = {name: each for name, each in pod_requests(pod["spec"]).items() if name not in by_devices}
            bound = _Bound(pod["spec"]["nodeName"], (*sorted(requests.items()), ("pods", 1)), host_ports(pod["spec"]))
            self._bound[uid_of(pod)] = bound
            self._count(bound, 1)
            if before is not None:  # a pod created with a node was not our decision
                self._check_node(pod, bound, time_s)
                self._note_need(pod)

    def _count(self, bound: _Bound, sign: int) -> None:
        usage = self._usage.setdefault(bound.node, _Usage({}, {}))
        for name, amount in bound.amounts:
            usage.amounts[name] = usage.amounts.get(name, 0) + sign * amount
        for port in bound.ports:
            usage.ports[port] = usage.ports.get(port, 0) + sign

    def _check_node(self, pod: Object, bound: _Bound, time_s: float) -> None:
        usage, allocatable = self._usage[bound.node], self._allocatable.get(bound.node)
        if allocatable is None and time_s - self._gone_s.get(bound.node, -math.inf) < IN_FLIGHT_S:
            return  # the binding was under way when the node went
        if allocatable is None:
            self._report(NO_OVERCOMMIT, f"Pod {key_of(pod)}", time_s, f"bound to {bound.node}, which does not exist")
            return
        for name, amount in bound.amounts:
            if amount and usage.amounts[name] > allocatable.get(name, 0):
                text = f"{name}: {usage.amounts[name]} requested of {allocatable.get(name, 0)} by binding {key_of(pod)}"
                self._report(NO_OVERCOMMIT, f"Node {bound.node}", time_s, text)
        for port in bound.ports:
            if usage.ports[port] > 1:
                text = f"host port {port[2]}/{port[1]} is used twice since the binding of {key_of(pod)}"
                self._report(NO_OVERCOMMIT, f"Node {bound.node}", time_s, text)

    # Groups

    def _observe_group(self, plural: str, value: Object | None, before: Object | None) -> None:
        if value is not None:
            self._groups[plural][key_of(value)] = value
        elif before is not None:
            self._groups[plural].pop(key_of(before), None)

    def _note_need(self, pod: Object) -> None:
        """A member was bound: what its group asks for at that moment is what must be there. Whoever changes minCount
        later neither breaks the promise nor takes it back."""
        ref = group_of(pod)
        terms = find_terms(ref, self._groups["podgroups"], self._groups["workloads"]) if ref is not None else None
        if ref is not None and terms is not None and terms.is_gang:
            self._needed[ref.key] = min(terms.min_count, self._needed.get(ref.key, terms.min_count))

    # At rest

    def _check_gangs(self, history: History, time_s: float) -> None:
        members: dict[str, list[PodHistory]] = {}
        for entry in history.pods.values():
            if entry.group in self._needed:
                members.setdefault(entry.group, []).append(entry)
        for key, entries in sorted(members.items()):
            # A member that ended, was deleted or evicted counts for the time when it ran.
            scheduled = sum(1 for entry in entries if entry.scheduled_s is not None)
            needed = self._needed[key]
            if scheduled < needed:
                text = f"{scheduled} members are scheduled, but it needs {needed} at once"
                self._report(WHOLE_GANGS, f"PodGroup {key}", time_s, text)

    def _check_preemptions(self, history: History, time_s: float) -> None:
        by_name = {
            (entry.last["metadata"].get("namespace"), name_of(entry.last)): entry for entry in history.pods.values()
        }
        for uid, victim in history.pods.items():
            if victim.evicted_for != PREEMPTED or uid not in history.preemptors:
                continue
            by = history.preemptors[uid]
            winners = [entry for entry in (history.pods.get(by), *(by_name.get(pair) for pair in _names(by))) if entry]
            if by in history.groups:
                winners = [entry for entry in history.pods.values() if entry.group == history.groups[by]]
                if any(entry.scheduled_s is not None for entry in winners):
                    continue
            waiting = [entry for entry in winners if entry.scheduled_s is None and entry.deleted_s is None]
            for entry in waiting[:1]:
                if _is_outdone(entry, victim, history):
                    continue
                text = f"it was preempted for {key_of(entry.last)}, which did not get its room"
                self._report(PURPOSEFUL_EVICTIONS, f"Pod {key_of(victim.last)}", time_s, text)

    def _check_waiting(self, pods: Objects, time_s: float) -> None:
        ours = self._options.scheduler.scheduler_names
        for pod in pods:
            if not _waits(pod) or (pod["spec"].get("schedulerName") or "default-scheduler") not in ours:
                continue
            if group_of(pod) is not None and self._options.emulate is not None:
                continue  # real servers say nothing about members that PreEnqueue holds
            scheduled = condition(pod, "PodScheduled")
            if scheduled is None or not scheduled.get("reason"):
                self._report(NOTHING_LOST, f"Pod {key_of(pod)}", time_s, "it waits, and nothing says why")

    def _report(self, invariant: str, object_: str, time_s: float, text: str) -> None:
        self.violations.append(Violation(invariant, object_, time_s, text))


def _is_outdone(preemptor: PodHistory, victim: PodHistory, history: History) -> bool:
    """Whether somebody of higher priority was scheduled since the eviction, and may have taken the room."""
    own = _priority(preemptor)
    since = victim.evicted_s or 0.0
    return any(
        _priority(entry) > own and entry.scheduled_s is not None and entry.scheduled_s >= since
        for entry in history.pods.values()
    )


def _priority(entry: PodHistory) -> int:
    return int(entry.last["spec"].get("priority") or 0)


def _names(by: str) -> list[tuple[str | None, str]]:
    namespace, slash, name = by.partition("/")
    return [(namespace, name)] if slash else []


def _given_by_devices(pod: Object) -> frozenset[str]:
    """Extended resources that the pod got from a claim, not from what its node offers."""
    said = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return frozenset(each["resourceName"] for each in said.get("requestMappings") or ())


def _holds_room(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") not in _TERMINAL


def _waits(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return not pod["spec"].get("nodeName") and not is_deleting(pod) and phase not in _TERMINAL
