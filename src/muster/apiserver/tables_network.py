"""Table columns of autoscalers, ingresses, certificates and other kinds that are stored for others.

Source: kubernetes `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.api.codec import JSON, Object
from muster.apiserver.columns import (
    AGE,
    NAME,
    NONE,
    WIDE,
    Column,
    at,
    container_images,
    container_names,
    get,
    labels_text,
    number,
)

UNSET = "<unset>"
_MOST_TARGETS = 2


def autoscaler_reference(obj: Object, now: float) -> JSON:
    """What an autoscaler scales, as `Deployment/web`."""
    target = get(obj, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def autoscaler_targets(obj: Object, now: float) -> JSON:
    """Current and wanted values of an autoscaler's metrics, as `cpu: <unknown>/80%`."""
    metrics = get(obj, "spec", "metrics") or []
    if not metrics:
        percent = get(obj, "spec", "targetCPUUtilizationPercentage")
        if percent is None:
            return NONE
        current = get(obj, "status", "currentCPUUtilizationPercentage")
        return f"cpu: {f'{current}%' if current is not None else '<unknown>'}/{percent}%"
    current = get(obj, "status", "currentMetrics") or []
    shown = [_target(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(metrics)]
    more = f" + {len(shown) - _MOST_TARGETS} more..." if len(shown) > _MOST_TARGETS else ""
    return ", ".join(shown[:_MOST_TARGETS]) + more


def _target(metric: Object, current: Object) -> str:
    kind: str = metric.get("type", "")
    field = kind[:1].lower() + kind[1:]
    part, present = metric.get(field) or {}, (current.get(field) or {}).get("current") or {}
    target = part.get("target") or {}
    name = part.get("name") or get(part, "metric", "name") or ""
    if target.get("averageUtilization") is not None:
        found = present.get("averageUtilization")
        return f"{name}: {f'{found}%' if found is not None else '<unknown>'}/{target['averageUtilization']}%"
    average = target.get("averageValue")
    wanted = f"{average}" if average is not None else target.get("value", "")
    found = present.get("averageValue" if average is not None else "value")
    return f"{name + ': ' if kind == 'Resource' else ''}{found or '<unknown>'}/{wanted}{' (avg)' if average else ''}"


def ingress_hosts(obj: Object, now: float) -> JSON:
    """The hosts of an ingress: at most three, `*` for all."""
    hosts = [rule["host"] for rule in get(obj, "spec", "rules") or () if rule.get("host")]
    if not hosts:
        return "*"
    return ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "")


def ingress_addresses(obj: Object, now: float) -> JSON:
    """Where the load balancer of an ingress is."""
    points = get(obj, "status", "loadBalancer", "ingress") or ()
    return ",".join(point.get("ip") or point.get("hostname") or "" for point in points)


def ingress_ports(obj: Object, now: float) -> JSON:
    """The ports of an ingress: with TLS two."""
    return "80, 443" if get(obj, "spec", "tls") else "80"


def request_condition(obj: Object, now: float) -> JSON:
    """What became of a certificate signing request, as `Approved,Issued`."""
    conditions = get(obj, "status", "conditions") or ()
    types = [entry.get("type", "") for entry in conditions]
    for word in ("Denied", "Approved"):
        if word in types:
            failed = ",Failed" if "Failed" in types else ""
            return word + failed + (",Issued" if get(obj, "status", "certificate") else "")
    return "Failed" if "Failed" in types else "Pending"


_TEMPLATE = ("template", "spec", "containers")

COLUMNS: Mapping[tuple[str, str], Sequence[Column]] = {
    ("autoscaling", "HorizontalPodAutoscaler"): (
        NAME,
        Column("Reference", autoscaler_reference),
        Column("Targets", autoscaler_targets),
        Column("MinPods", lambda obj, now: str(get(obj, "spec", "minReplicas") or UNSET)),
        Column("MaxPods", number("spec", "maxReplicas")),
        Column("Replicas", number("status", "currentReplicas")),
        AGE,
    ),
    ("networking.k8s.io", "Ingress"): (
        NAME,
        Column("Class", at("spec", "ingressClassName")),
        Column("Hosts", ingress_hosts),
        Column("Address", ingress_addresses),
        Column("Ports", ingress_ports),
        AGE,
    ),
    ("networking.k8s.io", "IngressClass"): (
        NAME,
        Column("Controller", at("spec", "controller", default="")),
        Column(
            "Parameters",
            lambda obj, now: (
                f"{reference.get('kind')}.{reference.get('apiGroup') or ''}/{reference.get('name')}".replace("./", "/")
                if (reference := get(obj, "spec", "parameters"))
                else NONE
            ),
        ),
        AGE,
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): (
        NAME,
        AGE,
        Column("SignerName", at("spec", "signerName", default="")),
        Column("Requestor", at("spec", "username", default="")),
        Column("RequestedDuration", at("spec", "expirationSeconds")),
        Column("Condition", request_condition),
    ),
    ("node.k8s.io", "RuntimeClass"): (NAME, Column("Handler", at("handler", default="")), AGE),
    ("", "PodTemplate"): (
        NAME,
        Column("Containers", lambda obj, now: container_names(get(obj, *_TEMPLATE))),
        Column("Images", lambda obj, now: container_images(get(obj, *_TEMPLATE))),
        Column("Pod Labels", lambda obj, now: labels_text(get(obj, "template", "metadata", "labels"))),
    ),
    ("storage.k8s.io", "VolumeAttachment"): (
        NAME,
        Column("Attacher", at("spec", "attacher", default="")),
        Column("PV", at("spec", "source", "persistentVolumeName", default="")),
        Column("Node", at("spec", "nodeName", default="")),
        Column("Attached", lambda obj, now: bool(get(obj, "status", "attached")), "boolean"),
        AGE,
    ),
    ("storage.k8s.io", "CSIDriver"): (
        NAME,
        Column("AttachRequired", lambda obj, now: get(obj, "spec", "attachRequired") is not False, "boolean"),
        Column("PodInfoOnMount", lambda obj, now: bool(get(obj, "spec", "podInfoOnMount")), "boolean"),
        Column("StorageCapacity", lambda obj, now: bool(get(obj, "spec", "storageCapacity")), "boolean"),
        Column(
            "TokenRequests",
            lambda obj, now: ",".join(r.get("audience", "") for r in get(obj, "spec", "tokenRequests") or ()) or UNSET,
        ),
        Column("RequiresRepublish", lambda obj, now: bool(get(obj, "spec", "requiresRepublish")), "boolean"),
        Column("Modes", lambda obj, now: ",".join(get(obj, "spec", "volumeLifecycleModes") or ("Persistent",))),
        AGE,
    ),
    ("networking.k8s.io", "ServiceCIDR"): (
        NAME,
        Column("CIDRs", lambda obj, now: ",".join(get(obj, "spec", "cidrs") or ())),
        AGE,
    ),
    ("networking.k8s.io", "IPAddress"): (
        NAME,
        Column(
            "ParentRef",
            lambda obj, now: "/".join(
                part for key in ("resource", "namespace", "name") if (part := get(obj, "spec", "parentRef", key))
            ),
        ),
        AGE,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): (NAME, Column("DriverName", at("driverName", default="")), AGE),
    ("storage.k8s.io", "CSIStorageCapacity"): (
        NAME,
        Column("StorageClassName", at("storageClassName", default="")),
        Column("Capacity", at("capacity", default=UNSET)),
        Column("Topology", lambda obj, now: labels_text(get(obj, "nodeTopology", "matchLabels")), priority=WIDE),
    ),
}
