"""Prometheus metrics: kube-scheduler's names where the meaning is the same, else `muster_`.

Durations are measured with the clock that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from muster.scheduler.cycle import SCHEDULER_ERROR, Verdict
from muster.scheduler.queue import Place, SchedulingQueue

_BUCKETS = tuple(0.001 * 2**power for power in range(15))
_VICTIMS = tuple(float(2**power) for power in range(7))


UPSTREAM_QUEUES = {
    "active": (Place.ACTIVE, Place.IN_FLIGHT),
    "backoff": (Place.BACKOFF, Place.ERROR_BACKOFF),
    "unschedulable": (Place.WAITING,),
    "gated": (Place.GATED,),
}
"""kube-scheduler's queues (`pkg/scheduler/backend/queue`, metric `pending_pods`), and which of our places they are."""


class PendingPods(Collector):
    """Counts pods by queue whenever it is asked: members of groups, too, each by itself."""

    def __init__(self, count: Callable[[], Mapping[Place, int]]) -> None:
        self._count = count

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = self._count()
        family = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by queue", labels=["queue"])
        for queue, places in UPSTREAM_QUEUES.items():
            family.add_metric([queue], sum(found.get(place, 0) for place in places))
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The name alone: to count is for who asks."""
        yield GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by queue", labels=["queue"])


class SchedulerMetrics:
    """The counters and histograms; one instance a registry. `pending_pods`: how many wait where, whenever asked."""

    def __init__(self, registry: CollectorRegistry | None, pending_pods: Callable[[], Mapping[Place, int]]) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        registry.register(PendingPods(pending_pods))
        self._attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result and schedulerName",
            ["result", "profile"],
            registry=registry,
        )
        self._preemptions = Counter(
            "scheduler_preemption_attempts", "Attempts that chose pods to evict", registry=registry
        )
        self._victims = Histogram(
            "scheduler_preemption_victims", "Pods to evict for one attempt", registry=registry, buckets=_VICTIMS
        )
        self._bindings = Counter(
            "muster_bindings", "Bindings by outcome: bound, failed", ["outcome"], registry=registry
        )
        self._group_attempts = Counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to schedule groups, by result",
            ["result"],
            registry=registry,
        )
        self._algorithm = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time to decide about one batch of ready entities",
            registry=registry,
            buckets=_BUCKETS,
        )
        pending = Gauge(
            "muster_pending_entities", "Groups and plain pods that wait, by queue", ["queue"], registry=registry
        )
        self._pending_in = {place: pending.labels(place.value) for place in Place}
        self._incoming = Counter(
            "muster_queue_moves", "Moves of groups and plain pods between queues", ["queue", "event"], registry=registry
        )
        self._undone = Counter("muster_podgroups_undone", "Groups bound in part that were given up", registry=registry)
        self._undone_pods = Counter("muster_podgroup_pods_undone", "Bound pods deleted with them", registry=registry)
        self._provisioning = Counter(
            "muster_provisioning_requests",
            "ProvisioningRequests that were made, and what became of them, by state",
            ["state"],
            registry=registry,
        )
        self._exported: dict[tuple[str, str], int] = {}

    def provisioning(self, state: str) -> None:
        """A ProvisioningRequest came to a state."""
        self._provisioning.labels(state).inc()

    def decided(self, verdicts: list[tuple[str, Verdict]], seconds: float) -> None:
        """Count the attempts of one batch; each with the schedulerName of its pods."""
        self._algorithm.observe(seconds)
        for profile, verdict in verdicts:
            if verdict.placements:
                self._attempts.labels("scheduled", profile).inc(len(verdict.placements))
            if verdict.rejection is not None:
                self._attempts.labels(_result(verdict), profile).inc(len(verdict.rejection.pods))
            if verdict.victims:
                self._preemptions.inc()
                self._victims.observe(len(verdict.victims))
            if verdict.ask.ref is not None:
                self._group_attempts.labels("scheduled" if verdict.placements else _result(verdict)).inc()

    def bound(self, outcome: str) -> None:
        """Count the answer to a binding."""
        self._bindings.labels(outcome).inc()

    def undone(self, pods: int) -> None:
        """Count a group that was given up, with its bound pods."""
        self._undone.inc()
        self._undone_pods.inc(pods)

    def observe(self, queue: SchedulingQueue) -> None:
        """Export how long the queues are and what moved since the last call."""
        for place, pending in self._pending_in.items():
            pending.set(queue.count(place))
        for key, count in queue.moves.items():
            moved = count - self._exported.get(key, 0)
            if moved:
                self._incoming.labels(*key).inc(moved)
                self._exported[key] = count


def _result(verdict: Verdict) -> str:
    failed = verdict.rejection is not None and verdict.rejection.reason == SCHEDULER_ERROR
    return "error" if failed else "unschedulable"
