"""The units that could be evicted are kept up to date by what changes; here they are compared with units made anew."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from muster.api.codec import Object, copy_object
from muster.client.informer import Change
from muster.engine.preemption.model import Unit
from muster.scheduler.core import SchedulerCore
from muster.scheduler.options import SchedulerOptions
from muster.testing import make_group, make_node, make_pod

GROUPS = 4
COMPOSITES = ("top", "left", "right")


class History:
    """A cluster that changes at random, and a core that is told of each change."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.objects: dict[tuple[str, str], Object] = {}
        self.core = SchedulerCore(SchedulerOptions())
        for name in ("n0", "n1"):
            self.set(make_node(name))

    def set(self, obj: Object) -> None:
        """An object is there, or changed."""
        at = (obj["kind"], obj["metadata"]["name"])
        old = self.objects.get(at)
        self.objects[at] = obj
        tell(self.core, obj["kind"], Change("ADDED" if old is None else "MODIFIED", old, obj))

    def remove(self, kind: str, name: str) -> None:
        """An object is gone, if it was there."""
        old = self.objects.pop((kind, name), None)
        if old is not None:
            tell(self.core, kind, Change("DELETED", old, None))

    def step(self) -> None:
        """One change."""
        self.random.choice((self._pod, self._pod, self._pod_ends, self._group, self._composite))()

    def _pod(self) -> None:
        group = self.random.randrange(-1, GROUPS)
        name = f"g{group}-{self.random.randrange(3)}"
        pod = make_pod(
            name,
            node=f"n{len(name) % 2}",
            group=f"g{group}" if group >= 0 else None,
            priority=max(0, group) % 3,
            labels={"turn": str(self.random.randrange(3))},
        )
        pod["metadata"]["uid"] = name
        if self.random.random() < 0.3:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.set(pod)

    def _pod_ends(self) -> None:
        self.remove("Pod", f"g{self.random.randrange(-1, GROUPS)}-{self.random.randrange(3)}")

    def _group(self) -> None:
        name = f"g{self.random.randrange(GROUPS)}"
        if self.random.random() < 0.3:
            self.remove("PodGroup", name)
            return
        group = make_group(name, disruptionMode=self.random.choice(({"all": {}}, {"single": {}})))
        spec = group["spec"]
        if self.random.random() < 0.5:
            spec["priority"] = self.random.randrange(3)
        if self.random.random() < 0.5:
            spec["parentCompositePodGroupName"] = self.random.choice(COMPOSITES)
        self.set(group)

    def _composite(self) -> None:
        name = self.random.choice(COMPOSITES)
        if self.random.random() < 0.4:
            self.remove("CompositePodGroup", name)
            return
        spec: Object = {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "disruptionMode": self.random.choice(({"all": {}}, {"single": {}})),
            "priority": self.random.randrange(3),
        }
        if name != "top" and self.random.random() < 0.7:
            spec["parentCompositePodGroupName"] = "top"
        self.set(
            {
                "apiVersion": "scheduling.k8s.io/v1alpha3",
                "kind": "CompositePodGroup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": spec,
            }
        )


def tell(core: SchedulerCore, kind: str, change: Change) -> None:
    cache = core.cache
    apply: dict[str, Callable[[list[Change]], None]] = {
        "Node": cache.apply_nodes,
        "Pod": cache.apply_pods,
        "PodGroup": cache.apply_pod_groups,
        "CompositePodGroup": cache.apply_composites,
    }
    apply[kind]([change])


def made_anew(objects: dict[tuple[str, str], Object]) -> SchedulerCore:
    core = SchedulerCore(SchedulerOptions())
    for (kind, _), obj in objects.items():
        tell(core, kind, Change("ADDED", None, copy_object(obj)))
    return core


def in_order(units: tuple[Unit, ...]) -> list[Unit]:
    return sorted(units, key=lambda unit: (unit.key, [pod.key for pod in unit.pods]))


@pytest.mark.parametrize("seed", range(40))
def test_units_after_any_history_are_those_of_the_objects_that_there_are(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()
        units, fresh = history.core.preemptions.units, made_anew(history.objects).preemptions.units
        assert in_order(units.all()) == in_order(fresh.all())
        lowest = min((unit.priority for unit in units.all()), default=3)
        assert [units.below(priority) for priority in range(4)] == [lowest < priority for priority in range(4)]


def test_histories_have_groups_and_trees_that_go_as_a_whole() -> None:
    kinds = set()
    for seed in range(10):
        history = History(seed)
        for _ in range(60):
            history.step()
            kinds |= {unit.key.partition(":")[0] for unit in history.core.preemptions.units.all() if unit.is_group}
    assert kinds == {"group", "tree"}


def test_a_look_at_units_where_nothing_changed_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(1)
    for _ in range(60):
        history.step()
    first = history.core.preemptions.units.all()
    assert first
    monkeypatch.setattr(history.core.cache, "terms", None)
    assert history.core.preemptions.units.all() is first


def test_a_change_of_one_group_asks_about_that_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SchedulerCore(SchedulerOptions())
    tell(core, "Node", Change("ADDED", None, make_node("n0")))
    for at in range(20):
        tell(core, "PodGroup", Change("ADDED", None, make_group(f"g{at}", disruptionMode={"all": {}})))
        tell(core, "Pod", Change("ADDED", None, make_pod(f"g{at}-0", node="n0", group=f"g{at}")))
    units = core.preemptions.units
    assert len(units.all()) == 20
    asked = []
    terms = core.cache.terms

    def counted(ref: object) -> object:
        asked.append(ref)
        return terms(ref)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(core.cache, "terms", counted)
    tell(core, "Pod", Change("ADDED", None, make_pod("g3-1", node="n0", group="g3")))
    assert len(units.all()) == 20
    assert len({str(ref) for ref in asked}) == 1
