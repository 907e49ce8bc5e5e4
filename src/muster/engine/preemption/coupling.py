"""Which rules look at pods on other nodes: then nodes cannot be tried independently of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class CouplingPlugin(Protocol):
    """A rule whose verdict on a node may depend on pods on other nodes."""

    def couples(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether it does for pods of this shape, with the pods that run now."""


def may_couple(plugin: object) -> TypeIs[CouplingPlugin]:
    """Whether a plugin is a CouplingPlugin; see `muster.engine.profile.looks_first`."""
    return hasattr(plugin, "couples")


def couples_nodes(profile: Profile, shape: Shape, snapshot: Snapshot) -> bool:
    """Whether some rule couples nodes for this shape."""
    return any(may_couple(rule) and rule.couples(shape, snapshot) for rule in profile.filters)
