"""Which running pods could be moved so that a group fits that does not fit now: a plan, nothing is carried out.

The pods to move are found as victims are (fewest evictions beyond budgets, then fewest pods), with everybody on offer
alike; a plan counts only if no budget is exceeded and the engine places both the group and then all that had to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Member, Placed, Placement
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.shape import Shape
from muster.engine.topology.units import put_members

_MOST_ROUNDS = 8
_LATER = 1


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that leaves a node and fits on another one."""

    pod: str
    from_node: str
    to_node: str


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves, the units that they are of, and where the group goes then. `fewest`: proved that no fewer pods do."""

    moves: tuple[Move, ...]
    units: tuple[Unit, ...]
    placements: tuple[Placement, ...]
    fewest: bool


def moves_for(
    cluster: Cluster,
    request: GroupRequest,
    movable: Sequence[Unit],
    *,
    nodes: int = 500,
    time_limit_s: float | None = None,
) -> Moves | None:
    """The fewest moves of these units after which the group fits; None if none were found.

    `cluster.shape_of` says what a pod would ask for on another node; a pod of which that is not known is not moved.
    `nodes` limits each search.
    """
    left = [unit for unit in movable if unit.evicted and all(_shape(cluster, pod) is not None for pod in unit.evicted)]
    for round_ in range(_MOST_ROUNDS):
        alike = [replace(unit, priority=0) for unit in left]
        group = GroupPreemptor(request, _LATER)
        plan = preempt_group(replace(cluster, units=alike), group, nodes=nodes, time_limit_s=time_limit_s)
        if not isinstance(plan, Plan) or not plan.victims or plan.violations or plan.waits_for:
            return None
        moves, stuck = _moved(cluster, request, plan)
        if moves is not None:
            return Moves(moves, plan.victims, plan.placements, fewest=plan.proved and round_ == 0)
        left = [unit for unit in left if unit.key not in stuck]
    return None


def _moved(cluster: Cluster, request: GroupRequest, plan: Plan) -> tuple[tuple[Move, ...] | None, set[str]]:
    """The moves of a plan, or the units that find no other place once the group is there."""
    gone = [pod for unit in plan.victims for pod in unit.evicted]
    index = cluster.snapshot.table.index
    with cluster.snapshot.trial() as trial:
        for each in cluster.nominations:
            if each.node in index and each.entity != request.key:
                trial.place(each.shape.usage, index[each.node])
        trial.remove(plan.evicted)
        placed = {placement.pod for placement in plan.placements}
        put_members(trial, [member for member in request.members if member.key in placed], plan.placements)
        members = [Member(pod.key, shape) for pod in gone if (shape := _shape(cluster, pod)) is not None]
        again = GroupRequest("moved", tuple(members), 1)
        decision = decide(trial, again, profile=cluster.profile)
    nodes = dict(decision.placements) if isinstance(decision, Placed) else {}
    stuck = {unit.key for unit in plan.victims if any(pod.key not in nodes for pod in unit.evicted)}
    if stuck:
        return None, stuck
    return tuple(Move(pod.key, pod.node, nodes[pod.key]) for pod in gone), set()


def _shape(cluster: Cluster, pod: RunningPod) -> Shape | None:
    return None if cluster.shape_of is None else cluster.shape_of(pod.key)
