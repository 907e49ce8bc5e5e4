"""The types that a schema gives to values in rules. Source: apiserver `pkg/cel/common/schemas.go`, `values.go`."""

from __future__ import annotations

import base64
import contextlib
import re

from muster.api.cel_types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of
from muster.api.codec import JSON, Object
from muster.apiserver.custom.structure import EMBEDDED, INT_OR_STRING, item_schema

_FORMATS = {"byte": BYTES, "duration": DURATION, "date": TIMESTAMP, "date-time": TIMESTAMP}
_SIMPLE = {"boolean": BOOL, "integer": INT, "number": DOUBLE}
_META: Object = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_ROOT: Object = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}


def type_of_schema(schema: Object, *, is_root: bool, name: str = "selfType") -> Type | None:
    """The type of the values of a schema; None: rules cannot see them. `is_root`: values are whole objects."""
    if schema.get(INT_OR_STRING):
        return DYN
    match schema.get("type"):
        case "array":
            items = item_schema(schema)
            of = _below(items, f"{name}.@idx") if items is not None else None
            return list_of(of) if of is not None else None
        case "object":
            return _of_object(schema, is_root, name)
        case "string":
            return _FORMATS.get(schema.get("format") or "", STRING)
    return _SIMPLE.get(schema.get("type") or "")


def _below(schema: Object, name: str) -> Type | None:
    return type_of_schema(schema, is_root=bool(schema.get(EMBEDDED)), name=name)


def _of_object(schema: Object, is_root: bool, name: str) -> Type | None:
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        of = _below(values, f"{name}.@elem")
        return map_of(STRING, of) if of is not None else None
    named = {**(schema.get("properties") or {}), **(_ROOT if is_root else {})}
    types = {escaped_name(key): _below(part, f"{name}.{key}") for key, part in named.items()}
    return Type(name, fields={key: type_ for key, type_ in types.items() if type_ is not None})


def typed_value(value: JSON, schema: Object) -> JSON:
    """A number or text as the type of the schema: a double or bytes; others as they are.

    Times and durations are texts here: expressions read them, by their types.
    """
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("type") != "string" or not isinstance(value, str):
        return value
    if schema.get("format") == "byte":
        with contextlib.suppress(ValueError):
            return base64.b64decode(value, validate=True)
    return f"{value}T00:00:00Z" if schema.get("format") == "date" else value


_RESERVED = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import")
    + ("let", "loop", "package", "namespace", "return", "var", "void", "while")
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escaped_name(name: str) -> str:
    """How rules write the name of a field. Source: apiserver `pkg/cel/escaping.go`."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[./-]", lambda match: _ESCAPES[match[0]], name)
