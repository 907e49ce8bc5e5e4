"""The report of a simulation: a pure function of its outcome. Its form is docs/simulate-output.schema.json.

Times are seconds since the simulation began, rounded to milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.api.codec import Object, Objects
from muster.api.groups import group_of
from muster.api.meta import condition, key_of, name_of, namespace_of, uid_of
from muster.api.quantity import canonical_quantity, format_units
from muster.engine.requests import pod_requests
from muster.simulator.groups import (
    ENDED,
    GroupView,
    find_groups,
    first_reason,
    is_pending,
    phase_of,
    scheduler_of,
    settled_state,
    why,
)
from muster.simulator.history import PREEMPTED, History, PodHistory
from muster.simulator.redecide import Judge
from muster.simulator.refusals import standing_refusals
from muster.simulator.world import Outcome


def report(outcome: Outcome) -> Object:
    """The report as JSON."""
    history = outcome.history
    events = _events(history)
    return {
        "time_s": _seconds(outcome.time_s),
        "seed": outcome.seed,
        "groups": _groups(outcome, events),
        "pods": _pods(outcome),
        "nodes": _nodes(outcome.objects),
        "evictions": _evictions(history),
        "events": events,
        "invariants": {
            "violations": [
                {"invariant": each.invariant, "object": each.object, "time_s": _seconds(each.time_s), "text": each.text}
                for each in outcome.violations
            ]
        },
    }


def _events(history: History) -> Objects:
    return [
        {
            "time_s": _seconds(event.time_s),
            "kind": event.kind,
            "namespace": event.namespace,
            "name": event.name,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
        }
        for event in history.events
    ]


def _seconds(time_s: float) -> float:
    return round(time_s, 3)


def _moment(time_s: float | None) -> float | None:
    return None if time_s is None else _seconds(time_s)


# Groups


def _groups(outcome: Outcome, events: Objects) -> Objects:
    judge = Judge(outcome.objects, outcome.options.scheduler_options())
    refused = {(event["namespace"], event["kind"], event["name"]): event for event in standing_refusals(events)}
    times: dict[str, list[float]] = {}
    for entry in outcome.history.pods.values():
        if entry.group is not None and entry.scheduled_s is not None:
            times.setdefault(entry.group, []).append(entry.scheduled_s)
    return [_group(view, judge, sorted(times.get(view.ref.key, ())), refused) for view in find_groups(outcome.objects)]


def _group(
    view: GroupView, judge: Judge, scheduled_s: Sequence[float], refused: Mapping[tuple[str, str, str], Object]
) -> Object:
    """`scheduled_s`: when its members were scheduled, in order."""
    is_whole = len(scheduled_s) >= view.min_count
    state = settled_state(view)
    explanation: Object | None = None
    if state is None:
        state, explanation = judge.state_of(view)
    reason, message = why(view, state)
    if state == "Gated" and view.owner is not None:
        refusal = refused.get((view.ref.namespace, "Job", name_of(view.owner)))
        message += f"; Job {name_of(view.owner)}: {refusal['message']}" if refusal else ""
    return {
        "namespace": view.ref.namespace,
        "name": view.ref.name,
        "kind": "PodGroup" if view.ref.is_pod_group else "Workload",
        "state": state,
        "min_count": view.min_count,
        "members": len(view.pods),
        "scheduled": view.scheduled,
        "first_scheduled_s": _seconds(scheduled_s[view.min_count - 1]) if is_whole else None,
        "reason": reason,
        "message": message,
        "topology": judge.topology_of(view),
        "explanation": explanation,
    }


# Pods and nodes


def _pods(outcome: Outcome) -> Objects:
    """The pods that exist, and those that are gone because they were preempted."""
    entries = [
        entry for entry in outcome.history.pods.values() if entry.deleted_s is None or entry.evicted_for == PREEMPTED
    ]
    entries.sort(key=lambda entry: (key_of(entry.last), uid_of(entry.last)))
    return [_pod(entry, outcome.options.scheduler_options().scheduler_names) for entry in entries]


def _pod(entry: PodHistory, schedulers: frozenset[str]) -> Object:
    pod = entry.last
    status = pod.get("status") or {}
    reason, message = status.get("reason") or "", status.get("message") or ""
    if is_pending(pod) and not reason:
        reason, message = first_reason([pod])
        if not reason and scheduler_of(pod) not in schedulers:
            here = ", ".join(sorted(schedulers))
            message = f"waits for the scheduler {scheduler_of(pod)}, which does not run here (here: {here})"
    disruption = condition(pod, "DisruptionTarget")
    if not reason and disruption is not None and disruption.get("status") == "True":
        reason, message = disruption.get("reason") or "", disruption.get("message") or ""
    group = group_of(pod)
    return {
        "namespace": namespace_of(pod),
        "name": name_of(pod),
        "group": group.name if group else None,
        "node": pod["spec"].get("nodeName") or None,
        "phase": phase_of(pod),
        "reason": reason,
        "message": message,
        "scheduled_s": _moment(entry.scheduled_s),
        "finished_s": _moment(entry.finished_s),
        "preempted": entry.evicted_for == PREEMPTED,
    }


def _nodes(objects: Mapping[str, Objects]) -> Objects:
    requested: dict[str, dict[str, int]] = {}
    for pod in objects["pods"]:
        node = pod["spec"].get("nodeName")
        if node and phase_of(pod) not in ENDED:
            sums = requested.setdefault(node, {})
            for resource, amount in (*pod_requests(pod["spec"]).items(), ("pods", 1)):
                sums[resource] = sums.get(resource, 0) + amount
    return [_node(node, requested.get(name_of(node), {})) for node in objects["nodes"]]


def _node(node: Object, requested: Mapping[str, int]) -> Object:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    names = sorted({*allocatable, *requested})
    return {
        "name": name_of(node),
        "allocatable": {name: canonical_quantity(allocatable[name]) for name in sorted(allocatable)},
        "requested": {name: format_units(name, requested.get(name, 0)) for name in names},
    }


# Evictions


def _evictions(history: History) -> Objects:
    evicted = [(entry.evicted_s, uid, entry) for uid, entry in history.pods.items() if entry.evicted_s is not None]
    evicted.sort(key=lambda item: (item[0], key_of(item[2].last)))
    return [
        {
            "pod": key_of(entry.last),
            "group": entry.group,
            "by": _by(uid, entry, history),
            "time_s": _seconds(time_s),
        }
        for time_s, uid, entry in evicted
    ]


def _by(uid: str, entry: PodHistory, history: History) -> str:
    """The pod or group that a preempted one had to go for, where that is known, else why it had to go."""
    by = history.preemptors.get(uid)
    if by is None:
        return entry.evicted_for
    winner = history.pods.get(by)
    return key_of(winner.last) if winner is not None else history.groups.get(by, by)
