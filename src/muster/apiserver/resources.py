"""The resource table's types, and how a path finds its entry.

One `Served` is one kind in one API version; it drives routing, discovery, tables, validation and defaulting alike. The
entries are in `registry.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.jsonpath import Path
from muster.api.resource import Resource
from muster.apiserver.columns import Column
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.selecting import Selectable

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

ToStored: TypeAlias = Callable[[Object, Object | None], Object]
FromStored: TypeAlias = Callable[[Object], Object]


class Conversion(Struct, frozen=True):
    """Between one version and the stored form. Neither function changes its arguments; parts may be shared.

    `to_stored(obj, old)`: `old` is the stored object that an update replaces; what this version cannot say is kept.
    """

    to_stored: ToStored
    from_stored: FromStored


class ScalePaths(Struct, frozen=True):
    """Where an object keeps what its scale sub-resource shows."""

    spec: Path
    status: Path
    selector: Path | None = None


class Subresource(Struct, frozen=True):
    """`status`, `scale`, `binding` …: its own kind and verbs, as discovery shows them. `group` and `version` are
    those of that kind, "" where they are those of the resource. `scale`: of custom resources."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""
    scale: ScalePaths | None = None


class Served(Struct, frozen=True):
    """One kind in one API version. `storage`: the prefix of its keys in the store, shared by its versions.

    `columns`: those of its table, None where they are registered by kind. `patch_types`: the media types of patches, ()
    for all. `deprecation`: a warning that goes with every answer. `openapi`: the schema of a custom kind.
    """

    resource: Resource
    singular: str
    strategy: Strategy
    storage: str
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    conversion: Conversion | None = None
    columns: tuple[Column, ...] | None = None
    patch_types: tuple[str, ...] = ()
    deprecation: str = ""
    openapi: Mapping[str, JSON] | None = None

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)

    def prefix(self, namespace: str = "") -> str:
        """The prefix of the keys of all objects, or of one namespace's."""
        return f"/{self.storage}/{namespace}/" if namespace else f"/{self.storage}/"

    def key(self, namespace: str, name: str) -> str:
        """The key of one object."""
        return f"/{self.storage}/{namespace}/{name}" if self.resource.namespaced else f"/{self.storage}/{name}"

    def selectable(self) -> Selectable:
        """The function that gives an object's selectable fields."""
        special = self.strategy.selectable

        def fields(obj: Object) -> dict[str, str]:
            metadata = obj["metadata"]
            return {
                "metadata.name": metadata.get("name", ""),
                "metadata.namespace": metadata.get("namespace", ""),
                **special(obj),
            }

        return fields

    def selectable_names(self) -> frozenset[str]:
        """The fields that field selectors may name."""
        return self.strategy.selectable_names | {"metadata.name", "metadata.namespace"}

    def unknown_field(self, field: str) -> str:
        """What a client is told that selects by a field that this kind does not offer."""
        if self.strategy.selectable_names:
            return f"field label not supported: {field}"
        return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


class Route(Struct, frozen=True):
    """What a path names. `served` None: nothing of ours; then `group_version_known` tells an unknown resource of a
    known version from an unknown path. `is_watch`: the old form of a watch, `/api/v1/watch/…`."""

    served: Served | None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    group_version_known: bool = False
    is_watch: bool = False


class ResourceTable:
    """All served kinds, in order of group, version and plural: those that are built in, then custom ones.

    `entries` are all that discovery shows. `changes` grows when custom kinds come, change or go.
    """

    def __init__(self, entries: Iterable[Served]) -> None:
        self._built_in = tuple(entries)
        self._own_groups = frozenset(entry.resource.group for entry in self._built_in)
        self.entries: tuple[Served, ...] = ()
        self.changes = -1
        self._by_path: dict[tuple[str, str, str], Served] = {}
        self._versions: frozenset[tuple[str, str]] = frozenset()
        self.set_custom(())

    def set_custom(self, entries: Iterable[Served]) -> None:
        """Serve these custom kinds, and no others.

        A group that has kinds of its own swallows the paths of custom kinds in it: they are shown and not served.
        """
        custom = tuple(entries)
        self.changes += 1
        self.entries = (*self._built_in, *custom)
        reached = (*self._built_in, *(entry for entry in custom if entry.resource.group not in self._own_groups))
        self._by_path = {(e.resource.group, e.resource.version, e.resource.plural): e for e in reached}
        self._versions = frozenset((group, version) for group, version, _ in self._by_path)

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """The entry of a resource, or None."""
        return self._by_path.get((group, version, plural))

    def group_versions(self) -> Iterable[tuple[str, str]]:
        """Every served (group, version), once, in the order of the entries."""
        return dict.fromkeys((entry.resource.group, entry.resource.version) for entry in self.entries)

    def route(self, path: str) -> Route:
        """What the path of a request names."""
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) >= 3:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return Route(None)
        known = (group, version) in self._versions
        is_watch = rest[0] == "watch" and len(rest) > 1
        if is_watch:
            rest = rest[1:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
            namespace, rest = rest[1], rest[2:]
        served = self._by_path.get((group, version, rest[0]))
        if served is None or (namespace and not served.resource.namespaced):
            return Route(None, group_version_known=known)
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        return Route(served, namespace, name, subresource, "/".join(rest[3:]), known, is_watch)
