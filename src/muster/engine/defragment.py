"""Which running pods and groups could be moved so that a group fits that does not fit now: a plan, nothing is done.

Who is to move is found as victims are (fewest evictions beyond budgets, then fewest pods), with everybody on offer
alike; a plan counts only if no budget is exceeded and the engine places both the group and then all that had to go, a
group that moves as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import Struct
from msgspec.structs import replace as with_fields

from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Member, Placed, Placement
from muster.engine.preemption.groups import preempt_group
from muster.engine.preemption.model import Plan, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.preemption.wanted import GroupPreemptor, TreePreemptor
from muster.engine.snapshot import Trial
from muster.engine.topology.domains import DomainError
from muster.engine.topology.units import put_members

_MOST_ROUNDS = 8
_LATER = 1


class Movable(Struct, frozen=True):
    """A unit that may be moved, and what its pods ask of another place: all of them, or the unit stays."""

    unit: Unit
    request: GroupRequest


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
    group: GroupPreemptor | TreePreemptor,
    movable: Sequence[Movable],
    *,
    nodes: int = 500,
    time_limit_s: float | None = None,
) -> Moves | None:
    """The fewest moves after which the group fits; None if none were found. `nodes` limits each search.

    The priority of the group does not matter: who may be moved for it has been decided by `movable`.
    """
    left = {each.unit.key: each for each in movable if each.unit.evicted}
    asking = with_fields(group, priority=_LATER, may_preempt=True)
    for round_ in range(_MOST_ROUNDS):
        alike = [replace(each.unit, priority=0) for each in left.values()]
        plan = preempt_group(replace(cluster, units=alike), asking, nodes=nodes, time_limit_s=time_limit_s)
        if not isinstance(plan, Plan) or not plan.victims or plan.violations or plan.waits_for:
            return None
        going = [left[unit.key] for unit in plan.victims]
        moves, stuck = _moved(cluster, asking, plan, going)
        if not stuck:
            units = tuple(each.unit for each in going)
            return Moves(moves, units, plan.placements, fewest=plan.proved and round_ == 0)
        left = {key: each for key, each in left.items() if key not in stuck}
    return None


def _moved(
    cluster: Cluster, group: GroupPreemptor | TreePreemptor, plan: Plan, going: Sequence[Movable]
) -> tuple[tuple[Move, ...], set[str]]:
    """The moves of a plan, and the units that find no other place once the group is there."""
    index = cluster.snapshot.table.index
    found: dict[str, str] = {}
    stuck: set[str] = set()
    with cluster.snapshot.trial() as trial:
        for each in cluster.nominations:
            if each.node in index and each.entity != group.key:
                trial.place(each.shape.usage, index[each.node])
        trial.remove(plan.evicted)
        placed = {placement.pod for placement in plan.placements}
        put_members(trial, [member for member in group.members if member.key in placed], plan.placements)
        for request, units in _in_turn(going):
            placements = _placements(cluster, trial, request)
            found.update(placements)
            stuck |= {unit.key for unit in units if any(pod.key not in found for pod in unit.evicted)}
    pods = [pod for each in going for pod in each.unit.evicted]
    return tuple(Move(pod.key, pod.node, found[pod.key]) for pod in pods if pod.key in found), stuck


def _in_turn(going: Sequence[Movable]) -> Iterator[tuple[GroupRequest, list[Unit]]]:
    """Groups one after the other, the largest first, then all pods by themselves in one go."""
    groups = [each for each in going if each.unit.is_group]
    for each in sorted(groups, key=lambda each: (-len(each.unit.evicted), each.unit.key)):
        yield each.request, [each.unit]
    members: list[Member] = []
    alone = [each for each in going if not each.unit.is_group]
    for each in alone:
        members += each.request.members
    if members:
        yield GroupRequest("moved", tuple(members), 1), [each.unit for each in alone]


def _placements(cluster: Cluster, trial: Trial, request: GroupRequest) -> tuple[Placement, ...]:
    """Where the engine puts the members, which are put there."""
    try:
        decision = decide(trial, request, profile=cluster.profile)
    except DomainError:
        return ()
    if not isinstance(decision, Placed):
        return ()
    put_members(trial, list(request.members), decision.placements)
    return decision.placements
