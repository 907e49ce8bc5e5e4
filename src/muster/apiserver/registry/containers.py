"""Validation of containers. Source: upstream `pkg/apis/core/validation` and recordings."""

from __future__ import annotations

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
from muster.apiserver.registry.environment import validate_environment
from muster.apiserver.registry.probes import (
    NON_NEGATIVE,
    PROBES,
    port_name_problems,
    validate_lifecycle,
    validate_probes,
)
from muster.apiserver.registry.security import validate_container_security

Errors: TypeAlias = list[FieldError]

_MOUNT_CHOICES = {
    "mountPropagation": ("Bidirectional", "HostToContainer", "None"),
    "recursiveReadOnly": ("Disabled", "Enabled", "IfPossible"),
}
_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))


class PodNames:
    """The names that containers of a pod may refer to, and those they have taken.

    `volumes`: the valid ones only; whoever mounts another is told that there is none.
    """

    def __init__(self, spec: Object, volumes: set[str]) -> None:
        self.volumes = volumes
        self.claims = [claim.get("name") for claim in spec.get("resourceClaims") or ()]
        self.restart_policy: str = spec.get("restartPolicy") or ""
        grace = spec.get("terminationGracePeriodSeconds")
        self.grace_s: int = 30 if grace is None else grace
        self.containers: set[str] = set()


def validate_containers(spec: Object, field: str, volumes: set[str]) -> Errors:
    """All containers of a pod spec."""
    names = PodNames(spec, volumes)
    containers = spec.get("containers") or []
    errors: Errors = [] if containers else [required(f"{field}.containers")]
    for index, container in enumerate(containers):
        at = f"{field}.containers[{index}]"
        errors += validate_container(container, at, names)
        errors += validate_lifecycle(container, at, names.grace_s) + validate_probes(container, at)
        errors += _validate_own_name(container, at, names) + _validate_restart(container, at)
    errors += validate_host_ports(containers, f"{field}.containers")
    return errors + _validate_init(spec, names, field) + _validate_ephemeral(spec, names, field)


def _validate_own_name(container: Object, at: str, names: PodNames) -> Errors:
    """Of all containers only one has a name."""
    name = container.get("name") or ""
    taken = name in names.containers
    names.containers.add(name)
    return [duplicate(f"{at}.name", name)] if name and taken else []


def _validate_init(spec: Object, names: PodNames, field: str) -> Errors:
    errors: Errors = []
    for index, container in enumerate(spec.get("initContainers") or ()):
        at = f"{field}.initContainers[{index}]"
        errors += validate_container(container, at, names) + _validate_own_name(container, at, names)
        errors += _validate_restart(container, at)
        if container.get("restartPolicy") == "Always":
            errors += validate_lifecycle(container, at, names.grace_s) + validate_probes(container, at)
            continue
        why = "may not be set for init containers without restartPolicy=Always"
        errors += [
            forbidden_field(f"{at}.{name}", why) for name in ("lifecycle", *PROBES) if container.get(name) is not None
        ]
    return errors


_NOT_EPHEMERAL = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy")


def _validate_ephemeral(spec: Object, names: PodNames, field: str) -> Errors:
    """Ephemeral containers have no ports, probes, hooks and resources."""
    errors: Errors = []
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        at = f"{field}.ephemeralContainers[{index}]"
        errors += validate_container(container, at, names) + _validate_own_name(container, at, names)
        target = container.get("targetContainerName")
        if target and target not in {each.get("name") for each in spec.get("containers") or ()}:
            errors.append(unknown_value(f"{at}.targetContainerName", target))
        why = "cannot be set for an Ephemeral Container"
        present = [name for name in _NOT_EPHEMERAL if container.get(name)]
        errors += [forbidden_field(f"{at}.{name}", why) for name in present]
        forbidden = [name for name in ("restartPolicy", "restartPolicyRules") if container.get(name) is not None]
        errors += [forbidden_field(f"{at}.{name}", why) for name in forbidden]
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            for name in ("subPath", "subPathExpr"):
                if mount.get(name):
                    errors.append(forbidden_field(f"{at}.volumeMounts[{place}].{name}", why))
    return errors


