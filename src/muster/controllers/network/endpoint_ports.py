"""Sets of ports of endpoint slices: what tells two sets apart, and the order in which upstream lists a set.

Source of the rules: `k8s.io/endpointslice/util/controller_utils.go` (NewPortMapKey: ports sorted by a hash of their Go
structure).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from muster.api.codec import Object

PortKey: TypeAlias = tuple[tuple[str, str, str, str], ...]
"""A set of ports without order."""

_FNV_OFFSET = 0x6C62272E07BB014262B821756295C58D
_FNV_PRIME = 0x0000000001000000000000000000013B
_FNV_MASK = (1 << 128) - 1


def port_key(ports: Sequence[Object] | None) -> PortKey:
    """What two equal sets of ports have in common."""
    return tuple(sorted(tuple(_text(port.get(name)) for name in _FIELDS) for port in ports or ()))  # type: ignore[misc]  # four fields


_FIELDS = ("name", "protocol", "port", "appProtocol")


def _text(value: str | int | None) -> str:
    return "<nil>" if value is None else str(value)


def in_upstream_order(ports: Sequence[Object]) -> list[Object]:
    """The ports as upstream's controllers list them."""
    return list(ports) if len(ports) < 2 else sorted(ports, key=_hash)


def _hash(port: Object) -> int:
    name, protocol, number, application = (_text(port.get(field)) for field in _FIELDS)
    return fnv128a(
        f"(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} Port:(*int32){number} "
        f"AppProtocol:(*string){application}}}".encode()
    )


def fnv128a(data: bytes) -> int:
    """The 128-bit FNV-1a hash."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _FNV_MASK
    return value
