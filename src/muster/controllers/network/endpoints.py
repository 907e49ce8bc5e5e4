"""endpoints-controller: keeps the Endpoints of Services, the older form of their slices.

Source of the rules: kube-controller-manager `pkg/controller/endpoint`, `pkg/api/v1/endpoints` (RepackSubsets).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from muster.api.codec import Object, Objects
from muster.api.meta import key_of, name_of, namespace_of
from muster.api.resource import ENDPOINTS, PODS, SERVICES, Resource
from muster.client.informer import Change
from muster.clock import rfc3339
from muster.controllers.action import Action, Create, Delete, Emit, Result, Update
from muster.controllers.network.endpoint_pods import (
    HEADLESS,
    TRIGGER_TIME,
    TriggerTimes,
    addresses_of,
    has_address,
    hostname_of,
    is_endpoint,
    last_change_s,
    pods_of,
    ports_of,
    selects,
    services_to_update,
    target_of,
    trigger_times,
)
from muster.controllers.pod_availability import is_ready
from muster.controllers.runner import Request
from muster.controllers.state import State

MANAGED_BY = "endpoints.kubernetes.io/managed-by"
MANAGER = "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MOST_ADDRESSES = 1000


class EndpointsController:
    """Reconciles Services; keys are `namespace/name`."""

    name = "endpoints-controller"
    resources: tuple[Resource, ...] = (SERVICES, PODS, ENDPOINTS)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        if resource == SERVICES:
            return [Request(key_of(change.object))] if change.new is None or selects(change.new) else []
        if resource == PODS:
            return [Request(key) for key in services_to_update(change, state)]
        return [Request(key_of(change.object))] if change.new is None else []

    def reconcile(self, key: str, state: State, now: float) -> Result:
        service, current = state[SERVICES].get(key), state[ENDPOINTS].get(key)
        if service is None:
            return Result((_deletion(current),) if current is not None else ())
        if not selects(service):
            return Result()
        before = state.memory(key)
        assert before is None or isinstance(before, TriggerTimes)
        pods = pods_of(service, state)
        times = trigger_times(service, pods)
        wanted = _endpoints(service, subsets_of(service, pods), last_change_s(before, times), current)
        if current is None:
            return Result((Create(ENDPOINTS, wanted),), memory=times, on_failure=lambda _, error: _tell(wanted, error))
        if _content(current) == _content(wanted):
            return Result(memory=times)
        return Result((Update(ENDPOINTS, wanted),), memory=times, on_failure=lambda _, error: _tell(wanted, error))


def _deletion(endpoints: Object) -> Delete:
    return Delete(ENDPOINTS, namespace_of(endpoints), name_of(endpoints))


def _tell(endpoints: Object, error: str) -> tuple[Action, ...]:
    if "uid" in endpoints["metadata"]:
        text = f"Failed to update endpoint {key_of(endpoints)}: {error}"
        return (Emit(endpoints, "Warning", "FailedToUpdateEndpoint", text),)
    text = f"Failed to create endpoint for service {key_of(endpoints)}: {error}"
    return (Emit(endpoints, "Warning", "FailedToCreateEndpoint", text),)


def _content(endpoints: Object) -> tuple[Objects, Object, bool]:
    annotations = endpoints["metadata"].get("annotations") or {}
    return (endpoints.get("subsets") or [], endpoints["metadata"].get("labels") or {}, OVER_CAPACITY in annotations)


def _endpoints(service: Object, subsets: Objects, changed_s: float | None, current: Object | None) -> Object:
    """The Endpoints that a Service should have."""
    kept = dict((current or {"metadata": {}})["metadata"])
    labels = {**(service["metadata"].get("labels") or {}), MANAGED_BY: MANAGER}
    labels.pop(HEADLESS, None)
    if not has_address(service):
        labels[HEADLESS] = ""
    written = (TRIGGER_TIME, OVER_CAPACITY)
    annotations = {key: value for key, value in (kept.get("annotations") or {}).items() if key not in written}
    if changed_s is not None:
        annotations[TRIGGER_TIME] = rfc3339(changed_s)
    if _count(subsets, "addresses") + _count(subsets, "notReadyAddresses") > MOST_ADDRESSES:
        subsets = truncated(subsets)
        annotations[OVER_CAPACITY] = "truncated"
    metadata = {**kept, "name": name_of(service), "namespace": namespace_of(service), "labels": labels}
    if annotations or "annotations" in kept:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, **({"subsets": subsets} if subsets else {})}


def _count(subsets: Sequence[Object], key: str) -> int:
    return sum(len(subset.get(key) or ()) for subset in subsets)


def truncated(subsets: Sequence[Object]) -> Objects:
    """The subsets with at most `MOST_ADDRESSES` addresses, ready ones first, each subset cut in proportion."""
    ready = _count(subsets, "addresses")
    key, room = (
        ("addresses", MOST_ADDRESSES) if ready > MOST_ADDRESSES else ("notReadyAddresses", MOST_ADDRESSES - ready)
    )
    total, left = _count(subsets, key), room
    found: Objects = []
    for subset in subsets:
        addresses = subset.get(key) or []
        kept = addresses[: min(math.ceil(len(addresses) / total * room), left)]
        left -= len(kept)
        cut = {name: value for name, value in subset.items() if name not in ("notReadyAddresses", key)}
        found.append({**cut, **({key: kept} if kept else {})})
    return found


def subsets_of(service: Object, pods: Iterable[Object]) -> Objects:
    """The pods by the set of ports that they offer, sorted; the family of addresses is the Service's first one."""
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    ipv6 = (service["spec"].get("ipFamilies") or ["IPv4"])[0] == "IPv6"
    headless = service["spec"].get("clusterIP") == "None"
    groups: dict[tuple[tuple[str, int, str, str], ...], tuple[Objects, Objects, Objects]] = {}
    for pod in pods:
        addresses = addresses_of(pod, ipv6)
        if not is_endpoint(pod, terminating=published) or not addresses:
            continue
        ports = sorted(ports_of(service, pod), key=_port_key)
        if not ports and (service["spec"].get("ports") or not headless):
            continue
        group = groups.setdefault(tuple(map(_port_key, ports)), (ports, [], []))
        group[1 if published or is_ready(pod) else 2].append(_address(pod, service, addresses[0]))
    return [_subset(*groups[key]) for key in sorted(groups)]


def _subset(ports: Objects, ready: Objects, not_ready: Objects) -> Object:
    lists = {
        "addresses": sorted(ready, key=_address_key),
        "notReadyAddresses": sorted(not_ready, key=_address_key),
        "ports": [{key: value for key, value in port.items() if value != ""} for port in ports],
    }
    return {key: value for key, value in lists.items() if value}


def _port_key(port: Object) -> tuple[str, int, str, str]:
    return (port["name"], port["port"], port["protocol"], port.get("appProtocol") or "")


def _address_key(address: Object) -> tuple[str, str]:
    return (address["ip"], address["targetRef"]["uid"])


def _address(pod: Object, service: Object, ip: str) -> Object:
    hostname, node = hostname_of(pod, service), pod["spec"].get("nodeName")
    named = {**({"hostname": hostname} if hostname else {}), **({"nodeName": node} if node else {})}
    return {"ip": ip, **named, "targetRef": target_of(pod)}