def validate_container(container: Object, at: str, names: PodNames) -> Errors:
    """What all kinds of containers share."""
    errors: Errors = []
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        errors.append(required(f"{at}.name"))
    else:
        errors += [invalid_value(f"{at}.name", name, problem) for problem in label_problems(name, "characters")]
    if not image:
        errors.append(required(f"{at}.image"))
    elif image != image.strip():
        errors.append(invalid_value(f"{at}.image", image, "must not have leading or trailing whitespace"))
    message = container.get("terminationMessagePolicy")
    if message is not None and message not in ("File", "FallbackToLogsOnError"):
        choices = ("File", "FallbackToLogsOnError")
        errors.append(not_supported(f"{at}.terminationMessagePolicy", message, choices))
    errors += _validate_ports(container.get("ports") or (), f"{at}.ports")
    errors += validate_environment(container, at)
    errors += _validate_mounts(container.get("volumeMounts") or (), f"{at}.volumeMounts", names)
    errors += _validate_devices(container, f"{at}.volumeDevices", names)
    policy = container.get("imagePullPolicy")
    if policy not in (None, "Always", "IfNotPresent", "Never"):
        errors.append(not_supported(f"{at}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never")))
    if container.get("resources"):
        errors += validate_resources(container["resources"], f"{at}.resources")
        errors += _validate_claims(container["resources"].get("claims") or (), f"{at}.resources.claims", names)
    errors += _validate_resize(container.get("resizePolicy") or (), f"{at}.resizePolicy", names)
    if container.get("securityContext"):
        errors += validate_container_security(container["securityContext"], f"{at}.securityContext")
    return errors


def _validate_restart(container: Object, at: str) -> Errors:
    """A container may restart by other rules than its pod."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    choices = ("Always", "Never", "OnFailure")
    errors: Errors = []
    if policy is not None and policy not in choices:
        errors.append(not_supported(f"{at}.restartPolicy", policy, choices))
    if rules and policy is None:
        why = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{at}.restartPolicy", why))
        if ".initContainers[" in at:
            return errors
    for index, rule in enumerate(rules):
        here, action, codes = f"{at}.restartPolicyRules[{index}]", rule.get("action") or "", rule.get("exitCodes")
        if action not in ("Restart", "RestartAllContainers"):
            errors.append(not_supported(f"{here}.action", action, ("Restart", "RestartAllContainers")))
        if codes is None:
            errors.append(required(f"{here}.exitCodes", "must be specified"))
        elif (codes.get("operator") or "") not in ("In", "NotIn"):
            errors.append(not_supported(f"{here}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn")))
    return errors


def _validate_devices(container: Object, at: str, names: PodNames) -> Errors:
    """Volumes that are used as block devices."""
    errors: Errors = []
    for index, device in enumerate(container.get("volumeDevices") or ()):
        here, name, path = f"{at}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            errors.append(required(f"{here}.name"))
        if name not in names.volumes:
            errors.append(unknown_value(f"{here}.name", name))
        if not path:
            errors.append(required(f"{here}.devicePath"))
    return errors


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


def validate_pod_resources(spec: Object, field: str) -> Errors:
    """Resources of the pod as a whole name no claims."""
    claims = (spec.get("resources") or {}).get("claims") or ()
    if not claims:
        return []
    at = f"{field}.resources.claims"
    why = "claims may not be set for Resources at pod-level"
    return [forbidden_field(at, why), *_validate_claims(claims, at, PodNames(spec, set()))]


def _validate_claims(claims: Objects | tuple[()], at: str, names: PodNames) -> Errors:
    errors: Errors = []
    for index, claim in enumerate(claims):
        name = claim.get("name") or ""
        if not name:
            errors.append(required(f"{at}[{index}]"))
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
            problems = port_name_problems(name)
            errors += [invalid_value(f"{here}.name", name, problem) for problem in problems]
            if not problems and name in names:
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


def _validate_mounts(mounts: Objects | tuple[()], at: str, names: PodNames) -> Errors:
    errors: Errors = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(required(f"{at}[{index}].name"))
        if name not in names.volumes:
            errors.append(unknown_value(f"{at}[{index}].name", name))
        if not path:
            errors.append(required(f"{at}[{index}].mountPath"))
        elif path in paths:
            errors.append(invalid_value(f"{at}[{index}].mountPath", path, "must be unique"))
        paths.add(path)
        for field, choices in _MOUNT_CHOICES.items():
            value = mount.get(field)
            if value is not None and value not in choices:
                errors.append(not_supported(f"{at}.{field}", value, choices))
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
