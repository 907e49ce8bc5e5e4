"""EndpointSlices: how they are completed, counted and validated.

Sources: upstream `pkg/registry/discovery/endpointslice`, `pkg/apis/discovery/{v1/defaults,validation}`.
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    immutable,
    invalid_value,
    label_problems,
    not_supported,
    required,
    too_many,
)
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MOST_ENDPOINTS = 1000
MOST_ADDRESSES = 100
MOST_PORTS = 100
MOST_HINTS = 8


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

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        if new["metadata"].get("labels") != old["metadata"].get("labels"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

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
            errors.append(immutable("addressType"))
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
            errors += _validate_address(address, type_, f"{at}.addresses[{position}]")
        hostname = endpoint.get("hostname")
        if hostname is not None:
            errors += [invalid_value(f"{at}.hostname", hostname, problem) for problem in label_problems(hostname)]
        errors += _validate_hints(endpoint.get("hints") or {}, f"{at}.hints")
    return errors


def _validate_address(address: str, type_: str, at: str) -> Errors:
    if type_ not in ("IPv4", "IPv6"):
        return []
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        return [invalid_value(at, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if f"IPv{version}" != type_:
        return [invalid_value(at, address, f"must be an {type_} address")]
    return []


def _validate_hints(hints: Object, at: str) -> Errors:
    errors: Errors = []
    for key in ("forNodes", "forZones"):
        entries = hints.get(key) or ()
        if len(entries) > MOST_HINTS:
            errors.append(too_many(f"{at}.{key}", len(entries), MOST_HINTS))
            continue
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            name = entry.get("name") or ""
            if not name:
                errors.append(required(f"{at}.{key}[{index}].name"))
            elif name in seen:
                errors.append(duplicate(f"{at}.{key}[{index}].name", name))
            seen.add(name)
    return errors


def _validate_ports(obj: Object) -> Errors:
    ports = obj.get("ports") or ()
    if len(ports) > MOST_PORTS:
        return [too_many("ports", len(ports), MOST_PORTS)]
    errors: Errors = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        at, name, number = f"ports[{index}]", port.get("name") or "", port.get("port")
        if name:
            errors += [invalid_value(f"{at}.name", name, problem) for problem in label_problems(name)]
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
        if port.get("protocol") not in PROTOCOLS:
            errors.append(not_supported(f"{at}.protocol", port.get("protocol") or "", PROTOCOLS))
        if number is not None and not 1 <= number <= 65535:
            errors.append(invalid_value(f"{at}.port", number, "must be between 1 and 65535, inclusive"))
    return errors
