"""What a pod requests of a node: the effective request for each resource, with and without defaults for scores.

Rules: kubernetes `component-helpers/resource/helpers.go` (PodRequests) and `framework/types.go` (calculateResource).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.meta import condition
from muster.api.quantity import resource_units
from muster.engine.arrays import AMOUNT_LIMIT

Amounts: TypeAlias = dict[str, int]

DEFAULT_REQUESTS: Mapping[str, int] = {"cpu": 100, "memory": 200 * 2**20}
"""What a container without a request counts in scores (upstream `util/pod_resources.go`): millicores and bytes."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod takes from its node. Amounts in canonical units, sorted by resource; the pod slot is not among them.

    `scored`: cpu and memory with defaults for containers without requests, which only scores look at.
    `ports`: host ports as (ip, protocol, port).
    """

    requests: tuple[tuple[str, int], ...]
    scored: tuple[int, int]
    ports: tuple[tuple[str, str, int], ...] = ()


def container_requests(container: Object) -> Amounts:
    """The requests of a container; a resource with a limit alone requests the limit, as the API server fills in."""
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: resource_units(name, value) for name, value in named.items()}


def pod_requests(spec: Object) -> Amounts:
    """The effective request of a pod for each resource."""
    return _with_pod_level(spec, _aggregate(spec, container_requests))


def scored_requests(spec: Object, *, pod_level: bool) -> tuple[int, int]:
    """cpu (millicores) and memory (bytes) as scores count them, with defaults for containers that request none.

    `pod_level`: pods on a node count their pod-level values, and the default applies only to a resource that neither
    the pod nor any container requests; the incoming pod's own score ignores the pod level.
    """
    pod_level = pod_level and bool((spec.get("resources") or {}).get("requests"))
    defaults = dict(DEFAULT_REQUESTS)
    if pod_level:
        for requests in map(container_requests, _containers(spec)):
            for name in requests:
                defaults.pop(name, None)

    def with_defaults(container: Object) -> Amounts:
        return {**defaults, **container_requests(container)}

    total = _aggregate(spec, with_defaults)
    total = _with_pod_level(spec, total) if pod_level else _plus(total, _overhead(spec))
    return min(total.get("cpu", 0), AMOUNT_LIMIT), min(total.get("memory", 0), AMOUNT_LIMIT)


def host_ports(spec: Object) -> tuple[tuple[str, str, int], ...]:
    """The host ports that a pod wants as (ip, protocol, port); those of init containers count if these keep running."""
    wanted = set()
    for container in _running_containers(spec):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                wanted.add((port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"])))
    return tuple(sorted(wanted))


def usage_of(pod: Object) -> Usage:
    """What a pod takes from the node it is on, a resize in place included."""
    spec = pod["spec"]
    requests = pod_requests(spec)
    scored = scored_requests(spec, pod_level=True)
    status = pod.get("status") or {}
    if _has_actual_resources(status):
        requests, scored = _resized(pod, requests, scored)
    return Usage(sorted_amounts(requests), scored, host_ports(spec))


def sorted_amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The positive amounts, clipped to AMOUNT_LIMIT and sorted by name."""
    return tuple(sorted((name, min(amount, AMOUNT_LIMIT)) for name, amount in amounts.items() if amount > 0))


# -- aggregation -----------------------------------------------------------------------------------------------------


def _aggregate(spec: Object, requests: Callable[[Object], Amounts]) -> Amounts:
    """Containers and sidecars together, or the largest moment of the init containers, for each resource."""
    app: Amounts = {}
    for container in spec.get("containers") or ():
        app = _plus(app, requests(container))
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = requests(container)
        if container.get("restartPolicy") == "Always":
            app, sidecars = _plus(app, own), _plus(sidecars, own)
            largest = _max(largest, sidecars)
        else:
            largest = _max(largest, _plus(own, sidecars))
    return _max(app, largest)


def _with_pod_level(spec: Object, total: Amounts) -> Amounts:
    """Pod-level requests replace the sums of what they name; the overhead comes on top."""
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    for name, value in pod_level.items():
        if _pod_level_resource(name):
            total = {**total, name: resource_units(name, value)}
    return _plus(total, _overhead(spec))


def _pod_level_resource(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _overhead(spec: Object) -> Amounts:
    return {name: resource_units(name, value) for name, value in (spec.get("overhead") or {}).items()}


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _running_containers(spec: Object) -> list[Object]:
    init = spec.get("initContainers") or ()
    return [*(spec.get("containers") or ()), *(each for each in init if each.get("restartPolicy") == "Always")]


def _plus(left: Amounts, right: Amounts) -> Amounts:
    if not left:
        return right
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def _max(left: Amounts, right: Amounts) -> Amounts:
    if not left:
        return right
    if not right:
        return left
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in [*left, *right]}


# -- resize in place -------------------------------------------------------------------------------------------------


def _has_actual_resources(status: Object) -> bool:
    entries = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return any(each.get("allocatedResources") or (each.get("resources") or {}).get("requests") for each in entries)


def _resized(pod: Object, requests: Amounts, scored: tuple[int, int]) -> tuple[Amounts, tuple[int, int]]:
    """max(desired, allocated, actuated) for each container; of the last two only when the resize is infeasible."""
    spec = pod["spec"]
    seen = _container_statuses(pod)
    pending = condition(pod, "PodResizePending")
    infeasible = pending is not None and pending.get("reason") == "Infeasible"

    def effective(container: Object) -> Amounts:
        desired = container_requests(container)
        state = seen.get(container.get("name", ""))
        if state is None:
            return desired
        allocated = _amounts(state.get("allocatedResources")) or desired
        actuated = _amounts((state.get("resources") or {}).get("requests")) or allocated
        held = _max(allocated, actuated)
        return held if infeasible else _max(desired, held)

    total = _with_pod_level(spec, _aggregate(spec, effective))
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    shift = [total.get(name, 0) - requests.get(name, 0) for name in ("cpu", "memory")]
    shift = [0 if name in pod_level else delta for name, delta in zip(("cpu", "memory"), shift, strict=True)]
    return total, (scored[0] + shift[0], scored[1] + shift[1])


def _container_statuses(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    entries = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return {each.get("name", ""): each for each in entries}


def _amounts(resources: Object | None) -> Amounts:
    return {name: resource_units(name, value) for name, value in (resources or {}).items()}
