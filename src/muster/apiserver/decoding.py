"""From a JSON value that a client sent to an object of a kind: wrong types are refused, unknown fields left out.

One walk checks, copies, writes quantities in their canonical form and leaves out nulls and empty lists and maps, as a
decoder into Go structs does. Error texts are those of Go's decoder where they are short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol, TypeAlias

from muster.api.codec import JSON, Object, copy
from muster.api.quantity import QuantityError, canonical_quantity, parse_quantity
from muster.api.resource import Resource
from muster.apiserver.schema import Schema, schema_for
from muster.apiserver.times import MICROSECONDS, SECONDS, WrongTime, canonical_time
from muster.apiserver.zero_values import drops_zero, is_off

Unknown: TypeAlias = list[list[str]]
Decode: TypeAlias = Callable[[JSON, Unknown], JSON]
_Field: TypeAlias = tuple[type | None, Decode, bool]
"""Of a field: the type whose values stand as they are, its decoder, whether an empty value is left out."""

_CORE = "io.k8s.api.core.v1."
_NANO_OF_MILLI = 10**6
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "": (-(2**63), 2**63 - 1)}


_canonical = lru_cache(maxsize=4096)(canonical_quantity)


class WrongValue(Exception):
    """A value cannot be decoded. `path` grows from the inside out; `struct` is the type that has the field."""

    def __init__(self, text: str, type_: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.type = type_
        self.path: list[str] = []
        self.struct = ""

    def message(self, kind: str) -> str:
        """The text of the decoding error."""
        if not self.type:
            return self.text
        path = ".".join([self.struct or kind, *(part for part in reversed(self.path) if not part.startswith("["))])
        return f"json: cannot unmarshal {self.text} into Go struct field {path} of type {self.type}"


def path_text(parts: list[str]) -> str:
    """The path of an unknown field; `parts` from the inside out, items of lists as `[0]`."""
    text = ""
    for part in reversed(parts):
        text += part if part.startswith("[") or not text else f".{part}"
    return text


class Decoders:
    """The decoders of schemas, each made when it is first needed."""

    def __init__(self, release: str = "") -> None:
        self._release = release
        self._made: dict[int, tuple[Schema, Decode]] = {}

    def of(self, schema: Schema | None) -> Decode:
        """The decoder of a schema; one that copies if nothing is known."""
        if schema is None:
            return _copy
        found = self._made.get(id(schema))
        if found is None:
            # The schema is kept along so that its id is not used again.
            found = self._made[id(schema)] = (schema, self._make(schema))
        return found[1]

    def _make(self, schema: Schema) -> Decode:
        match schema.format or schema.type:
            case "quantity":
                return _quantity
            case "int-or-string":
                return _int_or_string
            case "byte":
                return _bytes
            case "date-time":
                return _micro_time if schema.name == _MICRO_TIME else _time
            case "int32" | "int64" | "integer":
                return _integer(schema.format)
            case "boolean":
                return _boolean
            case "number" | "double":
                return _number
        if schema.type == "string":
            return _string
        if schema.type == "array":
            return self._list(schema)
        if schema.type == "object" and not schema.is_open:
            return self._map(schema) if schema.values is not None else self._struct(schema)
        return _copy

    def _struct(self, schema: Schema) -> Decode:
        fields = schema.fields
        decoders: dict[str, _Field] = {}
        struct = schema.name.rpartition(".")[2]
        is_kind = "apiVersion" in fields and "kind" in fields

        def decode(value: JSON, unknown: Unknown) -> JSON:
            if type(value) is not dict:
                raise WrongValue(_found(value), struct or "map[string]interface {}")
            result: Object = {}
            for key, item in value.items():
                entry = decoders.get(key)
                if entry is None:
                    known = fields.get(key)
                    if known is None and not (is_kind and key in ("apiVersion", "kind")):
                        unknown.append([key])
                        continue
                    entry = decoders[key] = self._field(known, schema.name, key)
                leaf, decode_item, drops_empty = entry
                if item is None:
                    continue
                if type(item) is leaf:
                    result[key] = item
                    continue
                before = len(unknown)
                try:
                    decoded = decode_item(item, unknown)
                except WrongValue as error:
                    error.path.append(key)
                    if not error.struct:
                        error.struct = struct
                    raise
                if len(unknown) > before:
                    for path in unknown[before:]:
                        path.append(key)
                if decoded or not drops_empty:
                    result[key] = decoded
            return result

        return decode

    def _field(self, schema: Schema | None, of: str = "", name: str = "") -> _Field:
        """How to decode a field; apiVersion and kind of an object are texts without a schema."""
        if is_off(self._release, of, name):
            return None, _nothing, True
        decode = self.of(schema) if schema is not None else _string
        if schema is not None and schema.values is not None and schema.values.format == "quantity":
            decode = _rounded(decode) if of.startswith(_CORE) else decode
        drops_empty = (schema is not None and _is_collection(schema)) or drops_zero(of, name)
        leaf = str if decode is _string else bool if decode is _boolean and not drops_empty else None
        return leaf, decode, drops_empty

    def _map(self, schema: Schema) -> Decode:
        assert schema.values is not None
        leaf, decode_value, _ = self._field(schema.values)

        def decode(value: JSON, unknown: Unknown) -> JSON:
            if type(value) is not dict:
                raise WrongValue(_found(value), "map[string]string")
            result: Object = {}
            for key, item in value.items():
                if item is None:
                    continue
                if type(item) is leaf:
                    result[key] = item
                    continue
                before = len(unknown)
                result[key] = decode_value(item, unknown)
                if len(unknown) > before:
                    for path in unknown[before:]:
                        path.append(key)
            return result

        return decode

    def _list(self, schema: Schema) -> Decode:
        items = schema.items
        made: list[Decode] = []

        def decode(value: JSON, unknown: Unknown) -> JSON:
            if type(value) is not list:
                raise WrongValue(_found(value), "[]interface {}")
            # Made late, since schemas may contain themselves.
            if not made:
                made.append(self.of(items))
            decode_item = made[0]
            result: list[JSON] = []
            for index, item in enumerate(value):
                before = len(unknown)
                try:
                    result.append(decode_item(item, unknown))
                except WrongValue as error:
                    error.path.append(f"[{index}]")
                    raise
                if len(unknown) > before:
                    for path in unknown[before:]:
                        path.append(f"[{index}]")
            return result

        return decode


class CustomType(Protocol):
    """What is known about a custom kind."""

    @property
    def schema(self) -> Schema:
        """Its schema, as patches read it."""

    def decode(self, value: Object, unknown: Unknown) -> Object:
        """A fresh object without unknown fields, whose paths go to `unknown`."""


class Types:
    """The schemas and decoders of the kinds of one release (`1.36`), or of all (``), and of custom kinds."""

    def __init__(self, release: str = "") -> None:
        self._release = release
        self._decoders = Decoders(release)
        self._schemas: dict[Resource, Schema | None] = {}
        self._custom: Mapping[Resource, CustomType] = {}

    def set_custom(self, types: Mapping[Resource, CustomType]) -> None:
        """Know these custom kinds, and no others."""
        self._custom = types

    def schema(self, resource: Resource) -> Schema | None:
        """The schema of a resource's kind, None if it is not known."""
        if resource in self._custom:
            return self._custom[resource].schema
        if resource not in self._schemas:
            found = schema_for(resource.group, resource.version, resource.kind, self._release)
            self._schemas[resource] = found
        return self._schemas[resource]

    def decode(self, resource: Resource, value: JSON) -> tuple[Object, list[str]]:
        """A fresh object of the resource's kind, and the paths of unknown fields. Raises WrongValue."""
        unknown: Unknown = []
        custom = self._custom.get(resource)
        if custom is not None:
            return self._decode_custom(custom, value, unknown), [path_text(path) for path in unknown]
        obj: Object = self._decoders.of(self.schema(resource))(value, unknown)
        return obj, [path_text(path) for path in unknown]

    def _decode_custom(self, custom: CustomType, value: JSON, unknown: Unknown) -> Object:
        """Only the metadata of custom objects has types that a wrong value cannot have; the rest is validated."""
        if type(value) is not dict:
            raise WrongValue(_found(value), "map[string]interface {}")
        obj = custom.decode(value, unknown)
        metadata = obj.get("metadata")
        if metadata is not None:
            found: Unknown = []
            obj["metadata"] = self._decoders.of(custom.schema.child("metadata"))(metadata, found)
            unknown += [[*path, "metadata"] for path in found]
        return obj


