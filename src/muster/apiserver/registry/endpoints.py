"""EndpointSlices and Endpoints: how they are completed, counted and validated.

Sources: upstream `pkg/registry/discovery/endpointslice`, `pkg/apis/discovery/{v1/defaults,validation}`,
`pkg/apis/core/validation` (ValidateEndpoints, ValidateEndpointIP).
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.labels import label_value_errors
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
    too_many,
)
from muster.apiserver.registry.podnetwork import ip_problems
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
MOST_PORTS = 100
MOST_HINTS = 8
_LOCAL_MULTICAST = tuple(ipaddress.ip_network(text) for text in ("224.0.0.0/24", "ff02::/16"))


class EndpointSliceStrategy(Strategy):
    """The generation grows with labels too: they say whose slice it is."""

    counts_generation = True

    def default(self, obj: Object, ctx: Context) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")
        for key in ("endpoints", "ports"):
            if not obj.get(key):
                obj[key] = None

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        _drop_topology(obj)

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        is_other = new.get("endpoints") != old.get("endpoints")
        if is_other or new["metadata"].get("labels") != old["metadata"].get("labels"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if is_other:
            _drop_topology(new)

    def validate(self, obj: Object, ctx: Context) -> Errors:
        type_ = obj.get("addressType") or ""
        errors: Errors = []
        if not type_:
            errors.append(required("addressType"))
        elif type_ not in ADDRESS_TYPES:
            errors.append(not_supported("addressType", type_, ADDRESS_TYPES))
        return errors + _validate_endpoints(obj, type_) + _validate_ports(obj)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        errors = self.validate(new, ctx)
        if new.get("addressType") != old.get("addressType"):
            errors.append(invalid_value("addressType", new.get("addressType") or "", "field is immutable"))
        return errors


def _drop_topology(obj: Object) -> None:
    """v1 takes no topology. Source: upstream `dropTopologyOnV1`."""
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


class EndpointsStrategy(Strategy):
    """Endpoints."""

    def default(self, obj: Object, ctx: Context) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"

    def validate(self, obj: Object, ctx: Context) -> Errors:
        subsets = enumerate(obj.get("subsets") or ())
        return [error for index, subset in subsets for error in _validate_subset(subset, f"subsets[{index}]")]

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        return [] if new.get("subsets") == old.get("subsets") else self.validate(new, ctx)


def _validate_subset(subset: Object, at: str) -> Errors:
    errors: Errors = []
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        errors.append(required(at, "must specify `addresses` or `notReadyAddresses`"))
    for field in ("addresses", "notReadyAddresses"):
        for index, address in enumerate(subset.get(field) or ()):
            errors += _validate_subset_address(address, f"{at}.{field}[{index}]")
    ports = subset.get("ports") or ()
    for index, port in enumerate(ports):
        here, name, number = f"{at}.ports[{index}]", port.get("name") or "", port.get("port") or 0
        if name:
            errors += _validate_label(name, f"{here}.name")
        elif len(ports) > 1:
            errors.append(required(f"{here}.name"))
        if not 1 <= number <= 65535:
            errors.append(invalid_value(f"{here}.port", number, "must be between 1 and 65535, inclusive"))
        errors += _validate_protocol(port, here)
    return errors


def _validate_subset_address(address: Object, at: str) -> Errors:
    ip, hostname, node = address.get("ip") or "", address.get("hostname") or "", address.get("nodeName")
    errors = [invalid_value(f"{at}.ip", ip, problem) for problem in ip_problems(ip)]
    errors += _validate_label(hostname, f"{at}.hostname") if hostname else []
    if node is not None:
        errors += [invalid_value(f"{at}.nodeName", node, problem) for problem in subdomain_problems(node)]
    return errors + _validate_reachable(ip, f"{at}.ip")


def _validate_reachable(ip: str, at: str) -> Errors:
    """An address that other nodes can reach."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return [invalid_value(at, ip, "must be a valid IP address")]
    refused = (
        (address.is_unspecified, f"may not be unspecified ({ip})"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            any(address in network for network in _LOCAL_MULTICAST if network.version == address.version),
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    )
    return [invalid_value(at, ip, why) for holds, why in refused if holds]


def _validate_label(name: str, at: str) -> Errors:
    return [invalid_value(at, name, problem) for problem in label_problems(name, "characters")]


def _validate_protocol(port: Object, at: str) -> Errors:
    """The protocol, and that of the application."""
    errors: Errors = []
    if port.get("protocol") not in PROTOCOLS:
        errors.append(not_supported(f"{at}.protocol", port.get("protocol") or "", PROTOCOLS))
    application = port.get("appProtocol")
    if application is not None:
        problems = qualified_name_problems(application)
        errors += [invalid_value(f"{at}.appProtocol", application, problem) for problem in problems]
    return errors


def _validate_endpoints(obj: Object, type_: str) -> Errors:
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > MOST_ENDPOINTS:
        return [too_many("endpoints", len(endpoints), MOST_ENDPOINTS)]
    errors: Errors = []
    for index, endpoint in enumerate(endpoints):
        at = f"endpoints[{index}]"
        addresses = endpoint.get("addresses") or ()
        if not addresses:
            errors.append(required(f"{at}.addresses", "must contain at least 1 address"))
        elif len(addresses) > MOST_ADDRESSES:
            errors.append(too_many(f"{at}.addresses", len(addresses), MOST_ADDRESSES))
        for position, address in enumerate(addresses):
            errors += _validate_address(address, type_, f"{at}.addresses", position)
        node, hostname = endpoint.get("nodeName"), endpoint.get("hostname")
        if node is not None:
            errors += [invalid_value(f"{at}.nodeName", node, problem) for problem in subdomain_problems(node)]
        if hostname is not None:
            errors += _validate_label(hostname, f"{at}.hostname")
        errors += _validate_hints(endpoint.get("hints") or {}, f"{at}.hints")
    return errors


def _validate_address(address: str, type_: str, at: str, index: int) -> Errors:
    """One of the addresses at `at`: of the family that the slice is of, and within reach."""
    here = f"{at}[{index}]"
    if type_ not in ("IPv4", "IPv6"):
        return []
    if problems := ip_problems(address):
        return [invalid_value(here, address, problem) for problem in problems]
    is_other = f"IPv{ipaddress.ip_address(address).version}" != type_
    # Upstream leaves the index out here.
    errors = [invalid_value(at, address, f"must be an {type_} address")] if is_other else []
    return errors + _validate_reachable(address, here)


def _validate_hints(hints: Object, at: str) -> Errors:
    errors: Errors = []
    for key, problems_of in (("forZones", label_value_errors), ("forNodes", subdomain_problems)):
        entries = hints.get(key) or ()
        if len(entries) > MOST_HINTS:
            return [*errors, too_many(f"{at}.{key}", len(entries), MOST_HINTS)]
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            here, name = f"{at}.{key}[{index}].name", entry.get("name") or ""
            if name in seen:
                errors.append(duplicate(here, name))
            seen.add(name)
            errors += [invalid_value(here, name, problem) for problem in problems_of(name)]
    return errors


def _validate_ports(obj: Object) -> Errors:
    ports = obj.get("ports") or ()
    if len(ports) > MOST_PORTS:
        return [too_many("ports", len(ports), MOST_PORTS)]
    errors: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"ports[{index}]", port.get("name") or ""
        if name:
            errors += _validate_label(name, f"{at}.name")
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
        errors += _validate_protocol(port, at)
    return errors
