"""A scheduler's core that has seen a cluster: from objects in stored form, without a server. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.versions import GROUP, to_hub
from muster.client.informer import Change
from muster.engine.objects import KINDS
from muster.scheduler.core import SchedulerCore
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.served import MUSTER_GROUP

Apply: TypeAlias = Callable[[Iterable[Change]], object]

_ORDER = ("Node", "CompositePodGroup", "PodGroup", "Workload", "Job", "PodDisruptionBudget", *KINDS, "Pod")
"""What others refer to first, so that most is known when it is looked at."""


def core_of(objects: Iterable[Object], options: SchedulerOptions, now_s: float) -> SchedulerCore:
    """A core that knows these objects, as if a watch had brought them at this time; it has decided nothing.

    Objects of kinds that no rule looks at are left out, and so is what cannot be read. Groups may be in any version,
    or of the custom resources that stand for them.
    """
    core = SchedulerCore(options)
    by_kind: dict[str, list[Object]] = {}
    for obj in objects:
        by_kind.setdefault(obj["kind"], []).append(obj)
    appliers = _appliers(core)
    for kind in _ORDER:
        for obj in by_kind.get(kind, ()):
            if _is_meant(obj):
                try:
                    appliers[kind]((Change("ADDED", None, in_stored_form(obj)),))
                except ValueError:
                    continue
    core.settle(now_s)
    core.adopt_nominations()
    return core


def in_stored_form(obj: Object) -> Object:
    """A group in the version that the scheduler reads; any other object as it is."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    return to_hub(obj, version) if group in (GROUP, MUSTER_GROUP) and obj["kind"] != "PriorityClass" else obj


def _is_meant(obj: Object) -> bool:
    group = str(obj["apiVersion"]).rpartition("/")[0]
    if obj["kind"] in ("CompositePodGroup", "PodGroup", "Workload"):
        return group in (GROUP, MUSTER_GROUP)
    return is_of_kubernetes(group)


def is_of_kubernetes(group: str) -> bool:
    """Whether an API group is one of Kubernetes' own: others may have kinds of the same names."""
    return "." not in group or group.endswith(".k8s.io")


def _appliers(core: SchedulerCore) -> dict[str, Apply]:
    cache = core.cache
    return {
        "Node": cache.apply_nodes,
        "CompositePodGroup": cache.apply_composites,
        "PodGroup": cache.apply_pod_groups,
        "Workload": cache.apply_workloads,
        "Job": cache.apply_jobs,
        "PodDisruptionBudget": core.preemptions.units.apply_budgets,
        "Pod": cache.apply_pods,
        **{kind: partial(cache.apply_objects, kind) for kind in KINDS},
    }
