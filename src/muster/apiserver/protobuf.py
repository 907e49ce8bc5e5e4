"""Protobuf request bodies as JSON objects: what kubectl's typed commands and Go controllers send.

A body is four bytes, then a `runtime.Unknown` whose `raw` is the message of the kind it names. Layouts come from
`data/messages.json.gz` (see `hack/protobuf_facts.py`). The result is what the same client would have sent as JSON:
values that Go writes though they are empty are left out where JSON leaves them out.
Source of the wire format: the protobuf encoding guide; of the envelope: apimachinery `serializer/protobuf`.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from muster.api.codec import JSON, Object, loads
from muster.clock import rfc3339

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_META = "meta/v1"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """The bytes are not a message of the kind they claim to be."""


class _Field(Struct, frozen=True):
    name: str
    kind: str
    is_repeated: bool
    is_map: bool
    is_pointer: bool
    is_omitted_when_empty: bool
    is_inline: bool


class _Layouts(Struct, frozen=True):
    groups: Mapping[str, str]
    messages: Mapping[str, Mapping[int, _Field]]


def decode_body(data: bytes) -> Object:
    """The object in a request body. Raises `ProtobufError`."""
    if not data.startswith(_MAGIC):
        raise ProtobufError("the body does not begin like a Kubernetes protobuf message")
    api_version, kind, raw = "", "", b""
    for number, value in _fields(data[len(_MAGIC) :]):
        if number == 1:
            for inner, text in _fields(_as_bytes(value)):
                api_version = _text(text) if inner == 1 else api_version
                kind = _text(text) if inner == 2 else kind
        elif number == 2:
            raw = _as_bytes(value)
    layouts = _layouts()
    for package in (layouts.groups.get(api_version), _META):
        name = f"{package}.{kind}"
        if name in layouts.messages:
            return {"kind": kind, "apiVersion": api_version, **_message(layouts, name, raw)}
    raise ProtobufError(f'no kind "{kind}" is known for version "{api_version}"')


@lru_cache(maxsize=1)
def _layouts() -> _Layouts:
    packed = (files("muster.apiserver") / "data" / "messages.json.gz").read_bytes()
    known = loads(gzip.decompress(packed))
    messages = {
        message: {int(number): _field(*row) for number, row in rows.items()}
        for message, rows in known["messages"].items()
    }
    return _Layouts(known["groups"], messages)


def _field(name: str, kind: str, flags: str) -> _Field:
    return _Field(name, kind, "r" in flags, "m" in flags, "p" in flags, "o" in flags, "n" in flags)


def _message(layouts: _Layouts, name: str, data: bytes) -> Object:
    fields = layouts.messages[name]
    found: Object = {}
    for number, wire in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.is_map:
            key, value = _entry(layouts, field.kind, _as_bytes(wire))
            found.setdefault(field.name, {})[key] = value
        elif field.is_repeated:
            found.setdefault(field.name, []).extend(_items(layouts, field.kind, wire))
        elif field.is_inline:
            found |= _message(layouts, field.kind, _as_bytes(wire))
        else:
            value = _value(layouts, field.kind, wire)
            if value is not None and not _is_left_out(field, value):
                found[field.name] = value
    return found


def _is_left_out(field: _Field, value: JSON) -> bool:
    """Whether JSON would not show this value: empty scalars that are no pointers. Empty structs are shown."""
    return field.is_omitted_when_empty and not field.is_pointer and not value and not isinstance(value, dict)


def _entry(layouts: _Layouts, kind: str, data: bytes) -> tuple[str, JSON]:
    key, value = "", _empty(kind)
    for number, wire in _fields(data):
        if number == 1:
            key = _text(wire)
        elif number == 2:
            value = _value(layouts, kind, wire)
    return key, value


def _empty(kind: str) -> JSON:
    """What a map's value is when its message is empty."""
    return {"string": "", "bytes": "", "int": 0, "bool": False, "Quantity": "0", "Strings": []}.get(kind, {})


def _items(layouts: _Layouts, kind: str, wire: int | bytes) -> list[JSON]:
    if kind in ("int", "bool") and isinstance(wire, bytes):  # packed
        position, items = 0, []
        while position < len(wire):
            number, position = _varint(wire, position)
            items.append(_value(layouts, kind, number))
        return items
    return [_value(layouts, kind, wire)]


def _value(layouts: _Layouts, kind: str, wire: int | bytes) -> JSON:
    decode = _DECODERS.get(kind)
    if decode is not None:
        return decode(wire)
    if kind not in layouts.messages:
        raise ProtobufError(f"nothing is known about the message {kind}")
    return _message(layouts, kind, _as_bytes(wire))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values of a message, in their order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ProtobufError(f"unknown wire type {wire_type}")
        if position + size > len(data):
            raise ProtobufError("the message is cut off")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result, shift = 0, 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise ProtobufError("the message is cut off")


def _as_bytes(wire: int | bytes) -> bytes:
    if isinstance(wire, int):
        raise ProtobufError("a number stands where a message or text was expected")
    return wire


def _text(wire: int | bytes) -> str:
    try:
        return _as_bytes(wire).decode()
    except UnicodeDecodeError as error:
        raise ProtobufError("a text is not UTF-8") from error


def _integer(wire: int | bytes) -> int:
    if not isinstance(wire, int):
        raise ProtobufError("a text stands where a number was expected")
    return wire - (1 << 64) if wire >= 1 << 63 else wire


def _numbered(wire: int | bytes) -> dict[int, int | bytes]:
    return dict(_fields(_as_bytes(wire)))


def _time(wire: int | bytes) -> str | None:
    found = _numbered(wire)
    return _moment(_integer(found.get(1, 0))) if found else None


def _moment(seconds: int) -> str:
    try:
        return rfc3339(seconds)
    except (ValueError, OverflowError, OSError) as error:
        raise ProtobufError("a time is out of range") from error


def _micro_time(wire: int | bytes) -> str | None:
    found = _numbered(wire)
    if not found:
        return None
    micros = _integer(found.get(2, 0)) // 1000
    return f"{_moment(_integer(found.get(1, 0)))[:-1]}.{micros:06d}Z"


def _int_or_string(wire: int | bytes) -> int | str:
    found = _numbered(wire)
    if _integer(found.get(1, 0)) == 1:
        return _text(found.get(3, b""))
    number = _integer(found.get(2, 0))
    return number - (1 << 32) if number >= 1 << 31 else number


def _raw_json(wire: int | bytes) -> JSON:
    text = _as_bytes(_numbered(wire).get(1, b""))
    try:
        return loads(text) if text else None
    except ValueError as error:
        raise ProtobufError("an embedded object is not JSON") from error


_DECODERS: Mapping[str, Callable[[int | bytes], JSON]] = {
    "string": _text,
    "int": _integer,
    "bool": lambda wire: bool(_integer(wire)),
    "double": lambda wire: struct.unpack("<d", _as_bytes(wire))[0],
    "bytes": lambda wire: base64.b64encode(_as_bytes(wire)).decode(),
    "Quantity": lambda wire: _text(_numbered(wire).get(1, b"")) or "0",
    "Time": _time,
    "MicroTime": _micro_time,
    "Duration": lambda wire: f"{_integer(_numbered(wire).get(1, 0))}ns",
    "IntOrString": _int_or_string,
    "Raw": _raw_json,
    "FieldsV1": _raw_json,
    "Strings": lambda wire: [_text(value) for number, value in _fields(_as_bytes(wire)) if number == 1],
}
