"""The slices of a Service as objects: labels, owner, address types, endpoints of pods.

Source of the rules: `k8s.io/endpointslice/utils.go`.
"""

from __future__ import annotations

from muster.api.codec import Object, Objects
from muster.api.meta import is_deleting, name_of, namespace_of, uid_of
from muster.api.names import MAX_NAME
from muster.api.resource import ENDPOINT_SLICES, SERVICES
from muster.controllers.network.endpoint_pods import HEADLESS, ZONE, addresses_of, has_address, hostname_of, target_of
from muster.controllers.ownership import owner_reference
from muster.controllers.pod_availability import is_ready

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)


def address_types(service: Object) -> list[str]:
    """`IPv4`, `IPv6` or both: the families of a Service."""
    spec = service["spec"]
    families = [family for family in ("IPv4", "IPv6") if family in (spec.get("ipFamilies") or ())]
    if families:
        return families
    if has_address(service):
        return ["IPv6" if ":" in spec["clusterIP"] else "IPv4"]
    return ["IPv4", "IPv6"]


def new_slice(service: Object, type_: str, ports: Objects) -> Object:
    """A slice to be made, without endpoints."""
    name = name_of(service)
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "generateName": name_prefix(name),
            "namespace": namespace_of(service),
            "labels": slice_labels(service),
            "ownerReferences": [owner_reference(service, SERVICES)],
        },
        "addressType": type_,
        "endpoints": [],
        "ports": ports,
    }


def name_prefix(name: str) -> str:
    """How the names of the slices begin that are made for an object of that name."""
    return f"{name}-" if len(name) < MAX_NAME else name


def slice_labels(service: Object) -> Object:
    """The labels of a Service's slices."""
    headless = {} if has_address(service) else {HEADLESS: ""}
    return {**_own_labels(service), **headless, SERVICE_NAME: name_of(service), MANAGED_BY: MANAGER}


def labels_differ(slice_: Object, service: Object) -> bool:
    """Whether a slice has other labels than its Service, apart from those that only slices have."""
    return _own_labels(slice_) != _own_labels(service)


def _own_labels(obj: Object) -> Object:
    return {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if key not in _RESERVED}


def is_owned(slice_: Object, service: Object) -> bool:
    """Whether a slice belongs to exactly this Service (and not to an earlier one of that name)."""
    owners = slice_["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid_of(service) and owner.get("kind") == "Service" for owner in owners)


def endpoint_of(pod: Object, node: Object | None, service: Object, type_: str) -> Object | None:
    """A pod as an endpoint of a Service; None if it has no address of that type."""
    addresses = addresses_of(pod, type_ == "IPv6")
    if not addresses:
        return None
    serving, terminating = is_ready(pod), is_deleting(pod)
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    zone = (node["metadata"].get("labels") or {}).get(ZONE) if node is not None else None
    ready = published or (serving and not terminating)
    endpoint = {
        "addresses": addresses,
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "hostname": hostname_of(pod, service),
        "targetRef": target_of(pod),
        "nodeName": pod["spec"].get("nodeName"),
        "zone": zone,
    }
    return {key: value for key, value in endpoint.items() if value}
