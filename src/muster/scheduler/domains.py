"""The topology domain that a group is bound to, as the engine is asked about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.engine.nodes import NodeTable
from muster.engine.topology import DomainError, pinned_domain


@dataclass(frozen=True, slots=True)
class OneDomain:
    """All members must be in one domain of the node label `key`.

    `pinned`: the domain of the members that run, None without any. `fault`: why they are in no one domain.
    """

    key: str
    pinned: str | None = None
    fault: str = ""


def one_domain(table: NodeTable, key: str, placed: Mapping[str, str]) -> OneDomain:
    """The constraint of a group whose scheduled members are `placed` (pod key → node name)."""
    try:
        return OneDomain(key, pinned_domain(table, key, placed))
    except DomainError as error:
        return OneDomain(key, fault=str(error))
