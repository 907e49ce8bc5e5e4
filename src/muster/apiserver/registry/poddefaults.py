"""Default values of pod specs, also inside templates, and what admission adds to new pods.

Sources: upstream `pkg/apis/core/v1/defaults.go`, admission plugin DefaultTolerationSeconds, recordings.
"""

from __future__ import annotations

import re

from muster.api.codec import Object, Objects
from muster.api.quantity import parse_quantity

DEFAULT_GRACE_S = 30
TOLERATION_S = 300
FILE_MODE = 0o644
TOKEN_S = 3600

POD_LEVEL_RESOURCES = ("cpu", "memory")


def default_pod_spec(spec: Object) -> None:
    """Fill in a pod spec's default values."""
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = DEFAULT_GRACE_S
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    host = bool(spec.get("hostNetwork"))
    if not host:
        spec.pop("hostNetwork", None)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            default_container(container, on_host=host)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def default_container(container: Object, *, on_host: bool) -> None:
    """Fill in one container's default values; `on_host`: its ports are the node's."""
    container["terminationMessagePath"] = container.get("terminationMessagePath") or "/dev/termination-log"
    container["terminationMessagePolicy"] = container.get("terminationMessagePolicy") or "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources.get("limits"):
        requests = resources.get("requests")
        resources["requests"] = {**resources["limits"], **requests} if requests else dict(resources["limits"])
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if on_host and not port.get("hostPort"):
            port["hostPort"] = port.get("containerPort")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe) is not None:
            _default_probe(container[probe])
    for variable in container.get("env") or ():
        _default_field_ref(variable.get("valueFrom"))
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _default_http_get(handler.get("httpGet"))


_NO_IMAGE = re.compile(r"[0-9a-f]{64}|.*[A-Z!].*")
"""What is no reference to an image: 64 hexadecimal digits, or a repository with capitals (tags may have them)."""


def _pull_policy(image: str) -> str:
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if (digest and tag != "latest") or _NO_IMAGE.fullmatch(name.removesuffix(f":{tag}")):
        return "IfNotPresent"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Object) -> None:
    _default_http_get(probe.get("httpGet"))
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(field):
            probe[field] = value


def _default_http_get(action: Object | None) -> None:
    if action is not None:
        action["path"] = action.get("path") or "/"
        action["scheme"] = action.get("scheme") or "HTTP"


def _default_field_ref(source: Object | None) -> None:
    if source and source.get("fieldRef") is not None and not source["fieldRef"].get("apiVersion"):
        source["fieldRef"]["apiVersion"] = "v1"


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", FILE_MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference") or "")
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if claim:
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", TOKEN_S)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item)


def default_pod_level_requests(spec: Object) -> None:
    """Requests of a pod as a whole, where only its limits are given: its containers' sums, else the limits."""
    resources = spec.get("resources")
    if not resources or not resources.get("limits"):
        return
    requests = dict(resources.get("requests") or {})
    for name in POD_LEVEL_RESOURCES:
        if name in requests:
            continue
        total = _sum_of_requests(spec, name)
        if total is not None:
            requests[name] = total
        elif name in resources["limits"]:
            requests[name] = resources["limits"][name]
    if requests:
        resources["requests"] = requests


def _sum_of_requests(spec: Object, name: str) -> str | None:
    found = [
        parse_quantity(container["resources"]["requests"][name])
        for container in spec.get("containers") or ()
        if name in ((container.get("resources") or {}).get("requests") or {})
    ]
    if not found:
        return None
    total = found[0]
    return str(type(total)(sum(quantity.nano for quantity in found), total.format))


def default_tolerations(spec: Object) -> None:
    """Tolerate not-ready and unreachable nodes for a while."""
    tolerations: Objects = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            entry = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
            tolerations = [*tolerations, entry]
    spec["tolerations"] = tolerations


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def merge_label_keys(spec: Object, labels: Object) -> None:
    """Write `matchLabelKeys` and `mismatchLabelKeys` of affinity terms and spread constraints into their selectors."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_keys(term, labels)
        for weighted in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_keys(weighted.get("podAffinityTerm") or {}, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_keys(constraint, labels)


def _merge_keys(term: Object, labels: Object) -> None:
    if term.get("labelSelector") is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                expressions = term["labelSelector"].get("matchExpressions") or []
                entry = {"key": key, "operator": operator, "values": [labels[key]]}
                term["labelSelector"]["matchExpressions"] = [*expressions, entry]


def quality_of_service(spec: Object) -> str:
    """The QoS class (`Guaranteed`, `Burstable`, `BestEffort`) of a pod spec."""
    whole = spec.get("resources") or {}
    whole = whole if whole.get("limits") or whole.get("requests") else None
    holders: Objects = (
        [whole]
        if whole
        else [c.get("resources") or {} for c in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]]
    )
    guaranteed, any_set = True, False
    for resources in holders:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in POD_LEVEL_RESOURCES:
            any_set = any_set or _positive(requests.get(name)) or _positive(limits.get(name))
            if not _positive(limits.get(name)) or requests.get(name, limits.get(name)) != limits.get(name):
                guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(quantity: str | None) -> bool:
    return quantity is not None and quantity not in ("0", 0)
