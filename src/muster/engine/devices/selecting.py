"""Selectors of devices: CEL expressions over a device. Source: `dynamic-resource-allocation/cel/compile.go` (1.36)."""

from __future__ import annotations

from functools import lru_cache

from muster.api.cel_types import DYN
from muster.api.codec import JSON, Object
from muster.api.device_selectors import compile_selector
from muster.api.expressions import (
    Expression,
    ExpressionError,
    kind_of_value,
    quantity_value,
    semver_value,
)
from muster.engine.devices.inventory import Device

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
        return f"CEL runtime error: {error}"
    except ValueError as error:
        return f"CEL runtime error: {error}"
    return value if isinstance(value, bool) else f"CEL runtime error: {_no_bool(value)}"


def _no_bool(value: JSON) -> str:
    special = kind_of_value(value)
    name = {"Quantity": "kubernetes.Quantity", "Semver": "kubernetes.Semver"}.get(special) or _TYPE_NAMES[type(value)]
    why = f"type conversion error from '{special}' to 'bool'" if special else _NO_BOOL.get(type(value), "")
    return f"CEL result of type {name} could not be converted to bool: {why}"


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Expression:
    return compile_selector(text, device=DYN)


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
