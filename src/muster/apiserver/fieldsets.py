"""Sets of fields in the form of `managedFields` (FieldsV1), and what two states of an object differ in, as such sets.

A set is a tree of dicts: keys are path elements (`f:name`, `k:{"name":"c"}` for an item of a keyed list, `v:"x"` for
an item of a set), `.` means that the path itself belongs to the set, and so does an empty dict. The root of an empty
set is an empty dict too. Sets are values: nobody changes one, and parts are shared.
Source: structured-merge-diff `fieldpath` and `typed` (compare.go, tofieldset.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.apiserver.schema import Schema

FieldSet: TypeAlias = Object

EMPTY: FieldSet = {}
SELF = "."
_LEAF: FieldSet = {}
_KEY_DEFAULTS = {"protocol": "TCP"}
"""Keys of list items that are left out mean these values."""

ALWAYS_THERE = frozenset(
    {
        "containers",
        "devices",
        "involvedObject",
        "jobTemplate",
        "metadata",
        "names",
        "podGroupTemplateRef",
        "podGroupTemplates",
        "pool",
        "schedulingPolicy",
        "source",
        "spec",
        "status",
        "strategy",
        "template",
        "updateStrategy",
    }
)
"""Fields that an empty object of a built-in kind has already: who creates an object does not own them as such."""

ALWAYS_THERE_IN = frozenset({("PersistentVolumeClaimSpec", "resources")})
"""The like for fields whose name is no such field in other types."""


def _is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def _children(node: FieldSet) -> Iterator[tuple[str, FieldSet]]:
    for element, child in node.items():
        if element != SELF:
            yield element, child


def _node(is_member: bool, children: FieldSet) -> FieldSet | None:
    """A node; None if it would hold nothing."""
    if not children:
        return _LEAF if is_member else None
    return {SELF: _LEAF, **children} if is_member else children


def is_field_set(value: JSON) -> bool:
    """Whether a JSON value has the form of a set."""
    return isinstance(value, dict) and all(is_field_set(child) for child in value.values())


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in either set."""
    if not one or not other:
        return one or other
    children: FieldSet = dict(_children(one))
    for element, child in _children(other):
        mine = children.get(element)
        if mine is None:
            children[element] = child
        elif mine != child:
            below = union(_below(mine), _below(child))
            children[element] = _node(_is_member(mine) or _is_member(child), below) or _LEAF
    return children


def _below(node: FieldSet) -> FieldSet:
    """The node without what it says about its own path."""
    return dict(_children(node)) if SELF in node else node


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths of `one` that are not in `other`."""
    if not one or not other:
        return one
    children: FieldSet = {}
    for element, child in _children(one):
        taken = other.get(element)
        if taken is None:
            children[element] = child
            continue
        if not child and not taken:
            continue
        node = _node(_is_member(child) and not _is_member(taken), difference(_below(child), _below(taken)))
        if node is not None:
            children[element] = node
    return children


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """The paths that are in both sets."""
    children: FieldSet = {}
    for element, child in _children(one):
        theirs = other.get(element)
        if theirs is None:
            continue
        node = _node(_is_member(child) and _is_member(theirs), intersection(_below(child), _below(theirs)))
        if node is not None:
            children[element] = node
    return children


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """The paths as messages write them, in order: `.spec.containers[name="c"].image`."""
    for element in sorted(element for element, _ in _children(fields)):
        child, path = fields[element], prefix + _element_text(element)
        if _is_member(child):
            yield path
        yield from paths(_below(child), path)


def _element_text(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = json.loads(rest)
        return "[" + ",".join(f"{key}={json.dumps(keys[key])}" for key in sorted(keys)) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def item_element(item: JSON, schema: Schema) -> str:
    """The path element of an item of a keyed list or a set."""
    if schema.list_type == "set":
        return "v:" + json.dumps(item)
    names = schema.list_map_keys
    if len(names) == 1 and isinstance(item, dict) and type(value := item.get(names[0])) is str:
        return _element_of_one(names[0], value)
    keys = {}
    for key in sorted(names):
        value = item.get(key, _KEY_DEFAULTS.get(key)) if isinstance(item, dict) else None
        if value is not None:
            keys[key] = value
    return "k:" + json.dumps(keys, separators=(",", ":"))


@lru_cache(maxsize=4096)
def _element_of_one(key: str, value: str) -> str:
    """The path element of an item that one text tells apart, as nearly all are."""
    return "k:" + json.dumps({key: value}, separators=(",", ":"))


def is_keyed(schema: Schema | None) -> bool:
    """Whether items of this list have owners of their own."""
    return schema is not None and schema.list_type in ("map", "set")


def is_open_map(value: JSON, schema: Schema | None) -> bool:
    """Whether the value is an object whose fields have owners of their own."""
    return isinstance(value, dict) and (schema is None or not (schema.is_atomic or schema.is_open))


def child_of(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a field."""
    return schema.child(name) if schema is not None else None


