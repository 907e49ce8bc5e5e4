"""Validation of containers. Source: upstream `pkg/apis/core/validation` and recordings."""

from __future__ import annotations

import re
from typing import TypeAlias

from muster.api.codec import JSON, Object, Objects
from muster.api.quantity import Quantity, parse_quantity
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    unknown_value,
)

Errors: TypeAlias = list[FieldError]

NON_NEGATIVE = "must be greater than or equal to 0"
_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))
_ENV_NAME = re.compile(r"[ -<>-~]+")
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")


class PodNames:
    """The names that containers of a pod may refer to, and those they have taken."""

    def __init__(self, spec: Object) -> None:
        self.volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
        self.claims = [claim.get("name") for claim in spec.get("resourceClaims") or ()]
        self.restart_policy: str = spec.get("restartPolicy") or ""
        self.containers: set[str] = set()


def validate_containers(spec: Object, field: str) -> Errors:
    """All containers of a pod spec."""
    names = PodNames(spec)
    containers = spec.get("containers") or []
    if not containers:
        return [required(f"{field}.containers"), *_validate_init(spec, names, field)]
    errors: Errors = []
    for index, container in enumerate(containers):
        errors += validate_container(container, f"{field}.containers[{index}]", names)
    errors += validate_host_ports(containers, f"{field}.containers")
    return errors + _validate_init(spec, names, field)


def _validate_init(spec: Object, names: PodNames, field: str) -> Errors:
    errors: Errors = []
    for index, container in enumerate(spec.get("initContainers") or ()):
        at = f"{field}.initContainers[{index}]"
        errors += validate_container(container, at, names)
        if container.get("restartPolicy") == "Always":
            continue
        for probe in _PROBES:
            if container.get(probe) is not None:
                why = "may not be set for init containers without restartPolicy=Always"
                errors.append(forbidden_field(f"{at}.{probe}", why))
    return errors


def validate_container(container: Object, at: str, names: PodNames) -> Errors:
    """One container."""
    errors: Errors = []
    name = container.get("name") or ""
    if not name:
        errors.append(required(f"{at}.name"))
    elif name in names.containers:
        errors.append(duplicate(f"{at}.name", name))
    else:
        errors += [invalid_value(f"{at}.name", name, problem) for problem in label_problems(name)]
    names.containers.add(name)
    image = container.get("image") or ""
    if not image:
        errors.append(required(f"{at}.image"))
    elif image != image.strip():
        errors.append(invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace"))
    policy = container.get("imagePullPolicy")
    if policy not in (None, "Always", "IfNotPresent", "Never"):
        errors.append(not_supported(f"{at}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never")))
    errors += _validate_ports(container.get("ports") or (), f"{at}.ports")
    errors += _validate_env(container.get("env") or (), f"{at}.env")
    errors += _validate_mounts(container.get("volumeMounts") or (), f"{at}.volumeMounts", names)
    for probe in _PROBES:
        if container.get(probe) is not None:
            errors += _validate_probe(container[probe], f"{at}.{probe}")
    if container.get("resources"):
        errors += validate_resources(container["resources"], f"{at}.resources")
        errors += _validate_claims(container["resources"].get("claims") or (), f"{at}.resources.claims", names)
    return errors + _validate_resize(container.get("resizePolicy") or (), f"{at}.resizePolicy", names)


def validate_resources(resources: Object, at: str) -> Errors:
    """Limits and requests of a container."""
    errors: Errors = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in sorted(limits):
        errors += _validate_amount(name, limits[name], f"{at}.limits[{name}]")
    for name in sorted(requests):
        errors += _validate_amount(name, requests[name], f"{at}.requests[{name}]")
        errors += _validate_against_limit(name, requests[name], limits.get(name), at)
    return errors


def is_native(name: str) -> bool:
    """Whether Kubernetes itself defines the resource."""
    return "/" not in name or "kubernetes.io/" in name


def _overcommits(name: str) -> bool:
    return is_native(name) and not name.startswith("hugepages-")


def _validate_amount(name: str, value: JSON, at: str) -> Errors:
    if name in _STANDARD:
        if str(value).startswith("-"):
            return [invalid_value(at, value, NON_NEGATIVE)]
        return []
    errors = [invalid_value(at, name, problem) for problem in qualified_name_problems(name)]
    if "/" not in name and not name.startswith("hugepages-"):
        errors.append(invalid_value(at, name, "must be a standard resource type or fully qualified"))
        errors.append(invalid_value(at, name, "must be a standard resource for containers"))
    quantity = parse_quantity(value)
    if quantity.nano < 0:
        errors.append(invalid_value(at, value, NON_NEGATIVE))
    if not is_native(name) and quantity.nano % 10**9:
        errors.append(invalid_value(at, value, "must be an integer"))
    return errors


