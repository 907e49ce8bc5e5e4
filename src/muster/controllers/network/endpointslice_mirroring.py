"""endpointslice-mirroring-controller: slices for Services without selector, from the Endpoints that others wrote.

Source of the rules: kube-controller-manager `pkg/controller/endpointslicemirroring`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, key_of, name_of, namespace_of
from muster.api.resource import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from muster.client.informer import Change
from muster.controllers.action import Action, Create, Emit, Result, Update
from muster.controllers.network.endpoint_pods import TRIGGER_TIME, selector_of_service
from muster.controllers.network.endpoint_ports import PortKey, in_upstream_order, port_key
from muster.controllers.network.endpointslice_changes import delete_slice, recycled
from muster.controllers.network.endpointslice_objects import MANAGED_BY, SERVICE_NAME, name_prefix
from muster.controllers.network.endpointslice_packing import endpoint_key
from muster.controllers.ownership import owner_reference
from muster.controllers.runner import Request
from muster.controllers.state import State

MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST_ADDRESSES = 1000
"""Of one subset that are mirrored."""

GroupKey: TypeAlias = tuple[str, PortKey]


class EndpointSliceMirroring:
    """Reconciles Endpoints; keys are `namespace/name`."""

    name = "endpointslice-mirroring-controller"
    resources: tuple[Resource, ...] = (ENDPOINTS, ENDPOINT_SLICES, SERVICES)

    def requests(self, resource: Resource, change: Change, state: State) -> Iterable[Request]:
        forms = [form for form in (change.old, change.new) if form is not None]
        if resource == ENDPOINTS:
            return [Request(key_of(change.object))] if any(map(_may_be_mirrored, forms)) else []
        if resource == SERVICES:
            selecting = {bool(selector_of_service(form)) for form in forms}
            return [Request(key_of(change.object))] if selecting in ({False}, {True, False}) else []
        keys = {f"{namespace_of(form)}/{name}": None for form in forms if (name := _mirrored_name(form))}
        return [Request(key) for key in keys]

    def reconcile(self, key: str, state: State, now: float) -> Result:
        endpoints, service = state[ENDPOINTS].get(key), state[SERVICES].get(key)
        namespace, _, name = key.partition("/")
        slices = [each for each in state[ENDPOINT_SLICES].in_namespace(namespace) if _mirrored_name(each) == name]
        if endpoints is None or service is None or not _may_be_mirrored(endpoints) or selector_of_service(service):
            return Result(tuple(delete_slice(slice_) for slice_ in slices))
        groups, events = _desired(endpoints)
        return Result((*events, *_writes(endpoints, groups, slices)))


def _may_be_mirrored(endpoints: Object) -> bool:
    metadata = endpoints["metadata"]
    skipped = (metadata.get("labels") or {}).get(SKIP) == "true"
    return not skipped and LEADER not in (metadata.get("annotations") or {})


def _mirrored_name(slice_: Object) -> str:
    """The Endpoints that a slice mirrors; "" if it mirrors none."""
    labels = slice_["metadata"].get("labels") or {}
    name: str = labels.get(SERVICE_NAME) or ""
    return name if labels.get(MANAGED_BY) == MANAGER else ""


def _desired(endpoints: Object) -> tuple[dict[GroupKey, tuple[Objects, Objects]], list[Action]]:
    """Ports and endpoints by address type and set of ports, and events about addresses that are left out."""
    groups: dict[GroupKey, tuple[Objects, Objects]] = {}
    invalid = skipped = 0
    for subset in endpoints.get("subsets") or ():
        ports = [_port(port) for port in subset.get("ports") or ()]
        states = [(each, True) for each in subset.get("addresses") or ()]
        states += [(each, False) for each in subset.get("notReadyAddresses") or ()]
        added = 0
        for address, ready in states:
            if added >= MOST_ADDRESSES:
                break
            endpoint = _endpoint(address, ready)
            if endpoint is None:
                invalid += 1
                continue
            type_ = "IPv6" if ":" in endpoint["addresses"][0] else "IPv4"
            groups.setdefault((type_, port_key(ports)), (ports, []))[1].append(endpoint)
            added += 1
        skipped += len(states) - added
    return groups, _events(endpoints, invalid, skipped)


def _events(endpoints: Object, invalid: int, skipped: int) -> list[Action]:
    events: list[Action] = []
    if invalid:
        text = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
        events.append(Emit(endpoints, "Warning", "InvalidIPAddress", text))
    if skipped > invalid:
        text = (
            f"A max of {MOST_ADDRESSES} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} "
            "addresses were skipped"
        )
        events.append(Emit(endpoints, "Warning", "TooManyAddressesToMirror", text))
    return events


def _port(port: Object) -> Object:
    entry = {"name": port.get("name") or "", "protocol": port.get("protocol") or "TCP", "port": port.get("port")}
    return {**entry, **({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})}


def _endpoint(address: Object, ready: bool) -> Object | None:
    try:
        ip = ipaddress.ip_address(address.get("ip") or "")
    except ValueError:
        return None
    kept = {key: address[key] for key in ("hostname", "targetRef", "nodeName") if address.get(key)}
    return {"addresses": [str(ip)], "conditions": {"ready": ready}, **kept}


def _writes(
    endpoints: Object, groups: dict[GroupKey, tuple[Objects, Objects]], slices: Sequence[Object]
) -> list[Action]:
    """One slice a group; slices that are not needed are turned into those that are missing."""
    by_group: dict[GroupKey, Objects] = {}
    for slice_ in slices:
        by_group.setdefault((slice_.get("addressType") or "", port_key(slice_.get("ports"))), []).append(slice_)
    spare = [slice_ for key, group in by_group.items() for slice_ in group[1 if key in groups else 0 :]]
    create: Objects = []
    update: Objects = []
    for key in sorted(groups):
        ports, wanted = groups[key]
        mirrored = _slice(endpoints, key[0], in_upstream_order(ports), wanted)
        old = by_group.get(key, [])
        reusable = old[:1] or [slice_ for slice_ in spare if slice_.get("addressType") == key[0]][:1]
        if not reusable:
            create.append(mirrored)
            continue
        if not old:
            spare.remove(reusable[0])
        elif _mirrors(old[0], mirrored):
            continue
        update.append(recycled(reusable[0], mirrored))
    made = [] if is_deleting(endpoints) else create
    return [
        *(Create(ENDPOINT_SLICES, slice_) for slice_ in made),
        *(Update(ENDPOINT_SLICES, slice_) for slice_ in update),
        *(delete_slice(slice_) for slice_ in spare),
    ]


def _mirrors(slice_: Object, wanted: Object) -> bool:
    """Whether the slice has the endpoints, labels and annotations that it should have."""
    metadata, other = slice_["metadata"], wanted["metadata"]
    same = all((metadata.get(key) or {}) == (other.get(key) or {}) for key in ("labels", "annotations"))
    ours = {endpoint_key(each): each for each in slice_.get("endpoints") or ()}
    return same and ours == {endpoint_key(each): each for each in wanted["endpoints"]}


def _slice(endpoints: Object, type_: str, ports: Objects, wanted: Objects) -> Object:
    metadata = endpoints["metadata"]
    dropped = (TRIGGER_TIME, APPLIED)
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key not in dropped}
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "generateName": name_prefix(name_of(endpoints)),
            "namespace": namespace_of(endpoints),
            "labels": {**(metadata.get("labels") or {}), SERVICE_NAME: name_of(endpoints), MANAGED_BY: MANAGER},
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [owner_reference(endpoints, ENDPOINTS)],
        },
        "addressType": type_,
        "endpoints": wanted,
        "ports": ports,
    }
