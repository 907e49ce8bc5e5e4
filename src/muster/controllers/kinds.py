"""Which kinds a server serves, read from its discovery documents.

Source of the rules: client-go `discovery` (ServerPreferredResources) and the garbage collector's choice of resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from muster.api.codec import Object, Objects
from muster.api.resource import Resource

IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
"""Group and plural of what is not worth watching: nobody owns or holds events."""


class Kinds(Struct, frozen=True):
    """`watched`: each kind that can be listed, watched and deleted, once, in its preferred version.

    `aliases`: the watched resource by the apiVersion and kind that an owner reference may use for it.
    """

    watched: tuple[Resource, ...]
    aliases: Mapping[tuple[str, str], Resource]

    def find(self, group: str, plural: str) -> Resource | None:
        """The watched resource of that group and name, in whatever version."""
        return next((found for found in self.watched if (found.group, found.plural) == (group, plural)), None)


def group_versions(groups: Object) -> list[tuple[str, str]]:
    """Group and version of an APIGroupList in order of preference, the preferred version of a group first."""
    found: list[tuple[str, str]] = []
    for group in groups.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions = [entry["version"] for entry in group.get("versions") or ()]
        versions.sort(key=lambda version: version != preferred)
        found += [(group["name"], version) for version in versions]
    return found


def kinds_of(lists: Iterable[tuple[str, str, Object]]) -> Kinds:
    """The kinds in APIResourceLists, each with its group and version, preferred ones first."""
    watched: dict[tuple[str, str], Resource] = {}
    aliases: dict[tuple[str, str], Resource] = {}
    for group, version, documents in lists:
        entries: Objects = documents.get("resources") or []
        for entry in entries:
            name = (group, entry["name"])
            if (
                name in IGNORED
                or "/" in entry["name"]
                or not {"delete", "list", "watch"} <= set(entry.get("verbs") or ())
            ):
                continue
            resource = Resource(group, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
            watched.setdefault(name, resource)
            aliases[resource.api_version, resource.kind] = watched[name]
    return Kinds(tuple(sorted(watched.values())), aliases)
