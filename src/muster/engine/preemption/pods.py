"""DefaultPreemption for a single pod: on which node which victims make room for it.

Source: kube-scheduler `framework/preemption/preemption.go` and `plugins/defaultpreemption/default_preemption.go`
(filters-and-scores.md 14). All candidate nodes are tried in step where the rules look at one node alone: the dry run
then costs as many passes over the nodes as the fullest node has victims. Rules that couple nodes are tried node by
node, at most as many nodes as upstream would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from muster.engine.arrays import Bools
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.diagnose import node_statuses
from muster.engine.model import Placement, Status
from muster.engine.preemption.budgets import Budgets
from muster.engine.preemption.coupling import couples_nodes
from muster.engine.preemption.importance import importance
from muster.engine.preemption.model import Nomination, NoPlan, Plan, Unit
from muster.engine.profile import DEFAULT_PREEMPTION, PreemptionArguments, Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial

NEVER = "not eligible due to preemptionPolicy=Never."
WAITS = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = Status("", ("No preemption victims found for incoming pod",), resolvable=False)
NOT_HELPFUL = "Preemption is not helpful for scheduling"
_LOWEST_PRIORITY = -(2**31)


class PodPreemptor(Struct, frozen=True):
    """A pending pod that fits nowhere. `nominated`: the node of its last preemption, "" without one."""

    key: str
    shape: Shape
    priority: int
    may_preempt: bool = True
    nominated: str = ""


class Candidate(Struct, frozen=True):
    """A node that the pod fits on without the victims (the most important first)."""

    node: str
    victims: tuple[Unit, ...]
    violations: int


class DryRun(Struct, frozen=True):
    """Candidates in NodeTable order, and why the other nodes that were tried are none; `nodes` there are in all."""

    candidates: tuple[Candidate, ...]
    rejected: Mapping[str, Status]
    nodes: int

    def text(self) -> str:
        """Why preemption helps nowhere, as upstream says it."""
        reasons: Counter[str] = Counter(reason for status in self.rejected.values() for reason in status.reasons)
        if others := self.nodes - len(self.rejected):
            reasons[NOT_HELPFUL] += others
        parts = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return f"0/{self.nodes} nodes are available: {parts}."


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a dry run looks at. `units` may hold any running unit, in the order in which they came to their nodes.

    Only those of lower priority can be victims.
    """

    snapshot: Snapshot
    units: Sequence[Unit]
    now_s: float
    budgets: Budgets = field(default_factory=Budgets)
    nominations: Sequence[Nomination] = ()
    profile: Profile = DEFAULT_PROFILE
    arguments: PreemptionArguments = DEFAULT_PREEMPTION
    shape_of: Callable[[str], Shape | None] | None = None
    """What a running pod (by key) would ask for on another node, if that is known."""


def _first(candidates: Sequence[Candidate]) -> Candidate:
    return candidates[0]


def preempt_pod(
    cluster: Cluster, pod: PodPreemptor, *, choose: Callable[[Sequence[Candidate]], Candidate] = _first
) -> Plan | NoPlan:
    """The node and the victims for a pod that `decide` placed nowhere. `choose` picks one of equally good nodes."""
    refusal = ineligible(cluster, pod)
    if refusal is not None:
        return refusal
    run = dry_run(cluster, pod)
    if not run.candidates:
        return NoPlan(run.text())
    chosen = choose(best_candidates(run.candidates, cluster.now_s))
    leaving = tuple(each.key for unit in chosen.victims for each in unit.pods if each.leaving)
    return Plan((Placement(pod.key, chosen.node),), chosen.victims, chosen.violations, leaving)


def ineligible(cluster: Cluster, pod: PodPreemptor) -> NoPlan | None:
    """Why the pod may not preempt now, if so."""
    if not pod.may_preempt:
        return NoPlan(NEVER)
    if not pod.nominated:
        return None
    status = _statuses(cluster, pod).get(pod.nominated)
    if status is not None and not status.resolvable:
        return None
    for unit in cluster.units:
        if unit.priority < pod.priority and any(each.preempted and each.node == pod.nominated for each in unit.pods):
            return NoPlan(WAITS, is_waiting=True)
    return None


