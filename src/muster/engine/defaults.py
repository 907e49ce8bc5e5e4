"""The default profile: upstream's default plugins of 1.36 with their order and weights, as far as they exist here."""

from __future__ import annotations

from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.plugins.scoring_strategy import MostAllocated
from muster.engine.profile import Profile, Weighted
from muster.engine.registry import default_profile

DEFAULT_PROFILE = default_profile()
"""What pods get that name no other profile (upstream `apis/config/v1/default_plugins.go`)."""


def packing(profile: Profile, resources: tuple[str, ...]) -> Profile:
    """The same filters, scored by how full the node becomes in these resources: for groups that hardly fit."""
    strategy = MostAllocated(tuple((resource, 1) for resource in resources))
    return Profile(profile.filters, (Weighted(NodeResourcesFit(strategy), 1),))
