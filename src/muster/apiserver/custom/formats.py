"""The formats of strings that schemas may ask for. Source: kube-openapi `pkg/validation/strfmt`."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?")
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w)\s*)+|0")
_HOST = re.compile(r"([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\.?")
_MAIL = re.compile(r"[^@\s]+@[^@\s]+")
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}")


def _by(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _address(version: int) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return holds


def _network(text: str) -> bool:
    try:
        return "/" in text and bool(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return False


def _bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "byte": _bytes,
    "cidr": _network,
    "date": _by(_DATE),
    "date-time": _by(_DATE_TIME),
    "datetime": _by(_DATE_TIME),
    "duration": _by(_DURATION),
    "email": _by(_MAIL),
    "hostname": _by(_HOST),
    "ipv4": _address(4),
    "ipv6": _address(6),
    "mac": _by(_MAC),
    "uri": _uri,
    "uuid": _by(_UUID),
}
"""Whether a text has the format; unknown formats are not checked."""
