"""KubeSchedulerConfiguration: what is accepted, what it means, and how faults are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.api.codec import JSON, Object
from muster.api.manifests import load_value
from muster.api.selectors import Operator
from muster.client.informer import Change
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.plugins.node_affinity import NodeAffinity
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.plugins.scoring_strategy import LeastAllocated, MostAllocated, RequestedToCapacityRatio
from muster.engine.profile import Profile
from muster.engine.registry import PLUGINS
from muster.engine.spreading import SpreadConstraint
from muster.scheduler.configuration.fields import parse_duration
from muster.scheduler.configuration.reading import SchedulerConfiguration, read_configuration
from muster.scheduler.core import SchedulerCore
from muster.scheduler.errors import ConfigurationError
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.queue import Backoff
from muster.testing import make_group, make_node, make_pod

EXAMPLES = Path(__file__).parents[2] / "examples"


def configuration(**fields: JSON) -> Object:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def read(**fields: JSON) -> SchedulerConfiguration:
    return read_configuration(configuration(**fields))


def profile(plugins: Object | None = None, **arguments: Object) -> Profile:
    """The only profile of a file with these plugin sets and arguments by plugin name."""
    entries = [{"name": name, "args": args} for name, args in arguments.items()]
    return read(profiles=[{"plugins": plugins, "pluginConfig": entries}]).profiles[0].profile


def faults(value: JSON) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(value)
    return [str(fault) for fault in caught.value.faults]


def faults_of(plugins: Object | None = None, **arguments: Object) -> list[str]:
    """The faults in the only profile, without its path."""
    entries = [{"name": name, "args": args} for name, args in arguments.items()]
    found = faults(configuration(profiles=[{"plugins": plugins, "pluginConfig": entries}]))
    return [fault.replace("profiles[0].", "").replace("pluginConfig[0].args.", "") for fault in found]


def weights(found: Profile) -> dict[str, int]:
    return {weighted.plugin.name: weighted.weight for weighted in found.scores}


def filters(found: Profile) -> list[str]:
    return [plugin.name for plugin in found.filters]


def enabled(*names: str, **weights: int) -> Object:
    entries: list[Object] = [{"name": name} for name in names]
    return {"enabled": entries + [{"name": name, "weight": weight} for name, weight in weights.items()]}


def disabled(*names: str) -> Object:
    return {"disabled": [{"name": name} for name in names]}


def fit_of(found: Profile) -> NodeResourcesFit:
    (fit,) = (plugin for plugin in found.filters if isinstance(plugin, NodeResourcesFit))
    return fit


# -- profiles and plugin sets


def test_an_empty_configuration_is_the_default_profile() -> None:
    found = read()
    assert [each.scheduler_name for each in found.profiles] == ["default-scheduler"]
    assert found.profiles[0].profile == DEFAULT_PROFILE
    assert found.backoff == Backoff(1, 10)
    assert list(found.profiles[0].plugins.points["bind"]) == ["DefaultBinder"]


def test_a_weight_at_multi_point_replaces_the_default_in_its_place() -> None:
    found = profile({"multiPoint": enabled(NodeAffinity=7)})
    assert weights(found) == {**weights(DEFAULT_PROFILE), "NodeAffinity": 7}
    assert list(weights(found)) == list(weights(DEFAULT_PROFILE))


def test_a_weight_at_score_goes_before_that_of_multi_point() -> None:
    found = profile({"score": enabled(NodeAffinity=5), "multiPoint": enabled(NodeAffinity=7)})
    assert weights(found)["NodeAffinity"] == 5
    assert filters(found) == filters(DEFAULT_PROFILE)


def test_a_plugin_that_is_named_again_without_a_weight_has_weight_one() -> None:
    assert weights(profile({"score": enabled("TaintToleration")}))["TaintToleration"] == 1


def test_a_plugin_disabled_at_one_point_acts_at_the_others() -> None:
    found = profile({"score": disabled("NodeAffinity")})
    assert "NodeAffinity" not in weights(found)
    assert filters(found) == filters(DEFAULT_PROFILE)


def test_a_plugin_disabled_at_multi_point_acts_nowhere() -> None:
    found = profile({"multiPoint": disabled("NodeAffinity")})
    assert "NodeAffinity" not in weights(found)
    assert "NodeAffinity" not in filters(found)


def test_a_plugin_disabled_at_multi_point_can_be_enabled_at_one_point() -> None:
    found = profile({"multiPoint": disabled("NodeAffinity"), "filter": enabled("NodeAffinity")})
    assert "NodeAffinity" not in weights(found)
    assert filters(found)[-1] == "NodeAffinity"


def test_all_scores_but_one_are_left_out() -> None:
    found = profile({"score": {**disabled("*"), **enabled(ImageLocality=2)}})
    assert weights(found) == {"ImageLocality": 2}
    assert filters(found) == filters(DEFAULT_PROFILE)


def test_all_plugins_but_a_few_are_left_out() -> None:
    names = ("PrioritySort", "NodeName", "NodeResourcesFit", "DefaultBinder")
    found = profile({"multiPoint": {**disabled("*"), **enabled(*names)}})
    assert filters(found) == ["NodeName", "NodeResourcesFit"]
    assert weights(found) == {"NodeResourcesFit": 1}


def test_plugins_that_are_named_at_a_point_come_first_there() -> None:
    found = profile({"filter": enabled("NodeResourcesFit", "NodeName")})
    assert filters(found)[:3] == ["NodeResourcesFit", "NodeName", "NodeUnschedulable"]


def test_every_profile_has_its_own_rules() -> None:
    found = read(
        profiles=[
            {"schedulerName": "packing", "pluginConfig": [packing()]},
            {"schedulerName": "other", "plugins": {"score": disabled("ImageLocality")}},
        ]
    )
    first, second = (each.profile for each in found.profiles)
    assert isinstance(fit_of(first).strategy, MostAllocated)
    assert isinstance(fit_of(second).strategy, LeastAllocated)
    assert "ImageLocality" in weights(first)
    assert "ImageLocality" not in weights(second)


def packing() -> Object:
    return {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}


# -- arguments


def test_scoring_strategies_have_their_resources_and_weights() -> None:
    resources = [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}]
    args = {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}
    assert fit_of(profile(NodeResourcesFit=args)).strategy == LeastAllocated((("nvidia.com/gpu", 5), ("cpu", 1)))
    assert fit_of(profile(NodeResourcesFit={"scoringStrategy": {}})).strategy == LeastAllocated()


def test_a_utilization_function_is_read() -> None:
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    args = {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}}
    assert fit_of(profile(NodeResourcesFit=args)).strategy == RequestedToCapacityRatio(((0, 10), (100, 0)))


def test_resources_can_be_left_to_others() -> None:
    found = fit_of(profile(NodeResourcesFit={"ignoredResources": ["a.b/c"], "ignoredResourceGroups": ["x.y"]}))
    assert (sorted(found.ignored), sorted(found.ignored_groups)) == (["a.b/c"], ["x.y"])
    assert found.strategy == LeastAllocated()


def test_an_added_affinity_holds_for_all_pods_of_the_profile() -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    found = profile(NodeAffinity={"addedAffinity": required})
    (affinity,) = (plugin for plugin in found.filters if isinstance(plugin, NodeAffinity))
    assert affinity.added.required is not None
    assert affinity.added.required[0].labels[0].operator is Operator.IN


def test_arguments_of_all_plugins_are_read() -> None:
    spread = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    arguments: dict[str, Object] = {
        "DefaultPreemption": {"minCandidateNodesPercentage": 0},
        "DynamicResources": {"filterTimeout": "5s", "bindingTimeout": "1m30s"},
        "InterPodAffinity": {"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}, {"name": "nvidia.com/gpu"}]},
        "PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [spread]},
        "VolumeBinding": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "VolumeBindingArgs"},
    }
    entries = [{"name": name, "args": args} for name, args in arguments.items()]
    found = read(profiles=[{"pluginConfig": entries}]).profiles[0].arguments
    assert found.preemption.min_candidate_nodes_percentage == 0
    assert found.dynamic_resources.binding_timeout_s == 90
    assert found.inter_pod.hard_pod_affinity_weight == 0
    assert found.balanced_resources == ("cpu", "nvidia.com/gpu")
    assert found.spread.constraints == (SpreadConstraint("zone", 2, hard=False),)
    assert found.volume_binding.bind_timeout_s == 600


# -- what is refused


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (None, "must be an object of kind KubeSchedulerConfiguration"),
        ({}, "apiVersion: unsupported value '': must be kubescheduler.config.k8s.io/v1"),
        ({**configuration(), "kind": "Pod"}, "kind: unsupported value 'Pod': must be KubeSchedulerConfiguration"),
        (configuration(profils=[]), "profils: unknown field, did you mean profiles?"),
        (configuration(profiles={}), "profiles: must be a list, is an object"),
        (configuration(profiles=["a"]), "profiles[0]: must be an object, is 'a'"),
        (configuration(parallelism=0), "parallelism: invalid value 0: must be 1 or more"),
        (configuration(parallelism=True), "parallelism: must be an integer, is true"),
        (configuration(percentageOfNodesToScore=101), "percentageOfNodesToScore: invalid value 101: not in valid"),
        (configuration(podInitialBackoffSeconds=11), "podMaxBackoffSeconds: invalid value 10: must be at least pod"),
        (configuration(extenders=[{"urlPrefix": "http://x"}]), "extenders: extenders are not supported"),
        (configuration(leaderElection={"leaseDuration": "soon"}), "leaderElection.leaseDuration: invalid value 'soon'"),
        (configuration(clientConnection={"qps": "many"}), "clientConnection.qps: must be a number, is 'many'"),
        (configuration(profiles=[{}, {}]), "profiles[0].schedulerName: is missing"),
        (
            configuration(profiles=[{"schedulerName": "a"}, {"schedulerName": "a"}]),
            "profiles[1].schedulerName: duplicate value 'a'",
        ),
    ],
)
def test_faults_of_a_file_name_their_path(value: JSON, want: str) -> None:
    assert faults(value)[0].startswith(want)


@pytest.mark.parametrize(
    ("plugins", "want"),
    [
        ({"score": enabled("Fit")}, "plugins.score.enabled[0].name: plugin 'Fit' does not exist"),
        ({"multiPoint": enabled("EBSLimits")}, "plugins.multiPoint.enabled[0].name: plugin 'EBSLimits' was removed"),
        ({"score": enabled("NodeName")}, "plugins.score.enabled[0].name: plugin 'NodeName' does not act at score"),
        ({"scores": {}}, "plugins.scores: unknown field, did you mean score?"),
        ({"score": enabled(ImageLocality=-1)}, "plugins.score.enabled[0].weight: invalid value -1: must be 0 or more"),
        ({"score": {"enabled": [{}]}}, "plugins.score.enabled[0].name: is missing"),
        ({"queueSort": disabled("*")}, "plugins.queueSort: exactly one plugin must sort the queue, not 0"),
        ({"bind": disabled("DefaultBinder")}, "plugins.bind: at least one plugin must bind"),
        ({"filter": enabled("NodeName", "NodeName")}, "plugins.filter.enabled: plugin 'NodeName' is enabled more than"),
    ],
)
def test_faults_of_plugin_sets_name_their_path(plugins: Object, want: str) -> None:
    assert faults_of(plugins)[0].startswith(want)


RATIO = "RequestedToCapacityRatio"


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "Packed"}},
            "scoringStrategy.type: unsupported value 'Packed'",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": RATIO}},
            "scoringStrategy.requestedToCapacityRatio: must be g",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": RATIO, "requestedToCapacityRatio": {"shape": []}}},
            "scoringStrategy.requestedToCapacityRatio.shape: at least one point",
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
            "scoringStrategy.resources[0].weight: invalid value 101",
        ),
        ("NodeResourcesFit", {"ignoredResourceGroups": ["a/b"]}, "ignoredResourceGroups[0]: invalid value 'a/b'"),
        ("NodeResourcesFit", {"kind": "FitArgs"}, "kind: unsupported value 'FitArgs': must be NodeResourcesFitArgs"),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 2}]}, "resources[0].weight: inva"),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight: invalid value 101"),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}, "minCandidateNodesP"),
        ("PodTopologySpread", {"defaultConstraints": [{}]}, "defaultConstraints[0].topologyKey: is missing"),
        ("VolumeBinding", {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds: invalid value -1: must be 0 or more"),
        ("DynamicResources", {"bindingTimeout": "0.5s"}, "bindingTimeout: invalid value '0.5s': must be at least 1s"),
        ("NodeAffinity", {"addedAffinity": {"required": {}}}, "addedAffinity.required: unknown field"),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]
                    }
                }
            },
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: ",
        ),
        ("ImageLocality", {"size": 1}, "pluginConfig[0].args: plugin 'ImageLocality' takes no arguments"),
        ("Nothing", {}, "pluginConfig[0].name: plugin 'Nothing' does not exist"),
    ],
)
def test_faults_of_arguments_name_their_path(name: str, args: Object, want: str) -> None:
    assert faults_of(None, **{name: args})[0].startswith(want)


def test_all_faults_are_named_at_once() -> None:
    value = configuration(parallelism=0, profiles=[{"plugins": {"score": enabled("A", "B")}}], other=1)
    assert len(faults(value)) == 4


def test_what_means_nothing_is_accepted_and_listed() -> None:
    election = {"leaderElect": True, "leaseDuration": "15s", "renewDeadline": "10s", "resourceLock": "leases"}
    found = read(
        leaderElection=election,
        parallelism=16,
        clientConnection={"kubeconfig": "/etc/x", "qps": 50.5},
        profiles=[{"percentageOfNodesToScore": 50}],
    )
    want = ("parallelism", "clientConnection", "leaderElection", "profiles[0].percentageOfNodesToScore")
    assert found.ignored == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("1h2m3s", 3723), ("1.5s", 1.5), ("250ms", 0.25), ("0", 0), ("-1s", -1), ("1", None), ("s", None), ("", None)],
)
def test_durations_are_read_as_go_writes_them(text: str, want: float | None) -> None:
    assert parse_duration(text) == want


def test_every_plugin_of_the_registry_acts_where_it_is_made() -> None:
    for plugin in PLUGINS.values():
        assert plugin.filter is None or "filter" in plugin.points
        assert plugin.score is None or "score" in plugin.points
        assert plugin.weight == 0 or "score" in plugin.points


# -- profiles at work


def placed(options: SchedulerOptions, *objects: Object) -> dict[str, str]:
    core = SchedulerCore(options)
    apply = {"Node": core.cache.apply_nodes, "Pod": core.cache.apply_pods, "PodGroup": core.cache.apply_pod_groups}
    for obj in objects:
        apply[obj["kind"]]([Change("ADDED", None, obj)])
    core.settle(0.0)
    found: dict[str, str] = {}
    while verdicts := core.decide(0.0):
        found.update({each.pod: each.node for verdict in verdicts for each in verdict.placements})
    return found


def pods(prefix: str, count: int, scheduler: str) -> list[Object]:
    spec = {"schedulerName": scheduler}
    made = [make_pod(f"{prefix}-{index}", cpu="1", spec=spec) for index in range(count)]
    return made


def test_every_pod_follows_the_profile_of_its_scheduler_name() -> None:
    found = read(
        profiles=[{"schedulerName": "packing", "pluginConfig": [packing()]}, {"schedulerName": "spreading"}],
    )
    options = SchedulerOptions().with_configuration(found)
    nodes = [make_node(f"n{index}", cpu="8") for index in range(4)]
    went = placed(options, *nodes, *pods("p", 4, "packing"), *pods("s", 3, "spreading"), *pods("x", 1, "other"))
    assert len({went[f"default/p-{index}"] for index in range(4)}) == 1
    assert len({went[f"default/s-{index}"] for index in range(3)}) == 3
    assert "default/x-0" not in went


def test_groups_follow_the_profile_of_their_pods() -> None:
    found = read(profiles=[{"schedulerName": "packing", "pluginConfig": [packing()]}])
    members = [make_pod(f"a-{index}", group="a", cpu="1") for index in range(3)]
    for member in members:
        member["spec"]["schedulerName"] = "packing"
    nodes = [make_node(f"n{index}", cpu="8") for index in range(3)]
    went = placed(SchedulerOptions().with_configuration(found), *nodes, make_group("a", min_count=3), *members)
    assert len(set(went.values())) == 1


def test_muster_is_another_name_of_the_default_scheduler_unless_the_file_names_it() -> None:
    default = SchedulerOptions().with_configuration(read(profiles=[{"pluginConfig": [packing()]}]))
    assert default.scheduler_names == {"default-scheduler", "muster"}
    assert default.profile_of("muster") is default.profile_of("default-scheduler")
    other = SchedulerOptions().with_configuration(read(profiles=[{"schedulerName": "other"}]))
    assert other.scheduler_names == {"other"}


def test_a_resource_that_the_profile_ignores_wakes_nobody_wrongly() -> None:
    args = {"ignoredResources": ["nvidia.com/gpu"]}
    found = read(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}])
    core = SchedulerCore(SchedulerOptions().with_configuration(found))
    core.cache.apply_nodes([Change("ADDED", None, make_node("full", cpu="1"))])
    core.cache.apply_pods([Change("ADDED", None, make_pod("a", cpu="2", gpu=1))])
    core.settle(0.0)
    assert not core.decide(0.0)[0].placements
    core.cache.apply_nodes([Change("ADDED", None, make_node("empty", cpu="4"))])
    core.settle(5.0)
    assert [each.node for verdict in core.decide(5.0) for each in verdict.placements] == ["empty"]


def test_the_example_is_a_configuration() -> None:
    found = read_configuration(load_value(EXAMPLES / "scheduler-configuration.yaml"))
    assert [each.scheduler_name for each in found.profiles] == ["default-scheduler", "spreading"]
