"""Every plugin by upstream's name: where it acts by default, with which weight, and how it is made from its arguments.

The one place that knows which plugins exist. A new plugin of the engine needs one thing here: `filter=` and `score=`
(functions of `PluginArguments`) in its line of `PLUGINS`. It is then part of the default profile and of all profiles of
configuration files, in its place and with its weight. Source: kube-scheduler `apis/config/v1/default_plugins.go` and
`framework/interface.go` (1.36, gates of workload-aware scheduling on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from muster.engine.plugins.dynamic_resources import DynamicResources, DynamicResourcesScore
from muster.engine.plugins.image_locality import ImageLocality
from muster.engine.plugins.inter_pod_affinity import InterPodAffinity
from muster.engine.plugins.node_affinity import NO_RULES, NodeAffinity
from muster.engine.plugins.node_declared_features import NodeDeclaredFeatures
from muster.engine.plugins.node_name import NodeName
from muster.engine.plugins.node_ports import NodePorts
from muster.engine.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from muster.engine.plugins.node_resources_fit import DEFAULT_STRATEGY, NodeResourcesFit
from muster.engine.plugins.node_unschedulable import NodeUnschedulable
from muster.engine.plugins.node_volume_limits import NodeVolumeLimits
from muster.engine.plugins.pod_topology_spread import PodTopologySpread
from muster.engine.plugins.scoring_strategy import ScoringStrategy
from muster.engine.plugins.taint_toleration import TaintToleration
from muster.engine.plugins.volume_binding import VolumeBinding
from muster.engine.plugins.volume_restrictions import VolumeRestrictions
from muster.engine.plugins.volume_zone import VolumeZone
from muster.engine.profile import (
    DEFAULT_PREEMPTION,
    CoupledPlugin,
    FilterPlugin,
    PreemptionArguments,
    Profile,
    ScorePlugin,
    Weighted,
)
from muster.engine.shape import NodeRules
from muster.engine.spreading import SpreadConstraint

POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""The extension points in the order in which a pod meets them."""


class FitArguments(Struct, frozen=True):
    """NodeResourcesFitArgs."""

    strategy: ScoringStrategy = DEFAULT_STRATEGY
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()


class SpreadArguments(Struct, frozen=True):
    """PodTopologySpreadArgs. `constraints` None: the system's own (defaultingType System)."""

    constraints: tuple[SpreadConstraint, ...] | None = None


class InterPodArguments(Struct, frozen=True):
    """InterPodAffinityArgs."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class VolumeBindingArguments(Struct, frozen=True):
    """VolumeBindingArgs."""

    bind_timeout_s: int = 600


class DynamicResourcesArguments(Struct, frozen=True):
    """DynamicResourcesArgs."""

    filter_timeout_s: float = 10.0
    binding_timeout_s: float = 600.0


class PluginArguments(Struct, frozen=True):
    """What a profile may set about its plugins; upstream's defaults."""

    fit: FitArguments = FitArguments()
    balanced_resources: tuple[str, ...] = ("cpu", "memory")
    added_affinity: NodeRules = NO_RULES
    spread: SpreadArguments = SpreadArguments()
    inter_pod: InterPodArguments = InterPodArguments()
    preemption: PreemptionArguments = DEFAULT_PREEMPTION
    volume_binding: VolumeBindingArguments = VolumeBindingArguments()
    dynamic_resources: DynamicResourcesArguments = DynamicResourcesArguments()


class Plugin(Struct, frozen=True):
    """A plugin of kube-scheduler. `points`: where it acts; `weight`: in the default profile, 0 if it does not score.

    `filter` and `score` make ours. A plugin without either acts elsewhere (queue, groups, binding), or not at all yet.
    """

    name: str
    points: tuple[str, ...]
    weight: int = 0
    filter: Callable[[PluginArguments], FilterPlugin] | None = None
    score: Callable[[PluginArguments], ScorePlugin | CoupledPlugin] | None = None


def _fit(arguments: PluginArguments) -> NodeResourcesFit:
    fit = arguments.fit
    return NodeResourcesFit(fit.strategy, fit.ignored_resources, fit.ignored_groups)


def _affinity(arguments: PluginArguments) -> NodeAffinity:
    return NodeAffinity(arguments.added_affinity)


