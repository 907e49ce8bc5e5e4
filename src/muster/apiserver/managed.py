"""Who owns which fields of an object: `metadata.managedFields` after updates and applies.

Objects that only the embedded components write are not tracked until somebody applies to them; then all their fields
belong to `before-first-apply`, as for objects from before server-side apply on a real server.
Source: structured-merge-diff `merge/update.go`, apimachinery `pkg/util/managedfields/internal`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.api.codec import JSON, Object, Objects
from muster.apiserver.applying import merged, problems, pruned
from muster.apiserver.errors import StatusError, failure
from muster.apiserver.fieldsets import (
    EMPTY,
    Changes,
    FieldSet,
    changes,
    difference,
    fields_of,
    intersection,
    is_field_set,
    paths,
)
from muster.apiserver.fieldsets import union as united
from muster.apiserver.schema import Schema

APPLY = "Apply"
UPDATE = "Update"
BEFORE_APPLY = "before-first-apply"
ANCIENT = "ancient-changes"
MOST_UPDATERS = 10
"""More entries of updates than this are joined, oldest first."""

_SERVERS_OWN = {
    "f:apiVersion": EMPTY,
    "f:kind": EMPTY,
    "f:metadata": {
        ".": EMPTY,
        **{
            f"f:{name}": EMPTY
            for name in (
                "creationTimestamp",
                "deletionGracePeriodSeconds",
                "deletionTimestamp",
                "generation",
                "managedFields",
                "name",
                "namespace",
                "resourceVersion",
                "selfLink",
                "uid",
            )
        },
    },
}
"""Fields that nobody owns."""


class Writer(Struct, frozen=True):
    """Who writes: the manager's name, the version it speaks, through which sub-resource, when.

    `has_status`: the status belongs to the sub-resource alone. `metadata`: whether a write of the status may change
    metadata as well.
    """

    manager: str
    api_version: str
    time: str
    subresource: str = ""
    has_status: bool = False
    metadata: bool = True

    def countable(self, fields: FieldSet) -> FieldSet:
        """The part of a set that such a write can own. A set that has only the server's own fields becomes empty."""
        if self.subresource == "status":
            kept = ("f:status", "f:metadata") if self.metadata else ("f:status",)
            fields = {element: below for element, below in fields.items() if element in kept}
        elif self.has_status and "f:status" in fields:
            fields = {element: below for element, below in fields.items() if element != "f:status"}
        return difference(fields, _SERVERS_OWN)


class _Entry(Struct, frozen=True):
    """What one manager owns by one kind of write."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    fields: FieldSet
    time: str

    def key(self) -> tuple[str, str, str, str]:
        """What tells managers apart: appliers of all versions are one."""
        version = "" if self.operation == APPLY else self.api_version
        return self.manager, self.operation, version, self.subresource

    def order(self) -> tuple[str, str, str, str, str]:
        return self.operation, self.time, self.manager, self.api_version, self.subresource

    def shown(self) -> Object:
        entry: Object = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def named(self) -> str:
        """As conflicts name a manager."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


def _read(entries: Objects) -> list[_Entry]:
    return [
        _Entry(
            entry.get("manager") or "",
            entry.get("operation") or UPDATE,
            entry.get("apiVersion") or "",
            entry.get("subresource") or "",
            entry.get("fieldsV1") or EMPTY,
            entry.get("time") or "",
        )
        for entry in entries
    ]


def _written(entries: Sequence[_Entry]) -> Objects:
    return [entry.shown() for entry in sorted(_capped(entries), key=_Entry.order)]


def _capped(entries: Sequence[_Entry]) -> list[_Entry]:
    """Not more than `MOST_UPDATERS` entries of updates: the oldest become one."""
    updates = sorted((entry for entry in entries if entry.operation == UPDATE), key=_Entry.order)
    excess = len(updates) - MOST_UPDATERS
    if excess <= 0:
        return list(entries)
    joined: dict[str, _Entry] = {}
    for entry in updates[: excess + 1]:
        known = joined.get(entry.api_version)
        fields = united(known.fields, entry.fields) if known else entry.fields
        joined[entry.api_version] = replace(entry, manager=ANCIENT, subresource="", fields=fields)
    return [entry for entry in entries if entry.operation != UPDATE] + list(joined.values()) + updates[excess + 1 :]


def entries_to_start_from(new: JSON, old: Objects) -> Objects:
    """The entries that an update works on: those that the writer sends along, else the present ones.

    `new`: `metadata.managedFields` as sent; a list with one empty entry takes all away, and what is no list of sets
    of fields counts as not sent.
    """
    if not isinstance(new, list) or not new:
        return old
    if new == [{}]:
        return []
    return new if all(isinstance(entry, dict) and is_field_set(entry.get("fieldsV1") or {}) for entry in new) else old


