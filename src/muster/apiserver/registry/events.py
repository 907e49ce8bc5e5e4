"""Events in their two groups: stored as core events, shown in `events.k8s.io` with other names of the fields.

Sources: upstream `pkg/apis/events/v1/conversion.go`, `pkg/apis/core/validation/events.go`, recordings.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import JSON, Object
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, invalid_value, qualified_name_problems, required
from muster.apiserver.registry.strategy import Strategy

_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Names in the core group, and in `events.k8s.io`."""
_ORIGINAL = {name: original for original, name in _RENAMED.items()}
LONGEST_WORD = 128
LONGEST_NOTE = 1024


def to_core(obj: Object, old: Object | None) -> Object:
    """An event of `events.k8s.io` in stored form."""
    core = {_ORIGINAL.get(name, name): value for name, value in obj.items()}
    return {**core, "apiVersion": "v1", "kind": "Event"}


def from_core(stored: Object) -> Object:
    """A stored event in `events.k8s.io/v1`."""
    event = {_RENAMED.get(name, name): value for name, value in stored.items()}
    return {**event, "apiVersion": "events.k8s.io/v1", "kind": "Event"}


class EventStrategy(Strategy):
    """Events of the core group."""

    creates_on_update = True
    selectable_names = frozenset(
        (*(f"involvedObject.{field}" for field in _FIELDS), "reason", "reportingComponent", "source", "type")
    )

    def selectable(self, obj: Object) -> Mapping[str, str]:
        about, source = obj.get("involvedObject") or {}, obj.get("source") or {}
        component = obj.get("reportingComponent") or source.get("component") or ""
        return {
            **{f"involvedObject.{field}": about.get(field) or "" for field in _FIELDS},
            "reason": obj.get("reason") or "",
            "reportingComponent": obj.get("reportingComponent") or "",
            "source": source.get("component") or component,
            "type": obj.get("type") or "",
        }

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        about: Object = obj.get("involvedObject") or {}
        return _validate_namespace("involvedObject.namespace", about, obj["metadata"])


class NewEventStrategy(Strategy):
    """Events of `events.k8s.io`, of which more is asked."""

    creates_on_update = True
    selectable_names = frozenset(
        (*(f"regarding.{field}" for field in _FIELDS), "reason", "reportingController", "type")
    )

    def selectable(self, obj: Object) -> Mapping[str, str]:
        about: Object = obj.get("regarding") or {}
        return {
            **{f"regarding.{field}": about.get(field) or "" for field in _FIELDS},
            **{name: obj.get(name) or "" for name in ("reason", "reportingController", "type")},
        }

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        if not obj.get("eventTime"):
            errors.append(required("eventTime"))
        controller = obj.get("reportingController") or ""
        if not controller:
            errors.append(required("reportingController"))
        problems = qualified_name_problems(controller)
        errors += [invalid_value("reportingController", controller, problem) for problem in problems]
        for name in ("reportingInstance", "action", "reason"):
            errors += _validate_word(name, obj.get(name) or "")
        note = obj.get("note") or ""
        if len(note.encode()) > LONGEST_NOTE:
            errors.append(invalid_value("message", "", f"can have at most {LONGEST_NOTE} bytes"))
        if obj.get("type") not in ("Normal", "Warning"):
            errors.append(invalid_value("type", "", f"has invalid value: {obj.get('type') or ''}"))
        return errors + _validate_namespace("involvedObject.namespace", obj.get("regarding") or {}, obj["metadata"])

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        fixed = ("regarding", "reason", "reportingController", "reportingInstance", "action", "type", "eventTime")
        changed = [name for name in fixed if new.get(name) != old.get(name)]
        return [invalid_value(_ORIGINAL.get(name, name), new.get(name), "field is immutable") for name in changed]


def _validate_word(name: str, text: str) -> list[FieldError]:
    if not text:
        return [required(name)]
    too_long = len(text.encode()) > LONGEST_WORD
    return [invalid_value(name, "", f"can have at most {LONGEST_WORD} characters")] if too_long else []


def _validate_namespace(field: str, about: Object, metadata: Object) -> list[FieldError]:
    """An event lies in the namespace of its object; events of objects without one in `default` or `kube-system`."""
    about_in: JSON = about.get("namespace") or ""
    if about_in == metadata.get("namespace") or (
        not about_in and metadata.get("namespace") in ("default", "kube-system")
    ):
        return []
    return [invalid_value(field, about_in, "does not match event.namespace")]
