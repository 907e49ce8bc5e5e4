"""Prometheus metrics: kube-scheduler's names where the meaning is the same, else `muster_`.

Durations are measured with the clock that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from muster.engine.arrays import Ints
from muster.scheduler.cycle import SCHEDULER_ERROR, Verdict
from muster.scheduler.queue import Place, SchedulingQueue

_BUCKETS = tuple(0.001 * 2**power for power in range(15))
_SLI_BUCKETS = tuple(0.01 * 2**power for power in range(20))
_ATTEMPTS = tuple(float(2**power) for power in range(5))
_MOST_ATTEMPTS = 15
_MANY = 4096
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


class Latencies(Collector):
    """A histogram to which much is added and of which little is asked: values are counted when somebody asks, or when
    many have come together."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._edges = np.array(buckets)
        self._new: dict[tuple[str, ...], list[float]] = {}
        self._counts: dict[tuple[str, ...], Ints] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Add a value."""
        found = self._new.setdefault(labels, [])
        found.append(value)
        if len(found) >= _MANY:
            self._count(labels, found)

    def _count(self, labels: tuple[str, ...], values: list[float]) -> None:
        places = np.searchsorted(self._edges, np.array(values), side="left")
        counts = np.bincount(places, minlength=len(self._edges) + 1)
        self._counts[labels] = self._counts.get(labels, np.zeros_like(counts)) + counts
        self._sums[labels] = self._sums.get(labels, 0.0) + sum(values)
        values.clear()

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The name alone."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        for labels, values in self._new.items():
            if values:
                self._count(labels, values)
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, counts in self._counts.items():
            up_to = np.cumsum(counts).tolist()
            names = [*map(str, self._edges.tolist()), "+Inf"]
            family.add_metric(labels, list(zip(names, up_to, strict=True)), self._sums[labels])
        yield family


class _Tries(Struct):
    """The attempts to schedule a pod: how many, and when the first and the last of them began."""

    number: int
    first_s: float
    last_s: float


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
        self._tries: dict[str, _Tries] = {}
        self._look_at = _MANY
        self._attempt = Latencies(
            "scheduler_scheduling_attempt_duration_seconds",
            "From the beginning of an attempt to schedule a pod until it is bound, or has no node",
            ("profile", "result"),
            _BUCKETS,
        )
        self._until_bound = Latencies(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the first attempt to schedule a pod until it is bound, by the number of attempts",
            ("attempts",),
            _SLI_BUCKETS,
        )
        self._needed = Latencies(
            "scheduler_pod_scheduling_attempts", "Attempts that pods needed until they were bound", (), _ATTEMPTS
        )
        for each in (self._attempt, self._until_bound, self._needed):
            registry.register(each)

    def provisioning(self, state: str) -> None:
        """A ProvisioningRequest came to a state."""
        self._provisioning.labels(state).inc()

    def decided(self, verdicts: list[tuple[str, Verdict]], began_s: float, now_s: float) -> None:
        """Count the attempts of one batch, each with the schedulerName of its pods; when it began and ended."""
        self._algorithm.observe(now_s - began_s)
        for profile, verdict in verdicts:
            if verdict.placements:
                self._attempts.labels("scheduled", profile).inc(len(verdict.placements))
                for placement in verdict.placements:
                    self._tried(placement.pod, began_s)
            if verdict.rejection is not None:
                result = _result(verdict)
                self._attempts.labels(result, profile).inc(len(verdict.rejection.pods))
                for pod in verdict.rejection.pods:
                    self._tried(pod, began_s)
                    self._attempt.observe((profile, result), now_s - began_s)
            if verdict.victims:
                self._preemptions.inc()
                self._victims.observe(len(verdict.victims))
            if verdict.ask.ref is not None:
                self._group_attempts.labels("scheduled" if verdict.placements else _result(verdict)).inc()

    def _tried(self, pod: str, began_s: float) -> None:
        known = self._tries.get(pod)
        if known is None:
            self._tries[pod] = _Tries(1, began_s, began_s)
        else:
            known.number += 1
            known.last_s = began_s

    def bound(self, pod: str, profile: str, now_s: float) -> None:
        """Count a binding, and how long it took."""
        self._bindings.labels("bound").inc()
        tries = self._tries.pop(pod, None)
        if tries is not None:
            self._attempt.observe((profile, "scheduled"), now_s - tries.last_s)
            number = str(tries.number) if tries.number < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
            self._until_bound.observe((number,), now_s - tries.first_s)
            self._needed.observe((), tries.number)

    def bind_failed(self, pod: str, profile: str, now_s: float) -> None:
        """Count a binding that the server refused."""
        self._bindings.labels("failed").inc()
        tries = self._tries.get(pod)
        if tries is not None:
            self._attempt.observe((profile, "error"), now_s - tries.last_s)

    def undone(self, pods: int) -> None:
        """Count a group that was given up, with its bound pods."""
        self._undone.inc()
        self._undone_pods.inc(pods)

    def observe(self, queue: SchedulingQueue, pods: Container[str]) -> None:
        """Export how long the queues are and what moved since the last call; forget pods that are not among these."""
        if len(self._tries) > self._look_at:
            self._tries = {pod: tries for pod, tries in self._tries.items() if pod in pods}
            self._look_at = max(_MANY, 2 * len(self._tries))
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
