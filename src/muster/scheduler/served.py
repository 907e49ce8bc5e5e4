"""Which version of the group API a server offers, and informers that show its objects in stored form (v1alpha3)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from muster.api.codec import Object
from muster.api.resource import Resource
from muster.api.versions import GROUP, to_hub
from muster.client.client import Client
from muster.client.informer import RETRY_S, Change, Informer
from muster.client.transport import TransportError
from muster.clock import Clock

GROUP_VERSIONS = ("v1alpha3", "v1beta1", "v1alpha2", "v1alpha1")
"""Best first."""


async def served(client: Client, clock: Clock, resource: Resource, *, optional: bool = False) -> Resource | None:
    """The resource in the best version that the server has; None if it has none. Asks until the server answers.

    An `optional` one counts as absent if it may not be seen.
    """
    versions = GROUP_VERSIONS if resource.group == GROUP else (resource.version,)
    for version in versions:
        candidate = replace(resource, version=version)
        status = await _answer(client, clock, candidate)
        if status == 200 or (status != 404 and not optional):
            return candidate
    return None


def hub_informer(client: Client, clock: Clock, resource: Resource, handler: Callable[[list[Change]], None]) -> Informer:
    """An informer of a served resource whose handler sees groups in stored form, whatever the version."""
    informer = Informer(client, clock, resource)
    if resource.group == GROUP:
        informer.add_handler(lambda changes: handler([_hub_change(change, resource) for change in changes]))
    else:
        informer.add_handler(handler)
    return informer


async def _answer(client: Client, clock: Clock, resource: Resource) -> int:
    while True:
        try:
            response = await client.transport.request("GET", resource.path(), query=(("limit", "1"),))
        except TransportError:
            response = None
        if response is not None and response.status != 429 and response.status < 500:
            return response.status
        await clock.sleep(RETRY_S)


def _hub_change(change: Change, resource: Resource) -> Change:
    return Change(change.type, _hub(change.old, resource), _hub(change.new, resource))


def _hub(obj: Object | None, resource: Resource) -> Object | None:
    # Objects out of a list do not say their kind on a real server.
    return None if obj is None else to_hub({**obj, "kind": resource.kind}, resource.version)