def _validate_against_limit(name: str, request: JSON, limit: JSON, at: str) -> Errors:
    if limit is None:
        if _overcommits(name):
            return []
        return [required(f"{at}.limits", "Limit must be set for non overcommitable resources")]
    if request == limit:
        return []
    asked, most = parse_quantity(request), parse_quantity(limit)
    if not _overcommits(name) and not _equal(asked, most):
        return [invalid_value(f"{at}.requests", request, f"must be equal to {name} limit of {limit}")]
    if asked.nano > most.nano:
        return [invalid_value(f"{at}.requests", request, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _equal(one: Quantity, other: Quantity) -> bool:
    return one.nano == other.nano


def _validate_claims(claims: Objects | tuple[()], at: str, names: PodNames) -> Errors:
    errors: Errors = []
    for index, claim in enumerate(claims):
        name = claim.get("name") or ""
        if not name:
            errors.append(required(f"{at}[{index}].name"))
        elif name not in names.claims:
            known = f": {', '.join(map(str, names.claims))}" if names.claims else " which is empty"
            found = unknown_value(f"{at}[{index}]", name)
            why = f"must be one of the names in pod.spec.resourceClaims{known}"
            errors.append(FieldError(found.reason, found.field, f"{found.body}: {why}"))
    return errors


def _validate_ports(ports: Objects | tuple[()], at: str) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{at}[{index}]"
        name = port.get("name")
        if name:
            if name in names:
                errors.append(duplicate(f"{here}.name", name))
            names.add(name)
        number = port.get("containerPort") or 0
        if not number:
            errors.append(required(f"{here}.containerPort"))
        elif not 1 <= number <= 65535:
            errors.append(invalid_value(f"{here}.containerPort", number, "must be between 1 and 65535, inclusive"))
        host = port.get("hostPort") or 0
        if host and not 1 <= host <= 65535:
            errors.append(invalid_value(f"{here}.hostPort", host, "must be between 1 and 65535, inclusive"))
        if port.get("protocol") not in (None, "TCP", "UDP", "SCTP"):
            errors.append(not_supported(f"{here}.protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
    return errors


def validate_host_ports(containers: Objects, at: str) -> Errors:
    """No two ports of a pod are the same port of the node."""
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            identity = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if identity in seen:
                errors.append(duplicate(f"{at}[{index}].ports[{place}].hostPort", identity))
            seen.add(identity)
    return errors


def _validate_env(variables: Objects | tuple[()], at: str) -> Errors:
    errors: Errors = []
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            errors.append(required(f"{at}[{index}].name"))
        elif not _ENV_NAME.fullmatch(name):
            errors.append(invalid_value(f"{at}[{index}].name", name, _ENV_TEXT))
        if variable.get("value") and variable.get("valueFrom"):
            why = "may not be specified when `value` is not empty"
            errors.append(invalid_value(f"{at}[{index}].valueFrom", "", why))
    return errors


def _validate_mounts(mounts: Objects | tuple[()], at: str, names: PodNames) -> Errors:
    errors: Errors = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{at}[{index}].name"))
        elif name not in names.volumes:
            errors.append(unknown_value(f"{at}[{index}].name", name))
        if not path:
            errors.append(required(f"{at}[{index}].mountPath"))
        elif path in paths:
            errors.append(invalid_value(f"{at}[{index}].mountPath", path, "must be unique"))
        paths.add(path)
    return errors


def _validate_probe(probe: Object, at: str) -> Errors:
    errors: Errors = []
    if not any(probe.get(handler) is not None for handler in _HANDLERS):
        errors.append(required(at, "must specify a handler type"))
    fields = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    for name in fields:
        if (probe.get(name) or 0) < 0:
            errors.append(invalid_value(f"{at}.{name}", probe[name], NON_NEGATIVE))
    return errors


def _validate_resize(policies: Objects | tuple[()], at: str, names: PodNames) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if name in seen:
            errors.append(duplicate(f"{at}[{index}]", name))
        seen.add(name)
        if name not in ("cpu", "memory"):
            errors.append(not_supported(at, name, ("cpu", "memory")) if name else required(at))
        if restart not in ("NotRequired", "RestartContainer"):
            errors.append(not_supported(at, restart, ("NotRequired", "RestartContainer")) if restart else required(at))
        if names.restart_policy == "Never" and restart != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid_value(at, restart, why))
    return errors
