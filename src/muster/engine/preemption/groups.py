"""Preemption for a group (or any set of pods that must fit together): the least disruptive victim set.

Units of lower priority anywhere in the cluster, or, for a group bound to a topology domain, in each domain. A plan is
only given if the engine places enough members once the victims are gone: one truth for what fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from muster.engine.preemption.least import Effort
from muster.engine.preemption.model import NoPlan, Plan, Unit
from muster.engine.preemption.planner import CANNOT_HELP, NO_VICTIMS, Planner
from muster.engine.preemption.pods import NEVER, Cluster
from muster.engine.preemption.wanted import GroupPreemptor, TreePreemptor, Wanted
from muster.engine.snapshot import Trial

__all__ = ["CANNOT_HELP", "DEFAULT_CHECKS", "NO_VICTIMS", "GroupPreemptor", "TreePreemptor", "preempt_group"]

DEFAULT_NODES = 2_000
"""Nodes of search trees that a decision may spend."""
DEFAULT_CHECKS = 200
"""Questions to the engine about sets that the search found."""


def preempt_group(
    cluster: Cluster,
    group: Wanted,
    *,
    nodes: int = DEFAULT_NODES,
    checks: int = DEFAULT_CHECKS,
    time_limit_s: float | None = None,
) -> Plan | NoPlan:
    """The least disruptive plan; for a group with a topology key, of all its domains.

    Compared are: evictions beyond budgets, the highest priority of a victim, evicted pods, run time lost, victims that
    could run elsewhere, names. `nodes` and `checks` limit the exact search; a plan that is not proved least says so.
    """
    if not group.may_preempt:
        return NoPlan(NEVER)
    lower = [unit for unit in cluster.units if unit.priority < group.priority]
    if not lower:
        return NoPlan(NO_VICTIMS)
    with _base(cluster, group, lower) as base:
        return Planner(cluster, group, base, lower, Effort(nodes, time_limit_s, checks)).plan()


@contextmanager
def _base(cluster: Cluster, group: Wanted, lower: Sequence[Unit]) -> Iterator[Trial]:
    """The cluster as the group finds it: room kept for others is taken, pods of lower priority that leave are gone."""
    with cluster.snapshot.trial() as trial:
        index = trial.table.index
        trial.place_each(
            (each.shape.usage, index[each.node])
            for each in cluster.nominations
            if each.priority >= group.priority and each.entity != group.key and each.node in index
        )
        partly = [unit for unit in lower if len(unit.evicted) < len(unit.pods)]
        trial.remove(pod.key for unit in partly for pod in unit.pods if pod.leaving)
        yield trial
