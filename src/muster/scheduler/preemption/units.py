"""What could be evicted: the running pods as units, kept up to date pod by pod, and the disruption budgets."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from muster.api.codec import Object
from muster.api.groups import GroupTerms
from muster.api.meta import condition, is_deleting, key_of
from muster.api.selectors import SelectorError
from muster.client.informer import Change
from muster.clock import parse_rfc3339
from muster.engine.preemption.budgets import Budget, Budgets, parse_budget
from muster.engine.preemption.model import RunningPod, Unit
from muster.engine.shape import Shape
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.members import PodRecord

BY_SCHEDULER = "PreemptionByScheduler"
DISRUPTION_TARGET = "DisruptionTarget"


class Part(Struct, frozen=True):
    """The units of one group: none where it is evicted with all of the group above it, `composite`."""

    units: tuple[Unit, ...] = ()
    composite: str = ""


class Units:
    """The units of a cache. Looking at them costs what changed since the last time."""

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        self._evicting: dict[str, None] = {}
        self._kept: dict[str, None] = {}
        self._single: dict[str, Unit] = {}
        self._grouped: dict[str, dict[str, RunningPod]] = {}
        self._group_of: dict[str, str] = {}
        self._parts: dict[str, Part] = {}
        """By group; of those that have changed there is none."""
        self._trees: dict[str, Unit] = {}
        """By composite group, likewise."""
        self._terms: dict[str, GroupTerms | None] = {}
        """What groups ask for, likewise."""
        self._all: tuple[Unit, ...] | None = None
        self._lowest: int | None = None
        self._budgets: dict[str, Budget] = {}

    def all(self) -> tuple[Unit, ...]:
        """All units: pods without a group, pods of groups that may go one by one, whole groups."""
        self._catch_up()
        if self._all is None:
            self._all = tuple(self._found())
            self._lowest = min((unit.priority for unit in self._all), default=None)
        return self._all

    def below(self, priority: int) -> bool:
        """Whether there is a unit of lower priority."""
        self.all()
        return self._lowest is not None and self._lowest < priority

    def single(self) -> list[Unit]:
        """The pods without a group."""
        self._catch_up()
        return [unit for unit in self._single.values() if unit.key not in self._kept]

    def grouped(self) -> list[Unit]:
        """Each group as a whole, whatever its disruption mode."""
        self._catch_up()
        found = (
            self._unit(f"group:{key}", pods, self._terms_of(self._first(pods))) for key, pods in self._grouped.items()
        )
        return [unit for unit in found if not any(pod.key in self._kept for pod in unit.pods)]

    def priority(self, pod: str) -> int | None:
        """The priority with which a running pod is judged; None if it does not run."""
        self._catch_up()
        record = self._cache.pods.get(pod)
        if record is None or not record.node:
            return None
        return self._priority(record, self._terms_of(record))

    def budgets(self) -> Budgets:
        """The disruption budgets."""
        return Budgets(self._budgets.values())

    def apply_budgets(self, changes: Iterable[Change]) -> None:
        """Takes over changes of PodDisruptionBudgets."""
        for change in changes:
            self.set_budget(key_of(change.object), change.new)

    def set_budget(self, key: str, obj: Object | None) -> None:
        """Takes over a PodDisruptionBudget; one that cannot be read protects nothing."""
        try:
            budget = None if obj is None else parse_budget(obj)
        except SelectorError:
            budget = None
        if budget is None:
            self._budgets.pop(key, None)
        else:
            self._budgets[key] = budget

    def evicting(self, pods: Iterable[str]) -> None:
        """These pods are about to be deleted by us: they count as leaving before the API server says so."""
        for pod in pods:
            self._evicting[pod] = None
            self._cache.assigned_changed[pod] = None

    def keep(self, pod: str) -> None:
        """The server does not delete this pod: it is no victim any more, nor is the unit that it is a part of."""
        self._evicting.pop(pod, None)
        self._kept[pod] = None
        self._cache.assigned_changed[pod] = None

    def shape_of(self, pod: str) -> Shape | None:
        """What a running pod would ask for on another node."""
        record = self._cache.pods.get(pod)
        if record is None:
            return None
        pod_anywhere = {**record.pod, "spec": {**record.pod["spec"], "nodeName": ""}}
        try:
            return self._cache.state.shape_of(pod_anywhere)
        except ValueError:
            return None

    # -- upkeep

    def _catch_up(self) -> None:
        changed, self._cache.assigned_changed = self._cache.assigned_changed, {}
        groups, self._cache.terms_changed = self._cache.terms_changed, {}
        for group in groups:
            self._look_again(group)
        if changed:
            self._all = None
        for key in changed:
            self._drop(key)
            record = self._cache.pods.get(key)
            if record is None:
                self._evicting.pop(key, None)
                self._kept.pop(key, None)
            elif record.node:
                self._add(key, record)

    def _look_again(self, group: str) -> None:
        """The pods of a group have changed, or what it asks for."""
        self._terms.pop(group, None)
        part = self._parts.pop(group, None)
        if part is not None:
            self._trees.pop(part.composite, None)
            self._all = None

    def _drop(self, key: str) -> None:
        self._single.pop(key, None)
        group = self._group_of.pop(key, None)
        if group is not None:
            self._look_again(group)
            self._grouped[group].pop(key, None)
            if not self._grouped[group]:
                del self._grouped[group]

    def _add(self, key: str, record: PodRecord) -> None:
        pod = self._running(key, record)
        if record.ref is None:
            self._single[key] = Unit(key, record.priority, (pod,))
        else:
            self._look_again(record.ref.key)
            self._group_of[key] = record.ref.key
            self._grouped.setdefault(record.ref.key, {})[key] = pod

    def _running(self, key: str, record: PodRecord) -> RunningPod:
        pod = record.pod
        started = (pod.get("status") or {}).get("startTime")
        leaving = is_deleting(pod)
        disruption = condition(pod, DISRUPTION_TARGET) if leaving else None
        return RunningPod(
            key,
            record.node,
            parse_rfc3339(started) if started else None,
            pod["metadata"].get("labels") or {},
            leaving=leaving or key in self._evicting,
            preempted=key in self._evicting or (disruption is not None and disruption.get("reason") == BY_SCHEDULER),
        )

    def _found(self) -> list[Unit]:
        found = list(self._single.values())
        together: dict[str, dict[str, RunningPod]] = {}
        for key, pods in self._grouped.items():
            part = self._parts.get(key)
            if part is None:
                part = self._parts[key] = self._part(key, pods)
                self._trees.pop(part.composite, None)
            if part.composite:
                together.setdefault(part.composite, {}).update(pods)
            else:
                found += part.units
        found += [self._tree(key, pods) for key, pods in together.items()]
        if self._kept:
            found = [unit for unit in found if not any(pod.key in self._kept for pod in unit.pods)]
        return found

    def _part(self, key: str, pods: dict[str, RunningPod]) -> Part:
        terms = self._terms_of(self._first(pods))
        composite = self._together(pods, terms)
        return Part(composite=composite) if composite else Part(tuple(self._units_of(key, pods, terms)))

    def _tree(self, key: str, pods: dict[str, RunningPod]) -> Unit:
        if key not in self._trees:
            self._trees[key] = self._unit(f"tree:{key}", pods, self._terms_of(self._first(pods)))
        return self._trees[key]

    def _terms_of(self, record: PodRecord) -> GroupTerms | None:
        """What the group of a pod asks for; much is looked up for it, so it is asked once a group."""
        if record.ref is None:
            return None
        key = record.ref.key
        if key not in self._terms:
            self._terms[key] = self._cache.terms(record.ref)
        return self._terms[key]

    def _first(self, pods: dict[str, RunningPod]) -> PodRecord:
        return self._cache.pods[next(iter(pods))]

    def _units_of(self, key: str, pods: dict[str, RunningPod], terms: GroupTerms | None) -> list[Unit]:
        if terms is not None and terms.disrupted_together:
            return [self._unit(f"group:{key}", pods, terms)]
        records = self._cache.pods
        return [Unit(pod.key, self._priority(records[pod.key], terms), (pod,), in_group=True) for pod in pods.values()]

    def _unit(self, key: str, pods: dict[str, RunningPod], terms: GroupTerms | None) -> Unit:
        """All these pods as one."""
        priority = self._priority(self._first(pods), terms)
        return Unit(key, priority, tuple(pods[each] for each in sorted(pods)), is_group=True)

    def _together(self, pods: dict[str, RunningPod], terms: GroupTerms | None) -> str:
        """The highest composite group above a group whose pods are only evicted all together; "" without one."""
        ref = self._first(pods).ref
        chain = None if ref is None or terms is None or not terms.parent else self._cache.chain(ref)
        for key in reversed(chain.above) if chain is not None else ():
            above = self._cache.hierarchy.terms(key)
            if above is not None and above.disrupted_together:
                return key
        return ""

    def _priority(self, record: PodRecord, terms: GroupTerms | None) -> int:
        """That of the root of its tree, else the group's, else the pod's. `terms`: those of its group."""
        if terms is None or record.ref is None:
            return record.priority
        chain = self._cache.chain(record.ref) if terms.parent else None
        root = None if chain is None or chain.root is None else self._cache.hierarchy.terms(chain.root)
        if root is not None and root.priority is not None:
            return root.priority
        return record.priority if terms.priority is None else terms.priority
