"""URLs, addresses and networks as values of expressions: maps of one key, so that they are JSON.

Source: apiserver `pkg/cel/library/{urls,ip,cidr}.go`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

from muster.api.codec import JSON, Object

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_URL, _IP, _CIDR = "$url", "$ip", "$cidr"


def url_value(text: str) -> Object:
    """A URL, or the path of one, as a value. Raises ValueError."""
    if not _ABSOLUTE.match(text) or re.search(r"[\x00-\x20\x7f]", text):
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    _ = urlsplit(text).port
    return {_URL: text}


def ip_value(text: str) -> Object:
    """An address as a value. Raises ValueError for what is none, has a zone, or is an IPv4 address in IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        why = f'parse error during conversion from string: ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" {why}') from error
    if "%" in text or (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None):
        raise ValueError(f"IP Address '{text}' is not allowed here")
    return {_IP: str(address)}


def cidr_value(text: str) -> Object:
    """A network in CIDR notation as a value; bits after the prefix stay. Raises ValueError."""
    address, slash, bits = text.partition("/")
    if not slash:
        why = "network address parse error during conversion from string: "
        raise ValueError(f"{why}{why}netip.ParsePrefix(\"{text}\"): no '/'")
    if not re.fullmatch(r"0|[1-9]\d*", bits):
        raise ValueError(f"network address parse error: '{text}'")
    ip_value(address)
    return {_CIDR: str(ipaddress.ip_interface(text))}


def text_of(value: object) -> str:
    """An address or a network as text. Raises ValueError for what is neither."""
    found = next((value[key] for key in (_IP, _CIDR) if key in value), None) if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise ValueError("no such overload")
    return found


def is_valid(make: Callable[[str], Object], text: str) -> bool:
    """Whether a text makes a value."""
    try:
        make(text)
    except ValueError:
        return False
    return True


def is_canonical(text: str) -> bool:
    """Whether an address is written as it is printed. Raises ValueError."""
    return bool(ip_value(text)[_IP] == text)


def address_of(value: JSON) -> Address:
    """The address in a value or a text. Raises ValueError."""
    text = value.get(_IP) if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise ValueError("no such overload")
    return ipaddress.ip_address(ip_value(text)[_IP])


def interface_of(value: JSON) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """The network in a value or a text, with its address. Raises ValueError."""
    text = value.get(_CIDR) if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise ValueError("no such overload")
    return ipaddress.ip_interface(cidr_value(text)[_CIDR])


def is_global_unicast(value: JSON) -> bool:
    """Whether Go calls an address a global unicast one: private addresses are."""
    address = address_of(value)
    is_broadcast = str(address) == "255.255.255.255"
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or is_broadcast)


def is_local_multicast(value: JSON) -> bool:
    """Whether an address is a multicast address of its link."""
    address = address_of(value)
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.is_multicast and address.packed[1] & 0x0F == 2


def contains(network: JSON, other: JSON) -> bool:
    """Whether a network has an address, or the whole of another network."""
    whole = interface_of(network).network
    is_network = _CIDR in other if isinstance(other, dict) else isinstance(other, str) and "/" in other
    if is_network:
        part = interface_of(other).network
        return whole.version == part.version and whole.supernet_of(part)  # type: ignore[arg-type]  # same version
    return address_of(other) in whole


def masked(value: JSON) -> Object:
    """A network without the bits after its prefix."""
    return {_CIDR: str(interface_of(value).network)}


def network_address(value: JSON) -> Object:
    """The address in front of a network's prefix."""
    return {_IP: str(interface_of(value).ip)}


def url_part(part: str) -> Callable[[Object], JSON]:
    """The function that gives a part of a URL: scheme, host, hostname, port, path, query."""

    def read(value: Object) -> JSON:
        if _URL not in value:
            raise ValueError("no such overload")
        split = urlsplit(value[_URL])
        match part:
            case "scheme":
                return split.scheme
            case "host":
                return split.netloc.rpartition("@")[2]
            case "hostname":
                host = split.netloc.rpartition("@")[2]
                return re.sub(r":\d*$", "", host).strip("[]")
            case "port":
                found = re.search(r":(\d*)$", split.netloc)
                return found[1] if found else ""
            case "path":
                return quote(split.path, safe="/%!$&'()*+,;=:@~")
        query: Object = parse_qs(split.query, keep_blank_values=True)
        return query

    return read
