"""What a structural schema does to a value before it is checked: pruning of unknown fields, and defaulting.

Schemas are OpenAPI v3 schemas as a CustomResourceDefinition has them. Source: apiextensions-apiserver
`pkg/apiserver/schema/{pruning,defaulting}`.
"""

from __future__ import annotations

from muster.api.codec import JSON, Object, copy

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
RULES = "x-kubernetes-validations"

_OF_OBJECTS = ("apiVersion", "kind", "metadata")


def child_schema(schema: Object, field: str) -> Object | None:
    """The schema of a field or of a map's value; None if nothing is known about it."""
    found = (schema.get("properties") or {}).get(field)
    if found is None:
        found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else None


def item_schema(schema: Object) -> Object | None:
    """The schema of a list's items."""
    found = schema.get("items")
    return found if isinstance(found, dict) else None


def pruned(value: JSON, schema: Object | None, unknown: list[list[str]], *, is_root: bool = False) -> JSON:
    """A fresh copy of the value without the fields that the schema does not know; their paths go to `unknown`.

    Paths are written from the inside out, items of lists as `[0]`. `is_root`: apiVersion, kind and metadata stay.
    """
    if schema is None:
        return copy(value)
    if isinstance(value, dict):
        return _pruned_map(value, schema, unknown, keeps_type=is_root or bool(schema.get(EMBEDDED)))
    if isinstance(value, list):
        items = item_schema(schema)
        return [_within(f"[{index}]", item, items, unknown) for index, item in enumerate(value)]
    return value


def _pruned_map(value: Object, schema: Object, unknown: list[list[str]], *, keeps_type: bool) -> Object:
    properties = schema.get("properties") or {}
    values = schema.get("additionalProperties")
    keeps = bool(schema.get(PRESERVE)) or bool(values)
    result: Object = {}
    for key, item in value.items():
        if keeps_type and key in _OF_OBJECTS:
            result[key] = copy(item)
        elif key in properties:
            result[key] = _within(key, item, properties[key], unknown)
        elif keeps:
            result[key] = _within(key, item, values if isinstance(values, dict) else None, unknown)
        else:
            unknown.append([key])
    return result


def _within(step: str, value: JSON, schema: Object | None, unknown: list[list[str]]) -> JSON:
    before = len(unknown)
    result = pruned(value, schema, unknown)
    for path in unknown[before:]:
        path.append(step)
    return result


def set_defaults(value: JSON, schema: Object) -> None:
    """Fill in defaults, in place; a null where none may stand is as good as nothing."""
    if isinstance(value, dict):
        for key, field in (schema.get("properties") or {}).items():
            if key in value and value[key] is None and not field.get("nullable"):
                del value[key]
            if key not in value and "default" in field:
                value[key] = copy(field["default"])
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and not values.get("nullable"):
            _settle_nulls(value, schema, values)
        for key, item in value.items():
            found = child_schema(schema, key)
            if found is not None and isinstance(item, dict | list):
                set_defaults(item, found)
    elif isinstance(value, list):
        items = item_schema(schema)
        if items is None:
            return
        for index, item in enumerate(value):
            if item is None and "default" in items and not items.get("nullable"):
                value[index] = copy(items["default"])
            if isinstance(value[index], dict | list):
                set_defaults(value[index], items)


def _settle_nulls(value: Object, schema: Object, values: Object) -> None:
    """Nulls among a map's values, which may not be null."""
    named = schema.get("properties") or {}
    for key in [key for key, item in value.items() if item is None and key not in named]:
        if "default" in values:
            value[key] = copy(values["default"])
        else:
            del value[key]
