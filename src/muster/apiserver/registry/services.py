"""Services: addresses and ports that the server gives, defaults, validation.

Sources: upstream `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/service`, recordings.
"""

from __future__ import annotations

import ipaddress

from muster.api.codec import JSON, Object
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    validate_labels,
)
from muster.apiserver.registry.podnetwork import IP_TEXT, ip_problems, network_problems
from muster.apiserver.registry.probes import validate_port_or_name
from muster.apiserver.registry.strategy import Strategy

SERVICE_NETWORK = ipaddress.ip_network("10.0.0.0/16")
NODE_PORTS = range(30000, 32768)
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
AFFINITY_S = 10800
_RANGE = "must be between 1 and 65535, inclusive"


class ServiceStrategy(Strategy):
    """v1 Service. Addresses and node ports are drawn at random among those that no other service has."""

    has_status = True
    returns_deleted = True

    def name_problems(self, name: str) -> list[str]:
        return label_problems(name)

    def default(self, obj: Object, ctx: Context) -> None:
        spec: Object = obj.setdefault("spec", {})
        spec["type"] = spec.get("type") or "ClusterIP"
        if spec.get("publishNotReadyAddresses") is False:
            del spec["publishNotReadyAddresses"]
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "ClientIP":
            spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": AFFINITY_S}})
        else:
            spec.pop("sessionAffinityConfig", None)
        for port in spec.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            if port.get("targetPort") in (None, "", 0):
                port["targetPort"] = port.get("port") or 0
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {"loadBalancer": {}}
        if not self.validate(obj, ctx):
            _allocate(obj["spec"], ctx)
        if obj["spec"].get("trafficDistribution") == "PreferClose":
            ctx.warn('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        spec, before = new["spec"], old["spec"]
        if spec["type"] == "ExternalName":
            return
        if before.get("clusterIP") and not spec.get("clusterIP"):
            spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], before["clusterIPs"]
        elif spec.get("clusterIPs") == before.get("clusterIPs") and spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        ports = {(port.get("name"), port.get("port")): port.get("nodePort") for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            known = ports.get((port.get("name"), port.get("port")))
            if known and not port.get("nodePort") and spec["type"] != "ClusterIP":
                port["nodePort"] = known
        _allocate(spec, ctx)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        errors = _validate_ports(spec)
        kind, affinity = spec["type"], spec["sessionAffinity"]
        if kind not in TYPES:
            errors.append(not_supported("spec.type", kind, TYPES))
        if affinity not in ("ClientIP", "None"):
            errors.append(not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
        if kind == "ExternalName" and not spec.get("externalName"):
            errors.append(required("spec.externalName"))
        if spec.get("selector"):
            errors += validate_labels(spec["selector"], "spec.selector")
        if spec.get("externalName") and kind != "ExternalName":
            ctx.warn('spec.externalName is ignored when spec.type is not "ExternalName"')
        errors += _validate_choices(spec) + _validate_reachability(spec)
        distribution = spec.get("trafficDistribution")
        if distribution is not None and distribution not in DISTRIBUTIONS:
            errors.append(not_supported("spec.trafficDistribution", distribution, DISTRIBUTIONS))
        return errors + _validate_address(spec)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        spec, before = new["spec"], old["spec"]
        both = spec["type"] != "ExternalName" and before["type"] != "ExternalName"
        if both and before.get("clusterIP") and spec.get("clusterIP") != before["clusterIP"]:
            address = spec.get("clusterIP")
            if address and address != "None" and ip_problems(address):
                return [invalid_value("spec.clusterIPs[0]", address, IP_TEXT)]
            return [invalid_value("spec.clusterIPs[0]", [address], "may not change once set")]
        return self.validate(new, ctx)


def _validate_ports(spec: Object) -> list[FieldError]:
    ports = spec.get("ports") or []
    if not ports:
        free = spec.get("clusterIP") == "None" or spec["type"] == "ExternalName"
        return [] if free else [required("spec.ports")]
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name, number, target = port.get("name") or "", port.get("port") or 0, port.get("targetPort")
        if not name and len(ports) > 1:
            errors.append(required(f"{at}.name"))
        elif name in names:
            errors.append(duplicate(f"{at}.name", name))
        elif name:
            errors += [invalid_value(f"{at}.name", name, problem) for problem in label_problems(name, "characters")]
        names.add(name)
        if not 1 <= number <= 65535:
            errors.append(invalid_value(f"{at}.port", number, _RANGE))
        if port["protocol"] not in ("TCP", "UDP", "SCTP"):
            errors.append(not_supported(f"{at}.protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
        errors += validate_port_or_name(target, f"{at}.targetPort")
        protocol = port.get("appProtocol")
        if protocol is not None:
            problems = qualified_name_problems(protocol)
            errors += [invalid_value(f"{at}.appProtocol", protocol, problem) for problem in problems]
        if port.get("nodePort") and spec["type"] == "ClusterIP":
            errors.append(forbidden_field(f"{at}.nodePort", "may not be used when `type` is 'ClusterIP'"))
    return errors + _validate_repeated(ports)


def _validate_repeated(ports: list[Object]) -> list[FieldError]:
    """No two entries are the same port with the same protocol."""
    errors: list[FieldError] = []
    seen: set[tuple[JSON, JSON]] = set()
    for index, port in enumerate(ports):
        protocol, number = port["protocol"], port.get("port") or 0
        if (protocol, number) in seen:
            shown = {
                "Name": "",
                "Protocol": protocol,
                "AppProtocol": None,
                "Port": number,
                "TargetPort": 0,
                "NodePort": 0,
            }
            errors.append(duplicate(f"spec.ports[{index}]", shown))
        seen.add((protocol, number))
    return errors


_CHOICES = (
    ("internalTrafficPolicy", ("Cluster", "Local")),
    ("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
)


def _validate_choices(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, choices in _CHOICES:
        value = spec.get(name)
        if value is not None and value not in choices:
            errors.append(not_supported(f"spec.{name}", value, choices))
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            errors.append(not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6")))
        if family in families[:index]:
            errors.append(duplicate(f"spec.ipFamilies[{index}]", family))
    for index, address in enumerate(spec.get("externalIPs") or ()):
        errors += [invalid_value(f"spec.externalIPs[{index}]", address, text) for text in ip_problems(address)]
    addresses = spec.get("clusterIPs") or []
    if addresses and spec.get("clusterIP") != addresses[0]:
        unset = not spec.get("clusterIP")
        why = "must be empty when `clusterIP` is not specified" if unset else "first value must match `clusterIP`"
        errors.append(invalid_value("spec.clusterIPs", addresses, why))
        errors += [
            invalid_value(f"spec.clusterIPs[{index}]", address, text)
            for index, address in enumerate(addresses)
            if address != "None"
            for text in ip_problems(address)
        ]
    return errors


def _validate_reachability(spec: Object) -> list[FieldError]:
    """What only services of some types may say."""
    errors: list[FieldError] = []
    balanced, outside = spec["type"] == "LoadBalancer", spec["type"] in ("LoadBalancer", "NodePort")
    only = "may only be used when `type` is 'LoadBalancer'"
    if not balanced:
        if spec.get("allocateLoadBalancerNodePorts") is not None:
            errors.append(forbidden_field("spec.allocateLoadBalancerNodePorts", only))
        if spec.get("loadBalancerClass") is not None:
            errors.append(forbidden_field("spec.loadBalancerClass", only))
        if spec.get("loadBalancerSourceRanges"):
            errors.append(forbidden_field("spec.LoadBalancerSourceRanges", only))
    for index, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        problems = network_problems(text.strip())
        errors += [invalid_value(f"spec.LoadBalancerSourceRanges[{index}]", text, problem) for problem in problems]
    policy = spec.get("externalTrafficPolicy")
    if policy is not None and policy != "":
        if not outside and not spec.get("externalIPs"):
            why = "may only be set for externally-accessible services"
            errors.append(invalid_value("spec.externalTrafficPolicy", policy, why))
        elif policy not in ("Cluster", "Local"):
            errors.append(not_supported("spec.externalTrafficPolicy", policy, ("Cluster", "Local")))
    if spec.get("healthCheckNodePort") and not (balanced and policy == "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid_value("spec.healthCheckNodePort", spec["healthCheckNodePort"], why))
    return errors


def _validate_address(spec: Object) -> list[FieldError]:
    address: JSON = spec.get("clusterIP")
    if not address or address == "None" or spec["type"] == "ExternalName":
        return []
    try:
        inside = ipaddress.ip_address(address) in SERVICE_NETWORK
    except ValueError:
        why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [invalid_value("spec.clusterIPs[0]", address, why)]
    if inside:
        return []
    why = f"failed to allocate IP {address}: the provided network does not match the current range"
    return [invalid_value("spec.clusterIPs", [address], why)]


def _allocate(spec: Object, ctx: Context) -> None:
    """Give an address and node ports where they are needed and not given."""
    if spec["type"] == "ExternalName":
        return
    services = [service["spec"] for service in ctx.store.list("/services/").items]
    if not spec.get("clusterIP"):
        taken = {service.get("clusterIP") for service in services}
        address = _random_address(ctx)
        while address in taken:
            address = _random_address(ctx)
        spec["clusterIP"], spec["clusterIPs"] = address, [address]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        used = {port.get("nodePort") for service in services for port in service.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = ctx.rng.choice([number for number in NODE_PORTS if number not in used])
                used.add(port["nodePort"])


def _random_address(ctx: Context) -> str:
    # The first 256 addresses are kept for services that ask for a certain one.
    return str(SERVICE_NETWORK[ctx.rng.randrange(256, SERVICE_NETWORK.num_addresses - 1)])
