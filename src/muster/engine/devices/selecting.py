"""Selectors of devices: CEL expressions over a device. Source: `dynamic-resource-allocation/cel/compile.go` (1.36)."""

from __future__ import annotations

import re
from functools import lru_cache

from muster.api.codec import JSON, Object
from muster.api.expressions import (
    Expression,
    ExpressionError,
    compile_expression,
    kind_of_value,
    quantity_value,
    semver_value,
)
from muster.engine.devices.inventory import Device

_DOMAINS = re.compile(r"\bdevice\s*\.\s*(?:attributes|capacity)\s*\[")
_STRING = re.compile(
    r"""[rRbB]{0,2}(\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
)
_WORDS = (
    (re.compile(r"No matching overload.*", re.DOTALL), "no such overload"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"Index error: index=(\S+) size=.*"), r"index out of bounds: \1"),
)
_NO_BOOL = {
    str: "unsupported native conversion from string to 'bool'",
    int: "unsupported type conversion from 'int' to bool",
    float: "type conversion error from 'double' to 'bool'",
    list: "type conversion error from list to 'bool'",
    dict: "type conversion error from map to 'bool'",
}
_TYPE_NAMES = {str: "string", int: "int", float: "double", list: "list", dict: "map", type(None): "null_type"}


def matches(device: Device, expression: str) -> bool | str:
    """Whether the expression is true of the device; a text says why it has no such value."""
    known = device.memo.get(expression)
    if known is None:
        known = device.memo[expression] = _matches(device, expression)
    return known


def _matches(device: Device, text: str) -> bool | str:
    try:
        expression = _compiled(text)
    except ExpressionError as error:
        return f"CEL compile error: {error}"
    try:
        value = expression.evaluate({"device": _variables(device)})
    except ExpressionError as error:
        return f"CEL runtime error: {_worded(str(error))}"
    except ValueError as error:
        return f"CEL runtime error: {error}"
    return value if isinstance(value, bool) else f"CEL runtime error: {_no_bool(value)}"


def _worded(text: str) -> str:
    """An error in the words of cel-go."""
    for pattern, words in _WORDS:
        if pattern.match(text):
            return pattern.sub(words, text)
    return text


def _no_bool(value: JSON) -> str:
    special = kind_of_value(value)
    name = {"Quantity": "kubernetes.Quantity", "Semver": "kubernetes.Semver"}.get(special) or _TYPE_NAMES[type(value)]
    why = f"type conversion error from '{special}' to 'bool'" if special else _NO_BOOL.get(type(value), "")
    return f"CEL result of type {name} could not be converted to bool: {why}"


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Expression:
    return compile_expression(with_empty_domains(text), ("device",))


def with_empty_domains(text: str) -> str:
    """The expression in which a domain without attributes or capacities is an empty map, not a missing key."""
    found = _DOMAINS.search(_blanked(text))
    if found is None:
        return text
    end = _closing(_blanked(text), found.end())
    if end < 0:
        return text
    inside, rest = with_empty_domains(text[found.end() : end]), with_empty_domains(text[end + 1 :])
    is_optional = inside.lstrip().startswith("?")
    key = inside.lstrip()[1:] if is_optional else inside
    domain = f"{text[found.start() : found.end()]}?{key}].orValue(dyn({{}}))"
    return f"{text[: found.start()]}{f'optional.of({domain})' if is_optional else domain}{rest}"


def _blanked(text: str) -> str:
    """The expression with its string literals replaced by as many spaces."""
    return _STRING.sub(lambda match: " " * len(match[0]), text)


def _closing(text: str, start: int) -> int:
    """The place of the bracket that closes one that was opened before `start`; -1 if there is none."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        if not depth:
            return at
    return -1


def _variables(device: Device) -> Object:
    """The `device` of expressions, made once a device."""
    key = "$device"
    known = device.memo_values.get(key)
    if known is None:
        known = device.memo_values[key] = {
            "driver": device.id.driver,
            "allowMultipleAllocations": device.is_multiple,
            "attributes": _by_domain(device, {name: _value(each) for name, each in device.attributes.items()}),
            "capacity": _by_domain(
                device, {name: quantity_value(str(each.value)) for name, each in device.capacity.items()}
            ),
        }
    return known


def _by_domain(device: Device, values: Object) -> Object:
    domains: Object = {}
    for name, value in sorted(values.items()):
        domain, slash, identifier = name.partition("/")
        domains.setdefault(domain if slash else device.id.driver, {})[identifier if slash else name] = value
    return domains


def _value(attribute: Object) -> JSON:
    """The value of an attribute: one of int, bool, string, version, or a list of them."""
    for kind, value in attribute.items():
        if kind == "version":
            return semver_value(value)
        if kind == "versions":
            return [semver_value(each) for each in value]
        return value
    return None
