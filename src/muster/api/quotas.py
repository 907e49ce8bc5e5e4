"""What objects take of a ResourceQuota: names of counted resources, usage of an object, scopes. Pure functions.

Sources: kubernetes `pkg/quota/v1/evaluator/core/{pods,services,persistent_volume_claims}.go` and apiserver
`pkg/quota/v1/{resources.go,generic}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from muster.api.codec import Object, Objects
from muster.api.quantity import Quantity, parse_quantity

Amounts: TypeAlias = Mapping[str, Quantity]
"""Quantities by the name of a counted resource, such as `requests.cpu` or `count/jobs.batch`."""

ZERO = Quantity(0)
ONE = Quantity(1_000_000_000)

BY_NAME = ("configmaps", "secrets", "replicationcontrollers", "resourcequotas", "services", "persistentvolumeclaims")
"""Kinds of the core group that a quota may also name without `count/`."""

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_STANDARD = frozenset({"pods", *_COMPUTE, *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _COMPUTE)})
_BEST_EFFORT = frozenset({"pods"})
_POD_SCOPES = frozenset(
    {"Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"}
)
SCOPES = _POD_SCOPES | {"BestEffort"}


def counted_as(group: str, plural: str) -> str:
    """The name by which a quota counts the objects of a kind."""
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def add(first: Amounts, second: Amounts) -> dict[str, Quantity]:
    """The sum, name by name. A sum that begins at zero has the format of the second part."""
    total = dict(first)
    for name, amount in second.items():
        before = total.get(name, ZERO)
        total[name] = Quantity(before.nano + amount.nano, amount.format if before.nano == 0 else before.format)
    return total


def usage_of(group: str, plural: str, obj: Object, now: float = 0.0) -> dict[str, Quantity]:
    """What an object takes, by the name of everything that a quota could count of it."""
    found = {counted_as(group, plural): ONE}
    if group:
        return found
    if plural == "pods":
        return found | pod_usage(obj)
    if plural in BY_NAME:
        found[plural] = ONE
    if plural == "services":
        found |= _service_usage(obj)
    elif plural == "persistentvolumeclaims":
        found |= _claim_usage(obj)
    return found


def pod_usage(pod: Object) -> dict[str, Quantity]:
    """What a pod takes besides its number: nothing once it has ended."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return {}
    found: dict[str, Quantity] = {"pods": ONE}
    for name, amount in _pod_total(pod["spec"], "requests").items():
        found[f"requests.{name}"] = amount
        if name in _COMPUTE or name.startswith("hugepages-"):
            found[name] = amount
    for name, amount in _pod_total(pod["spec"], "limits").items():
        if name in _COMPUTE:
            found[f"limits.{name}"] = amount
    return found


def _pod_total(spec: Object, kind: str) -> dict[str, Quantity]:
    """Requests or limits of a pod: containers and sidecars together, or the largest need of an init container."""
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        total = add(total, _amounts(container, kind))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container, kind)
        if container.get("restartPolicy") == "Always":
            total, sidecars = add(total, own), add(sidecars, own)
            own = sidecars
        else:
            own = add(own, sidecars)
        peak = _largest(peak, own)
    total = _largest(total, peak)
    whole = (spec.get("resources") or {}).get(kind) or {}
    total |= {name: parse_quantity(value) for name, value in whole.items()}
    overhead = {name: parse_quantity(value) for name, value in (spec.get("overhead") or {}).items()}
    if kind == "limits":
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return add(total, overhead)


def _amounts(container: Object, kind: str) -> dict[str, Quantity]:
    values = (container.get("resources") or {}).get(kind) or {}
    return {name: parse_quantity(value) for name, value in values.items()}


def _largest(first: Amounts, second: Amounts) -> dict[str, Quantity]:
    found = dict(first)
    for name, amount in second.items():
        if name not in found or amount.nano > found[name].nano:
            found[name] = amount
    return found


