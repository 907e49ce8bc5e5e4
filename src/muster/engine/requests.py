"""What a pod requests of a node: the effective request for each resource, with and without defaults for scores.

Rules: kubernetes `component-helpers/resource/helpers.go` (PodRequests) and `framework/types.go` (calculateResource).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import condition
from muster.api.quantity import resource_units
from muster.engine.arrays import AMOUNT_LIMIT
from muster.engine.devices.demand import DeviceDemand
from muster.engine.identity import Identity
from muster.engine.storage.volumes import VolumeUse, volume_uses

Amounts: TypeAlias = dict[str, int]
ReadRequests: TypeAlias = Callable[[Object], Amounts]
"""How the requests of one container are read."""

DEFAULT_REQUESTS: Mapping[str, int] = {"cpu": 100, "memory": 200 * 2**20}
"""What a container without a request counts in scores (upstream `util/pod_resources.go`): millicores and bytes."""


class Usage(Struct, frozen=True):
    """What a pod takes from its node. Amounts in canonical units, sorted by resource; the pod slot is not among them.

    `scored`: cpu and memory with defaults for containers without requests, which only scores look at.
    `ports`: host ports as (ip, protocol, port). `identity`: who it is to the rules of other pods; None while there are
    no such rules at all. `volumes`: claims and disks. `devices`: what a pending pod asks for by ResourceClaims; what
    pods on nodes have is in the claims.
    """

    requests: tuple[tuple[str, int], ...]
    scored: tuple[int, int]
    ports: tuple[tuple[str, str, int], ...] = ()
    identity: Identity | None = None
    volumes: tuple[VolumeUse, ...] = ()
    devices: DeviceDemand | None = None


def container_requests(container: Object) -> Amounts:
    """The requests of a container; a resource with a limit alone requests the limit, as the API server fills in."""
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: resource_units(name, value) for name, value in named.items()}


def pod_requests(spec: Object) -> Amounts:
    """The effective request of a pod for each resource."""
    return _with_pod_level(spec, _aggregate(spec, container_requests), spec.get("resources") or {})


def scored_requests(spec: Object, *, pod_level: bool) -> tuple[int, int]:
    """cpu (millicores) and memory (bytes) as scores count them, with defaults for containers that request none.

    `pod_level`: pods on a node count their pod-level values, and if they have any, the default applies only to a
    resource of which the pod requests nothing at all; the incoming pod's own score ignores the pod level.
    """
    if pod_level:
        return _scored(spec, container_requests, spec.get("resources") or {})
    total = _plus(_aggregate(spec, _defaulting(container_requests, DEFAULT_REQUESTS)), _overhead(spec))
    return _cpu_and_memory(total)


def host_ports(spec: Object) -> tuple[tuple[str, str, int], ...]:
    """The host ports that a pod wants as (ip, protocol, port); those of init containers count if these keep running."""
    wanted = set()
    for container in _running_containers(spec):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                wanted.add((port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"])))
    return tuple(sorted(wanted))


def usage_of(pod: Object, identity: Identity | None = None) -> Usage:
    """What a pod takes from the node it is on, a resize in place included."""
    spec = pod["spec"]
    read: ReadRequests = container_requests
    pod_level: Object = spec.get("resources") or {}
    if _has_actual_resources(pod.get("status") or {}):
        read, pod_level = _resized_containers(pod), _resized_pod(pod)
    requests = _with_pod_level(spec, _aggregate(spec, read), pod_level)
    scored = _scored(spec, read, pod_level)
    return Usage(sorted_amounts(requests), scored, host_ports(spec), identity, volume_uses(pod))


def sorted_amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The positive amounts, clipped to AMOUNT_LIMIT and sorted by name."""
    return tuple(sorted((name, min(amount, AMOUNT_LIMIT)) for name, amount in amounts.items() if amount > 0))


# -- aggregation -----------------------------------------------------------------------------------------------------


def _aggregate(spec: Object, requests: ReadRequests) -> Amounts:
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


def _scored(spec: Object, read: ReadRequests, pod_level: Object) -> tuple[int, int]:
    defaults = dict(DEFAULT_REQUESTS)
    if pod_level.get("requests"):
        requested = _with_pod_level(spec, _aggregate(spec, read), pod_level)
        defaults = {name: amount for name, amount in defaults.items() if name not in requested}
    return _cpu_and_memory(_with_pod_level(spec, _aggregate(spec, _defaulting(read, defaults)), pod_level))


def _defaulting(read: ReadRequests, defaults: Mapping[str, int]) -> ReadRequests:
    return lambda container: {**defaults, **read(container)}


def _cpu_and_memory(total: Amounts) -> tuple[int, int]:
    return min(total.get("cpu", 0), AMOUNT_LIMIT), min(total.get("memory", 0), AMOUNT_LIMIT)


def _with_pod_level(spec: Object, total: Amounts, pod_level: Object) -> Amounts:
    """Pod-level requests replace the sums of what they name; the overhead comes on top."""
    for name, value in (pod_level.get("requests") or {}).items():
        if _pod_level_resource(name):
            total = {**total, name: resource_units(name, value)}
    return _plus(total, _overhead(spec))


def _pod_level_resource(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _overhead(spec: Object) -> Amounts:
    return {name: resource_units(name, value) for name, value in (spec.get("overhead") or {}).items()}


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
    entries = [status, *(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return any(each.get("allocatedResources") or (each.get("resources") or {}).get("requests") for each in entries)


def _resized_containers(pod: Object) -> ReadRequests:
    """Requests of a container whose resize may be under way; init containers that end cannot be resized."""
    status = pod.get("status") or {}
    running = {each.get("name", "") for each in _running_containers(pod["spec"])}
    entries = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    seen = {each.get("name", ""): each for each in entries if each.get("name", "") in running}
    infeasible = _is_infeasible(pod)

    def read(container: Object) -> Amounts:
        return _held(container_requests(container), seen.get(container.get("name", "")), infeasible)

    return read


def _resized_pod(pod: Object) -> Object:
    """The pod-level resources that the spec names, with what is held of them; nothing where the status says nothing."""
    desired = (pod["spec"].get("resources") or {}).get("requests") or {}
    held = _held(_amounts(desired), pod.get("status") or {}, _is_infeasible(pod))
    return {"requests": {name: _text(name, held.get(name, 0)) for name in desired}}


def _held(desired: Amounts, state: Object | None, infeasible: bool) -> Amounts:
    """max(desired, allocated, actuated); of the last two only when the resize is infeasible."""
    if state is None or state.get("resources") is None:
        return desired
    held = _max(_amounts(state.get("allocatedResources")), _amounts(state["resources"].get("requests")))
    return held if infeasible else _max(desired, held)


def _is_infeasible(pod: Object) -> bool:
    pending = condition(pod, "PodResizePending")
    return pending is not None and pending.get("reason") == "Infeasible"


def _amounts(resources: Object | None) -> Amounts:
    return {name: resource_units(name, value) for name, value in (resources or {}).items()}


def _text(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)
