"""`/metrics` in Prometheus' text format: how many requests of which kind, how long they took, how many watch.

Names and labels are kube-apiserver's, so that dashboards made for it show something. Source: apiserver
`pkg/endpoints/metrics`. Counting is a few additions; the library is imported when somebody asks for the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Route
from muster.client.transport import Response

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("verb", "group", "version", "resource", "subresource", "scope")
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_WRITES = frozenset(("POST", "PUT", "PATCH"))

Values: TypeAlias = tuple[str, ...]


class _Durations:
    """How often requests took at most so long; the last bucket is for all that took longer."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        self.counts[bisect_left(BUCKETS_S, duration_s)] += 1
        self.sum_s += duration_s

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulated counts by upper bound, as Prometheus wants them."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


class RequestMetrics:
    """Counts the requests of one server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[Values, int]] = Counter()
        self.watches: Counter[Values] = Counter()
        self._durations: dict[Values, _Durations] = {}

    def answered(self, request: ApiRequest, route: Route, response: Response, duration_s: float) -> None:
        """Count one request about objects that is answered."""
        labels = labels_of(request, route)
        self.requests[labels, response.status] += 1
        durations = self._durations.get(labels)
        if durations is None:
            durations = self._durations[labels] = _Durations()
        durations.add(max(0.0, duration_s))

    def watching(self, request: ApiRequest, route: Route) -> Callable[[], None]:
        """Count a watch that begins; call the result when it ends."""
        labels = labels_of(request, route, is_watch=True)
        self.requests[labels, 200] += 1
        self.watches[labels] += 1

        def end() -> None:
            self.watches[labels] -= 1

        return end

    def text(self, objects: Mapping[str, int], more: Iterable[Metric] = ()) -> bytes:
        """Everything counted so far, how many objects are stored by resource, and `more`."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.process_collector import ProcessCollector

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_Collected([*self._families(objects), *more]))
        return generate_latest(registry)

    def _families(self, objects: Mapping[str, int]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("apiserver_request", "Requests by kind and code.", labels=(*LABELS, "code"))
        for (labels, code), count in sorted(self.requests.items()):
            requests.add_metric((*labels, str(code)), count)
        yield requests
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds", "How long requests took, watches apart.", labels=LABELS
        )
        for labels, found in sorted(self._durations.items()):
            durations.add_metric(labels, found.buckets(), found.sum_s)
        yield durations
        watches = GaugeMetricFamily("apiserver_longrunning_requests", "Watches that are open.", labels=LABELS)
        for labels, count in sorted(self.watches.items()):
            watches.add_metric(labels, count)
        yield watches
        stored = GaugeMetricFamily("apiserver_storage_objects", "Stored objects by resource.", labels=("resource",))
        for name, count in sorted(objects.items()):
            stored.add_metric((name,), count)
        yield stored


class _Collected:
    """Metrics as they were collected a moment ago."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def labels_of(request: ApiRequest, route: Route, *, is_watch: bool = False) -> Values:
    """The values of `LABELS` for a request; all but the verb are "" where no kind is served."""
    served = route.served
    if served is None:
        return (request.method, "", "", "", "", "")
    resource, method = served.resource, request.method
    scope = "resource" if route.name else "namespace" if route.namespace else "cluster"
    if is_watch:
        verb = "WATCH"
    elif method in _WRITES:
        is_apply = method == "PATCH" and "apply-patch" in request.headers.get("content-type", "")
        verb = "APPLY" if is_apply else method
    elif method == "DELETE":
        verb = method if route.name else "DELETECOLLECTION"
    else:
        verb = "GET" if route.name else "LIST"
    return (verb, resource.group, resource.version, resource.plural, route.subresource, scope)