def _service_usage(service: Object) -> dict[str, Quantity]:
    spec = service.get("spec") or {}
    ports = Quantity(ONE.nano * len(spec.get("ports") or ()))
    if spec.get("type") == "NodePort":
        return {"services.nodeports": ports, "services.loadbalancers": ZERO}
    if spec.get("type") == "LoadBalancer":
        held = ZERO if spec.get("allocateLoadBalancerNodePorts") is False else ports
        return {"services.nodeports": held, "services.loadbalancers": ONE}
    return {"services.nodeports": ZERO, "services.loadbalancers": ZERO}


def _claim_usage(claim: Object) -> dict[str, Quantity]:
    spec = claim.get("spec") or {}
    asked = parse_quantity(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))
    found = {"requests.storage": asked}
    storage_class = spec.get("storageClassName")
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        found |= {f"{prefix}/requests.storage": asked, f"{prefix}/persistentvolumeclaims": ONE}
    return found


def counts(quota: Object, name: str, group: str, plural: str) -> bool:
    """Whether that resource of the quota is about objects of that kind."""
    if name == counted_as(group, plural):
        return True
    if group:
        return False
    if plural == "pods":
        return name in _STANDARD or (name.startswith(("requests.", "hugepages-")) and name != "requests.storage")
    if plural == "services":
        return name == "services" or name.startswith("services.")
    if plural == "persistentvolumeclaims":
        return name in ("persistentvolumeclaims", "requests.storage") or ".storageclass.storage.k8s.io/" in name
    return plural in BY_NAME and name == plural


def scope_requirements(quota: Object) -> Objects:
    """The scopes of a quota as requirements: `scopeName`, `operator`, `values`."""
    spec = quota.get("spec") or {}
    plain = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return [*plain, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]


def covers(quota: Object, plural: str, obj: Object) -> bool:
    """Whether an object is in all scopes of a quota. Only pods are ever in one (claims of 1.36 in none)."""
    scopes = scope_requirements(quota)
    return not scopes or (plural == "pods" and all(_is_in_scope(scope, obj) for scope in scopes))


def _is_in_scope(scope: Object, pod: Object) -> bool:
    name, spec = scope.get("scopeName"), pod["spec"]
    has_deadline = spec.get("activeDeadlineSeconds") is not None and spec["activeDeadlineSeconds"] >= 0
    match name:
        case "Terminating":
            return has_deadline
        case "NotTerminating":
            return not has_deadline
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec.get("affinity") or {})
        case "PriorityClass":
            return _has_class(scope, spec.get("priorityClassName") or "")
    return False


def _has_class(scope: Object, priority_class: str) -> bool:
    values = scope.get("values") or ()
    match scope.get("operator"):
        case "In":
            return priority_class in values
        case "NotIn":
            return priority_class not in values
        case "DoesNotExist":
            return not priority_class
    return bool(priority_class)


def _is_best_effort(pod: Object) -> bool:
    """Whether no container asks for or is limited in cpu or memory."""
    spec = pod["spec"]
    holders: Iterable[Object] = (
        *(container.get("resources") or {} for container in spec.get("containers") or ()),
        *(container.get("resources") or {} for container in spec.get("initContainers") or ()),
        spec.get("resources") or {},
    )
    return not any(
        parse_quantity(value).nano > 0
        for holder in holders
        for kind in ("requests", "limits")
        for name, value in (holder.get(kind) or {}).items()
        if name in ("cpu", "memory")
    )


def _crosses_namespaces(affinity: Object) -> bool:
    terms: Objects = []
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or []
        weighted = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or []
        terms += [entry.get("podAffinityTerm") or {} for entry in weighted]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def scope_allows(scope: str, name: str) -> bool:
    """Whether a quota with that scope may limit that resource."""
    if scope == "BestEffort":
        return name in _BEST_EFFORT
    return name in _STANDARD or name.startswith(("requests.", "hugepages-"))
