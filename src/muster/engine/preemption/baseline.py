"""What to compare with: all units of lower priority go on trial, then each comes back if the group still fits.

It is the rule of kube-scheduler's preemption for groups (workload-scheduling.md 2.3), over arrays, for pods of one
shape. With domains the first that fits without the candidates is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.engine.mixed import demands_of
from muster.engine.preemption.greedy import reprieved
from muster.engine.preemption.groups import GroupPreemptor
from muster.engine.preemption.importance import importance
from muster.engine.preemption.model import Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.preemption.problem import build, remove_all


def evict_all_then_reprieve(
    cluster: Cluster, group: GroupPreemptor, *, domains: Sequence[Sequence[str]] | None = None
) -> tuple[Unit, ...] | None:
    """The victims by that rule; None if the group does not fit without all of them."""
    lower = [unit for unit in cluster.units if unit.priority < group.priority and unit.evicted]
    demands = demands_of(group.request.members)
    with cluster.snapshot.trial() as base, base.trial() as gone:
        remove_all(gone, lower)
        whole = build(cluster.profile, base, gone, lower, demands, group.need, cluster.budgets, cluster.now_s)
    index = cluster.snapshot.table.index
    for names in domains or [tuple(index)]:
        mask = np.zeros(len(cluster.snapshot), dtype=np.bool_)
        mask[[index[name] for name in names]] = True
        problem = whole.within(mask)
        everyone = np.ones(len(problem.units), dtype=np.bool_)
        if problem.enough(everyone):
            ranks = [importance(unit, cluster.now_s) for unit in problem.units]
            violating = cluster.budgets.violating(
                sorted(problem.units, key=lambda unit: importance(unit, cluster.now_s))
            )
            order = sorted(range(len(ranks)), key=lambda unit: (problem.units[unit].key not in violating, ranks[unit]))
            chosen = reprieved(problem, order)
            return tuple(unit for unit, out in zip(problem.units, chosen.tolist(), strict=True) if out)
    return None
