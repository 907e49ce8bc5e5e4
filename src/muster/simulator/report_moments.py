"""What ran where at some moment of a simulation, told from its history. Pure.

A pod takes its node from when it is scheduled until it has ended or is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import key_of, name_of
from muster.clock import SIMULATION_EPOCH_S, parse_rfc3339
from muster.engine.nodes import BLOCK_LABEL, RACK_LABEL, ZONE_LABEL
from muster.engine.requests import pod_requests
from muster.scheduler.natural import natural
from muster.simulator.history import PREEMPTED
from muster.simulator.world import Outcome

LEVELS = (ZONE_LABEL, BLOCK_LABEL, RACK_LABEL)


class Stay(Struct, frozen=True):
    """A pod's life. Times in seconds since the simulation began; `start_s` None: it never had a node.

    `owner`: the key of its group, else "" ; `amounts`: what it requests, in canonical units; `evicted`: by preemption.
    """

    pod: str
    owner: str
    node: str
    created_s: float
    start_s: float | None
    end_s: float
    amounts: Mapping[str, int]
    evicted: bool

    def takes_room_at(self, time_s: float) -> bool:
        """Whether it is on its node then."""
        return self.start_s is not None and self.start_s <= time_s < self.end_s


def stays_of(outcome: Outcome) -> list[Stay]:
    """The lives of all pods, by creation and name. Those that have not ended last a little beyond the end."""
    found = []
    for entry in outcome.history.pods.values():
        pod = entry.last
        ends = [time_s for time_s in (entry.finished_s, entry.deleted_s) if time_s is not None]
        created = parse_rfc3339(pod["metadata"]["creationTimestamp"]) - SIMULATION_EPOCH_S
        found.append(
            Stay(
                key_of(pod),
                entry.group or "",
                str(pod["spec"].get("nodeName") or ""),
                max(0.0, created),
                entry.scheduled_s,
                min(ends, default=outcome.time_s + 1.0),
                pod_requests(pod["spec"]),
                entry.evicted_for == PREEMPTED,
            )
        )
    return sorted(found, key=lambda stay: (stay.created_s, stay.pod, stay.end_s))


def moments_of(stays: Iterable[Stay], evicted_s: Iterable[float], end_s: float) -> list[tuple[str, float]]:
    """The moments worth a picture, with their names, in order: before the change, the busiest one, the end.

    The change is the first preemption, else the arrival of the last pods.
    """
    stays = list(stays)
    first_eviction = min(evicted_s, default=None)
    last_arrival = max((stay.created_s for stay in stays), default=0.0)
    change_s = last_arrival if first_eviction is None else first_eviction
    busiest_s = _busiest(stays)
    wanted = [("before", max(0.0, change_s - 0.001)), ("busiest moment", busiest_s), ("at the end", end_s)]
    found: dict[float, str] = {}
    for name, at in wanted:
        found.setdefault(round(at, 3), name)
    return [(name, at) for at, name in sorted(found.items())]


def numbers_over_time(stays: Iterable[Stay]) -> list[tuple[float, int]]:
    """(time, how many pods are on nodes from then on), in order of time, once a time."""
    steps: dict[float, int] = {}
    for stay in stays:
        if stay.start_s is not None and stay.start_s < stay.end_s:
            steps[stay.start_s] = steps.get(stay.start_s, 0) + 1
            steps[stay.end_s] = steps.get(stay.end_s, 0) - 1
    return _summed(steps)


def groups_over_time(
    stays: Iterable[Stay], groups: Iterable[Object]
) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """(time, how many groups wait from then on) and (time, how many run): with at least minCount pods on nodes.

    A group waits from its first pod on whenever it does not run, until its last pod has ended.
    """
    by_owner: dict[str, list[Stay]] = {}
    for stay in stays:
        by_owner.setdefault(stay.owner, []).append(stay)
    waiting, running = dict[float, int](), dict[float, int]()
    for group in groups:
        mine = by_owner.get(f"{group['namespace']}/{group['name']}", [])
        if not mine:
            continue
        spans = _whole_spans(mine, group["min_count"])
        for from_s, to_s in spans:
            running[from_s] = running.get(from_s, 0) + 1
            running[to_s] = running.get(to_s, 0) - 1
        begin_s, end_s = min(stay.created_s for stay in mine), max(stay.end_s for stay in mine)
        for at_s, sign in ((begin_s, 1), (end_s, -1), *((at, -1) for at, _ in spans), *((at, 1) for _, at in spans)):
            waiting[at_s] = waiting.get(at_s, 0) + sign
    return _summed(waiting), _summed(running)


def _whole_spans(stays: Iterable[Stay], min_count: int) -> list[tuple[float, float]]:
    """From when to when at least so many of the pods were on nodes."""
    found, since_s = list[tuple[float, float]](), None
    for at_s, number in numbers_over_time(stays):
        if since_s is None and number >= max(min_count, 1):
            since_s = at_s
        elif since_s is not None and number < max(min_count, 1):
            found.append((since_s, at_s))
            since_s = None
    return found


def _summed(steps: Mapping[float, int]) -> list[tuple[float, int]]:
    """The sums up to each step, in order of time."""
    times = sorted(steps)
    return list(zip(times, accumulate(steps[at] for at in times), strict=True))


def _busiest(stays: Iterable[Stay]) -> float:
    """The first moment at which most pods are on nodes."""
    over_time = numbers_over_time(stays)
    return max(over_time, key=lambda step: (step[1], -step[0]))[0] if over_time else 0.0


def levels_of(nodes: Iterable[Object], asked: Iterable[str]) -> tuple[str, ...]:
    """The labels by which to arrange the nodes, the widest first: common ones that they have, and those asked for."""
    labels = [node["metadata"].get("labels") or {} for node in nodes]
    known = [key for key in (*LEVELS, *asked) if any(key in each for each in labels)]
    sizes = {key: len({each.get(key, "") for each in labels}) for key in known}
    return tuple(sorted(dict.fromkeys(known), key=lambda key: (sizes[key], known.index(key))))


def domains_of(nodes: Iterable[Object], levels: tuple[str, ...]) -> dict[tuple[str, ...], list[Object]]:
    """The nodes by their domain at each level, in order of the domains and of their names."""
    found: dict[tuple[str, ...], list[Object]] = {}
    for node in sorted(nodes, key=lambda node: natural(name_of(node))):
        labels = node["metadata"].get("labels") or {}
        found.setdefault(tuple(labels.get(key, "") for key in levels), []).append(node)
    return dict(sorted(found.items(), key=lambda item: tuple(natural(value) for value in item[0])))
