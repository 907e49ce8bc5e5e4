"""What happens to the slices of one Service and one address type, hints apart.

Source of the rules: `k8s.io/endpointslice/reconciler.go` (reconcileByAddressType).
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.api.codec import Object, Objects
from muster.controllers.network.endpoint_pods import is_endpoint, ports_of
from muster.controllers.network.endpoint_ports import PortKey, in_upstream_order, port_key
from muster.controllers.network.endpointslice_objects import (
    endpoint_of,
    is_owned,
    labels_differ,
    new_slice,
    slice_labels,
)
from muster.controllers.network.endpointslice_packing import SlicePlan, pack
from muster.controllers.state import Watched


def plan_slices(
    service: Object, pods: Sequence[Object], existing: Sequence[Object], nodes: Watched, type_: str
) -> SlicePlan:
    """The plan that brings the slices to the state of the pods. There is always one slice, if need be an empty one."""
    plan = SlicePlan(delete=[slice_ for slice_ in existing if not is_owned(slice_, service)])
    by_ports: dict[PortKey, Objects] = {}
    for slice_ in existing:
        if is_owned(slice_, service):
            by_ports.setdefault(port_key(slice_.get("ports")), []).append(slice_)
    desired = _desired(service, pods, nodes, type_)
    for key, (ports, endpoints) in desired.items():
        packed = pack(
            by_ports.get(key, ()),
            endpoints,
            slice_labels(service),
            lambda slice_: labels_differ(slice_, service),
            lambda ports=ports: new_slice(service, type_, in_upstream_order(ports)),  # type: ignore[misc]  # bound now
        )
        plan.create += packed.create
        plan.update += packed.update
        plan.unchanged += packed.unchanged
        plan.delete += packed.delete
    plan.delete += [slice_ for key, slices in by_ports.items() if key not in desired for slice_ in slices]
    _keep_one(plan, service, type_, len(existing))
    return plan


def _desired(
    service: Object, pods: Sequence[Object], nodes: Watched, type_: str
) -> dict[PortKey, tuple[Objects, Objects]]:
    """The ports and endpoints of each set of ports. A pod whose node is not known is left out until the node comes."""
    found: dict[PortKey, tuple[Objects, Objects]] = {}
    published = service["spec"].get("publishNotReadyAddresses")
    for pod in pods:
        if not is_endpoint(pod, terminating=True):
            continue
        ports = ports_of(service, pod)
        _, endpoints = found.setdefault(port_key(ports), (ports, []))
        node = nodes.get(pod["spec"].get("nodeName") or "")
        if node is None and not published:
            continue
        endpoint = endpoint_of(pod, node, service, type_)
        if endpoint is not None:
            endpoints.append(endpoint)
    return found


def _keep_one(plan: SlicePlan, service: Object, type_: str, existing: int) -> None:
    """Add the empty slice that stands for a Service without endpoints, or keep the one that is there."""
    if existing != len(plan.delete) or plan.create:
        return
    placeholder = new_slice(service, type_, [])
    if len(plan.delete) == 1 and _is_placeholder(plan.delete[0], placeholder):
        plan.delete.clear()
    else:
        plan.create.append(placeholder)


def _is_placeholder(slice_: Object, placeholder: Object) -> bool:
    old, new = slice_["metadata"], placeholder["metadata"]
    same = all((old.get(key) or None) == (new.get(key) or None) for key in ("labels", "ownerReferences"))
    return same and not slice_.get("endpoints") and not slice_.get("ports")
