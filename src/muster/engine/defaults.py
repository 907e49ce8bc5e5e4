"""The default profile: upstream's default plugins of 1.36 with their order and weights, as far as they exist here."""

from __future__ import annotations

from muster.engine.plugins.image_locality import ImageLocality
from muster.engine.plugins.node_affinity import NodeAffinity
from muster.engine.plugins.node_name import NodeName
from muster.engine.plugins.node_ports import NodePorts
from muster.engine.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.plugins.node_unschedulable import NodeUnschedulable
from muster.engine.plugins.scoring_strategy import MostAllocated
from muster.engine.plugins.taint_toleration import TaintToleration
from muster.engine.plugins.unsupported import Unsupported
from muster.engine.profile import Profile, Weighted

_AFFINITY = NodeAffinity()
_FIT = NodeResourcesFit()
_TAINTS = TaintToleration()

DEFAULT_PROFILE = Profile(
    filters=(NodeUnschedulable(), NodeName(), _TAINTS, _AFFINITY, NodePorts(), _FIT, Unsupported()),
    scores=(
        Weighted(_TAINTS, 3),
        Weighted(_AFFINITY, 2),
        Weighted(_FIT, 1),
        Weighted(NodeResourcesBalancedAllocation(), 1),
        Weighted(ImageLocality(), 1),
    ),
)
"""What pods get that name no other profile (upstream `apis/config/v1/default_plugins.go`)."""


def packing(profile: Profile, resources: tuple[str, ...]) -> Profile:
    """The same filters, scored by how full the node becomes in these resources: for groups that hardly fit."""
    strategy = MostAllocated(tuple((resource, 1) for resource in resources))
    return Profile(profile.filters, (Weighted(NodeResourcesFit(strategy), 1),))
