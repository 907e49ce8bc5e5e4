"""Validation of how a pod is known and finds others: names, DNS, hosts. Source: upstream `pkg/apis/core/validation`."""

from __future__ import annotations

import ipaddress
import re
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import (
    FieldError,
    invalid_value,
    qualified_name_problems,
    required,
    subdomain_problems,
)

Errors: TypeAlias = list[FieldError]

IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_SEARCH = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SEARCH_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
)
MOST_NAMESERVERS = 3
MOST_SEARCHES = 32


def ip_problems(text: str) -> list[str]:
    """What is wrong with an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [IP_TEXT]
    return []


def network_problems(text: str) -> list[str]:
    """What is wrong with a network in CIDR notation."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return [CIDR_TEXT]
    return [] if "/" in text else [CIDR_TEXT]


def validate_network(spec: Object, field: str) -> Errors:
    """DNS settings, entries of the hosts file, readiness gates."""
    errors = _validate_dns(spec, field)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        type_ = gate.get("conditionType") or ""
        at = f"{field}.readinessGates[{index}].conditionType"
        errors += [invalid_value(at, type_, problem) for problem in qualified_name_problems(type_)]
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at, address = f"{field}.hostAliases[{index}]", alias.get("ip") or ""
        errors += [invalid_value(f"{at}.ip", address, problem) for problem in ip_problems(address)]
        for place, name in enumerate(alias.get("hostnames") or ()):
            problems = subdomain_problems(name)
            errors += [invalid_value(f"{at}.hostnames[{place}]", name, problem) for problem in problems]
    return errors


def _validate_dns(spec: Object, field: str) -> Errors:
    config, at = spec.get("dnsConfig") or {}, f"{field}.dnsConfig"
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    errors: Errors = []
    if spec.get("dnsPolicy") == "None":
        if not spec.get("dnsConfig"):
            why = "must provide `dnsConfig` when `dnsPolicy` is None"
            return [required(at, why)]
        if not servers:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{at}.nameservers", why)]
    if len(servers) > MOST_NAMESERVERS:
        why = f"must not have more than {MOST_NAMESERVERS} nameservers"
        errors.append(invalid_value(f"{at}.nameservers", servers, why))
    for index, server in enumerate(servers):
        errors += [invalid_value(f"{at}.nameservers[{index}]", server, problem) for problem in ip_problems(server)]
    if len(searches) > MOST_SEARCHES:
        why = f"must not have more than {MOST_SEARCHES} search paths"
        errors.append(invalid_value(f"{at}.searches", searches, why))
    for index, search in enumerate(searches):
        # A dot at the end, or alone, is allowed, and so are underscores.
        name = search.removesuffix(".") if search != "." else "x"
        if not _SEARCH.fullmatch(name):
            errors.append(invalid_value(f"{at}.searches[{index}]", search, _SEARCH_TEXT))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{at}.options[{index}]", "must not be empty"))
    return errors