def dry_run(cluster: Cluster, pod: PodPreemptor) -> DryRun:
    """Tries every node that preemption could help on."""
    statuses = _statuses(cluster, pod)
    index = cluster.snapshot.table.index
    hopeful = {index[node] for node, status in statuses.items() if status.resolvable}
    local = _units_by_row(cluster, pod, hopeful)
    rows = sorted(hopeful & local.keys())
    found, rejected = _tried(cluster, pod, rows, local)
    names = cluster.snapshot.table.names
    for row in sorted(hopeful - local.keys()):
        rejected[row] = NO_VICTIMS
    return DryRun(tuple(found), {names[row]: rejected[row] for row in sorted(rejected)}, len(names))


def best_candidates(candidates: Sequence[Candidate], now_s: float) -> list[Candidate]:
    """The candidates that upstream may choose, in the order given; more than one is a tie."""
    left = list(candidates)
    for criterion in _CRITERIA:
        if len(left) == 1:
            break
        values = [criterion(each, now_s) for each in left]
        best = min(values)
        left = [each for each, value in zip(left, values, strict=True) if value == best]
    return left


def lower_nominations(nominations: Iterable[Nomination], pod: PodPreemptor, node: str) -> list[Nomination]:
    """The nominations to a node that a preemption by the pod clears: those of lower priority."""
    return [each for each in nominations if each.node == node and each.priority < pod.priority and each.pod != pod.key]


# -- choice ----------------------------------------------------------------------------------------------------------


def _violations(candidate: Candidate, now_s: float) -> float:
    return candidate.violations


def _highest_priority(candidate: Candidate, now_s: float) -> float:
    return candidate.victims[0].priority if candidate.victims else _LOWEST_PRIORITY


def _sum_of_priorities(candidate: Candidate, now_s: float) -> float:
    return sum((unit.priority - _LOWEST_PRIORITY) * len(unit.pods) for unit in candidate.victims)


def _number(candidate: Candidate, now_s: float) -> float:
    return sum(len(unit.pods) for unit in candidate.victims)


def _latest_start(candidate: Candidate, now_s: float) -> float:
    highest = _highest_priority(candidate, now_s)
    starts = [unit.earliest_start_s(now_s) for unit in candidate.victims if unit.priority == highest]
    return -min(starts, default=0.0)


_CRITERIA = (_violations, _highest_priority, _sum_of_priorities, _number, _latest_start)


# -- dry run ---------------------------------------------------------------------------------------------------------


def _statuses(cluster: Cluster, pod: PodPreemptor) -> dict[str, Status]:
    """Why the pod does not fit, by node, with the pods counted that are nominated before it."""
    with cluster.snapshot.trial() as trial:
        place_nominated(trial, cluster, pod, 1)
        return node_statuses(cluster.profile, trial, pod.shape)


def _units_by_row(cluster: Cluster, pod: PodPreemptor, rows: set[int]) -> dict[int, list[Unit]]:
    """The units of lower priority with a pod on each of the rows, most important first."""
    index = cluster.snapshot.table.index
    found: dict[int, list[Unit]] = {}
    for unit in cluster.units:
        if unit.priority < pod.priority:
            for row in dict.fromkeys(index.get(each.node, -1) for each in unit.pods):
                if row in rows:
                    found.setdefault(row, []).append(unit)
    return {row: sorted(units, key=lambda unit: _rank(unit, cluster)) for row, units in found.items()}


def _rank(unit: Unit, cluster: Cluster) -> tuple[int, int, int, float]:
    """Importance alone: of units that are alike, the one that came first stays, as upstream has it."""
    return importance(unit, cluster.now_s)[:4]


def _tried(
    cluster: Cluster, pod: PodPreemptor, rows: list[int], local: Mapping[int, list[Unit]]
) -> tuple[list[Candidate], dict[int, Status]]:
    if not couples_nodes(cluster.profile, pod.shape, cluster.snapshot):
        return _dry_run(cluster, pod, rows, local)
    found: list[Candidate] = []
    rejected: dict[int, Status] = {}
    wanted = _wanted(len(rows), cluster.arguments)
    for row in rows:  # such a rule must see one node's victims gone and nobody else's
        if len(found) >= wanted and any(not each.violations for each in found):
            break
        more, why_not = _dry_run(cluster, pod, [row], local)
        found += more
        rejected.update(why_not)
    return found, rejected


