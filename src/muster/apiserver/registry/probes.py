"""Validation of what is asked of containers while they live: probes, and hooks at start and end.

Source: upstream `pkg/apis/core/validation` (validateHandler, validateProbe, validateLifecycle).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from muster.api.codec import JSON, Object
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, not_supported, required

Errors: TypeAlias = list[FieldError]

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
NON_NEGATIVE = "must be greater than or equal to 0"
PORT_RANGE = "must be between 1 and 65535, inclusive"
LONGEST_PORT_NAME = 15
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_HEADER_TEXT = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    "validation is '[-A-Za-z0-9]+')"
)
_TIMES = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def port_name_problems(name: str) -> list[str]:
    """What is wrong with the name of a port. Source: apimachinery `IsValidPortName`."""
    problems: list[str] = []
    if len(name) > LONGEST_PORT_NAME:
        problems.append(f"must be no more than {LONGEST_PORT_NAME} characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def validate_port_or_name(port: JSON, at: str) -> Errors:
    """A port by its number or by its name; none is the number 0."""
    if isinstance(port, str):
        return [invalid_value(at, port, problem) for problem in port_name_problems(port)]
    number = port or 0
    return [] if 1 <= number <= 65535 else [invalid_value(at, number, PORT_RANGE)]


def validate_probes(container: Object, at: str) -> Errors:
    """The three probes of a container."""
    errors: Errors = []
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            errors += _validate_probe(probe, f"{at}.{name}", name)
    return errors


def _validate_probe(probe: Object, at: str, kind: str) -> Errors:
    errors = _validate_handlers(probe, at, ("exec", "httpGet", "tcpSocket", "grpc"), 0)
    for name in _TIMES:
        if (probe.get(name) or 0) < 0:
            errors.append(invalid_value(f"{at}.{name}", probe[name], NON_NEGATIVE))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(invalid_value(f"{at}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if grace is not None:
            why = "must not be set for readinessProbes"
            errors.append(invalid_value(f"{at}.terminationGracePeriodSeconds", grace, why))
    elif probe.get("successThreshold") not in (None, 1):
        errors.append(invalid_value(f"{at}.successThreshold", probe["successThreshold"], "must be 1"))
    return errors


def validate_lifecycle(container: Object, at: str, grace_s: int) -> Errors:
    """What runs after the start and before the end of a container."""
    errors: Errors = []
    for name in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(name)
        if handler is not None:
            here = f"{at}.lifecycle.{name}"
            errors += _validate_handlers(handler, here, ("exec", "httpGet", "tcpSocket", "sleep"), grace_s)
    return errors


def _validate_handlers(holder: Object, at: str, kinds: tuple[str, ...], grace_s: int) -> Errors:
    """Exactly one way to ask."""
    errors: Errors = []
    given = 0
    for kind in kinds:
        handler = holder.get(kind)
        if handler is None:
            continue
        given += 1
        if given > 1:
            errors.append(forbidden_field(f"{at}.{kind}", "may not specify more than 1 handler type"))
        elif kind == "sleep":
            errors += _validate_sleep(handler, f"{at}.sleep", grace_s)
        else:
            errors += _HANDLERS[kind](handler, f"{at}.{kind}")
    return errors if given else [required(at, "must specify a handler type")]


def _validate_exec(handler: Object, at: str) -> Errors:
    return [] if handler.get("command") else [required(f"{at}.command")]


def _validate_http(handler: Object, at: str) -> Errors:
    errors: Errors = [] if handler.get("path") else [required(f"{at}.path")]
    errors += validate_port_or_name(handler.get("port"), f"{at}.port")
    scheme = handler.get("scheme")
    if scheme not in ("HTTP", "HTTPS"):
        errors.append(not_supported(f"{at}.scheme", scheme or "", ("HTTP", "HTTPS")))
    for header in handler.get("httpHeaders") or ():
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            errors.append(invalid_value(f"{at}.httpHeaders", name, _HEADER_TEXT))
    return errors


def _validate_socket(handler: Object, at: str) -> Errors:
    return validate_port_or_name(handler.get("port"), f"{at}.port")


def _validate_sleep(handler: Object, at: str, grace_s: int) -> Errors:
    seconds = handler.get("seconds") or 0
    if 0 <= seconds <= grace_s:
        return []
    why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
    return [invalid_value(at, seconds, why)]


_HANDLERS: Mapping[str, Callable[[Object, str], Errors]] = {
    "exec": _validate_exec,
    "httpGet": _validate_http,
    "tcpSocket": _validate_socket,
    "grpc": _validate_socket,
}
