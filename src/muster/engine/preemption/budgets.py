"""Disruption budgets as preemption sees them: best effort, counted in order of importance.

Source: kube-scheduler `framework/preemption/preemption.go` (filterPodsWithPDBViolation), 1.36: a budget with an empty
selector matches nothing, and a pod without labels is matched by none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import key_of, namespace_of
from muster.api.selectors import LabelSelector, label_selector
from muster.engine.preemption.model import RunningPod, Unit


class Budget(Struct, frozen=True):
    """A PodDisruptionBudget: so many further pods of the namespace that match may go.

    `disrupted`: names of pods whose eviction is counted already.
    """

    key: str
    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: frozenset[str] = frozenset()


def parse_budget(obj: Object) -> Budget | None:
    """The budget of a PodDisruptionBudget, None for one that matches nothing. Raises SelectorError."""
    selector = label_selector((obj.get("spec") or {}).get("selector"))
    if selector.nothing or not selector.requirements:
        return None
    status = obj.get("status") or {}
    disrupted = frozenset(status.get("disruptedPods") or ())
    return Budget(key_of(obj), namespace_of(obj), selector, int(status.get("disruptionsAllowed") or 0), disrupted)


class Budgets:
    """The budgets of a cluster, and which of them a pod draws on."""

    def __init__(self, budgets: Iterable[Budget] = ()) -> None:
        self.all: tuple[Budget, ...] = tuple(sorted(budgets, key=lambda budget: budget.key))
        self._by_namespace: dict[str, list[int]] = {}
        for place, budget in enumerate(self.all):
            self._by_namespace.setdefault(budget.namespace, []).append(place)
        self._matching: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, ...]] = {}

    def of(self, pod: RunningPod) -> tuple[int, ...]:
        """Places in `all` of the budgets that an eviction of the pod draws on."""
        namespace, _, name = pod.key.partition("/")
        places = self._by_namespace.get(namespace)
        if not places or not pod.labels:
            return ()
        key = (namespace, frozenset(pod.labels.items()))
        matching = self._matching.get(key)
        if matching is None:
            matching = tuple(place for place in places if self.all[place].selector.matches(pod.labels))
            self._matching[key] = matching
        return tuple(place for place in matching if name not in self.all[place].disrupted)

    def violating(self, units: Sequence[Unit]) -> dict[str, int]:
        """By key of the unit: how many of its pods exceed a budget if the units go in this order; only those with any.

        Upstream's rule: every matching budget is drawn on, and a pod violates if one of them falls below zero.
        """
        left = [budget.allowed for budget in self.all]
        found: dict[str, int] = {}
        for unit in units:
            for pod in unit.pods:
                matching = self.of(pod)
                for place in matching:
                    left[place] -= 1
                if any(left[place] < 0 for place in matching):
                    found[unit.key] = found.get(unit.key, 0) + 1
        return found

    def violations(self, units: Iterable[Unit]) -> int:
        """How many evictions of the units exceed what the budgets allow, summed over the budgets."""
        evicted = [0] * len(self.all)
        for unit in units:
            for pod in unit.evicted:
                for place in self.of(pod):
                    evicted[place] += 1
        return sum(max(0, count - max(0, budget.allowed)) for count, budget in zip(evicted, self.all, strict=True))