def _is_collection(schema: Schema) -> bool:
    """Whether an empty value of this schema is as good as none."""
    return schema.type == "array" or schema.values is not None


def _found(value: JSON) -> str:
    """How Go's decoder names a value of the wrong type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _copy(value: JSON, unknown: Unknown) -> JSON:
    return copy(value)


def _nothing(value: JSON, unknown: Unknown) -> JSON:
    """The field belongs to a feature that is off: it is left out without a word."""
    return None


def _rounded(decode: Decode) -> Decode:
    """Amounts of resources are kept to a thousandth, rounded up. Source: `SetDefaults_ResourceList`."""

    def rounded(value: JSON, unknown: Unknown) -> JSON:
        amounts: Object = decode(value, unknown)
        return {name: _to_milli(amount) for name, amount in amounts.items()}

    return rounded


@lru_cache(maxsize=4096)
def _to_milli(amount: str) -> str:
    nano = parse_quantity(amount).nano
    return canonical_quantity(f"{-(-nano // _NANO_OF_MILLI)}m") if nano % _NANO_OF_MILLI else amount


def _string(value: JSON, unknown: Unknown) -> JSON:
    if type(value) is str:
        return value
    raise WrongValue(_found(value), "string")


def _boolean(value: JSON, unknown: Unknown) -> JSON:
    if type(value) is bool:
        return value
    raise WrongValue(_found(value), "bool")


def _number(value: JSON, unknown: Unknown) -> JSON:
    if type(value) in (int, float):
        return value
    raise WrongValue(_found(value), "float64")


def _integer(format_: str) -> Decode:
    low, high = _RANGES[format_]
    type_ = format_ or "int64"

    def decode(value: JSON, unknown: Unknown) -> JSON:
        if type(value) is int and low <= value <= high:
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        raise WrongValue(f"number {value}" if is_number else _found(value), type_)

    return decode


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _bytes(value: JSON, unknown: Unknown) -> JSON:
    """Bytes in base64; Go skips line ends."""
    if type(value) is not str:
        raise WrongValue(_found(value), "[]uint8")
    if _BASE64.fullmatch(value):
        return value
    plain = value.replace("\n", "").replace("\r", "")
    if _BASE64.fullmatch(plain):
        return plain
    match = re.match(r"(?:[A-Za-z0-9+/]{4})*", plain)
    assert match is not None
    rest = plain[match.end() :]
    wrong = re.search(r"[^A-Za-z0-9+/]", rest)
    at = match.end() + (wrong.start() if wrong else 0)
    raise WrongValue(f"illegal base64 data at input byte {at}")


def _int_or_string(value: JSON, unknown: Unknown) -> JSON:
    if type(value) in (int, str):
        return value
    raise WrongValue(_found(value), "intstr.IntOrString")


def _quantity(value: JSON, unknown: Unknown) -> JSON:
    try:
        return _canonical(value) if type(value) is str else canonical_quantity(value)
    except QuantityError as error:
        raise WrongValue(str(error)) from error


def _timestamp(layout: str) -> Decode:
    def decode(value: JSON, unknown: Unknown) -> JSON:
        if type(value) is not str:
            raise WrongValue(_found(value), "string")
        try:
            return canonical_time(value, layout)
        except WrongTime as error:
            raise WrongValue(str(error)) from error

    return decode


_time, _micro_time = _timestamp(SECONDS), _timestamp(MICROSECONDS)
