"""Checks a value against an OpenAPI v3 schema, in the words of the validator that real servers use.

Source of rules and texts: kube-openapi `pkg/validation/{validate,errors}` and apiextensions-apiserver
`pkg/apiserver/validation`. On updates, what did not change is not checked again (ratcheting).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from muster.api.codec import JSON, Object, canonical, dumps
from muster.apiserver.custom.formats import FORMATS
from muster.apiserver.custom.patterns import python_pattern
from muster.apiserver.custom.structure import INT_OR_STRING, LIST_KEYS, LIST_TYPE, child_schema, item_schema
from muster.apiserver.fields import FieldError, duplicate, invalid_value, not_supported, required, too_long, too_many

ROOT = "<nil>"
"""How messages name the whole object."""
_TYPES: dict[str, Callable[[JSON], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _is_whole(value),
}


def validate_value(value: JSON, schema: Object, path: str = "", old: JSON = None) -> list[FieldError]:
    """What is wrong with a value; `old` is what stood there before, None if nothing comparable did."""
    if old is not None and value == old:
        return []
    if value is None:
        return [] if schema.get("nullable") else _of_type(value, schema, path)
    errors = _of_type(value, schema, path) + _of_enum(value, schema, path)
    if isinstance(value, dict):
        errors += _object(value, schema, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        errors += _list(value, schema, path, old if isinstance(old, list) else [])
    elif isinstance(value, str):
        errors += _text(value, schema, path)
    elif _TYPES["number"](value):
        errors += _number(value, schema, path)
    return errors + _junctors(value, schema, path)


def _is_whole(value: JSON) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def type_name(value: JSON) -> str:
    """The JSON type of a value, as messages name it."""
    if value is None:
        return "null"
    order = ("boolean", "string", "object", "array", "integer", "number")
    return next(name for name in order if _TYPES[name](value))


def _of_type(value: JSON, schema: Object, path: str) -> list[FieldError]:
    if schema.get(INT_OR_STRING):
        if isinstance(value, str) or _is_whole(value):
            return []
        expected = "integer,string"
    else:
        expected = schema.get("type") or ""
        if not expected or (expected in _TYPES and _TYPES[expected](value)):
            return []
    return [_wrong_type(path, expected, type_name(value))]


def _wrong_type(path: str, expected: str, found: str) -> FieldError:
    body = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
    return FieldError("FieldValueTypeInvalid", path or ROOT, body)


def _wrong(path: str, value: JSON, text: str) -> FieldError:
    return invalid_value(path or ROOT, value, f"{path} in body {text}")


def _of_enum(value: JSON, schema: Object, path: str) -> list[FieldError]:
    choices = schema.get("enum")
    if choices is None or any(_same(value, choice) for choice in choices):
        return []
    texts = [choice if isinstance(choice, str) else dumps(choice).decode() for choice in choices]
    return [not_supported(path or ROOT, value, texts)]


def _same(first: JSON, second: JSON) -> bool:
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def _object(value: Object, schema: Object, path: str, old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if most is not None and len(value) > most:
        errors.append(too_many(path or ROOT, len(value), most))
    if least is not None and len(value) < least:
        errors.append(_wrong(path, value, f"should have at least {least} properties"))
    for name in schema.get("required") or ():
        if name not in value:
            errors.append(required(_child(path, name)))
    for key in sorted(value):
        found = child_schema(schema, key)
        if found is not None:
            errors += validate_value(value[key], found, _child(path, key), old.get(key))
    return errors


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _list(value: list[JSON], schema: Object, path: str, old: list[JSON]) -> list[FieldError]:
    errors: list[FieldError] = []
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        errors.append(_wrong(path, len(value), f"should have at least {least} items"))
    if most is not None and len(value) > most:
        errors.append(too_many(path or ROOT, len(value), most))
    items = item_schema(schema)
    if items is not None:
        before = correlated(value, old, schema)
        for index, item in enumerate(value):
            errors += validate_value(item, items, f"{path}[{index}]", before(index))
    return errors


def correlated(value: list[JSON], old: list[JSON], schema: Object) -> Callable[[int], JSON]:
    """The function that finds the old item for a new one: by keys in lists of type `map`; elsewhere there is none."""
    keys = schema.get(LIST_KEYS) or ()
    if schema.get(LIST_TYPE) != "map" or not old:
        return lambda index: None
    places = {_identity(item, keys): item for item in old}
    return lambda index: places.get(_identity(value[index], keys))


def _identity(item: JSON, keys: Iterable[str]) -> str:
    return dumps([item.get(key) for key in keys] if isinstance(item, dict) else None).decode()


def _text(value: str, schema: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    least, most = schema.get("minLength"), schema.get("maxLength")
    if most is not None and len(value) > most:
        return [too_long(path or ROOT, most)]
    if least is not None and len(value) < least:
        return [_wrong(path, value, f"should be at least {least} chars long")]
    pattern = schema.get("pattern")
    if pattern and not _compiled(pattern).search(value):
        return [_wrong(path, value, f"should match '{pattern}'")]
    format_ = schema.get("format")
    if format_ and format_ in FORMATS and not FORMATS[format_](value):
        body = f'{path} in body must be of type {format_}: "{value}"'
        errors.append(FieldError("FieldValueTypeInvalid", path or ROOT, f'Invalid value: "{value}": {body}'))
    return errors


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(python_pattern(pattern))


def _number(value: int | float, schema: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    factor = schema.get("multipleOf")
    if factor and not (value / factor).is_integer():
        errors.append(_wrong(path, value, f"should be a multiple of {go_number(factor)}"))
    most, least = schema.get("maximum"), schema.get("minimum")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        text = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errors.append(_wrong(path, value, f"should be {text} {go_number(most)}"))
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        text = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errors.append(_wrong(path, value, f"should be {text} {go_number(least)}"))
    return errors


def go_number(value: int | float) -> str:
    """A number as Go prints a float64 with `%v`: with an exponent from a million on."""
    number = float(value)
    exponent = int(f"{number:e}".partition("e")[2])
    text = repr(number)
    if number == 0 or -4 <= exponent < 6:
        return text.removesuffix(".0")
    digits = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
    mantissa = f"{digits[0]}.{digits[1:]}".rstrip(".")
    return f"{'-' if number < 0 else ''}{mantissa}e{exponent:+03d}"


def _junctors(value: JSON, schema: Object, path: str) -> list[FieldError]:
    """allOf, anyOf, oneOf and not."""
    errors: list[FieldError] = []
    shown = path or "."
    any_of, one_of, all_of = (schema.get(name) or () for name in ("anyOf", "oneOf", "allOf"))
    if any_of and not any(_fits(value, part) for part in any_of):
        errors.append(_composite(f'"{shown}" must validate at least one schema (anyOf)'))
        errors += _closest(value, any_of, path)
    if one_of:
        valid = sum(_fits(value, part) for part in one_of)
        if valid != 1:
            found = "Found none valid" if valid == 0 else f"Found {valid} valid alternatives"
            errors.append(_composite(f'"{shown}" must validate one and only one schema (oneOf). {found}'))
            if valid == 0:
                errors += _closest(value, one_of, path)
    failed = [part for part in all_of if not _fits(value, part)]
    if failed:
        none = ". None validated" if len(failed) == len(all_of) else ""
        for part in failed:
            errors += validate_value(value, part, path)
        errors.append(_composite(f'"{shown}" must validate all the schemas (allOf){none}'))
    if schema.get("not") is not None and _fits(value, schema["not"]):
        errors.append(_composite(f'"{shown}" must not validate the schema (not)'))
    return errors


def _fits(value: JSON, schema: Object) -> bool:
    return not validate_value(value, schema)


def _closest(value: JSON, parts: Iterable[Object], path: str) -> list[FieldError]:
    """The errors of the alternative that comes closest: the one with the fewest."""
    return min((validate_value(value, part, path) for part in parts), key=len, default=[])


def _composite(text: str) -> FieldError:
    return invalid_value(ROOT, "", text)


def validate_lists(value: JSON, schema: Object, path: str = "") -> list[FieldError]:
    """Lists of type `set` and `map` must not have equal items. Source: `pkg/apiserver/schema/listtype`."""
    errors: list[FieldError] = []
    if isinstance(value, dict):
        for key in sorted(value):
            found = child_schema(schema, key)
            if found is not None:
                errors += validate_lists(value[key], found, _child(path, key))
    elif isinstance(value, list):
        items = item_schema(schema) or {}
        kind, keys = schema.get(LIST_TYPE), schema.get(LIST_KEYS) or []
        seen: set[str] = set()
        if kind in ("set", "map"):
            for index, item in enumerate(value):
                identity: JSON = item
                if kind == "map":
                    identity = _keys_of(item, keys, items)
                text = canonical(identity).decode()
                if text in seen:
                    errors.append(duplicate(f"{path}[{index}]", identity))
                seen.add(text)
        for index, item in enumerate(value):
            errors += validate_lists(item, items, f"{path}[{index}]")
    return errors


def _keys_of(item: JSON, keys: Iterable[str], items: Object) -> JSON:
    if not isinstance(item, dict):
        return item
    properties = items.get("properties") or {}
    found = {key: item.get(key, (properties.get(key) or {}).get("default")) for key in keys}
    return {key: value for key, value in found.items() if value is not None}
