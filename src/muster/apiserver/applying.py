"""Server-side apply as functions: check a configuration against the schema, merge it, take away what it gave up.

None changes its arguments. Who owns what is decided in `muster.apiserver.managed`.
Source: structured-merge-diff `typed/{validate,merge,remove}.go` and `merge/update.go` (prune).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from muster.api.codec import JSON
from muster.apiserver.fieldsets import SELF, FieldSet, child_of, is_keyed, is_open_map, item_element, paths
from muster.apiserver.schema import Schema


def problems(value: JSON, schema: Schema | None, path: str = "") -> Iterator[str]:
    """What keeps a configuration from being applied, as `.path: text`."""
    if schema is None or schema.is_open or value is None:
        return
    kind = "numeric" if schema.type in ("integer", "number") else schema.type
    if schema.format in ("quantity", "int-or-string") or not kind:
        return
    if schema.type == "object":
        yield from _map_problems(value, schema, path)
    elif schema.type == "array":
        yield from _list_problems(value, schema, path)
    elif kind == "string" and not isinstance(value, str):
        yield f"{path}: expected string, got {_go_value(value)}"
    elif kind == "numeric" and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield f"{path}: expected numeric (int or float), got {_go_type(value)}"
    elif kind == "boolean" and not isinstance(value, bool):
        yield f"{path}: expected boolean, got {_go_value(value)}"


def _go_value(value: JSON) -> str:
    """A value as Go's messages print it: texts by pointer, the rest with its type."""
    if isinstance(value, str):
        return f"&{{{value}}}"
    return f"&value.valueUnstructured{{Value:{json.dumps(value)}}}"


def _go_type(value: JSON) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "[]interface {}" if isinstance(value, list) else "map[string]interface {}"


def _map_problems(value: JSON, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got {_go_value(value)}"
        return
    for name, item in value.items():
        child = schema.child(name)
        if child is None and not (path == "" and name in ("apiVersion", "kind")):
            yield f"{path}.{name}: field not declared in schema"
        elif child is not None:
            yield from problems(item, child, f"{path}.{name}")


def _list_problems(value: JSON, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_go_value(value)}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        where = f"[{index}]"
        if is_keyed(schema):
            element = item_element(item, schema)
            missing = [key for key in schema.list_map_keys if f'"{key}":' not in element]
            if missing:
                yield (
                    f"{path}: element {index}: associative list with keys has an element that omits key field "
                    f'"{missing[0]}" (and doesn\'t have default value)'
                )
                continue
            where = next(paths({element: {}}))
            if element in seen:
                yield f"{path}: duplicate entries for key {where}"
                continue
            seen.add(element)
        yield from problems(item, schema.items, path + where)


def merged(target: JSON, applied: JSON, schema: Schema | None) -> JSON:
    """An applied value merged into another: maps merge, keyed lists item by item, sets unite, the rest is replaced."""
    if is_open_map(applied, schema):
        result = dict(target) if isinstance(target, dict) else {}
        for name, value in applied.items():
            child = child_of(schema, name)
            result[name] = merged(result.get(name), value, child)
        return result
    if isinstance(applied, list) and is_keyed(schema) and isinstance(target, list):
        assert schema is not None
        return _merged_list(target, applied, schema)
    return applied


def _merged_list(current: list[JSON], applied: list[JSON], schema: Schema) -> list[JSON]:
    """Both lists as one: items that both have stand in the applied order, others keep their place before them."""
    mine = [(item_element(item, schema), item) for item in current]
    theirs = [(item_element(item, schema), item) for item in applied]
    old, named = dict(mine), {element for element, _ in theirs}
    result: list[JSON] = []
    taken: set[str] = set()
    left = iter(mine)
    head = next(left, None)
    for element, item in theirs:
        while head is not None and head[0] != element and (head[0] not in named or head[0] in taken):
            if head[0] not in taken:
                result.append(head[1])
            head = next(left, None)
        result.append(merged(old[element], item, schema.items) if element in old else item)
        taken.add(element)
        if head is not None and head[0] == element:
            head = next(left, None)
    while head is not None:
        if head[0] not in taken:
            result.append(head[1])
        head = next(left, None)
    return result


def pruned(value: JSON, given_up: FieldSet, kept: Sequence[FieldSet], schema: Schema | None) -> JSON:
    """The value without the paths of `given_up` that no set of `kept` names."""
    if isinstance(value, dict) and is_open_map(value, schema):
        result = dict(value)
        for element, below in given_up.items():
            name = element.removeprefix("f:")
            if element == SELF or name not in result:
                continue
            claims = [fields[element] for fields in kept if element in fields]
            if not claims:
                del result[name]
            else:
                result[name] = pruned(result[name], below, claims, child_of(schema, name))
        return result
    if isinstance(value, list) and is_keyed(schema):
        assert schema is not None
        return list(_pruned_items(value, given_up, kept, schema))
    return value


def _pruned_items(value: list[JSON], given_up: FieldSet, kept: Sequence[FieldSet], schema: Schema) -> Iterator[JSON]:
    for item in value:
        element = item_element(item, schema)
        below = given_up.get(element)
        if below is None:
            yield item
            continue
        claims = [fields[element] for fields in kept if element in fields]
        is_claimed = any(not claim or SELF in claim for claim in claims)
        if is_claimed or (below and SELF not in below):
            yield pruned(item, below, claims, schema.items)
