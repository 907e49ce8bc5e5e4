"""The topology that a group is bound to, as the engine is asked about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.model import GroupRequest
from muster.engine.nodes import NodeTable
from muster.engine.topology.domains import DomainError, pinned_domain
from muster.engine.topology.layout import Layout


class OneDomain(Struct, frozen=True):
    """All members must be in one domain of the node label `key` (None: anywhere), laid out as `layout` says.

    `pinned`: the domain of the members that run, None without any. `fault`: why they are in no one domain.
    """

    key: str | None
    pinned: str | None = None
    fault: str = ""
    layout: Layout | None = None

    def bind(self, request: GroupRequest) -> GroupRequest:
        """The request with this constraint. Raises DomainError for a group that runs in no one domain."""
        if self.fault:
            raise DomainError(self.fault)
        return replace(request, topology_key=self.key, topology_domain=self.pinned, layout=self.layout)


def one_domain(table: NodeTable, key: str | None, placed: Mapping[str, str], layout: Layout | None = None) -> OneDomain:
    """The constraint of a group whose scheduled members are `placed` (pod key → node name)."""
    if key is None or not placed:
        return OneDomain(key, layout=layout)
    try:
        return OneDomain(key, pinned_domain(table, key, placed), layout=layout)
    except DomainError as error:
        return OneDomain(key, fault=str(error))
