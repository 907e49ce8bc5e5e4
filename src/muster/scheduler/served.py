"""Which version of the group API a server offers, and informers that show its objects in stored form (v1alpha3)."""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    if resource.group == GROUP:
        for group, version in PLACES:
            if await _has(client, clock, f"/apis/{group}/{version}", resource.plural):
                return replace(resource, group=group, version=version)
        return None
    for version in VERSIONS.get(resource.plural, (resource.version,)):
        candidate = replace(resource, version=version)
        status = (await _answer(client, clock, candidate.path(), (("limit", "1"),))).status
        if status != 404 and (status == 200 or not optional):
            return candidate
    return None


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


async def _has(client: Client, clock: Clock, path: str, plural: str) -> bool:
    """Whether discovery lists the resource under a group's version."""
    body = (await _answer(client, clock, path, ())).body
    found = body.get("resources") if isinstance(body, dict) else None
    return any(entry.get("name") == plural for entry in found or ())


async def _answer(client: Client, clock: Clock, path: str, query: Query) -> Response:
    while True:
        try:
            response = await client.transport.request("GET", path, query=query)
        except ClientError:
            response = None
        if response is not None and response.status in (200, 403, 404):
            return response
        status = "no answer" if response is None else str(response.status)
        logger.warning("discovery failed", extra={"path": path, "status": status})
        await clock.sleep(RETRY_S)


def _hub_change(change: Change, resource: Resource) -> Change:
    return Change(change.type, _hub(change.old, resource), _hub(change.new, resource))


def _hub(obj: Object | None, resource: Resource) -> Object | None:
    # Objects out of a list do not say their kind on a real server.
    return None if obj is None else to_hub({**obj, "kind": resource.kind}, resource.version)
