"""Which rules look at pods on other nodes: then nodes cannot be tried independently of each other."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from muster.engine.profile import Profile
from muster.engine.shape import Shape
from muster.engine.snapshot import Snapshot


@runtime_checkable
class CouplingPlugin(Protocol):
    """A rule whose verdict on a node may depend on pods on other nodes."""

    def couples(self, shape: Shape, snapshot: Snapshot) -> bool:
        """Whether it does for pods of this shape, with the pods that run now."""


def couples_nodes(profile: Profile, shape: Shape, snapshot: Snapshot) -> bool:
    """Whether some rule couples nodes for this shape."""
    return any(isinstance(rule, CouplingPlugin) and rule.couples(shape, snapshot) for rule in profile.filters)
