"""Reading a live cluster: which one, and everything that scheduling looks at. Nothing is ever written to it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from muster.api.codec import Objects
from muster.api.resource import PRIORITY_CLASSES, Resource
from muster.cli.errors import BadInput, CommandError
from muster.cli.first_answer import check_first_answer
from muster.client.client import Client
from muster.client.connection import Connection, KubeconfigError, in_cluster
from muster.client.credentials import CredentialsError
from muster.client.http import HttpTransport
from muster.client.kubeconfig import default_paths, read_kubeconfig, read_kubeconfigs
from muster.client.transport import ApiError, ClientError
from muster.clock import RealClock
from muster.scheduler.explaining.trimming import NEEDED, READ, trimmed, without_ended
from muster.scheduler.served import served

PAGE_SIZE = 500
FIRST_ANSWER_S = 10.0
_TRIES = 3


class Unreadable(CommandError):
    """The cluster did not answer, or does not let us read what is needed."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """The objects of a cluster in stored form, and which kinds it did not let us read."""

    server: str
    objects: Objects
    refused: tuple[str, ...] = ()


def read_live(kubeconfig: Path | None, context: str) -> LiveCluster:
    """Read the cluster of a kubeconfig: by default that of the pod we run in, else what kubectl would use.

    Raises `BadInput` and `Unreadable`.
    """
    connection = find_connection(kubeconfig, context)
    try:
        return asyncio.run(_read(connection))
    except (KubeconfigError, CredentialsError) as error:
        raise BadInput(f"{connection.server}: {error}") from error


def find_connection(kubeconfig: Path | None, context: str) -> Connection:
    """How to reach the cluster. Raises `BadInput`."""
    try:
        if kubeconfig is not None:
            return read_kubeconfig(kubeconfig, context)
        inside = in_cluster(os.environ) if not context and not os.environ.get("KUBECONFIG") else None
        return inside or read_kubeconfigs(default_paths(os.environ), context)
    except KubeconfigError as error:
        hint = "" if kubeconfig is not None else " (--kubeconfig says where the cluster's configuration is)"
        raise BadInput(f"{error}{hint}") from error


async def _read(connection: Connection) -> LiveCluster:
    clock = RealClock()
    http = HttpTransport(connection, clock=clock, user_agent="muster-snapshot")
    client = Client(http, user_agent="muster-snapshot", page_size=PAGE_SIZE)
    try:
        await _check(http, connection)
        found: Objects = []
        refused = []
        for resource in READ:
            # PriorityClasses are in the group of the group API, but not in its versions.
            is_class = resource == PRIORITY_CLASSES
            place = resource if is_class else await served(client, clock, resource, optional=resource not in NEEDED)
            if place is None:
                if not resource.api_version.startswith("scheduling.k8s.io/v1alpha"):
                    refused.append(resource.plural)
                continue
            found += [trimmed(obj, place) for obj in await _list(client, place, connection)]
        return LiveCluster(connection.server, without_ended(found), tuple(refused))
    finally:
        await http.aclose()


async def _check(http: HttpTransport, connection: Connection) -> None:
    """Ask who it is before anything else, so that what is wrong is said at once."""
    try:
        answer = await asyncio.wait_for(http.request("GET", "/version"), FIRST_ANSWER_S)
    except (ClientError, TimeoutError) as error:
        raise Unreadable(f"{connection.server}: {error or 'no answer'}") from error
    check_first_answer(answer, connection, Unreadable)


async def _list(client: Client, resource: Resource, connection: Connection) -> Objects:
    """The whole collection; begun anew if it took so long that the server has forgotten where we were."""
    for attempt in range(_TRIES):
        try:
            return (await client.list(resource)).items
        except ApiError as error:
            if error.code == 403 and resource not in NEEDED:
                return []
            if error.code != 410 or attempt + 1 == _TRIES:
                raise Unreadable(f"{connection.server}: {resource.plural} cannot be read: {error}") from error
        except ClientError as error:
            raise Unreadable(f"{connection.server}: {error}") from error
    raise AssertionError("the last attempt returns or raises")
