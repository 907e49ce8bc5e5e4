"""Which pods are endpoints of a Service, under which ports, and which changes of a pod matter to Services.

Source of the rules: `k8s.io/endpointslice/util/controller_utils.go`, kubernetes `pkg/api/v1/pod` (FindPort).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from muster.api.codec import Object
from muster.api.meta import condition, key_of, name_of, namespace_of, uid_of
from muster.api.resource import PODS, SERVICES
from muster.client.informer import Change
from muster.clock import parse_rfc3339
from muster.controllers.pod_availability import FINISHED, is_ready, phase_of
from muster.controllers.state import State

HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
ZONE = "topology.kubernetes.io/zone"


def selector_of_service(service: Object) -> Mapping[str, str]:
    """What a Service selects; empty if others keep its endpoints."""
    return service["spec"].get("selector") or {}


def selects(service: Object) -> bool:
    """Whether the endpoints of a Service are the pods that it selects."""
    return bool(selector_of_service(service)) and service["spec"].get("type") != "ExternalName"


def has_address(service: Object) -> bool:
    """Whether the Service has an address of its own (otherwise it is headless)."""
    return service["spec"].get("clusterIP") not in (None, "", "None")


def pods_of(service: Object, state: State) -> list[Object]:
    """The pods that a Service selects, in order of arrival."""
    wanted = selector_of_service(service).items()
    pods = state[PODS].in_namespace(namespace_of(service))
    return [pod for pod in pods if wanted <= (pod["metadata"].get("labels") or {}).items()]


def is_endpoint(pod: Object, *, terminating: bool) -> bool:
    """Whether a selected pod has an address and runs on; `terminating`: also one that is being deleted."""
    status = pod.get("status") or {}
    if phase_of(pod) in FINISHED or not (status.get("podIP") or status.get("podIPs")):
        return False
    return terminating or not pod["metadata"].get("deletionTimestamp")


def addresses_of(pod: Object, ipv6: bool) -> list[str]:
    """The pod's addresses of one family."""
    found = [entry.get("ip", "") for entry in (pod.get("status") or {}).get("podIPs") or ()]
    return [address for address in found if address and (":" in address) == ipv6]


def target_of(pod: Object) -> Object:
    """The reference from an endpoint to its pod."""
    return {"kind": "Pod", "namespace": namespace_of(pod), "name": name_of(pod), "uid": uid_of(pod)}


def hostname_of(pod: Object, service: Object) -> str:
    """The name under which DNS knows the pod in the Service's domain; "" if it is not in it."""
    hostname: str = pod["spec"].get("hostname") or ""
    return hostname if pod["spec"].get("subdomain") == name_of(service) else ""


def ports_of(service: Object, pod: Object) -> list[Object]:
    """The ports of a pod under which a Service reaches it; those that the pod does not name are left out."""
    found: list[Object] = []
    for port in service["spec"].get("ports") or ():
        number = _number(port, pod)
        if number is not None:
            entry = {"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP", "port": number}
            found.append({**entry, **({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})})
    return found


def _number(port: Object, pod: Object) -> int | None:
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for named in container.get("ports") or ():
            if (named.get("name"), named.get("protocol") or "TCP") == (target, port.get("protocol") or "TCP"):
                number: int = named.get("containerPort") or 0
                return number
    return None


def services_to_update(change: Change, state: State) -> Iterator[str]:
    """The keys of the Services whose endpoints a change of a pod may change."""
    pod = change.object
    namespace = namespace_of(pod)
    if not any(map(selector_of_service, state[SERVICES].in_namespace(namespace))):
        return
    old, new = change.old, change.new
    if change.type != "MODIFIED" or old is None or new is None:
        yield from _selecting(state, namespace, pod)
        return
    changed, moved = _endpoint_changed(old, new), _membership_changed(old, new)
    if not moved:
        if changed:
            yield from _selecting(state, namespace, new)
        return
    before, after = set(_selecting(state, namespace, old)), set(_selecting(state, namespace, new))
    yield from sorted(before | after if changed else before ^ after)


def _selecting(state: State, namespace: str, pod: Object) -> Iterator[str]:
    labels = (pod["metadata"].get("labels") or {}).items()
    for service in state[SERVICES].in_namespace(namespace):
        wanted = selector_of_service(service)
        if wanted and wanted.items() <= labels:
            yield key_of(service)


def _membership_changed(old: Object, new: Object) -> bool:
    names = ("hostname", "subdomain")
    return (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}) or any(
        old["spec"].get(name) != new["spec"].get(name) for name in names
    )


def _endpoint_changed(old: Object, new: Object) -> bool:
    if new["metadata"].get("deletionTimestamp") or is_ready(old) != is_ready(new):
        return True
    if (phase_of(old) in FINISHED) != (phase_of(new) in FINISHED):
        return True  # upstream notices a pod that fails without having been ready at its next look only
    addresses = [[entry.get("ip") for entry in (pod.get("status") or {}).get("podIPs") or ()] for pod in (old, new)]
    return addresses[0] != addresses[1]


class TriggerTimes(Struct, frozen=True):
    """When the Service was made and each of its pods last changed its readiness, as last seen (seconds)."""

    service_s: float
    pods_s: Mapping[str, float]


def trigger_times(service: Object, pods: Iterable[Object]) -> TriggerTimes:
    """The times now; pods without a Ready condition have none."""
    entries = ((name_of(pod), condition(pod, "Ready")) for pod in pods)
    times = {
        name: parse_rfc3339(entry["lastTransitionTime"])
        for name, entry in entries
        if entry is not None and entry.get("lastTransitionTime")
    }
    return TriggerTimes(parse_rfc3339(service["metadata"]["creationTimestamp"]), times)


def last_change_s(before: TriggerTimes | None, now: TriggerTimes) -> float | None:
    """The earliest of the changes since the last look (`endpoints.kubernetes.io/last-change-trigger-time`)."""
    known = before.pods_s if before is not None else {}
    changes = [time_s for name, time_s in now.pods_s.items() if time_s > known.get(name, 0.0)]
    if before is None or now.service_s > before.service_s:
        changes.append(now.service_s)
    return min(changes) if changes else None
