"""Preemption for a group (or any set of pods that must fit together): the least disruptive victim set.

Units of lower priority anywhere in the cluster, or, for a group bound to a topology domain, in each domain. A plan is
only given if `decide` places enough members once the victims are gone: one truth for what fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.arrays import Bools, Ints
from muster.engine.decide import decide, verdict
from muster.engine.mixed import Demand, demands_of
from muster.engine.model import GroupRequest, Placed, Placement
from muster.engine.preemption.coupling import couples_nodes
from muster.engine.preemption.importance import by_importance
from muster.engine.preemption.least import Cost, Effort, Search, Victims
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import NEVER, Cluster
from muster.engine.preemption.problem import Problem, build, remove_all
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial
from muster.engine.topology.domains import domains_of

NO_VICTIMS = "No preemption victims found for incoming preemptor"
CANNOT_HELP = "the group does not fit even without all pods of lower priority"

DEFAULT_NODES = 2_000
"""Nodes of search trees that a decision may spend."""

_MOST_CHECKS = 8
_MOST_DOMAINS = 256


class GroupPreemptor(Struct, frozen=True):
    """A group that `decide` did not place. `need` of its members must fit, at least one."""

    request: GroupRequest
    priority: int
    may_preempt: bool = True

    @property
    def need(self) -> int:
        """How many of the pending members must fit."""
        return max(1, self.request.min_count - self.request.scheduled)

    def goal(self, domain: str | None) -> GroupRequest:
        """The request without scheduled members: `need` of the pending ones, in that domain of its topology key."""
        return replace(self.request, min_count=self.need, scheduled=0, topology_domain=domain)


class View(Struct, frozen=True):
    """Where the group may go as a whole: `nodes` bool[N], None for all; `domain`: the value of its topology key."""

    nodes: Bools | None = None
    domain: str | None = None


def preempt_group(
    cluster: Cluster,
    group: GroupPreemptor,
    *,
    nodes: int = DEFAULT_NODES,
    time_limit_s: float | None = None,
) -> Plan | NoPlan:
    """The least disruptive plan; for a group with a topology key, of all its domains.

    Compared are: evictions beyond budgets, the highest priority of a victim, evicted pods, run time lost, victims that
    could run elsewhere, names. `nodes` limits the exact search; a plan that is not proved least says so.
    """
    if not group.may_preempt:
        return NoPlan(NEVER)
    lower = [unit for unit in cluster.units if unit.priority < group.priority]
    if not lower:
        return NoPlan(NO_VICTIMS)
    with _base(cluster, group, lower) as base:
        return _Planner(cluster, group, base, lower, Effort(nodes, time_limit_s)).plan()


@contextmanager
def _base(cluster: Cluster, group: GroupPreemptor, lower: Sequence[Unit]) -> Iterator[Trial]:
    """The cluster as the group finds it: room kept for others is taken, pods of lower priority that leave are gone."""
    with cluster.snapshot.trial() as trial:
        index = trial.table.index
        for each in cluster.nominations:
            if each.priority >= group.priority and each.entity != group.request.key and each.node in index:
                trial.place(each.shape.usage, index[each.node])
        partly = [unit for unit in lower if len(unit.evicted) < len(unit.pods)]
        trial.remove(pod.key for unit in partly for pod in unit.pods if pod.leaving)
        yield trial


@dataclass(slots=True)
class _Planner:
    cluster: Cluster
    group: GroupPreemptor
    base: Trial
    lower: Sequence[Unit]
    effort: Effort

    demands: Sequence[Demand] = field(init=False)
    is_coupled: bool = field(init=False)
    leaving: Sequence[RunningPod] = field(init=False)
    _rooms: dict[Shape, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        profile = self.cluster.profile
        self.demands = demands_of(self.group.request.members)
        partly = [unit for unit in self.lower if len(unit.evicted) < len(unit.pods)]
        self.leaving = [pod for unit in partly for pod in unit.pods if pod.leaving]
        self.is_coupled = any(couples_nodes(profile, demand.shape, self.base) for demand in self.demands)

    @property
    def _is_laid_out(self) -> bool:
        """Whether members go to domains in parts, which the model does not know."""
        layout = self.group.request.layout
        return layout is not None and layout.has_units

    def plan(self) -> Plan | NoPlan:
        everything = self._views()
        for view in everything:
            placements = self._placed((), view) if self._may_fit(self.base, view) else ()
            if placements:
                return self._as_plan(placements, (), proved=True, fewest=0)
        candidates = [unit for unit in self.lower if unit.evicted]
        if not candidates:
            return NoPlan(NO_VICTIMS)
        with self.base.trial() as gone:
            remove_all(gone, candidates)
            hopeful = [view for view in everything if self._may_fit(gone, view)]
            if not hopeful:
                return NoPlan(CANNOT_HELP)
            if self.is_coupled or self._is_laid_out:
                return self._by_reprieve(candidates, hopeful)
            cluster = self.cluster
            whole = build(
                cluster.profile,
                self.base,
                gone,
                candidates,
                self.demands,
                self.group.need,
                cluster.budgets,
                cluster.now_s,
            )
        return self._best_of(whole, hopeful) or self._by_reprieve(candidates, hopeful)

    # -- where

    def _views(self) -> list[View]:
        """Where to try, the whole cluster or domain by domain."""
        request, table = self.group.request, self.base.table
        if request.topology_key is None:
            return [View()]
        domains = domains_of(table, request.topology_key)
        views = []
        for value, rows in zip(domains.values, np.split(domains.rows, domains.starts[1:]), strict=True):
            if request.topology_domain is None or value == request.topology_domain:
                mask = np.zeros(len(table), dtype=np.bool_)
                mask[rows] = True
                views.append(View(mask, value))
        return views

    def _may_fit(self, trial: Snapshot, view: View) -> bool:
        """Whether the group fits there, or may fit; False is certain."""
        if len(self.demands) == 1 and not self.is_coupled:
            counts = self.cluster.profile.count(self.demands[0].shape, trial)
            return int((counts if view.nodes is None else counts[view.nodes]).sum()) >= self.group.need
        return verdict(trial, self.group.goal(view.domain), profile=self.cluster.profile) is not False

    # -- the least set

    def _best_of(self, whole: Problem, views: Sequence[View]) -> Plan | None:
        """The plan of the domain whose victims are least; domains that cannot be better are left out."""
        fits: Bools = np.any(whole.caps, axis=1)
        problems = [
            (view, whole.within(fits if view.nodes is None else np.logical_and(fits, view.nodes))) for view in views
        ]
        bounds = [(problem.lowest_level(), problem.fewest_pods()) for _, problem in problems]
        order = sorted((level, pods, place) for place, (level, pods) in enumerate(bounds) if level is not None)
        best: tuple[Cost, Plan] | None = None
        proved = True
        for number, (level, pods, place) in enumerate(order):
            if best is not None and (0, level, pods, 0) > best[0]:
                continue
            if number >= _MOST_DOMAINS:
                proved = False
                break
            view, problem = problems[place]
            found = self._checked(problem, view, None if best is None else best[0])
            if found is None:
                continue
            if best is None or (found[0], found[1].evicted) < (best[0], best[1].evicted):
                best = found
        if best is None:
            return None
        return best[1] if proved else replace(best[1], proved=False)

    def _checked(self, problem: Problem, view: View, limit: Cost | None) -> tuple[Cost, Plan] | None:
        """The least set after whose eviction the engine places the group; None if none costs at most `limit`."""
        search = Search(problem, self.effort, lambda: self._elsewhere(problem), limit)
        for _ in range(_MOST_CHECKS):
            found = search.least()
            if found is None:
                return None
            victims = [unit for unit, out in zip(problem.units, found.chosen.tolist(), strict=True) if out]
            placements = self._placed(victims, view) or self._as_counted(victims, problem, found)
            if placements:
                plan = self._as_plan(placements, victims, proved=found.proved, fewest=found.fewest_pods)
                return problem.cost(found.chosen), plan
            search.excluded.append(found.chosen)
        return None

    def _placed(self, victims: Sequence[Unit], view: View) -> tuple[Placement, ...]:
        """Where `decide` puts the members once the victims are gone; empty if it does not."""
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            decision = decide(trial, self.group.goal(view.domain), profile=self.cluster.profile)
        return decision.placements if isinstance(decision, Placed) else ()

    def _as_counted(self, victims: Sequence[Unit], problem: Problem, found: Victims) -> tuple[Placement, ...]:
        """The placement that the search itself found, if every rule accepts it pod by pod."""
        if found.counts is None:
            return ()
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            placed = _place_counts(trial, self.cluster, self.demands, problem.nodes, found.counts, self.group.request)
        return placed if len(placed) >= self.group.need else ()

    def _as_plan(
        self, placements: tuple[Placement, ...], victims: Sequence[Unit], *, proved: bool, fewest: int
    ) -> Plan:
        used = {placement.node for placement in placements}
        waits = tuple(pod.key for pod in self.leaving if pod.node in used)
        ordered = tuple(by_importance(victims, self.cluster.now_s))
        violations = self.cluster.budgets.violations(victims)
        return Plan(placements, ordered, violations, waits, proved, fewest, self.effort.spent)

    def _elsewhere(self, problem: Problem) -> Ints:
        """int64[U]: pods of each unit for which some node has room now."""
        found = np.zeros(len(problem.units), dtype=np.int64)
        if self.cluster.shape_of is not None:
            for place, unit in enumerate(problem.units):
                found[place] = sum(self._has_room(self.cluster.shape_of(pod.key)) for pod in unit.evicted)
        return found

    def _has_room(self, shape: Shape | None) -> int:
        """1 if some node has room for such a pod now."""
        if shape is None:
            return 0
        if shape not in self._rooms:
            self._rooms[shape] = int(self.cluster.profile.count(shape, self.cluster.snapshot).any())
        return self._rooms[shape]

    # -- rules that cannot be modelled

    def _by_reprieve(self, candidates: Sequence[Unit], views: Sequence[View]) -> Plan | NoPlan:
        """All candidates go, then each comes back that need not: those that violate a budget first, then the important.

        For rules that couple nodes, where the group may even need a victim to stay.
        """
        ordered = by_importance(candidates, self.cluster.now_s)
        violating = self.cluster.budgets.violating(ordered)
        ordered = [unit for unit in ordered if unit.key in violating] + [
            unit for unit in ordered if unit.key not in violating
        ]
        for view in views:
            victims = self._spared(ordered, view)
            placements = self._placed(victims, view)
            if placements:
                return self._as_plan(placements, victims, proved=False, fewest=1)
        return NoPlan(CANNOT_HELP)

    def _spared(self, ordered: Sequence[Unit], view: View) -> list[Unit]:
        """The units that cannot stay, trying to keep ever smaller runs of neighbours at once."""
        out = {unit.key: unit for unit in ordered}
        runs = [list(ordered)]
        while runs:
            run = runs.pop(0)
            for unit in run:
                out.pop(unit.key)
            if self._fits(list(out.values()), view):
                continue
            out.update((unit.key, unit) for unit in run)
            if len(run) > 1:
                middle = len(run) // 2
                runs[:0] = [run[:middle], run[middle:]]
        return [unit for unit in ordered if unit.key in out]

    def _fits(self, victims: Sequence[Unit], view: View) -> bool:
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            return verdict(trial, self.group.goal(view.domain), profile=self.cluster.profile) is True


def _keys(units: Sequence[Unit]) -> list[str]:
    return [pod.key for unit in units for pod in unit.evicted]


def _place_counts(
    trial: Trial, cluster: Cluster, demands: Sequence[Demand], nodes: Ints, counts: Ints, request: GroupRequest
) -> tuple[Placement, ...]:
    """Members on the nodes as counted [N, G], as far as the rules accept each; in the order of the group."""
    names, placed = trial.table.names, list[tuple[int, str]]()
    for shape, demand in enumerate(demands):
        places = iter(demand.places)
        room = cluster.profile.count(demand.shape, trial)
        for node in np.flatnonzero(counts[:, shape]).tolist():
            row = int(nodes[node])
            number = int(min(counts[node, shape], room[row]))
            taken = [place for _, place in zip(range(number), places, strict=False)]
            placed += [(place, names[row]) for place in taken]
            trial.place(demand.shape.usage, row, len(taken))
    return tuple(Placement(request.members[place].key, node) for place, node in sorted(placed))
