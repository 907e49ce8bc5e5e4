"""JSON objects as plain dicts, and how they become bytes. The one place where `Any` is allowed."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import orjson

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON: unknown fields survive because nothing is dropped."""

Objects: TypeAlias = list[Object]

JSON: TypeAlias = Any
"""Any JSON value."""


def loads(data: bytes | str) -> JSON:
    """The value of a JSON text. Raises ValueError (of which `orjson.JSONDecodeError` is one)."""
    return orjson.loads(data)


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
