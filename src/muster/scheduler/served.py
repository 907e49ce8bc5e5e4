"""Which version of the group API a server offers, and informers that show its objects in stored form (v1alpha3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.resource import DEVICE_TAINT_RULES, KUEUE_TOPOLOGIES, Resource
from muster.api.versions import GROUP, to_hub
from muster.client.client import Client
from muster.client.informer import RETRY_S, Change, Informer
from muster.client.transport import ClientError, Query, Response
from muster.clock import Clock

logger = logging.getLogger(__name__)

MUSTER_GROUP = "scheduling.muster-k8s.dev"
"""The same kinds as custom resources, on clusters whose server does not have them."""

PLACES = (
    (GROUP, "v1alpha3"),
    (GROUP, "v1beta1"),
    (GROUP, "v1alpha2"),
    (GROUP, "v1alpha1"),
    (MUSTER_GROUP, "v1beta1"),
)
"""Where the group API may be, best first."""
VERSIONS = {
    KUEUE_TOPOLOGIES.plural: ("v1beta2", "v1beta1", "v1alpha1"),
    DEVICE_TAINT_RULES.plural: ("v1", "v1beta2", "v1alpha3"),
}
"""Of other resources: versions of which any will do, best first."""


async def served(client: Client, clock: Clock, resource: Resource, *, optional: bool = False) -> Resource | None:
    """The resource in the best version that the server has; None if it has none. Asks until the server answers.

    An `optional` one counts as absent if it may not be seen.
    """
    return (await find(client, clock, (resource,), optional=(resource,) if optional else ())).get(resource)


async def find(
    client: Client,
    clock: Clock,
    resources: Sequence[Resource],
    *,
    optional: Collection[Resource] = (),
    known: dict[str, set[str]] | None = None,
) -> dict[Resource, Resource]:
    """Where the server has each of the resources: in the best version that it has. Those that it lacks are missing.

    Each group and version is asked about once, all at the same time, until the server answers. `optional` ones are
    missing, too, if they may not be seen. `known`: what versions of Kubernetes' own groups have, by version, which is
    not asked again as long as the server has the same versions; it is brought up to date.
    """
    groups = await _groups(client, clock)
    candidates = {resource: _candidates(resource, groups) for resource in resources}
    versions = dict.fromkeys(each.api_version for places in candidates.values() for each in places)
    plurals = {version: known[version] for version in versions if version in known} if known else {}
    asked_now = [version for version in versions if version not in plurals]
    listed = await asyncio.gather(*(_plurals(client, clock, version) for version in asked_now))
    plurals |= dict(zip(asked_now, listed, strict=True))
    if known is not None:
        known.clear()
        known.update({version: names for version, names in plurals.items() if _is_built_in(version)})
    found = {
        resource: place
        for resource, places in candidates.items()
        if (place := next((each for each in places if each.plural in plurals[each.api_version]), None)) is not None
    }
    asked = [resource for resource in found if resource in optional]
    visible = await asyncio.gather(*(_may_see(client, clock, found[resource]) for resource in asked))
    hidden = {resource for resource, may in zip(asked, visible, strict=True) if not may}
    return {resource: place for resource, place in found.items() if resource not in hidden}


def _candidates(resource: Resource, groups: Collection[str] | None) -> list[Resource]:
    """Where the resource may be, best first, of the groups and versions that there are (None: of all)."""
    if resource.group == GROUP:
        places = [replace(resource, group=group, version=version) for group, version in PLACES]
    else:
        versions = VERSIONS.get(resource.plural, (resource.version,))
        places = [replace(resource, version=version) for version in versions]
    return [place for place in places if groups is None or not place.group or place.api_version in groups]


def _is_built_in(version: str) -> bool:
    """Whether what a version has changes only when a server starts anew: there are no custom resources in its group."""
    group = version.rpartition("/")[0]
    return "." not in group or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))


async def _groups(client: Client, clock: Clock) -> set[str] | None:
    """The `group/version`s that the server has; None if it does not say."""
    body = (await _answer(client, clock, "/apis", ())).body
    groups = body.get("groups") if isinstance(body, dict) else None
    if groups is None:
        return None
    return {str(each["groupVersion"]) for group in groups for each in group.get("versions") or ()}


async def _plurals(client: Client, clock: Clock, version: str) -> set[str]:
    """What discovery lists under a group's version."""
    body = (await _answer(client, clock, f"/apis/{version}" if "/" in version else f"/api/{version}", ())).body
    entries = body.get("resources") if isinstance(body, dict) else None
    return {str(entry.get("name")) for entry in entries or ()}


async def _may_see(client: Client, clock: Clock, resource: Resource) -> bool:
    return (await _answer(client, clock, resource.path(), (("limit", "1"),))).status == 200


def takes_strategic_patches(resource: Resource) -> bool:
    """Whether a server merges lists of the resource by their keys: custom resources only know JSON merge patches."""
    return resource.group != MUSTER_GROUP


def hub_informer(client: Client, clock: Clock, resource: Resource, handler: Callable[[list[Change]], None]) -> Informer:
    """An informer of a served resource whose handler sees groups in stored form, whatever the version."""
    informer = Informer(client, clock, resource)
    if resource.group in (GROUP, MUSTER_GROUP):
        informer.add_handler(lambda changes: handler([_hub_change(change, resource) for change in changes]))
    else:
        informer.add_handler(handler)
    return informer


async def _answer(client: Client, clock: Clock, path: str, query: Query) -> Response:
    has_failed = False
    while True:
        try:
            response = await client.transport.request("GET", path, query=query)
        except ClientError:
            response = None
        if response is not None and response.status in (200, 403, 404):
            return response
        status = "no answer" if response is None else str(response.status)
        level = logging.DEBUG if has_failed else logging.WARNING
        logger.log(level, "discovery failed", extra={"path": path, "status": status})
        has_failed = True
        await clock.sleep(RETRY_S)


def _hub_change(change: Change, resource: Resource) -> Change:
    return Change(change.type, _hub(change.old, resource), _hub(change.new, resource))


def _hub(obj: Object | None, resource: Resource) -> Object | None:
    # Objects out of a list do not say their kind on a real server.
    return None if obj is None else to_hub({**obj, "kind": resource.kind}, resource.version)
