"""Compare an answer of the API server with the recorded one, without what no two servers share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from outcome import Difference

from muster.api.codec import JSON, Object, dumps

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_AGE = re.compile(r"(\d+[smhdy])+|<unknown>")
_IP = re.compile(r"\d+\.\d+\.\d+\.\d+")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RANDOM = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|\b)")
_NODE_PORT = re.compile(r"(?<=\d:)3[0-2]\d{3}(?=/)")
_CURRENT = re.compile(r"(resource version: \d+, current: )\d+")

_OWN = frozenset(
    {
        "creationTimestamp",
        "deletionTimestamp",
        "lastHeartbeatTime",
        "lastProbeTime",
        "lastTransitionTime",
        "managedFields",
        "remainingItemCount",
        "resourceVersion",
        "startTime",
        "storageVersionHash",
        "time",
        "uid",
    }
)
"""Fields that are a server's own."""
_CHOSEN = frozenset({"clusterIP", "clusterIPs", "continue", "healthCheckNodePort", "nodePort"})
"""Fields that only have to be there."""
_MEANT_EMPTY = frozenset({"all", "basic", "emptyDir", "single"})
"""Fields of which an empty value is not the same as none."""
_YAML_OWN = ("resourceVersion:", "uid:", "creationTimestamp:")
_VERSION = re.compile(r'(\\?"resourceVersion\\?":\\?")\d+')
"""The version in an object that is part of a text."""
_OBJECT = re.compile(r'(?<=Invalid value: )"\{\\"apiVersion.*\}"')
"""An object that is part of a text; Go writes it in the order of its types."""
_OF_GO = (
    "Go struct field",
    "cannot unmarshal",
    "@@ -",
    '{"Name"',
    '[{"Name"',
    "strict decoding",
    "couldn't get version",
    "invalid character",
    'Volumes":null',
    '":null',
    "ERROR: <input>",
)
"""Marks of messages that show a real server's inner life: only code, reason and field paths of such count."""
WITH_MANAGERS = frozenset({"server_side_apply", "workload_objects_apply"})
"""Scenarios in which it counts who owns which fields."""


def comparable(value: JSON, key: str = "") -> JSON:
    """The value without what no two servers share."""
    if isinstance(value, dict):
        return dict(_fields(value))
    if isinstance(value, list):
        return [comparable(item, key) for item in value]
    return _text(value, key) if isinstance(value, str) else value


def _fields(value: Object) -> Iterator[tuple[str, JSON]]:
    for name, item in value.items():
        if name in _OWN:
            continue
        if name in _CHOSEN and item not in (None, "", "None", ["None"]):
            yield name, "<chosen>"
        elif item not in (None, {}, [], "") or name in _MEANT_EMPTY:
            yield name, comparable(item, name)


def _sorted_object(found: re.Match[str]) -> str:
    text = json.dumps(json.loads(json.loads(found[0])), sort_keys=True, separators=(",", ":"))
    return _TIME.sub("<time>", text)


def _text(text: str, key: str) -> str:
    if _TIME.fullmatch(text):
        return "<time>"
    if key == "cells":
        if _AGE.fullmatch(text):
            return "<age>"
        if _IP.fullmatch(text):
            return "<ip>"
        text = _NODE_PORT.sub("<chosen>", text)
    if "\n" in text and "resourceVersion:" in text:
        text = "\n".join(line for line in text.splitlines() if not line.strip().startswith(_YAML_OWN))
    text = _VERSION.sub(r"\1<n>", _OBJECT.sub(_sorted_object, text))
    return _RANDOM.sub("<random>", _UID.sub("<uid>", _CURRENT.sub(r"\1<n>", text)))


def compare(recorded: Object, code: int, warnings: list[str], got: JSON) -> Iterator[Difference]:
    """The differences of an answer from that of a recorded exchange."""
    response, scenario = recorded["response"], recorded["scenario"]
    want = response["body"]
    if code != response["code"]:
        yield Difference("code", response["code"], code)
    if warnings != response["warnings"]:
        yield Difference("warnings", response["warnings"], warnings)
    if scenario == "discovery":
        yield from _discovery(want, got)
    elif isinstance(want, dict) and want.get("kind") == "Status" and isinstance(got, dict):
        yield from _status(want, got)
    elif type(want) is type(got):
        if scenario in WITH_MANAGERS and isinstance(want, dict):
            yield from _values("managedFields", _managers(want), _managers(got))
        yield from _values("body", comparable(want), comparable(got))
    else:
        yield Difference("body", type(want).__name__, type(got).__name__)


def _values(path: str, want: JSON, got: JSON) -> Iterator[Difference]:
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *got}):
            if key in want and key in got:
                yield from _values(f"{path}.{key}", want[key], got[key])
            else:
                yield Difference(f"{path}.{key}", want.get(key), got.get(key))
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from _values(f"{path}[{index}]", one, other)
    elif want != got or type(want) is not type(got):
        yield Difference(path, want, got)


def _managers(body: Object) -> list[JSON]:
    """Who owns which fields, in no order."""
    entries = (body.get("metadata") or {}).get("managedFields") or []
    return sorted(
        [entry.get("operation"), entry.get("subresource", ""), _ordered(entry.get("fieldsV1") or {})]
        for entry in entries
    )


def _ordered(value: JSON) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_ordered(value[key])}" for key in sorted(value)) + "}"
    return dumps(value).decode()


def _status(want: Object, got: Object) -> Iterator[Difference]:
    for key in ("status", "reason", "code"):
        if want.get(key) != got.get(key):
            yield Difference(key, want.get(key), got.get(key))
    if any(mark in (want.get("message") or "") for mark in _OF_GO):
        recorded, ours = ([cause[1] for cause in _causes(status)] for status in (want, got))
        yield from _values("fields", sorted(set(recorded)), sorted(set(ours)))
        return
    yield from _values("message", comparable(want.get("message", "")), comparable(got.get("message", "")))
    yield from _values("causes", _causes(want), _causes(got))


def _causes(status: Object) -> list[list[str]]:
    causes = (status.get("details") or {}).get("causes") or []
    found: list[list[str]] = [
        [cause.get("reason") or "", cause.get("field") or "", comparable(cause.get("message", ""))] for cause in causes
    ]
    return sorted(found)


def _discovery(want: JSON, got: JSON) -> Iterator[Difference]:
    """What both serve is described alike; what only one of them serves is no difference."""
    if not isinstance(want, dict) or not isinstance(got, dict):
        return
    if want.get("kind") != got.get("kind"):
        yield Difference("kind", want.get("kind"), got.get("kind"))
    ours = {entry["name"]: entry for entry in got.get("resources", ())}
    for entry in want.get("resources", ()):
        if entry["name"] in ours:
            yield from _values(entry["name"], comparable(entry), comparable(ours[entry["name"]]))