def after_create(obj: Object, schema: Schema | None, writer: Writer) -> Objects:
    """The entries of a new object."""
    fields = writer.countable(changes({}, obj, schema).changed)
    entry = _Entry(writer.manager, UPDATE, writer.api_version, writer.subresource, fields, writer.time)
    return [entry.shown()] if fields else []


def after_update(entries: Objects, old: Object, new: Object, schema: Schema | None, writer: Writer) -> Objects:
    """The entries after an update from `old` to `new`: what changed belongs to the writer, and to nobody else."""
    if not entries:
        return entries
    done = changes(old, new, schema)
    done = Changes(writer.countable(done.removed), writer.countable(done.changed))
    if not done.removed and not done.changed:
        return entries
    mine = _Entry(writer.manager, UPDATE, writer.api_version, writer.subresource, EMPTY, writer.time)
    found, others = _split(_read(entries), mine)
    fields = united(difference(found.fields, done.removed), done.changed)
    after = [replace(other, fields=_without(other.fields, done)) for other in others]
    if fields:
        after.append(found if fields == found.fields else replace(found, fields=fields, time=writer.time))
    return _written([entry for entry in after if entry.fields])


def _split(entries: list[_Entry], mine: _Entry) -> tuple[_Entry, list[_Entry]]:
    """The writer's entry (`mine` if there is none yet) and the others."""
    found = next((entry for entry in entries if entry.key() == mine.key()), mine)
    return found, [entry for entry in entries if entry.key() != mine.key()]


def _without(fields: FieldSet, done: Changes) -> FieldSet:
    return difference(difference(fields, done.removed), done.changed)


def applied(
    entries: Objects, old: Object | None, config: Object, schema: Schema | None, writer: Writer, *, force: bool
) -> tuple[Object, Objects]:
    """The object after an apply, and its entries. Raises StatusError (409).

    `old`: the live object, None if there is none; `config`: what is applied, and passed `check`.
    """
    live = old or {}
    managers = _read(entries)
    if old is not None and not managers:
        everything = writer.countable(changes({}, old, schema).changed)
        managers = [_Entry(BEFORE_APPLY, UPDATE, writer.api_version, "", everything, writer.time)]
    mine = _Entry(writer.manager, APPLY, writer.api_version, writer.subresource, EMPTY, writer.time)
    last, others = _split(managers, mine)
    fields = writer.countable(fields_of(config, schema))
    new: Object = merged(live, config, schema)
    if last.fields:
        new = pruned(new, last.fields, [fields, *(other.fields for other in others)], schema)
    done = changes(live, new, schema)
    done = Changes(writer.countable(done.removed), writer.countable(done.changed))
    if not force:
        _refuse_conflicts(others, done.changed)
    after = [replace(other, fields=_without(other.fields, done)) for other in others]
    is_same = fields == last.fields and last.api_version == writer.api_version
    if fields:
        after.append(
            last if is_same else replace(last, fields=fields, api_version=writer.api_version, time=writer.time)
        )
    return new, _written([entry for entry in after if entry.fields])


def check(config: Object, schema: Schema | None) -> None:
    """A configuration must be one that can be applied. Raises StatusError (500)."""
    found = list(problems(config, schema))
    if not found:
        return
    given = config.get("metadata")
    meta = given if isinstance(given, dict) else {}
    group, _, version = config["apiVersion"].rpartition("/")
    of = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {group}/{version}, Kind={config['kind']}"
    text = found[0] if len(found) == 1 else "\n  ".join(("errors:", *found))
    raise failure(500, "", f"failed to create typed patch object ({of}): {text}")


def _refuse_conflicts(others: Sequence[_Entry], changed: FieldSet) -> None:
    """Raise StatusError (409) if the changed fields belong to others."""
    found = [
        (entry, path) for entry in sorted(others, key=_Entry.key) for path in paths(intersection(entry.fields, changed))
    ]
    if found:
        raise _conflict(found)


def _conflict(found: Sequence[tuple[_Entry, str]]) -> StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {entry.named()}", "field": path}
        for entry, path in found
    ]
    if len(found) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {found[0][1]}"
    else:
        lines: list[str] = []
        for entry, path in found:
            head = f"conflicts with {entry.named()}:"
            lines += [head] * (head not in lines) + [f"- {path}"]
        text = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return failure(409, "Conflict", text, {"causes": causes})
