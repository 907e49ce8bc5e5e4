"""Builders of what dynamic resource allocation needs: classes, slices, claims, and pods that use them."""

from __future__ import annotations

from muster.api.codec import JSON, Object

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def make_device_class(name: str, *, driver: str = DRIVER, extended: str = "") -> Object:
    """A class of all devices of a driver; `extended`: the extended resource that stands for it."""
    spec: Object = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def make_slice(
    node: str, devices: int, *, name: str = "", driver: str = DRIVER, pool: str = "", prefix: str = "gpu", **more: JSON
) -> Object:
    """A pool of so many like devices on a node (on all nodes, if it is ""); `more`: further fields of each device."""
    where: Object = {"nodeName": node} if node else {"allNodes": True}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node or 'all'}-{prefix}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool or node or "all", "generation": 1, "resourceSliceCount": 1},
            **where,
            "devices": [{"name": f"{prefix}-{at}", **more} for at in range(devices)],
        },
    }


def make_request(name: str = "gpu", *, device_class: str = "gpu", count: int = 1, **more: JSON) -> Object:
    """A request for exactly so many devices of a class."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": name, "exactly": exactly}


def make_claim(name: str, *requests: Object, namespace: str = "default", **devices: JSON) -> Object:
    """A claim; without requests for one device of class `gpu`."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests) or [make_request()], **devices}},
    }


def make_claim_template(name: str, *requests: Object, namespace: str = "default", **devices: JSON) -> Object:
    """A template of such claims."""
    claim = make_claim(name, *requests, namespace=namespace, **devices)
    return {**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


def pod_claim(entry: str, *, claim: str = "", template: str = "") -> Object:
    """The part of a pod's spec that names a claim or a template; see `make_pod(spec=…)`."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    return {"resourceClaims": [{"name": entry, **source}]}
