"""Layout: what a group asks of the topology beyond one required domain, and where those of it are that run already."""

from __future__ import annotations

from msgspec import Struct

from muster.api.topology import TopologyTerms


class Layout(Struct, frozen=True):
    """The terms of a group, and what of the cluster they refer to.

    `ranks`: the place of each member of the request among all pods of the group (0, 1, …), which says who is next to
    whom and in one subgroup with whom. `running`: (rank, node) of the members that have a node. `others`: (domain of
    `terms.spread_over`, how many other groups of the same template run there).
    """

    terms: TopologyTerms
    ranks: tuple[int, ...]
    running: tuple[tuple[int, str], ...] = ()
    others: tuple[tuple[str, int], ...] = ()

    @property
    def has_units(self) -> bool:
        """Whether the pods are placed in parts: subgroups, or shares of domains."""
        return self.terms.subgroups is not None or self.terms.distribution is not None

    def unit(self, rank: int) -> int:
        """The number of the part that a pod of this rank belongs to; each pod is one, without subgroups."""
        return rank if self.terms.subgroups is None else rank // self.terms.subgroups.size
