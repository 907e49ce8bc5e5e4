"""What somebody may have meant by a field that a kind does not have: another name, another place, another version."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from muster.api.resource import Resource
from muster.apiserver.schema import Schema, facts, schema_for

_UNKNOWN = re.compile(r'unknown field "(.+)"')
_STEP = re.compile(r"[^.\[\]]+")
_NAMES = (
    ("podGroupTemplateRef", "workloadRef"),
    ("podGroups", "podGroupTemplates"),
    ("policy", "schedulingPolicy"),
    ("topology", "schedulingConstraints"),
    ("schedulingGroup", "workloadRef"),
    ("replicas", "parallelism"),
)
"""Fields with another name in another version of a kind."""
_FOREIGN: Mapping[str, str] = {
    "minMember": "minCount",
    "minAvailable": "minCount",
    "minPods": "minCount",
    "minGroups": "minGroupCount",
    "gangPolicy": "gang",
    "topologyConstraint": "schedulingConstraints",
    "priorityClass": "priorityClassName",
}
"""What other schedulers, and people, call a field of ours."""
_CLOSE = 0.8
_MOST_STEPS = 6


def with_hint(text: str, resource: Resource, release: str = "") -> str:
    """A message about an unknown field of a kind, with what was meant; any other message as it is.

    `release`: the one whose fields count (`1.36`), all by default.
    """
    found = _UNKNOWN.fullmatch(text)
    said = _hint(found[1], resource, release) if found else ""
    return f"{text}: {said}" if said else text


def _hint(path: str, resource: Resource, release: str) -> str:
    *above, name = _STEP.findall(path)
    schema = _schema(resource, resource.version, release)
    parent = _at(schema, above)
    if schema is None or parent is None or not parent.fields:
        return ""
    at = path.removesuffix(name)
    where = release if release and resource.version == "v1" else resource.version
    for names in _NAMES:
        other = next((each for each in names if name in names and each != name and each in parent.fields), "")
        if other:
            return f"in {where} it is {at}{other}{_inside(parent.fields[other])}"
    near = _near(name, parent)
    if near:
        return f"did you mean {at}{near}?"
    meant = _FOREIGN.get(name, name)
    elsewhere = _elsewhere(schema, path, meant)
    if elsewhere:
        return f"it belongs at {elsewhere}" if meant == name else f"did you mean {elsewhere}?"
    having = [
        each
        for each in sorted(
            version for of, version, kind in facts().names if (of, kind) == (resource.group, resource.kind)
        )
        if each != resource.version and _at(_schema(resource, each), _STEP.findall(path)) is not None
    ]
    return f"{' and '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""


def _schema(resource: Resource, version: str, release: str = "") -> Schema | None:
    return schema_for(resource.group, version, resource.kind, release)


def _inside(schema: Schema) -> str:
    """What is in a field: `.workload {workloadName, podGroupTemplateName}`."""
    names = sorted(schema.fields, reverse=True)
    if len(names) == 1 and schema.fields[names[0]].fields:
        return f".{names[0]}{_inside(schema.fields[names[0]])}"
    return f" {{{', '.join(names)}}}" if names else ""


def _near(name: str, parent: Schema) -> str:
    """The sibling that is written almost so."""
    lower = {field.lower(): field for field in parent.fields}
    plain = name.replace("_", "").replace("-", "").lower()
    if plain in lower:
        return lower[plain]
    close = difflib.get_close_matches(name, list(parent.fields), n=1, cutoff=_CLOSE)
    return close[0] if close else ""


def _elsewhere(schema: Schema, path: str, name: str) -> str:
    """The nearest place where there is a field of that name, first below where it was sought, then farther out."""
    ends = [*(found.start() for found in re.finditer(r"\.", path)), 0]
    for end in sorted(set(ends), reverse=True):
        inner = _at(schema, _STEP.findall(path[:end]))
        found = _within(inner, f"{path[:end]}." if end else "", name) if inner is not None else ""
        if found:
            return found
    return ""


def _within(schema: Schema, at: str, name: str) -> str:
    """The only place of the fewest steps within a schema where there is a field of that name."""
    level = [(at, schema)]
    for _ in range(_MOST_STEPS):
        found = [f"{at}{name}" for at, each in level if name in each.fields]
        if found:
            return found[0] if len(found) == 1 else ""
        level = [pair for at, each in level for pair in _below(at, each)]
    return ""


def _below(at: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    for name, field in schema.fields.items():
        if not at and name not in ("spec", "metadata"):
            continue
        if field.fields:
            yield f"{at}{name}.", field
        elif field.items is not None and field.items.fields:
            yield f"{at}{name}[].", field.items


def _at(schema: Schema | None, steps: list[str]) -> Schema | None:
    """The schema at a path; indices of lists are among its steps."""
    found = schema
    for step in steps:
        if found is None:
            return None
        found = found.items if found.items is not None and step.isdecimal() else found.child(step)
    return found