def _taints(arguments: PluginArguments) -> TaintToleration:
    return TaintToleration()


def _spread(arguments: PluginArguments) -> PodTopologySpread:
    return PodTopologySpread(arguments.spread.constraints)


def _inter_pod(arguments: PluginArguments) -> InterPodAffinity:
    inter_pod = arguments.inter_pod
    return InterPodAffinity(inter_pod.hard_pod_affinity_weight, inter_pod.ignore_preferred_terms_of_existing_pods)


def _balanced(arguments: PluginArguments) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(arguments.balanced_resources)


_FILTER = ("preFilter", "filter")
_SCORE = ("preScore", "score")

PLUGINS: Mapping[str, Plugin] = {
    plugin.name: plugin
    for plugin in (
        Plugin("SchedulingGates", ("preEnqueue",)),
        Plugin("PrioritySort", ("queueSort",)),
        Plugin("NodeUnschedulable", ("filter",), filter=lambda arguments: NodeUnschedulable()),
        Plugin("NodeName", ("filter",), filter=lambda arguments: NodeName()),
        Plugin("TaintToleration", ("filter", *_SCORE), 3, filter=_taints, score=_taints),
        Plugin("NodeAffinity", (*_FILTER, *_SCORE), 2, filter=_affinity, score=_affinity),
        Plugin("NodePorts", _FILTER, filter=lambda arguments: NodePorts()),
        Plugin("NodeResourcesFit", (*_FILTER, *_SCORE), 1, filter=_fit, score=_fit),
        Plugin("VolumeRestrictions", _FILTER, filter=lambda arguments: VolumeRestrictions()),
        Plugin("NodeVolumeLimits", _FILTER, filter=lambda arguments: NodeVolumeLimits()),
        Plugin("VolumeBinding", (*_FILTER, "reserve", "preBind", *_SCORE), filter=lambda arguments: VolumeBinding()),
        Plugin("VolumeZone", _FILTER, filter=lambda arguments: VolumeZone()),
        Plugin("PodTopologySpread", (*_FILTER, *_SCORE), 2, filter=_spread, score=_spread),
        Plugin("InterPodAffinity", (*_FILTER, *_SCORE), 2, filter=_inter_pod, score=_inter_pod),
        Plugin(
            "DynamicResources",
            ("preEnqueue", *_FILTER, "postFilter", *_SCORE, "reserve", "preBind"),
            2,
            filter=lambda arguments: DynamicResources(),
            score=lambda arguments: DynamicResourcesScore(),
        ),
        Plugin("DefaultPreemption", ("preEnqueue", "postFilter")),
        Plugin("NodeResourcesBalancedAllocation", _SCORE, 1, score=_balanced),
        Plugin("ImageLocality", ("score",), 1, score=lambda arguments: ImageLocality()),
        Plugin("DefaultBinder", ("bind",)),
        Plugin("NodeDeclaredFeatures", _FILTER, filter=lambda arguments: NodeDeclaredFeatures()),
        Plugin("GangScheduling", ("preEnqueue", "reserve", "permit")),
        Plugin("TopologyPlacementGenerator", ()),
        Plugin("PodGroupPodsCount", ()),
    )
}
"""All plugins that a configuration may name, in the order of the default profile."""


def build_profile(
    filters: Iterable[str], scores: Iterable[tuple[str, int]], arguments: PluginArguments | None = None
) -> Profile:
    """The profile that filters by these plugins in this order, and scores by these with their weights.

    Names are upstream's; raises KeyError for one that `PLUGINS` does not have. Those that do not filter (or score) here
    are left out.
    """
    arguments = arguments or PluginArguments()
    made = [PLUGINS[name].filter for name in filters]
    weighted = [(PLUGINS[name].score, weight) for name, weight in scores]
    return Profile(
        filters=tuple(make(arguments) for make in made if make is not None),
        scores=tuple(Weighted(make(arguments), weight) for make, weight in weighted if make is not None),
    )


def default_profile(arguments: PluginArguments | None = None) -> Profile:
    """The profile of upstream's default plugins and weights."""
    return build_profile(PLUGINS, ((plugin.name, plugin.weight) for plugin in PLUGINS.values()), arguments)
