"""What makes the schema of a CustomResourceDefinition valid and structural.

Source of rules and texts: apiextensions-apiserver `pkg/apis/apiextensions/validation` and
`pkg/apiserver/schema/validation.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.api.cel_types import Type
from muster.api.codec import JSON, Object
from muster.api.expressions import NoProgram, NotAnExpression, NotSupported
from muster.apiserver.custom.patterns import python_pattern
from muster.apiserver.custom.rule_types import type_of_schema
from muster.apiserver.custom.rules import WrongType, compile_message, compile_rule
from muster.apiserver.custom.structure import (
    EMBEDDED,
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    MAP_TYPE,
    PRESERVE,
    RULES,
    pruned,
)
from muster.apiserver.custom.values import validate_value
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, not_supported, required

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_EMPTY_IN_JUNCTORS = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (PRESERVE, "must be false to be structural"),
    (EMBEDDED, "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    (LIST_KEYS, "must be empty to be structural"),
    (LIST_TYPE, "must be undefined to be structural"),
    (MAP_TYPE, "must be undefined to be structural"),
)
_OLD = re.compile(r"\boldSelf\b")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def validate_schema(schema: Object, field: str) -> list[FieldError]:
    """What is wrong with the schema of a version, at the path of a field."""
    errors: list[FieldError] = []
    if schema.get("nullable"):
        errors.append(forbidden_field(f"{field}.nullable", "nullable cannot be true at the root"))
    of_openapi = _openapi(schema, field)
    of_structure = _structure(schema, field, "root")
    of_defaults = [] if of_openapi or of_structure else list(_defaults(schema, field))
    of_rules = [] if of_openapi or of_structure else list(_rules(schema, field, correlates=True))
    return errors + of_openapi + of_structure + of_defaults + of_rules


def _parts(schema: Object, field: str) -> Iterator[tuple[str, Object, str]]:
    """The schemas right below one that describe values: path, schema, and which level of the structure they are."""
    for name in sorted(schema.get("properties") or {}):
        yield f"{field}.properties[{name}]", schema["properties"][name], "field"
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield f"{field}.additionalProperties", values, "field"
    if isinstance(schema.get("items"), dict):
        yield f"{field}.items", schema["items"], "item"


def _junctor_parts(schema: Object, field: str) -> Iterator[tuple[str, Object]]:
    for name in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(schema.get(name) or ()):
            yield f"{field}.{name}[{index}]", part
    if isinstance(schema.get("not"), dict):
        yield f"{field}.not", schema["not"]


def _openapi(schema: Object, field: str) -> list[FieldError]:
    """The rules of each schema by itself, and of all below it."""
    errors = [*_one(schema, field), *_list_type(schema, field), *_map_type(schema, field), *_rule_texts(schema, field)]
    for path, part, _ in _parts(schema, field):
        errors += _openapi(part, path)
    for path, part in _junctor_parts(schema, field):
        errors += _openapi(part, path)
    return errors


def _one(schema: Object, field: str) -> Iterator[FieldError]:
    type_ = schema.get("type")
    if type_ == "null":
        yield forbidden_field(f"{field}.type", "type cannot be set to null, use nullable as an alternative")
    elif type_ and type_ not in _TYPES:
        yield not_supported(f"{field}.type", type_, _TYPES)
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{field}.uniqueItems", why)
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield forbidden_field(
            f"{field}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if schema.get(PRESERVE) is False:
        yield invalid_value(f"{field}.{PRESERVE}", False, "must be true or undefined")
    for name in ("patternProperties", "definitions", "dependencies", "id", "$ref", "additionalItems"):
        if schema.get(name):
            yield forbidden_field(f"{field}.{name}", f"{name.lstrip('$')} is not supported")
    if isinstance(schema.get("items"), list):
        yield forbidden_field(f"{field}.items", "items must be a schema object and not an array")
    pattern = schema.get("pattern")
    if pattern:
        try:
            re.compile(python_pattern(pattern))
        except re.error as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            yield invalid_value(f"{field}.pattern", pattern, why)


def _must_be(schema: Object, field: str, type_: str, why: str) -> FieldError:
    if not schema.get("type"):
        return required(f"{field}.type", f"must be {type_} {why}")
    return invalid_value(f"{field}.type", schema["type"], f"must be {type_} {why}")


def _map_type(schema: Object, field: str) -> Iterator[FieldError]:
    map_type = schema.get(MAP_TYPE)
    if map_type is None:
        return
    if schema.get("type") != "object":
        yield _must_be(schema, field, "object", f"if {MAP_TYPE} is specified")
    if map_type not in ("atomic", "granular"):
        yield not_supported(f"{field}.{MAP_TYPE}", map_type, ("atomic", "granular"))


def _list_type(schema: Object, field: str) -> Iterator[FieldError]:
    list_type, keys = schema.get(LIST_TYPE), schema.get(LIST_KEYS) or []
    if list_type is not None:
        if schema.get("type") != "array":
            yield _must_be(schema, field, "array", f"if {LIST_TYPE} is specified")
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(f"{field}.{LIST_TYPE}", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        why = f"must be map if {LIST_KEYS} is non-empty"
        if list_type is None:
            yield required(f"{field}.{LIST_TYPE}", why)
        else:
            yield invalid_value(f"{field}.{LIST_TYPE}", list_type, why)
    items = schema.get("items")
    if list_type == "set" and isinstance(items, dict):
        yield from _set_items(items, f"{field}.items")
    if list_type == "map":
        yield from _map_items(items, keys, field)


def _set_items(items: Object, field: str) -> Iterator[FieldError]:
    why = f"must be atomic as item of a list with {LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        yield invalid_value(f"{field}.{LIST_TYPE}", items[LIST_TYPE], why)
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        yield invalid_value(f"{field}.{MAP_TYPE}", items.get(MAP_TYPE), why)


def _map_items(items: JSON, keys: list[str], field: str) -> Iterator[FieldError]:
    if not keys:
        yield required(f"{field}.{LIST_KEYS}", f"must not be empty if {LIST_TYPE} is map")
    if not isinstance(items, dict):
        yield required(f"{field}.items", f"must have a schema if {LIST_TYPE} is map")
        return
    if items.get("type") != "object":
        why = f"must be object if parent array's {LIST_TYPE} is map"
        yield invalid_value(f"{field}.items.type", items.get("type") or "", why)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        part = properties.get(key)
        if part is None:
            yield invalid_value(f"{field}.{LIST_KEYS}", list(keys), "entries must all be names of item properties")
            continue
        if key in keys[:index]:
            yield invalid_value(f"{field}.{LIST_KEYS}", list(keys), "must not contain duplicate entries")
        here = f"{field}.items.properties[{key}]"
        if part.get("type") in ("array", "object"):
            why = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            yield invalid_value(f"{here}.type", items["type"], why)
        if part.get("nullable"):
            yield forbidden_field(f"{here}.nullable", f"this property is in {LIST_KEYS}, so it cannot be nullable")
        if "default" not in part and key not in (items.get("required") or ()):
            why = f"this property is in {LIST_KEYS}, so it must have a default or be a required property"
            yield required(f"{here}.default", why)


def _rule_texts(schema: Object, field: str) -> Iterator[FieldError]:
    for index, rule in enumerate(schema.get(RULES) or ()):
        here = f"{field}.{RULES}[{index}]"
        text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
        if not text:
            yield required(f"{here}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid_value(f"{here}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            yield invalid_value(f"{here}.message", message, "must not contain line breaks")
        elif "\n" in text and not message.strip():
            yield required(f"{here}.message", "message must be specified if rule contains line breaks")
        if rule.get("messageExpression") and not rule["messageExpression"].strip():
            yield required(f"{here}.messageExpression", "messageExpression must be non-empty if specified")
        if rule.get("reason") and rule["reason"] not in REASONS:
            yield not_supported(f"{here}.reason", rule["reason"], REASONS)


def _structure(schema: Object, field: str, level: str) -> list[FieldError]:
    """The rules of structural schemas."""
    errors: list[FieldError] = []
    type_, is_root = schema.get("type"), level == "root"
    if type_ == "array" and not isinstance(schema.get("items"), dict):
        errors.append(required(f"{field}.items", "must be specified"))
    if is_root and schema.get("additionalProperties"):
        errors.append(forbidden_field(f"{field}.additionalProperties", "must not be used at the root"))
    if schema.get(EMBEDDED) and type_ != "object":
        errors.append(_must_be(schema, field, "object", f"if {EMBEDDED} is true"))
    elif not type_ and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        places = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        errors.append(required(f"{field}.type", f"must not be empty {places[level]}"))
    if is_root and type_ and type_ != "object":
        errors.append(invalid_value(f"{field}.type", type_, "must be object at the root"))
    if is_root or schema.get(EMBEDDED):
        errors += _object_fields(schema, field, level)
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        why = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        errors.append(required(f"{field}.properties", why))
    for path, part, below in _parts(schema, field):
        errors += _structure(part, path, below)
    for path, part in _junctor_parts(schema, field):
        errors += _junctor(part, path, schema, field)
    return errors


def _object_fields(schema: Object, field: str, level: str) -> list[FieldError]:
    """apiVersion, kind and metadata where a whole object stands."""
    errors: list[FieldError] = []
    properties = schema.get("properties") or {}
    for name in ("kind", "apiVersion"):
        part = properties.get(name)
        if part is not None and part.get("type") != "string":
            here = f"{field}.properties[{name}].type"
            errors.append(invalid_value(here, part.get("type") or "", "must be string"))
    metadata = properties.get("metadata")
    if metadata is not None:
        here = f"{field}.properties[metadata]"
        if metadata.get("type") != "object":
            errors.append(invalid_value(f"{here}.type", metadata.get("type") or "", "must be object"))
        named = set(metadata.get("properties") or {}) - {"name", "generateName"}
        if level == "root" and named:
            why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.append(forbidden_field(here, why))
    return errors


def _junctor(schema: Object, field: str, outer: Object, outer_field: str) -> list[FieldError]:
    """Inside allOf, anyOf, oneOf and not, values may be restricted but not described."""
    is_type_choice = bool(outer.get(INT_OR_STRING))
    errors = [
        forbidden_field(f"{field}.{name}", why)
        for name, why in _EMPTY_IN_JUNCTORS
        if schema.get(name) and not (name == "type" and is_type_choice)
    ]
    known = outer.get("properties") or {}
    for name, part in sorted((schema.get("properties") or {}).items()):
        here, there = f"{field}.properties[{name}]", f"{outer_field}.properties[{name}]"
        if name not in known and not outer.get(PRESERVE):
            errors.append(required(there, f"because it is defined in {here}"))
        errors += _junctor(part, here, known.get(name) or {}, there)
    if isinstance(schema.get("items"), dict):
        errors += _junctor(schema["items"], f"{field}.items", outer.get("items") or {}, f"{outer_field}.items")
    for path, part in _junctor_parts(schema, field):
        errors += _junctor(part, path, outer, outer_field)
    return errors


def _defaults(schema: Object, field: str) -> Iterator[FieldError]:
    """Defaults must be valid and pruned."""
    if "default" in schema:
        unknown: list[list[str]] = []
        kept = pruned(schema["default"], schema, unknown)
        if unknown:
            why = "must be pruned, but has fields that the schema does not know"
            yield invalid_value(f"{field}.default", schema["default"], why)
        for error in validate_value(kept, {key: value for key, value in schema.items() if key != "default"}):
            where = f"{field}.default" + (f".{error.field}" if error.field != "<nil>" else "")
            yield FieldError(error.reason, where, error.body)
    for path, part, _ in _parts(schema, field):
        yield from _defaults(part, path)


def _rules(schema: Object, field: str, *, correlates: bool, is_root: bool = True) -> Iterator[FieldError]:
    """Rules must compile; what only a real server knows is accepted. `correlates`: old values can be found here.

    `is_root`: the schema is that of whole objects.
    """
    entries = schema.get(RULES) or ()
    type_ = type_of_schema(schema, is_root=is_root) if entries else None
    for index, rule in enumerate(entries):
        here = f"{field}.{RULES}[{index}]"
        if type_ is not None:
            yield from _compilation(rule, type_, here)
        uses_old = _OLD.search(rule.get("rule") or "") is not None
        if uses_old and not correlates:
            why = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield invalid_value(f"{here}.rule", rule["rule"], why)
        if not uses_old and rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{here}.optionalOldSelf", rule["optionalOldSelf"], why)
    for path, part, level in _parts(schema, field):
        below = correlates and (level != "item" or schema.get(LIST_TYPE) == "map")
        yield from _rules(part, path, correlates=below, is_root=bool(part.get(EMBEDDED)))


def _compilation(rule: Object, type_: Type, here: str) -> Iterator[FieldError]:
    """What is wrong with the expressions of a rule."""
    shown: Object = {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    for name, compiled, prefix in (
        ("rule", compile_rule, ""),
        ("messageExpression", compile_message, "messageExpression "),
    ):
        if name == "messageExpression" and not rule.get(name):
            continue
        try:
            compiled(rule, type_)
        except NotAnExpression as error:
            yield invalid_value(f"{here}.{name}", shown, f"{prefix}compilation failed: {error}")
        except NoProgram as error:
            start = "messageExpression" if prefix else "program"
            yield invalid_value(f"{here}.{name}", shown, f"{start} instantiation failed: {error}")
        except WrongType as error:
            yield invalid_value(f"{here}.{name}", shown, str(error))
        except NotSupported:
            pass
