"""The arguments of plugins in a profile (`pluginConfig`), with kube-scheduler's defaults and rules. Pure.

Source of the rules: kube-scheduler `apis/config/v1/defaults.go`, `apis/config/validation/validation_pluginargs.go`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from muster.api.labels import label_key_errors
from muster.api.selectors import NodeSelectorTerm, SelectorError, node_selector_term
from muster.engine.plugins.scoring_strategy import (
    DEFAULT_WEIGHTS,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ScoringStrategy,
)
from muster.engine.profile import PreemptionArguments
from muster.engine.registry import (
    DynamicResourcesArguments,
    FitArguments,
    InterPodArguments,
    PluginArguments,
    SpreadArguments,
    VolumeBindingArguments,
)
from muster.engine.shape import NodeRules, PreferredTerm
from muster.engine.spreading import SpreadConstraint
from muster.scheduler.configuration.fields import INT64, Fields
from muster.scheduler.configuration.plugins import is_known

API_VERSION = "kubescheduler.config.k8s.io/v1"


def read_arguments(profile: Fields) -> PluginArguments:
    """The `pluginConfig` of a profile. Faults are noted, and what is faulty keeps its default."""
    arguments, seen = PluginArguments(), set[str]()
    for entry in profile.objects("pluginConfig"):
        name, args = entry.text("name"), entry.object("args")
        entry.finish()
        if name in seen:
            entry.fault("", f"plugin {name!r} is configured more than once")
        elif is_known(entry, name) and args is not None:
            arguments = _read(arguments, name, args)
        seen.add(name)
    return arguments


def _read(arguments: PluginArguments, name: str, args: Fields) -> PluginArguments:
    """The arguments with those of one plugin replaced."""
    reader = _READERS.get(name)
    if reader is None:
        args.fault("", f"plugin {name!r} takes no arguments")
        return arguments
    args.text("apiVersion", API_VERSION, one_of=(API_VERSION,))
    args.text("kind", f"{name}Args", one_of=(f"{name}Args",))
    arguments = reader(arguments, args)
    args.finish()
    return arguments


def _fit(arguments: PluginArguments, args: Fields) -> PluginArguments:
    resources, groups = args.texts("ignoredResources"), args.texts("ignoredResourceGroups")
    for index, name in enumerate(resources):
        _check_label_key(args, f"ignoredResources[{index}]", name)
    for index, name in enumerate(groups):
        if "/" in name:
            args.fault(f"ignoredResourceGroups[{index}]", f"invalid value {name!r}: a group of resources has no '/'")
        else:
            _check_label_key(args, f"ignoredResourceGroups[{index}]", name)
    strategy = args.object("scoringStrategy")
    fit = FitArguments(ignored_resources=frozenset(resources), ignored_groups=frozenset(groups))
    return replace(arguments, fit=fit if strategy is None else replace(fit, strategy=_strategy(strategy)))


def _strategy(fields: Fields) -> ScoringStrategy:
    kinds = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    kind = fields.text("type", "LeastAllocated", one_of=kinds)
    weights = _resource_weights(fields, high=100) or DEFAULT_WEIGHTS
    ratio = fields.object("requestedToCapacityRatio")
    fields.finish()
    if kind == "RequestedToCapacityRatio":
        points = () if ratio is None else _points(ratio)
        if ratio is None:
            fields.fault("requestedToCapacityRatio", f"must be given when type is {kind}")
        return RequestedToCapacityRatio(points or ((0, 0), (100, 10)), weights)
    if ratio is not None:
        fields.fault("requestedToCapacityRatio", "is only for type RequestedToCapacityRatio")
    return MostAllocated(weights) if kind == "MostAllocated" else LeastAllocated(weights)


def _resource_weights(fields: Fields, *, high: int) -> tuple[tuple[str, int], ...]:
    """`resources`: names and weights (1 where none or 0 is said)."""
    found = []
    for entry in fields.objects("resources"):
        name = entry.text("name")
        weight = entry.integer("weight", 0)
        if weight and not 1 <= weight <= high:
            must = "must be 1" if high == 1 else f"not in valid range [1, {high}]"
            entry.fault("weight", f"invalid value {weight}: {must}")
        if not name:
            entry.fault("name", "is missing")
        entry.finish()
        found.append((name, weight or 1))
    return tuple(found)


def _points(ratio: Fields) -> tuple[tuple[int, int], ...]:
    """The points of a utilization function: utilization rising in 0..100, score in 0..10."""
    found, last = [], -1
    for entry in ratio.objects("shape"):
        utilization, score = entry.integer("utilization", 0, 0, 100), entry.integer("score", 0, 0, 10)
        entry.finish()
        if utilization <= last:
            entry.fault("utilization", f"invalid value {utilization}: values must rise from point to point")
        last = utilization
        found.append((utilization, score))
    if not found:
        ratio.fault("shape", "at least one point must be given")
    ratio.finish()
    return tuple(found)


def _balanced(arguments: PluginArguments, args: Fields) -> PluginArguments:
    names = [name for name, _ in _resource_weights(args, high=1)]
    for index, name in enumerate(names):
        if name in names[:index]:
            args.fault(f"resources[{index}].name", f"duplicate value {name!r}")
    return replace(arguments, balanced_resources=tuple(names)) if names else arguments


def _affinity(arguments: PluginArguments, args: Fields) -> PluginArguments:
    added = args.object("addedAffinity")
    if added is None:
        return arguments
    required = added.object("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None
    if required is not None:
        terms = tuple(_term(each) for each in required.objects("nodeSelectorTerms"))
        required.finish()
        if not terms:
            required.fault("nodeSelectorTerms", "must have at least one node selector term")
    preferred = []
    for entry in added.objects("preferredDuringSchedulingIgnoredDuringExecution"):
        weight, preference = entry.integer("weight", 0, 1, 100), entry.object("preference")
        entry.finish()
        if preference is None:
            entry.fault("preference", "is missing")
        else:
            preferred.append(PreferredTerm(weight, _term(preference)))
    added.finish()
    return replace(arguments, added_affinity=NodeRules(required=terms, preferred=tuple(preferred)))


def _term(fields: Fields) -> NodeSelectorTerm:
    for name in ("matchExpressions", "matchFields"):
        for entry in fields.objects(name):
            entry.text("key")
            entry.text("operator")
            entry.texts("values")
            entry.finish()
    fields.finish()
    try:
        return node_selector_term(fields.value)
    except (SelectorError, AttributeError, KeyError, TypeError) as error:
        fields.fault("", str(error) if isinstance(error, SelectorError) else "is no node selector term")
        return NodeSelectorTerm()


def _spread(arguments: PluginArguments, args: Fields) -> PluginArguments:
    kind = args.text("defaultingType", "System", one_of=("System", "List"))
    constraints = tuple(_constraint(each) for each in args.objects("defaultConstraints"))
    if kind == "System":
        if constraints:
            args.fault("defaultingType", "must be List when defaultConstraints are given")
        return arguments
    for index, constraint in enumerate(constraints):
        if any(_repeats(constraint, other) for other in constraints[:index]):
            args.fault(f"defaultConstraints[{index}]", "repeats topologyKey and whenUnsatisfiable of another one")
    return replace(arguments, spread=SpreadArguments(constraints))


def _constraint(fields: Fields) -> SpreadConstraint:
    key, action = fields.text("topologyKey"), fields.text("whenUnsatisfiable")
    if key:
        _check_label_key(fields, "topologyKey", key)
    else:
        fields.fault("topologyKey", "is missing")
    if action not in ("DoNotSchedule", "ScheduleAnyway"):
        said = f"unsupported value {action!r}: must be" if action else "is missing: must be"
        fields.fault("whenUnsatisfiable", f"{said} DoNotSchedule or ScheduleAnyway")
    if fields.raw("labelSelector") is not None:
        fields.fault("labelSelector", "must not be given: it is that of the services and sets that select the pod")
    constraint = SpreadConstraint(
        topology_key=key,
        max_skew=fields.integer("maxSkew", 0, 1),
        hard=action == "DoNotSchedule",
        min_domains=fields.integer("minDomains", 1, 1) if fields.has("minDomains") else None,
        honor_affinity=fields.text("nodeAffinityPolicy", "Honor", one_of=("Honor", "Ignore")) == "Honor",
        honor_taints=fields.text("nodeTaintsPolicy", "Ignore", one_of=("Honor", "Ignore")) == "Honor",
        match_label_keys=tuple(fields.texts("matchLabelKeys")),
    )
    if not fields.has("maxSkew"):
        fields.fault("maxSkew", "is missing: must be 1 or more")
    fields.raw("minDomains")
    fields.finish()
    return constraint


def _repeats(constraint: SpreadConstraint, other: SpreadConstraint) -> bool:
    return (constraint.topology_key, constraint.hard) == (other.topology_key, other.hard)


def _inter_pod(arguments: PluginArguments, args: Fields) -> PluginArguments:
    weight = args.integer("hardPodAffinityWeight", 1, 0, 100)
    return replace(arguments, inter_pod=InterPodArguments(weight, args.boolean("ignorePreferredTermsOfExistingPods")))


def _preemption(arguments: PluginArguments, args: Fields) -> PluginArguments:
    percentage = args.integer("minCandidateNodesPercentage", 10, 0, 100)
    absolute = args.integer("minCandidateNodesAbsolute", 100, 0)
    if not percentage and not absolute:
        args.fault("minCandidateNodesPercentage", "cannot be zero at the same time as minCandidateNodesAbsolute")
    return replace(arguments, preemption=PreemptionArguments(percentage, absolute))


def _volume_binding(arguments: PluginArguments, args: Fields) -> PluginArguments:
    timeout_s = args.integer("bindTimeoutSeconds", 600, 0, INT64)
    if args.raw("shape") is not None:
        args.fault("shape", "must not be given: capacity scoring (gate StorageCapacityScoring) is off")
    return replace(arguments, volume_binding=VolumeBindingArguments(timeout_s))


def _dynamic_resources(arguments: PluginArguments, args: Fields) -> PluginArguments:
    found = DynamicResourcesArguments(args.seconds("filterTimeout", 10.0), args.seconds("bindingTimeout", 600.0, 1.0))
    return replace(arguments, dynamic_resources=found)


def _check_label_key(fields: Fields, name: str, key: str) -> None:
    for error in label_key_errors(key)[:1]:
        fields.fault(name, f"invalid value {key!r}: {error}")


_READERS: dict[str, Callable[[PluginArguments, Fields], PluginArguments]] = {
    "DefaultPreemption": _preemption,
    "DynamicResources": _dynamic_resources,
    "InterPodAffinity": _inter_pod,
    "NodeAffinity": _affinity,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _spread,
    "VolumeBinding": _volume_binding,
}