def fields_of(value: JSON, schema: Schema | None) -> FieldSet:
    """The paths that an applied configuration names."""
    found: FieldSet = {}
    if is_open_map(value, schema):
        for name, item in value.items():
            child = child_of(schema, name)
            below = fields_of(item, child)
            is_leaf = not _descends(item, child) or item == {}
            in_map = schema is not None and name not in schema.fields
            node = _node(is_leaf or in_map, below)
            if node is not None:
                found[f"f:{name}"] = node
    elif isinstance(value, list) and is_keyed(schema):
        assert schema is not None
        for item in value:
            found[item_element(item, schema)] = _node(True, fields_of(item, schema.items)) or _LEAF
    return found


def _descends(value: JSON, schema: Schema | None) -> bool:
    return is_open_map(value, schema) or (isinstance(value, list) and is_keyed(schema))


class Changes(Struct, frozen=True):
    """What a write did: paths that are gone, and paths that are new or have another value."""

    removed: FieldSet
    changed: FieldSet


def changes(old: Object, new: Object, schema: Schema | None) -> Changes:
    """What `new` differs in from `old`."""
    removed: FieldSet = {}
    changed: FieldSet = {}
    _compare_maps(old, new, schema, removed, changed)
    return Changes(removed, changed)


def _compare_maps(old: Object, new: Object, schema: Schema | None, removed: FieldSet, changed: FieldSet) -> None:
    is_built_in = schema is not None and bool(schema.name)
    elements = schema.elements if schema is not None else EMPTY
    for name, after in new.items():
        before = old.get(name)
        if before is after:
            continue
        if is_built_in and before is None and after is not None and _is_always_there(schema, name):
            before = [] if isinstance(after, list) else {}
        if before != after:
            element = elements.get(name) or f"f:{name}"
            if type(before) in _PLAIN and type(after) in _PLAIN:
                (removed if after is None else changed)[element] = _LEAF
            else:
                _compare(element, before, after, child_of(schema, name), removed, changed)
    for name, before in old.items():
        if name not in new and before is not None:
            _compare(f"f:{name}", before, None, child_of(schema, name), removed, changed)


_PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that have no parts."""


def _is_always_there(schema: Schema | None, name: str) -> bool:
    return name in ALWAYS_THERE or (schema is not None and (schema.name.rpartition(".")[2], name) in ALWAYS_THERE_IN)


def _compare(element: str, old: JSON, new: JSON, schema: Schema | None, removed: FieldSet, changed: FieldSet) -> None:
    """Compare two different values at a path element; None means that there is none."""
    if old is None:
        changed[element] = _whole(new, schema)
        return
    if new is None:
        removed[element] = _whole(old, schema)
        return
    gone: FieldSet = {}
    came: FieldSet = {}
    if is_open_map(new, schema) and isinstance(old, dict):
        _compare_maps(old, new, schema, gone, came)
    elif isinstance(new, list) and is_keyed(schema) and isinstance(old, list):
        assert schema is not None
        _compare_items(old, new, schema, gone, came)
    else:
        changed[element] = _LEAF
        return
    if gone:
        removed[element] = gone
    if came:
        changed[element] = came


def _whole(value: JSON, schema: Schema | None) -> FieldSet:
    """A value that came or went as a whole: its own path and all below."""
    if not value:
        return _LEAF
    node: FieldSet = {SELF: _LEAF}
    if is_open_map(value, schema):
        if _PARTS.isdisjoint(map(type, value.values())):
            return _whole_of_plain(tuple(value))
        elements = schema.elements if schema is not None else EMPTY
        for name, item in value.items():
            if item is not None:
                is_plain = type(item) in _PLAIN
                node[elements.get(name) or f"f:{name}"] = _LEAF if is_plain else _whole(item, child_of(schema, name))
    elif isinstance(value, list) and is_keyed(schema):
        assert schema is not None
        for item in value:
            if item is not None:
                node[item_element(item, schema)] = _whole(item, schema.items)
    return node if len(node) > 1 else _LEAF


_PARTS = frozenset({dict, list, type(None)})
"""Types of values that have parts, or count as absent."""


@lru_cache(maxsize=4096)
def _whole_of_plain(names: tuple[str, ...]) -> FieldSet:
    """An object with these fields, none of which has parts: many look alike, and all of these are one set."""
    return {SELF: _LEAF, **{f"f:{name}": _LEAF for name in names}}


def _compare_items(old: list[JSON], new: list[JSON], schema: Schema, removed: FieldSet, changed: FieldSet) -> None:
    before = {item_element(item, schema): item for item in old}
    after = {item_element(item, schema): item for item in new}
    for element, item in after.items():
        if before.get(element) != item:
            _compare(element, before.get(element), item, schema.items, removed, changed)
    for element, item in before.items():
        if element not in after:
            _compare(element, item, None, schema.items, removed, changed)
