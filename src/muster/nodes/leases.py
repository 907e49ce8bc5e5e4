"""The leases of simulated nodes: made when a node appears, all renewed together in one sweep.

A real kubelet renews a lease of 40 s every 10 s, which would cost 500 writes a second at 5,000 nodes. A simulated node
cannot die unnoticed, so its lease is long and rarely renewed; a fault that stops a node first makes its lease as short
as a real one (`shorten`), after which the node lifecycle controller sees it die as it would see a real node die.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from muster.api.codec import Object
from muster.api.meta import name_of, uid_of
from muster.api.resource import LEASES
from muster.client.client import Client
from muster.client.transport import ApiError, ClientError
from muster.clock import Clock, rfc3339_micro

logger = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
LEASE_S = 3600
"""How long the lease of a simulated node lasts unless the agent is told otherwise; it is renewed after half of that."""
REAL_LEASE_S = 40
"""How long the lease of a real kubelet lasts."""


_Verb: TypeAlias = Callable[[Object, Object], Awaitable[None]]
"""Writes the spec of a node's lease."""


class NodeLeases:
    """Holds the leases of a set of nodes."""

    def __init__(self, client: Client, clock: Clock, lease_s: int = LEASE_S) -> None:
        self._client = client
        self._clock = clock
        self._lease_s = lease_s
        self._nodes: dict[str, Object] = {}

    async def hold(self, node: Object) -> None:
        """Make the lease of a node, or take it over, and renew it from now on."""
        self._nodes[name_of(node)] = node
        await self._write(node, self._make)

    def drop(self, name: str) -> None:
        """Renew that node's lease no longer."""
        self._nodes.pop(name, None)

    async def shorten(self, name: str) -> None:
        """Renew that node's lease a last time, for as long as a real kubelet would."""
        node = self._nodes.pop(name, None)
        if node is not None:
            await self._write(node, self._renew, REAL_LEASE_S)

    async def run(self) -> None:
        """Renew until cancelled. The timer is periodic."""
        while True:
            await self._clock.sleep(self._lease_s / 2, periodic=True)
            for node in list(self._nodes.values()):
                if name_of(node) in self._nodes:
                    await self._write(node, self._renew)

    async def _write(self, node: Object, verb: _Verb, lease_s: int | None = None) -> None:
        spec = {
            "holderIdentity": name_of(node),
            "leaseDurationSeconds": lease_s or self._lease_s,
            "renewTime": rfc3339_micro(self._clock.now()),
        }
        try:
            await verb(node, spec)
        except ClientError as error:
            logger.warning("lease not renewed", extra={"node": name_of(node), "error": str(error)})

    async def _renew(self, node: Object, spec: Object) -> None:
        try:
            await self._client.patch(LEASES, NAMESPACE, name_of(node), {"spec": spec})
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._client.create(LEASES, NAMESPACE, _lease(node, spec))

    async def _make(self, node: Object, spec: Object) -> None:
        try:
            await self._client.create(LEASES, NAMESPACE, _lease(node, spec))
        except ApiError as error:
            if not error.is_already_exists:
                raise
            await self._client.patch(LEASES, NAMESPACE, name_of(node), {"spec": spec})


def _lease(node: Object, spec: Object) -> Object:
    name = name_of(node)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
