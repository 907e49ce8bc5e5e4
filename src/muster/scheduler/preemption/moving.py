"""Who may be moved so that a group fits: plain pods, and groups as a whole. Pure.

Whoever moves is evicted and made anew by a controller, so only pods that have one move. A group moves if all its pods
run and its whole fits elsewhere by what it asks itself; each group once, so that groups do not move each other in
circles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from muster.api.meta import controller_of
from muster.engine.defragment import Movable
from muster.engine.model import GroupRequest, Member
from muster.engine.preemption.model import RunningPod, Unit
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.members import Members, PodRecord
from muster.scheduler.preemption.units import Units

GROUP = "group:"


def movable(cache: SchedulerCache, units: Units, priority: int, moved: Collection[str]) -> list[Movable]:
    """The pods and groups of at most this priority that may be moved; `moved`: keys of units that were, before."""
    found = [_alone(units, unit) for unit in units.single() if unit.priority <= priority and _is_made_anew(cache, unit)]
    groups = [_whole(cache, units, unit) for unit in units.grouped() if unit.priority <= priority]
    return [each for each in (*found, *groups) if each is not None and each.unit.key not in moved]


def _alone(units: Units, unit: Unit) -> Movable | None:
    members = _members(units, unit.evicted)
    return Movable(unit, GroupRequest(unit.key, members, 1)) if members else None


def _whole(cache: SchedulerCache, units: Units, unit: Unit) -> Movable | None:
    """A group whose pods all run, with what it would ask if none did."""
    group = cache.groups.get(unit.key.removeprefix(GROUP))
    terms = None if group is None else cache.terms(group.ref)
    if group is None or terms is None or terms.parent or terms.fault or group.pending or group.gated:
        return None
    records = group.scheduled.values()
    if len(unit.evicted) != len(group.scheduled) or not all(record.ours for record in records):
        return None
    if not _is_made_anew(cache, unit):
        return None
    as_pending = Members(group.ref, pending=dict(group.scheduled))
    order = {record.key: place for place, record in enumerate(as_pending.to_place())}
    members = _members(units, sorted(unit.evicted, key=lambda pod: order[pod.key]))
    request = GroupRequest(unit.key, members, len(unit.evicted))
    topology = cache.one_domain(as_pending, terms)
    if topology is not None:
        request = replace(request, topology_key=topology.key, layout=topology.layout)
    return Movable(unit, request) if len(members) == len(unit.evicted) else None


def _members(units: Units, pods: Iterable[RunningPod]) -> tuple[Member, ...]:
    """What the pods would ask for on other nodes, as far as that is known."""
    shapes = [(pod.key, units.shape_of(pod.key)) for pod in pods]
    return tuple(Member(key, shape) for key, shape in shapes if shape is not None)


def _is_made_anew(cache: SchedulerCache, unit: Unit) -> bool:
    return all(_has_controller(cache.pods[pod.key]) for pod in unit.pods)


def _has_controller(record: PodRecord) -> bool:
    owner = controller_of(record.pod)
    return owner is not None and owner.get("kind") not in ("DaemonSet", "Node")
