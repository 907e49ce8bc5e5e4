"""JSON, merge and strategic merge patches as functions; none changes its arguments.

Sources: RFC 6902, RFC 7386, apimachinery `pkg/util/strategicpatch`.
"""

from __future__ import annotations

import jsonpatch

from muster.api.codec import JSON, Object, copy_object
from muster.apiserver.bodies import Patch
from muster.apiserver.errors import StatusError, bad_request, failure
from muster.apiserver.resources import Served
from muster.client.transport import JSON_PATCH, MERGE_PATCH

# Merge keys of lists by field name, where no schema says more.
_KEYS_BY_FIELD = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "addresses": "type",
    "taints": "key",
    "podGroups": "name",
    "podGroupTemplates": "name",
    "compositePodGroupTemplates": "name",
    "resourceClaimStatuses": "name",
    "podIPs": "ip",
    "hostIPs": "ip",
    "secrets": "name",
}
_SET_FIELDS = frozenset(("finalizers", "podCIDRs"))


def patched(old: Object, patch: Patch, served: Served) -> JSON:
    """The object after the patch. Raises StatusError (400, 422) if it does not apply."""
    if patch.type == JSON_PATCH:
        return _json_patch(old, patch.value)
    if patch.type == MERGE_PATCH:
        return merge_patch(old, patch.value)
    return strategic_merge(old, patch.value)


def _json_patch(old: Object, operations: JSON) -> JSON:
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        return jsonpatch.apply_patch(copy_object(old), operations)
    except jsonpatch.JsonPatchTestFailed as error:
        raise _unprocessable(f"the server rejected our request due to an error in our request: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise _unprocessable("the server rejected our request due to an error in our request") from error


def _unprocessable(message: str) -> StatusError:
    return failure(422, "Invalid", message, {})


def merge_patch(target: JSON, patch: JSON) -> JSON:
    """RFC 7386: objects merge, null removes, all else replaces. Parts of both arguments are shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: JSON, patch: JSON) -> JSON:
    """Like a merge patch, but lists with a merge key merge item by item, and `$patch` and its relatives are obeyed."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        kept = patch["$retainKeys"]
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, key, patch.get(f"$setElementOrder/{key}"))
        elif isinstance(value, dict):
            result[key] = strategic_merge(result.get(key), value)
        else:
            result[key] = value
    for key, order in patch.items():
        field = key.removeprefix("$setElementOrder/")
        if field != key and field not in patch and result.get(field):
            result[field] = _ordered(result[field], order, _merge_key(field, result[field]))
    return result


def _merge_key(field: str, items: JSON) -> str | None:
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items if isinstance(item, dict)) else "port"
    return _KEYS_BY_FIELD.get(field)


def _merge_list(current: JSON, patch: list[JSON], field: str, order: JSON) -> list[JSON]:
    current = current if isinstance(current, list) else []
    if not all(isinstance(item, dict) for item in patch) or (not patch and field not in _SET_FIELDS):
        if field in _SET_FIELDS:
            merged = [*current, *(item for item in patch if item not in current)]
            return _ordered(merged, order, None) if order else merged
        return patch
    key = _merge_key(field, [*patch, *current])
    if key is None or any(item.get("$patch") == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        index = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if index is not None:
                del result[index]
        elif index is None:
            result.append(strategic_merge({}, item))
        else:
            result[index] = strategic_merge(result[index], item)
    return _ordered(result, order, key) if order else result


def _ordered(items: list[JSON], order: list[JSON], key: str | None) -> list[JSON]:
    """The items in the order of the patch; others keep their place relative to the item before them."""
    wanted = [item.get(key) if isinstance(item, dict) and key else item for item in order]
    rank = {str(value): index for index, value in enumerate(wanted)}
    known = [item for item in items if str(item.get(key) if key else item) in rank]
    known.sort(key=lambda item: rank[str(item.get(key) if key else item)])
    result: list[JSON] = []
    remaining = iter(known)
    for item in items:
        if str(item.get(key) if key else item) in rank:
            result.append(next(remaining))
        else:
            result.append(item)
    return result


def merge_applied(target: JSON, applied: JSON) -> JSON:
    """An applied configuration merged into an object: maps merge, lists with a key merge item by item."""
    if not isinstance(applied, dict):
        return applied
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in applied.items():
        if isinstance(value, dict):
            result[key] = merge_applied(result.get(key), value)
        elif isinstance(value, list):
            result[key] = _apply_list(result.get(key), value, key)
        else:
            result[key] = value
    return result


def _apply_list(current: JSON, applied: list[JSON], field: str) -> list[JSON]:
    current = current if isinstance(current, list) else []
    if field in _SET_FIELDS:
        return [*current, *(item for item in applied if item not in current)]
    key = _merge_key(field, [*applied, *current])
    if key is None or not all(isinstance(item, dict) for item in applied):
        return applied
    result = list(current)
    for item in applied:
        index = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if index is None:
            result.append(item)
        else:
            result[index] = merge_applied(result[index], item)
    return result
