"""Workload, PodGroup and CompositePodGroup in the versions of three releases.

Source: workload-aware scheduling API as recorded from real servers of 1.35, 1.36 and 1.37.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.registry.strategy import Strategy

PROTECTION = "scheduling.k8s.io/podgroup-protection"


class WorkloadStrategy(Strategy):
    """Workloads have no status."""

    counts_generation = True


class PodGroupStrategy(Strategy):
    """PodGroups keep a finalizer until their pods have ended."""

    has_status = True
    counts_generation = True

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("schedulingPolicy") and ctx.options.is_lenient:
            spec["schedulingPolicy"] = {"basic": {}}
            ctx.warn("spec.schedulingPolicy: a real API server requires one of `basic`, `gang`; `basic` is assumed")
        spec.setdefault("disruptionMode", "Pod" if ctx.version == "v1alpha2" else {"single": {}})

    def admit_create(self, obj: Object, ctx: Context) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]


class CompositePodGroupStrategy(Strategy):
    """CompositePodGroups are only stored."""

    has_status = True
    counts_generation = True
