"""What is known about the fields of each kind: types, required fields, list types and merge keys.

Strategic merge patch, checks for unknown fields and wrong types, and the OpenAPI documents read from here. The facts
come from `data/schemas.json.gz` (see `hack/openapi_facts.py`) and are loaded at the first question.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files

from muster.api.codec import Object, loads

ALL_RELEASES = ""
"""Instead of a release such as `1.36`: every field that any release has."""

_REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."


class Schema:
    """One schema: a kind, or a field of one. Children are resolved when they are first asked for, and only once.

    `name` is that of the definition (`io.k8s.api.core.v1.Container`), "" for a field that has none of its own. `type`
    is `object`, `array`, `string`, `integer`, `number`, `boolean`, or "" where any JSON value may stand. `format` is
    `int32`, `int64`, `date-time`, `byte`, `int-or-string` (string or integer), `quantity` (string or number), or "".
    """

    def __init__(self, facts: Facts, raw: Object, name: str = "") -> None:
        self._facts = facts
        self._list = raw
        ref = raw.get("$ref")
        self.name = ref.removeprefix(_REF) if ref else name
        self._raw: Object = facts.definitions[self.name] if ref else raw
        self.type: str = self._raw.get("type") or ("object" if "properties" in self._raw else "")
        self.format: str = self._raw.get("format", "")
        self.required: tuple[str, ...] = tuple(self._raw.get("required") or ())

    def __repr__(self) -> str:
        return f"Schema({self.name or self.type})"

    @cached_property
    def fields(self) -> Mapping[str, Schema]:
        """The named fields; empty for maps and for objects without a known structure."""
        properties = self._raw.get("properties") or {}
        return {name: self._facts.schema(raw) for name, raw in properties.items()}

    @cached_property
    def elements(self) -> Mapping[str, str]:
        """The named fields as sets of fields write them (`f:spec`): all sets share these texts."""
        return {name: f"f:{name}" for name in self.fields}

    @cached_property
    def values(self) -> Schema | None:
        """The schema of a map's values, None if this is not a map."""
        raw = self._raw.get("additionalProperties")
        return self._facts.schema(raw) if isinstance(raw, dict) else None

    @cached_property
    def items(self) -> Schema | None:
        """The schema of a list's items, None if this is not a list."""
        raw = self._raw.get("items")
        return self._facts.schema(raw) if isinstance(raw, dict) else None

    def child(self, name: str) -> Schema | None:
        """The schema of a field or of a map's value; None if there is no such field or nothing is known about it."""
        return self.fields.get(name) or self.values

    @cached_property
    def is_open(self) -> bool:
        """Whether any field may stand here: no structure is known (RawExtension, FieldsV1, JSON, custom objects)."""
        raw = self._raw
        has_structure = "properties" in raw or "additionalProperties" in raw
        return self.type in ("object", "") and not has_structure and (not self.name or self.name in _OPEN)

    @cached_property
    def takes_plain(self) -> bool:
        """Whether a text, number or truth value may stand here, as far as strategic patches ask."""
        return self.type != "array" and not (self.type == "object" and self.fields)

    @cached_property
    def plain_fields(self) -> frozenset[str]:
        """The named fields that take plain values."""
        return frozenset(name for name, field in self.fields.items() if field.takes_plain)

    @cached_property
    def merge_key(self) -> str:
        """The field that tells items apart in a strategic merge of this list, or ""."""
        return str(self._list.get("x-kubernetes-patch-merge-key") or "")

    @cached_property
    def patch_strategies(self) -> tuple[str, ...]:
        """What a strategic merge does with this field: `merge`, `retainKeys`, both, or nothing (replace)."""
        text = str(self._list.get("x-kubernetes-patch-strategy") or "")
        return tuple(text.split(",")) if text else ()

    @cached_property
    def list_type(self) -> str:
        """`map`, `set` or `atomic` for a list, "" where nothing is said (which means atomic)."""
        return str(self._list.get("x-kubernetes-list-type") or "")

    @cached_property
    def list_map_keys(self) -> tuple[str, ...]:
        """The fields that tell items of a `map` list apart."""
        return tuple(self._list.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def is_atomic(self) -> bool:
        """Whether the object or map has one owner as a whole (`x-kubernetes-map-type: atomic`)."""
        return "atomic" in (self._list.get("x-kubernetes-map-type"), self._raw.get("x-kubernetes-map-type"))


_OPEN = frozenset(
    {
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        _META + "FieldsV1",
        _META + "Patch",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    }
)


class Facts:
    """The definitions of one release, or of all. `definitions` are OpenAPI v3 schemas by name; do not change them."""

    def __init__(self, definitions: Mapping[str, Object]) -> None:
        self.definitions = definitions
        self._schemas: dict[str, Schema] = {}

    @cached_property
    def names(self) -> Mapping[tuple[str, str, str], str]:
        """The definition of each (group, version, kind)."""
        found: dict[tuple[str, str, str], str] = {}
        for name, definition in self.definitions.items():
            for entry in definition.get("x-kubernetes-group-version-kind") or ():
                found[entry["group"], entry["version"], entry["kind"]] = name
        return found

    def kind(self, group: str, version: str, kind: str) -> Schema | None:
        """The schema of a kind, None if the release does not know it."""
        name = self.names.get((group, version, kind))
        return self.definition(name) if name else None

    def definition(self, name: str) -> Schema:
        """The schema of a definition. Raises KeyError."""
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = Schema(self, self.definitions[name], name)
        return found

    def schema(self, raw: Object) -> Schema:
        """A schema that stands in a field; plain references share one object."""
        if len(raw) == 1 and "$ref" in raw:
            return self.definition(raw["$ref"].removeprefix(_REF))
        return Schema(self, raw)


@lru_cache(maxsize=4)
def facts(release: str = ALL_RELEASES) -> Facts:
    """The facts of a release (`1.35`, `1.36`, `1.37`) or of all."""
    definitions = _load()
    return Facts({name: _plain(raw, release) for name, raw in definitions.items() if _is_in(raw, release)})


def schema_for(group: str, version: str, kind: str, release: str = ALL_RELEASES) -> Schema | None:
    """The schema of a kind, None if it is not known."""
    return facts(release).kind(group, version, kind)


def is_known(group: str, version: str, kind: str) -> bool:
    """Whether any release has the kind."""
    return (group, version, kind) in facts().names


@lru_cache(maxsize=1)
def _load() -> Mapping[str, Object]:
    packed = (files("muster.apiserver") / "data" / "schemas.json.gz").read_bytes()
    definitions: Mapping[str, Object] = loads(gzip.decompress(packed))["definitions"]
    return definitions


def _is_in(raw: Object, release: str) -> bool:
    return not release or release in raw.get("x-releases", (release,))


def _plain(raw: Object, release: str) -> Object:
    """A definition as one release has it, without the marks."""
    out = {key: value for key, value in raw.items() if key != "x-releases"}
    if "properties" in raw:
        out["properties"] = {
            name: {key: value for key, value in child.items() if key != "x-releases"}
            for name, child in raw["properties"].items()
            if _is_in(child, release)
        }
    return out
