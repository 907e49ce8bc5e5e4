"""JSON, merge and strategic merge patches as functions; none changes its arguments.

Sources: RFC 6902, RFC 7386, apimachinery `pkg/util/strategicpatch`.
"""

from __future__ import annotations

import jsonpatch

from muster.api.codec import JSON, Object, copy_object
from muster.apiserver.bodies import Patch
from muster.apiserver.errors import Qualified, StatusError, bad_request, failure, invalid
from muster.apiserver.fields import invalid_value
from muster.apiserver.schema import Schema
from muster.client.transport import JSON_PATCH, MERGE_PATCH

_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"


def patched(old: Object, patch: Patch, schema: Schema | None) -> JSON:
    """The object after the patch; parts of both may be shared. Raises StatusError (400, 422) if it does not apply."""
    if patch.type == JSON_PATCH:
        return _json_patch(old, patch.value)
    if patch.type == MERGE_PATCH:
        return merge_patch(old, patch.value)
    problem = _restore_problem(patch.value, schema)
    if problem:
        raise invalid(Qualified("", ""), "", [invalid_value("patch", go_text(patch.value), problem)])
    return strategic_merge(old, patch.value, schema)


def _restore_problem(value: JSON, schema: Schema | None) -> str:
    """What keeps a strategic patch from being an object of the kind again; "" if nothing does."""
    if schema is None or value is None or not schema.type:
        return ""
    if isinstance(value, dict):
        plain = schema.plain_fields
        for key, item in value.items():
            if (key in plain and type(item) not in _NESTED) or key.startswith("$"):
                continue
            problem = _restore_problem(item, schema.child(key))
            if problem:
                return problem
        return ""
    if isinstance(value, list):
        for item in value:
            problem = _restore_problem(item, schema.items)
            if problem:
                return problem
        return ""
    return "" if schema.takes_plain else f"cannot restore {_GO_KINDS[schema.type]} {_GO_TYPES[type(value)]}"


_NESTED = (dict, list)
_GO_KINDS = {"array": "slice from", "object": "struct from:"}
_GO_TYPES: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64"}


def go_text(value: JSON) -> str:
    """A JSON value as Go prints it (`%v`)."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_text(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _json_patch(old: Object, operations: JSON) -> JSON:
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        return jsonpatch.apply_patch(copy_object(old), operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise _unprocessable() from error


def _unprocessable() -> StatusError:
    return failure(422, "Invalid", "the server rejected our request due to an error in our request", {})


def merge_patch(target: JSON, patch: JSON) -> JSON:
    """RFC 7386: objects merge, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def as_merged(value: JSON, patch: Patch) -> JSON:
    """A patched object in the order in which messages print it: what a merge patch touched is sorted by name."""
    return _merged_order(value, patch.value) if patch.type == MERGE_PATCH else value


def _merged_order(value: JSON, patch: JSON) -> JSON:
    if not isinstance(value, dict):
        return [_merged_order(item, item) for item in value] if isinstance(value, list) else value
    touched = patch if isinstance(patch, dict) else {}
    result = {key: _merged_order(value[key], touched[key]) if key in touched else value[key] for key in sorted(value)}
    metadata = result.get("metadata")
    if isinstance(metadata, dict) and "metadata" not in touched:
        names = [*(name for name in _METADATA if name in metadata), *sorted(metadata.keys() - set(_METADATA))]
        result["metadata"] = {name: metadata[name] for name in names}
    return result


_METADATA = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
"""The fields of ObjectMeta in the order of Go's type."""


def strategic_merge(target: JSON, patch: JSON, schema: Schema | None) -> JSON:
    """Like a merge patch, but lists merge item by item where the schema says so; `$patch` and its like are obeyed."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive is not None and directive not in ("replace", "delete", "merge"):
        raise failure(500, "", f"unknown patch type: {go_text(directive)} in map: {go_text(patch)}", {})
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        kept = patch["$retainKeys"]
        result = {key: value for key, value in result.items() if key in kept}
    orders = []
    for key, value in patch.items():
        if not key.startswith("$"):
            if value is None:
                result.pop(key, None)
            elif type(value) in _NESTED:
                result[key] = _merged_field(result.get(key), key, value, patch, schema)
            else:
                result[key] = value
        elif key.startswith(_REMOVE):
            field = key.removeprefix(_REMOVE)
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith(_ORDER):
            orders.append(key)
    for key in orders:
        field = key.removeprefix(_ORDER)
        if field not in patch and result.get(field):
            result[field] = _ordered(result[field], result[field], patch[key], _merge_key(schema, field))
    return result


def _merged_field(current: JSON, key: str, value: JSON, patch: Object, schema: Schema | None) -> JSON:
    child = schema.child(key) if schema is not None else None
    if isinstance(value, dict):
        return strategic_merge(current, value, child)
    return _merge_list(current or [], value, child, patch.get(f"{_ORDER}{key}"))


def _merge_key(schema: Schema | None, field: str) -> str:
    child = schema.child(field) if schema is not None else None
    return child.merge_key if child is not None else ""


def _merge_list(current: list[JSON], patch: list[JSON], schema: Schema | None, order: JSON) -> list[JSON]:
    """A list after the patch: replaced, or merged by its key, or (of plain values) united."""
    if schema is None or "merge" not in schema.patch_strategies:
        return [_without_directives(item) for item in patch]
    key = schema.merge_key
    if not key:
        merged = [*current, *(item for item in patch if item not in current)]
        return _ordered(merged, current, order or patch, "")
    if any(isinstance(item, dict) and item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(current)
    names = [old.get(key) for old in result]
    for item in patch:
        if not isinstance(item, dict) or (key not in item and "$patch" not in item):
            raise failure(500, "", f"map: {go_text(item)} does not contain declared merge key: {key}", {})
        name = item.get(key)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != name]
            names = [old.get(key) for old in result]
        elif name in names:
            index = names.index(name)
            result[index] = strategic_merge(result[index], item, schema.items)
        else:
            result.append(strategic_merge({}, item, schema.items))
            names.append(name)
    return _ordered(result, current, order or patch, key)


def _without_directives(item: JSON) -> JSON:
    if not isinstance(item, dict):
        return item
    return {key: value for key, value in item.items() if not key.startswith("$") and value is not None}


def _ordered(items: list[JSON], current: list[JSON], order: list[JSON], key: str) -> list[JSON]:
    """The items in an order that keeps that of `order`, and that of the others in `current`.

    Where both leave a choice, named items come first, unless `current` has the other one before them.
    Source: strategicpatch `normalizeElementOrder` and `mergeSortedSlice`.
    """
    names, ordered = [_identity(item, key) for item in items], [_identity(item, key) for item in order]
    if names == ordered and len(set(names)) == len(names):
        return items
    ranks: dict[str, int] = {}
    for rank, name in enumerate(ordered):
        ranks.setdefault(name, rank)
    found = [ranks.get(name, -1) for name in names]
    by_rank = sorted((at for at, rank in enumerate(found) if rank >= 0), key=found.__getitem__)
    if len(by_rank) == len(items):
        return [items[at] for at in by_rank]
    places = {_identity(item, key): place for place, item in enumerate(current)}
    others = [item for item, rank in zip(items, found, strict=True) if rank < 0]
    result: list[JSON] = []
    for item in (items[at] for at in by_rank):
        place = places.get(_identity(item, key), -1)
        while others and places.get(_identity(others[0], key), place) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _identity(item: JSON, key: str) -> str:
    return str(item.get(key)) if isinstance(item, dict) and key else str(item)
