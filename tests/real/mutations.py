"""Neighbours of an object: each differs in one field, which its kind's schema names.

The values are chosen by type, so that they meet the rules that fields usually have: bounds, formats, enumerations,
duplicates, what is required in an object that is there at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from muster.api.codec import JSON, Object, copy_object
from muster.apiserver.schema import Schema

Path = tuple[str | int, ...]

STRINGS = ("", "x", "Not_A-Name!", "a" * 64, "a.b/c")
INTEGERS = (-1, 0, 1, 70000, 2**31 - 1)
QUANTITIES = ("0", "1", "-1", "1500m", "1.0005", "1e3")
INT_OR_STRINGS = (-1, 0, 1, "50%", "150%", "x", 70000)
TIMES = ("2030-01-01T00:00:00Z", "2030-01-01")
MAPS = ({"a": "b"}, {"Bad Key!": "x"}, {"a": "bad value!"})
DEEPEST = 9
"""How many fields a path may have."""
ELSEWHERE = "io.k8s.api.core.v1.PodTemplateSpec"
"""The schema that is tried with one kind only; in all others it is left alone."""
LEFT_OUT = frozenset({"apiVersion", "kind", "managedFields", "status"})


def changes(base: Object, schema: Schema, *, left_out: frozenset[str] = LEFT_OUT) -> Iterator[tuple[Path, JSON]]:
    """Paths and the values that each is tried with; None means that the field is taken away."""
    for name, child in schema.fields.items():
        if name not in left_out:
            yield from _changes((name,), base.get(name), child, ())


def patch_of(base: Object, path: Path, value: JSON) -> Object:
    """A merge patch that makes a change; lists are sent as a whole, as the base has them."""
    keys = path[: next((place for place, step in enumerate(path) if isinstance(step, int)), len(path))]
    if len(keys) < len(path):
        value = changed(base, path, value)
        for key in keys:
            value = value[key]
    for key in reversed(keys):
        value = {key: value}
    result: Object = value
    return result


def _changes(path: Path, present: JSON, schema: Schema, above: tuple[str, ...]) -> Iterator[tuple[Path, JSON]]:
    if len(path) > DEEPEST or (schema.name and above.count(schema.name) > 0):
        return
    if schema.name == ELSEWHERE and len(path) > 1:
        return
    if present is not None:
        yield path, None
    for value in values(schema):
        if value != present:
            yield path, value
    above = (*above, schema.name) if schema.name else above
    if schema.fields:
        for name, child in schema.fields.items():
            inner = present.get(name) if isinstance(present, dict) else None
            yield from _changes((*path, name), inner, child, above)
    elif schema.values is not None and isinstance(present, dict):
        for name in present:
            yield from _changes((*path, name), present[name], schema.values, above)
    elif schema.items is not None:
        yield from _changes_of_items(path, present, schema.items, above)


def _changes_of_items(path: Path, present: JSON, items: Schema, above: tuple[str, ...]) -> Iterator[tuple[Path, JSON]]:
    if present:
        yield path, [*present, present[0]]
        yield from _changes((*path, 0), present[0], items, above)
    elif items.fields:
        yield path, [{}]
        yield from _changes((*path, 0), None, items, above)


def values(schema: Schema) -> tuple[JSON, ...]:
    """Values that a field of this schema may be tried with."""
    match schema.format or schema.type:
        case "quantity":
            return QUANTITIES
        case "int-or-string":
            return INT_OR_STRINGS
        case "date-time":
            return TIMES
        case "int32" | "int64" | "integer":
            return INTEGERS
        case "boolean":
            return (True, False)
        case "number" | "double":
            return (0, 1.5)
        case "byte":
            return ("YQ==", "not base64")
        case "string":
            return STRINGS
        case "array" if schema.items is not None and schema.items.type == "string":
            return ([], ["x"], ["x", "x"], [""], ["Not_A-Name!"])
        case "array":
            return ([],)
    if schema.values is not None:
        return MAPS if schema.values.type == "string" and not schema.values.format else ({}, {"a": {}}, {"cpu": "x"})
    return ({},)


def changed(base: Object, path: Path, value: JSON) -> Object:
    """The object with another value at a path; None takes it away. What lies on the way is made."""
    result = copy_object(base)
    here: JSON = result
    for step, following in pairwise(path):
        fresh: JSON = [{}] if isinstance(following, int) else {}
        if isinstance(step, str):
            if here.get(step) in (None, [], {}):
                here[step] = fresh
            here = here[step]
        else:
            here = here[step]
    last = path[-1]
    if value is None and isinstance(last, str):
        here.pop(last, None)
    elif value is None:
        del here[last]
    else:
        here[last] = value
    return result
