"""From a CustomResourceDefinition to entries of the resource table: one for each served version."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.api.codec import JSON, Object, dumps
from muster.api.jsonpath import Path, PathError, parse_path
from muster.api.resource import Resource
from muster.apiserver.columns import AGE, NAME, Column, since
from muster.apiserver.custom.definition import is_terminating, storage_version, versions
from muster.apiserver.custom.rules import rule_tree
from muster.apiserver.custom.strategies import CustomStrategy
from muster.apiserver.custom.structure import INT_OR_STRING, pruned, set_defaults
from muster.apiserver.decoding import Unknown
from muster.apiserver.resources import Conversion, ScalePaths, Served, Subresource
from muster.apiserver.schema import Facts, Schema, facts
from muster.clock import parse_rfc3339

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which discovery shows them for custom resources."""
_TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")
PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


class CustomKind(Struct, frozen=True):
    """What decoding and patching must know about one version of a custom resource."""

    resource: Resource
    raw: Object
    schema: Schema

    def decode(self, value: Object, unknown: Unknown) -> Object:
        """A fresh object without unknown fields, whose paths go to `unknown`."""
        result: Object = pruned(value, self.raw, unknown, is_root=True)
        return result


def entries_of(crd: Object) -> list[tuple[Served, CustomKind]]:
    """The served versions of an established definition."""
    return [_entry(crd, version) for version in versions(crd) if version.get("served")]


def _entry(crd: Object, version: Object) -> tuple[Served, CustomKind]:
    spec, names = crd["spec"], (crd.get("status") or {}).get("acceptedNames") or {}
    resource = Resource(
        spec["group"], version["name"], names["plural"], names["kind"], spec.get("scope") == "Namespaced"
    )
    schema: Object = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    subresources = version.get("subresources") or {}
    strategy = CustomStrategy(
        schema,
        rule_tree(schema),
        has_status=subresources.get("status") is not None,
        scale=_scale_paths(subresources.get("scale")),
        selectable=_selectable(version.get("selectableFields") or ()),
        definition=crd,
    )
    served = Served(
        resource,
        names.get("singular") or "",
        strategy,
        crd["metadata"]["name"],
        _TERMINATING_VERBS if is_terminating(crd) else VERBS,
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        _subresources(names["kind"], subresources),
        _conversion(crd, version["name"], resource, schema),
        columns=columns(version.get("additionalPrinterColumns")),
        patch_types=PATCH_TYPES,
        deprecation=_deprecation(resource, version),
        openapi=openapi_schema(resource, schema),
    )
    return served, CustomKind(resource, schema, schema_of(resource, schema))


def _deprecation(resource: Resource, version: Object) -> str:
    """The warning that goes with every answer, "" if the version is not deprecated."""
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{resource.api_version} {resource.kind} is deprecated"


def _subresources(kind: str, found: Object) -> tuple[Subresource, ...]:
    result: list[Subresource] = []
    if found.get("status") is not None:
        result.append(Subresource("status", kind))
    paths = _scale_paths(found.get("scale"))
    if paths is not None:
        result.append(Subresource("scale", "Scale", group="autoscaling", version="v1", scale=paths))
    return tuple(result)


def _scale_paths(scale: JSON) -> ScalePaths | None:
    if scale is None:
        return None
    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        parse_path(scale["specReplicasPath"]),
        parse_path(scale["statusReplicasPath"]),
        parse_path(selector) if selector else None,
    )


def _selectable(entries: JSON) -> Mapping[str, Path]:
    return {entry["jsonPath"].removeprefix("."): parse_path(entry["jsonPath"]) for entry in entries}


def _conversion(crd: Object, version: str, resource: Resource, schema: Object) -> Conversion | None:
    """With the strategy None only the apiVersion differs; each version prunes and defaults by its own schema.

    None where the stored form is what is shown: the storage version of a definition that never changed.
    """
    stored = storage_version(crd)
    is_first = crd["metadata"].get("generation", 1) == 1
    if version == stored and is_first:
        return None
    stored_version = f"{resource.group}/{stored}"

    def to_stored(obj: Object, old: Object | None) -> Object:
        return {**obj, "apiVersion": stored_version}

    def from_stored(obj: Object) -> Object:
        shown: Object = pruned(obj, schema, [], is_root=True)
        shown["apiVersion"] = resource.api_version
        set_defaults(shown, schema)
        return shown

    return Conversion(to_stored, from_stored)


def columns(entries: JSON) -> tuple[Column, ...]:
    """Table columns from additionalPrinterColumns; name and age where there are none."""
    if not entries:
        return (NAME, AGE)
    return (NAME, *(_column(entry) for entry in entries))


def _column(entry: Object) -> Column:
    try:
        path: Path | None = parse_path(entry["jsonPath"])
    except PathError:
        path = None
    type_ = entry["type"]

    def cell(obj: Object, now: float) -> JSON:
        found = path.find(obj) if path is not None else []
        return _cell(type_, found[0], now) if found else None

    described = entry.get("description") or (
        f"Custom resource definition column (in JSONPath format): {entry['jsonPath']}"
    )
    return Column(
        entry["name"], cell, type_, int(entry.get("priority") or 0), entry.get("format") or "", description=described
    )


def _cell(type_: str, value: JSON, now: float) -> JSON:
    """A value as a cell of that type. Source: `pkg/registry/customresource/tableconvertor`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case "integer":
            return int(value) if is_number else None
        case "number":
            return float(value) if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return _date(value, now)
    return _text(value)


def _date(value: JSON, now: float) -> JSON:
    if not isinstance(value, str):
        return None
    try:
        parse_rfc3339(value)
    except ValueError:
        return "<invalid>"
    return since(value, now)


def _text(value: JSON) -> JSON:
    """A value as JSONPath prints it: strings bare, the rest as JSON with Go's names for nothing."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return dumps(value).decode()
    return str(value)


def schema_of(resource: Resource, raw: Object) -> Schema:
    """The schema as patches read it."""
    return custom_facts(resource, raw).definition(definition_name(resource))


def definition_name(resource: Resource) -> str:
    """The name of the kind's definition in OpenAPI documents."""
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


_META = "io.k8s.apimachinery.pkg.apis.meta.v1."


def openapi_schema(resource: Resource, raw: Object) -> Object:
    """The schema as OpenAPI documents show it: with the fields that every object has, and its kind."""
    properties = {
        **(raw.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"#/components/schemas/{_META}ObjectMeta"},
    }
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {
        **{key: _plain(value) for key, value in raw.items() if key != "properties"},
        "type": "object",
        "properties": {name: _plain(part) for name, part in properties.items()},
        "x-kubernetes-group-version-kind": [gvk],
    }


def _plain(value: JSON) -> JSON:
    """A schema whose integers-or-strings say so as built-in kinds do."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _plain(item) for key, item in value.items()}
    if value.get(INT_OR_STRING) is True:
        result["format"] = "int-or-string"
    return result


def custom_facts(resource: Resource, raw: Object) -> Facts:
    """The definitions of a custom kind, with the metadata of all objects beside it."""
    known = facts().definitions
    needed = {name: known[name] for name in known if name.startswith(_META)}
    return Facts({**needed, definition_name(resource): openapi_schema(resource, raw)})