def _wanted(nodes: int, arguments: PreemptionArguments) -> int:
    """How many candidates are enough."""
    share = nodes * arguments.min_candidate_nodes_percentage // 100
    return min(nodes, max(share, arguments.min_candidate_nodes_absolute))


def _dry_run(
    cluster: Cluster, pod: PodPreemptor, rows: list[int], local: Mapping[int, list[Unit]]
) -> tuple[list[Candidate], dict[int, Status]]:
    """Removes all potential victims from the rows, then gives back in step what need not go."""
    names = cluster.snapshot.table.names
    with cluster.snapshot.trial() as trial:
        place_nominated(trial, cluster, pod, 1)
        trial.remove(each.key for row in rows for unit in local[row] for each in unit.pods)
        fits = _fits(trial, cluster, pod)
        open_ = [row for row in rows if fits[row]]
        rejected = _rejections(trial, cluster, pod, [row for row in rows if not fits[row]])
        counts = {row: cluster.budgets.violating(local[row]) for row in open_}
        spared = {
            row: [unit for unit in local[row] if unit.key in counts[row]]
            + [unit for unit in local[row] if unit.key not in counts[row]]
            for row in open_
        }
        victims = _without_reprieved(trial, cluster, pod, spared)
    found = [
        Candidate(
            names[row],
            # Of equally important victims the one comes first that could not be spared first, as upstream has it.
            tuple(sorted(victims[row], key=lambda unit: _rank(unit, cluster))),
            sum(counts[row].get(unit.key, 0) for unit in victims[row]),
        )
        for row in open_
    ]
    return found, rejected


def _without_reprieved(
    trial: Trial, cluster: Cluster, pod: PodPreemptor, spared: Mapping[int, list[Unit]]
) -> dict[int, list[Unit]]:
    """The victims on each row after every unit was given back, in order, where the pod still fits."""
    alone = len(spared) == 1
    victims: dict[int, list[Unit]] = {row: [] for row in spared}
    names = cluster.snapshot.table.names
    for step in range(max(map(len, spared.values()), default=0)):
        rows = [row for row, units in spared.items() if len(units) > step]
        # Pods of a unit on other nodes matter only to rules that couple nodes, and those see one row at a time.
        keys = {row: [each.key for each in spared[row][step].pods if alone or each.node == names[row]] for row in rows}
        trial.restore(key for row in rows for key in keys[row])
        fits = _fits(trial, cluster, pod)
        failed = [row for row in rows if not fits[row]]
        trial.remove(key for row in failed for key in keys[row])
        for row in failed:
            victims[row].append(spared[row][step])
    return victims


def _fits(trial: Trial, cluster: Cluster, pod: PodPreemptor) -> Bools:
    """bool[N]: whether the pod fits with those nominated before it, and, for rules that need others, without them."""
    fits: Bools = cluster.profile.count(pod.shape, trial) > 0
    if _before(cluster, pod) and couples_nodes(cluster.profile, pod.shape, cluster.snapshot):
        place_nominated(trial, cluster, pod, -1)
        fits &= cluster.profile.count(pod.shape, trial) > 0
        place_nominated(trial, cluster, pod, 1)
    return fits


def _rejections(trial: Trial, cluster: Cluster, pod: PodPreemptor, rows: list[int]) -> dict[int, Status]:
    if not rows:
        return {}
    names = cluster.snapshot.table.names
    statuses = node_statuses(cluster.profile, trial, pod.shape)
    return {row: statuses[names[row]] for row in rows if names[row] in statuses}


def _before(cluster: Cluster, pod: PodPreemptor) -> list[Nomination]:
    return [each for each in cluster.nominations if each.priority >= pod.priority and each.pod != pod.key]


def place_nominated(trial: Trial, cluster: Cluster, pod: PodPreemptor, sign: int) -> None:
    index = trial.table.index
    for each in _before(cluster, pod):
        row = index.get(each.node)
        if row is not None:
            trial.place(each.shape.usage, row, sign)
