"""JSON objects as plain dicts, and how they become bytes. The one place where `Any` is allowed."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict, cast

import msgspec
import orjson

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON: unknown fields survive because nothing is dropped."""

Objects: TypeAlias = list[Object]

JSON: TypeAlias = Any
"""Any JSON value."""


def loads(data: bytes | str) -> JSON:
    """The value of a JSON text. Raises ValueError (of which `orjson.JSONDecodeError` is one)."""
    return orjson.loads(data)


def loads_lean(data: bytes | str) -> JSON:
    """As `loads`, for a pod, a list of pods, or an event of a watch of pods: all but `managedFields`, which is often
    half of a pod and which nobody who schedules looks at. Raises ValueError."""
    return _LEAN.decode(data)


_LEAN_METADATA_FIELDS = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("labels", "annotations", "ownerReferences", "finalizers", "continue", "remainingItemCount"),
)
"""All fields of ObjectMeta and ListMeta but managedFields."""

_LeanMetadata = TypedDict("_LeanMetadata", dict.fromkeys(_LEAN_METADATA_FIELDS, Any), total=False)  # type: ignore[misc]  # one is a keyword


class _LeanObject(TypedDict, total=False):
    """All fields of a Pod, and those that a Status has besides."""

    apiVersion: Any
    kind: Any
    metadata: _LeanMetadata
    spec: Any
    status: Any
    message: Any
    reason: Any
    details: Any
    code: Any


class _Lean(_LeanObject, total=False):
    """One of them, a list of them, or a watch event with one of them."""

    items: list[_LeanObject] | None
    type: Any
    object: _LeanObject


_LEAN = msgspec.json.Decoder(_Lean)


def dumps(value: JSON) -> bytes:
    """The value as compact JSON, keys in the order they have."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def canonical(value: JSON) -> bytes:
    """The value as compact JSON with sorted keys: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def copy(value: JSON) -> JSON:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def copy_object(obj: Object) -> Object:
    """A deep copy of an object."""
    return cast(Object, copy(obj))  # copy() keeps the type of its argument
