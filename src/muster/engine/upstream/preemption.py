"""Group preemption as kube-scheduler does it: all that is less important goes on trial, then comes back unit by unit.

1.36 tries the whole group anew for each unit that is put back, and refuses groups with topology constraints. 1.37 keeps
the nodes that the group got on the emptied cluster and only asks whether each member still fits on its own.
Source: `framework/preemption/podgrouppreemption.go` of both (workload-scheduling.md 2.3, with its corrections).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from msgspec import Struct

from muster.engine.model import Placement
from muster.engine.preemption.groups import NO_VICTIMS
from muster.engine.preemption.holding import holds
from muster.engine.preemption.importance import importance
from muster.engine.preemption.model import NoPlan, Plan, Unit
from muster.engine.preemption.pods import NEVER, Cluster
from muster.engine.snapshot import Trial
from muster.engine.upstream.cycle import Cycle
from muster.engine.upstream.model import Choices, CompositeGroup, Group, PodGroup, Results, leaves

NOT_WITH_CONSTRAINTS = "workload aware preemption is not supported for pod groups with scheduling constraints"


class Preemptor(Struct, frozen=True):
    """A root group that fits nowhere. `entity`: whose nominations are its own."""

    group: Group
    priority: int
    may_preempt: bool = True
    entity: str = ""


def preempt(cluster: Cluster, preemptor: Preemptor, cycle: Cycle) -> Plan | NoPlan:
    """The victims for a group, by the rules of the cycle's release.

    The placements of the plan are where its members will be looked for first: none in 1.36.
    """
    if cycle.release == "1.36" and preemptor.group.topology_key is not None:
        return NoPlan(NOT_WITH_CONSTRAINTS)
    if not preemptor.may_preempt:
        return NoPlan(NEVER)
    lower = [unit for unit in cluster.units if unit.priority < preemptor.priority]
    if not lower:
        return NoPlan(NO_VICTIMS, is_final=True)
    with _base(cluster, preemptor) as trial:
        trial.remove(_keys(lower))
        results = cycle.run(trial, preemptor.group)
        word = results[preemptor.group.key].word
        if not word.is_success:
            return NoPlan(word.message)
        ordered = _in_turn(cluster, lower, cycle.choices)
        if cycle.release == "1.36":
            victims = _after_new_runs(trial, preemptor, cycle, ordered)
            placements: tuple[Placement, ...] = ()
        else:
            placements = _placements(preemptor.group, results)
            victims = _beside_fixed(trial, cluster, preemptor.group, placements, ordered)
    return _plan(cluster, victims, placements)


def one_by_one(units: Sequence[Unit]) -> list[Unit]:
    """The units as 1.36 offers them to a single pod: members of a group go alone, whatever its disruption mode."""
    found = []
    for unit in units:
        if unit.is_group:
            found += [Unit(pod.key, unit.priority, (pod,), in_group=True) for pod in unit.pods]
        else:
            found.append(unit)
    return found


@contextmanager
def _base(cluster: Cluster, preemptor: Preemptor) -> Iterator[Trial]:
    """The cluster with the room taken that is kept for others of at least the same priority."""
    with cluster.snapshot.trial() as trial:
        index = trial.table.index
        for each in cluster.nominations:
            if each.priority >= preemptor.priority and each.entity != preemptor.entity and each.node in index:
                trial.place(each.shape.usage, index[each.node])
        yield trial


def _in_turn(cluster: Cluster, units: Sequence[Unit], choices: Choices) -> list[Unit]:
    """The order in which units are put back: those that would violate a budget first, then by importance."""

    def rank(unit: Unit) -> tuple[int, int, int, float]:
        return importance(unit, cluster.now_s)[:4]

    ordered: list[Unit] = []
    for _, alike in groupby(sorted(units, key=lambda unit: importance(unit, cluster.now_s)), key=rank):
        ordered += choices.equally_important(list(alike))
    violating = cluster.budgets.violating(ordered)
    return sorted(ordered, key=lambda unit: unit.key not in violating)


def _after_new_runs(trial: Trial, preemptor: Preemptor, cycle: Cycle, ordered: Sequence[Unit]) -> list[Unit]:
    """1.36: a unit stays if the group, tried anew, still succeeds, wherever and with however many members."""
    victims = []
    for unit in ordered:
        keys = _keys([unit])
        trial.restore(keys)
        if not cycle.run(trial, preemptor.group)[preemptor.group.key].word.is_success:
            trial.remove(keys)
            victims.append(unit)
    return victims


def _beside_fixed(
    trial: Trial, cluster: Cluster, group: Group, placements: Sequence[Placement], ordered: Sequence[Unit]
) -> list[Unit]:
    """1.37: a unit stays if all members still fit on the nodes that they got."""
    places = {placement.pod: placement.node for placement in placements}
    members = [member for leaf in leaves(group) for member in leaf.members if member.key in places]
    victims = []
    for unit in ordered:
        keys = _keys([unit])
        trial.restore(keys)
        if not holds(cluster.profile, trial, members, places):
            trial.remove(keys)
            victims.append(unit)
    return victims


def _placements(group: Group, results: Results) -> tuple[Placement, ...]:
    """Where members go in the groups that succeed, in the order in which they were placed."""
    result = results.get(group.key)
    if result is None or not result.word.is_success:
        return ()
    if isinstance(group, PodGroup):
        return result.placements
    assert isinstance(group, CompositeGroup)
    return tuple(placement for child in group.children for placement in _placements(child, results))


def _plan(cluster: Cluster, victims: Sequence[Unit], placements: tuple[Placement, ...]) -> Plan:
    ordered = tuple(sorted(victims, key=lambda unit: importance(unit, cluster.now_s)))
    leaving = tuple(pod.key for unit in ordered for pod in unit.pods if pod.leaving)
    return Plan(placements, ordered, cluster.budgets.violations(ordered), leaving)


def _keys(units: Sequence[Unit]) -> list[str]:
    return [pod.key for unit in units for pod in unit.pods]
