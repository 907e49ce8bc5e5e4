"""Server-side apply in its simple form: applied fields are merged by the lists' keys, and none is ever taken away."""

from __future__ import annotations

from muster.api.codec import JSON, Object
from muster.apiserver.bodies import Patch
from muster.apiserver.schema import Schema


def apply(old: Object, patch: Patch, schema: Schema | None) -> JSON:
    """The object with the applied configuration merged into it; `old` is not changed."""
    return merge_applied(old, patch.value, schema)


def merge_applied(target: JSON, applied: JSON, schema: Schema | None) -> JSON:
    """An applied value merged into another: maps merge, lists of type `map` merge item by item, sets unite."""
    if not isinstance(applied, dict) or (schema is not None and schema.is_atomic):
        return applied
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in applied.items():
        child = schema.child(key) if schema is not None else None
        if isinstance(value, dict):
            result[key] = merge_applied(result.get(key), value, child)
        elif isinstance(value, list) and child is not None and child.list_type in ("map", "set"):
            result[key] = _merge_list(result.get(key) or [], value, child)
        else:
            result[key] = value
    return result


def _merge_list(current: list[JSON], applied: list[JSON], schema: Schema) -> list[JSON]:
    if schema.list_type == "set":
        return [*current, *(item for item in applied if item not in current)]
    keys = schema.list_map_keys
    result = list(current)
    places = {_identity(item, keys): index for index, item in enumerate(result)}
    for item in applied:
        index = places.get(_identity(item, keys))
        if index is None:
            result.append(item)
        else:
            result[index] = merge_applied(result[index], item, schema.items)
    return result


# Keys of list items that are left out mean these values.
_KEY_DEFAULTS = {"protocol": "TCP"}


def _identity(item: JSON, keys: tuple[str, ...]) -> tuple[JSON, ...]:
    return tuple(item.get(key, _KEY_DEFAULTS.get(key)) for key in keys)
