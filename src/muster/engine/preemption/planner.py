"""The search for the least plan: problems by domain, the cheapest first, each found set checked by the engine.

The problems say at most what the preemptor asks, so the least set of all domains that the engine accepts is the least
there is. A set that is refused is cut off (with all sets that have less, where more evictions never hurt), and the
search goes on; what remains when the effort is spent is reported with its gap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from muster.engine.arrays import Bools, Ints
from muster.engine.between import Apart, AtMost, rules_between
from muster.engine.mixed import Demand, demands_of
from muster.engine.model import Placement
from muster.engine.preemption.bounds import Bound, bounds
from muster.engine.preemption.building import Census, build, census, remove_all
from muster.engine.preemption.coupling import couples_nodes
from muster.engine.preemption.forms import Parts
from muster.engine.preemption.importance import by_importance
from muster.engine.preemption.least import Cost, Cut, Effort, Search, Victims
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.preemption.problem import Problem
from muster.engine.preemption.wanted import Answer, GroupPreemptor, View, Wanted
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot, Trial

NO_VICTIMS = "No preemption victims found for incoming preemptor"
CANNOT_HELP = "the group does not fit even without all pods of lower priority"

_MOST_SEARCHES = 512
"""So many times the least set of a domain is looked for."""
_MOST_GROWN = 16
"""So many questions may be asked to find more that is not enough beside a refused set."""
_NEVER = 2**62
_LAST = ("\U0010ffff",)
"""Stands for the names of a set that costs more than another one, nobody knows how much."""

Rank: TypeAlias = tuple[Cost, tuple[str, ...]]
"""What is compared: costs, then the sorted names of units."""


@dataclass(slots=True)
class _Option:
    """The search in one domain: it is begun when it is asked for. `found`: the least set and its rank, once known."""

    view: View
    problem: Callable[[], Problem]
    effort: Effort
    elsewhere: Callable[[Problem, Bools], Ints]
    bound: Bound
    found: tuple[Rank, Victims] | None = None
    _search: Search | None = None

    @property
    def search(self) -> Search:
        """The search in its domain."""
        if self._search is None:
            problem, bound = self.problem(), self.bound
            floor = bound.level, bound.pods, bound.seconds
            self._search = Search(problem, self.effort, partial(self.elsewhere, problem), floor)
        return self._search

    def look(self, limit: Cost | None) -> bool:
        """Finds the least set that costs at most the limit; False if there is none."""
        victims = self.search.least(limit)
        if victims is None:
            return False
        names = tuple(self.search.problem.units[unit].key for unit in np.flatnonzero(victims.chosen).tolist())
        self.found = (self.search.cost(victims.chosen), names), victims
        return True

    def victims(self, chosen: Bools) -> list[Unit]:
        """The units of a choice."""
        units = self.search.problem.units
        return [units[unit] for unit in np.flatnonzero(chosen).tolist()]


@dataclass(slots=True)
class Planner:
    """One search for one preemptor. `base`: the cluster as it finds it; `lower`: the units below it."""

    cluster: Cluster
    wanted: Wanted
    base: Trial
    lower: Sequence[Unit]
    effort: Effort

    demands: Sequence[Demand] = field(init=False)
    is_coupled: bool = field(init=False)
    leaving: Sequence[RunningPod] = field(init=False)
    _certain: bool = field(init=False, default=True)
    """Every refusal so far was proved."""
    _bound: Cost | None = field(init=False, default=None)
    """No set costs less, as far as every refusal was proved."""
    _rooms: dict[Shape, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        profile = self.cluster.profile
        self.demands = demands_of(self.wanted.members)
        partly = [unit for unit in self.lower if len(unit.evicted) < len(unit.pods)]
        self.leaving = [pod for unit in partly for pod in unit.pods if pod.leaving]
        self.is_coupled = any(couples_nodes(profile, demand.shape, self.base) for demand in self.demands)

    def plan(self) -> Plan | NoPlan:
        """The least plan, or why there is none."""
        everything = self.wanted.views(self.base.table)
        for view in everything:
            placements = self._answer((), view).placements if self._may_fit(self.base, view) else ()
            if placements:
                return self._as_plan(placements, (), proved=True, fewest=0)
        candidates = [unit for unit in self.lower if unit.evicted]
        if not candidates:
            return NoPlan(NO_VICTIMS)
        found = census(self.base, candidates)
        with self.base.trial() as gone:
            remove_all(gone, found)
            hopeful = [view for view in everything if self._may_fit(gone, view)]
            if not hopeful and not self._needs_others:
                return NoPlan(CANNOT_HELP)
            options = self._options(gone, found, hopeful or everything)
        return self._least_of(options) or self._by_reprieve(candidates, hopeful)

    @property
    def _needs_others(self) -> bool:
        """Whether fewer evictions may be better than more: some rule wants others to be there."""
        if not self.is_coupled:
            return False
        shapes = [demand.shape for demand in self.demands]
        if any(shape.usage.volumes for shape in shapes):
            return True
        rules = rules_between(self.cluster.profile, shapes, self.base)
        return not all(isinstance(rule, Apart | AtMost) for rule in rules)

    def _may_fit(self, trial: Snapshot, view: View) -> bool:
        """Whether the preemptor fits there, or may fit; False is certain."""
        if len(self.demands) == 1 and not self.is_coupled:
            counts = self.cluster.profile.count(self.demands[0].shape, trial)
            return int((counts if view.nodes is None else counts[view.nodes]).sum()) >= self.wanted.need
        return self.wanted.verdict(self.cluster.profile, trial, view.domain) is not False

    # -- the problems

    def _options(self, gone: Trial, found: Census, views: Sequence[View]) -> list[_Option]:
        """A search for each domain that may hold the preemptor."""
        cluster, wanted = self.cluster, self.wanted
        whole = build(
            cluster.profile,
            self.base,
            gone,
            found,
            self.demands,
            wanted.need,
            cluster.budgets,
            cluster.now_s,
            is_coupled=self.is_coupled,
        )
        ids = _ids(views, len(self.base))
        fits = np.asarray(np.any(whole.caps, axis=1), dtype=np.bool_)
        options = []
        for number, (view, bound) in enumerate(zip(views, bounds(whole, ids, len(views)), strict=True)):
            if bound is not None:
                problem = partial(self._inside, whole, view, fits & (ids == number))
                options.append(_Option(view, problem, self.effort, self._elsewhere, bound))
        return options

    def _inside(self, whole: Problem, view: View, nodes: Bools) -> Problem:
        """The problem of one domain. Where rules look at other nodes, units there count as well."""
        form = self.wanted.form(self.base.table, view, len(self.demands))
        if isinstance(form, Parts):
            nodes = nodes & (form.ids >= 0)
        whole = replace(whole, form=form)
        if not self.is_coupled:
            return whole.within(nodes)
        return replace(whole, caps=np.where(nodes[:, None], whole.caps, 0))

    def _elsewhere(self, problem: Problem, units: Bools) -> Ints:
        """int64[U]: pods of each of these units for which some node has room now."""
        found = np.zeros(len(problem.units), dtype=np.int64)
        shape_of = self.cluster.shape_of
        if shape_of is not None:
            for place in np.flatnonzero(units).tolist():
                found[place] = sum(self._has_room(shape_of(pod.key)) for pod in problem.units[place].evicted)
        return found

    def _has_room(self, shape: Shape | None) -> int:
        """1 if some node has room for such a pod now."""
        if shape is None:
            return 0
        if shape not in self._rooms:
            self._rooms[shape] = int(self.cluster.profile.count(shape, self.cluster.snapshot).any())
        return self._rooms[shape]

    # -- the least set

    def _least_of(self, options: Sequence[_Option]) -> Plan | None:
        """The plan with the least set of all domains that the engine accepts; None if none was found in time."""
        heap: list[tuple[Rank, int]] = [((_least_cost(option.bound), ()), at) for at, option in enumerate(options)]
        heapq.heapify(heap)
        limit: Cost | None = None
        searches = 0
        while heap:
            self._bound, at = heap[0][0][0], heapq.heappop(heap)[1]
            option = options[at]
            if option.found is not None:
                plan = self._checked(option, *option.found)
                if plan is not None:
                    return plan
                if self.effort.checks <= 0:
                    return None
                option.found, limit = None, None
                heapq.heappush(heap, ((self._bound, ()), at))
                continue
            searches += 1
            if searches > _MOST_SEARCHES:
                self._certain = False
            elif option.look(limit):
                assert option.found is not None, "it was found"
                cost = option.found[0][0]
                limit = cost if limit is None else min(limit, cost)
                heapq.heappush(heap, (option.found[0], at))
            elif limit is not None:
                heapq.heappush(heap, ((limit, _LAST), at))
        return None

    def _checked(self, option: _Option, rank: Rank, found: Victims) -> Plan | None:
        """The plan with a set, if the engine places the preemptor once it is gone; else the set is cut off."""
        victims, search = option.victims(found.chosen), option.search
        self.effort.check()
        answer = self._answer(victims, option.view)
        placements = answer.placements or self._as_counted(victims, search.problem, found)
        if placements:
            return self._as_plan(
                placements, victims, proved=found.proved and self._certain, fewest=self._fewest(rank[0], found)
            )
        self._certain = self._certain and answer.certain
        if self._needs_others:
            search.cuts.append(Cut(found.chosen, alone=True))
        else:
            search.cuts.append(Cut(self._grown(option, found.chosen) if answer.certain else found.chosen))
        return None

    def _fewest(self, cost: Cost, found: Victims) -> int:
        """The bound on pods, for sets as good as this one in what comes before."""
        return min(found.fewest_pods, cost[2]) if self._certain else 1

    def _grown(self, option: _Option, chosen: Bools) -> Bools:
        """As many units as were found that are not enough, these among them: what is cut off is then more."""
        others = np.flatnonzero(~chosen).tolist()
        runs, asked = [others] if others else [], 0
        chosen = chosen.copy()
        while runs and asked < _MOST_GROWN and self.effort.check():
            run = runs.pop(0)
            asked += 1
            chosen[run] = True
            if self._verdict(option.victims(chosen), option.view) is False:
                continue
            chosen[run] = False
            if len(run) > 1:
                middle = len(run) // 2
                runs += [run[:middle], run[middle:]]
        return chosen

    # -- the engine's word

    def _answer(self, victims: Sequence[Unit], view: View) -> Answer:
        """Where the engine puts the members once the victims are gone."""
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            return self.wanted.decide(self.cluster.profile, trial, view.domain)

    def _verdict(self, victims: Sequence[Unit], view: View) -> bool | None:
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            return self.wanted.verdict(self.cluster.profile, trial, view.domain)

    def _as_counted(self, victims: Sequence[Unit], problem: Problem, found: Victims) -> tuple[Placement, ...]:
        """The placement that the search itself found, if every rule accepts it pod by pod."""
        if found.counts is None or problem.form is not None or self.is_coupled:
            return ()
        if isinstance(self.wanted, GroupPreemptor) and self.wanted.request.layout is not None:
            return ()
        with self.base.trial() as trial:
            trial.remove(_keys(victims))
            placed = self._put(trial, problem.nodes, found.counts)
        return placed if len(placed) >= self.wanted.need else ()

    def _put(self, trial: Trial, nodes: Ints, counts: Ints) -> tuple[Placement, ...]:
        """Members on the nodes as counted [N, G], as far as the rules accept each; in the order of the group."""
        names, placed = trial.table.names, list[tuple[int, str]]()
        for shape, demand in enumerate(self.demands):
            places = iter(demand.places)
            room = self.cluster.profile.count(demand.shape, trial)
            for node in np.flatnonzero(counts[:, shape]).tolist():
                row = int(nodes[node])
                number = int(min(counts[node, shape], room[row]))
                taken = [place for _, place in zip(range(number), places, strict=False)]
                placed += [(place, names[row]) for place in taken]
                trial.place(demand.shape.usage, row, len(taken))
        return tuple(Placement(self.wanted.members[place].key, node) for place, node in sorted(placed))

    def _as_plan(
        self, placements: tuple[Placement, ...], victims: Sequence[Unit], *, proved: bool, fewest: int
    ) -> Plan:
        used = {placement.node for placement in placements}
        waits = tuple(pod.key for pod in self.leaving if pod.node in used)
        ordered = tuple(by_importance(victims, self.cluster.now_s))
        violations = self.cluster.budgets.violations(victims)
        return Plan(placements, ordered, violations, waits, proved, fewest, self.effort.spent)

    # -- what is left if the search was given up

    def _by_reprieve(self, candidates: Sequence[Unit], views: Sequence[View]) -> Plan | NoPlan:
        """All up to the lowest priority that will do go, then each comes back that need not: those that violate a
        budget first, then the important."""
        ordered = by_importance(candidates, self.cluster.now_s)
        violating = self.cluster.budgets.violating(ordered)
        ordered = sorted(ordered, key=lambda unit: unit.key not in violating)
        for view in views:
            victims = self._spared(self._up_to_level(ordered, view), view)
            answer = self._answer(victims, view)
            if answer.placements:
                cost = self.cluster.budgets.violations(victims), max(unit.priority for unit in victims)
                is_bound = self._certain and self._bound is not None and self._bound[:2] == cost
                fewest = self._bound[2] if is_bound and self._bound is not None else 1
                return self._as_plan(answer.placements, victims, proved=False, fewest=max(1, fewest))
        return NoPlan(CANNOT_HELP)

    def _up_to_level(self, ordered: Sequence[Unit], view: View) -> Sequence[Unit]:
        """Those up to the lowest priority with which the preemptor fits, where more evictions never hurt."""
        levels = sorted({unit.priority for unit in ordered})
        low, high = 0, len(levels) - 1
        while low < high and not self._needs_others:
            middle = (low + high) // 2
            if self._verdict([unit for unit in ordered if unit.priority <= levels[middle]], view) is True:
                high = middle
            else:
                low = middle + 1
        return [unit for unit in ordered if unit.priority <= levels[high]]

    def _spared(self, ordered: Sequence[Unit], view: View) -> list[Unit]:
        """The units that cannot stay, trying to keep ever smaller runs of neighbours at once."""
        out = {unit.key: unit for unit in ordered}
        runs = [list(ordered)]
        while runs:
            run = runs.pop(0)
            for unit in run:
                out.pop(unit.key)
            if self._verdict(list(out.values()), view) is True:
                continue
            out.update((unit.key, unit) for unit in run)
            if len(run) > 1:
                middle = len(run) // 2
                runs[:0] = [run[:middle], run[middle:]]
        return [unit for unit in ordered if unit.key in out]


def _ids(views: Sequence[View], nodes: int) -> Ints:
    """int64[N]: the view of each node, -1 for none; views do not overlap."""
    ids = np.full(nodes, -1, dtype=np.int64)
    for number, view in enumerate(views):
        ids[slice(None) if view.nodes is None else view.nodes] = number
    return ids


def _least_cost(bound: Bound) -> Cost:
    return 0, bound.level, bound.pods, bound.seconds, -_NEVER


def _keys(units: Sequence[Unit]) -> list[str]:
    return [pod.key for unit in units for pod in unit.evicted]
