"""Every plugin answers for all nodes at once what a plain loop over the nodes answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.api.selectors import node_selector_term
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.diagnose import diagnose, node_statuses
from muster.engine.plugins.image_locality import ImageLocality
from muster.engine.plugins.node_affinity import NodeAffinity
from muster.engine.plugins.node_resources_fit import NodeResourcesFit
from muster.engine.plugins.scoring_strategy import MostAllocated, RequestedToCapacityRatio
from muster.engine.plugins.taint_toleration import TaintToleration
from muster.engine.profile import FilterPlugin, ScorePlugin
from muster.engine.shape import parse_node_rules
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod


def cluster(*nodes: Object) -> ClusterState:
    state = ClusterState()
    for node in nodes:
        state.set_node(node)
    return state


def fitting(state: ClusterState, pod: Object, plugin: FilterPlugin) -> dict[str, bool]:
    snapshot = state.snapshot()
    counts = plugin.count(state.shape_of(pod), snapshot)
    return dict(zip(snapshot.table.names, (counts > 0).tolist(), strict=True))


def scores(state: ClusterState, pod: Object, plugin: ScorePlugin, k: int = 1) -> list[int]:
    snapshot = state.snapshot()
    rows = np.arange(len(snapshot), dtype=np.int64)
    raw = plugin.score(state.shape_of(pod), snapshot, rows, np.full(len(rows), k, dtype=np.int64))
    return [int(each) for each in plugin.normalisation.scale(raw, int(raw.max()))]


def text(state: ClusterState, pod: Object) -> str:
    return diagnose(DEFAULT_PROFILE, state.snapshot(), state.shape_of(pod), "default/pod").text()


# -- taints

keys, effects = st.sampled_from(["a", "b"]), st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
values = st.sampled_from(["", "x", "y"])
taints = st.lists(st.fixed_dictionaries({"key": keys, "value": values, "effect": effects}), max_size=3)
tolerations = st.lists(
    st.one_of(
        st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"key": keys, "effect": effects}),
        st.fixed_dictionaries({"key": keys, "value": values}, optional={"effect": effects}),
    ),
    max_size=3,
)


def tolerated(taint: Object, entries: list[Object]) -> bool:
    for entry in entries:
        if entry.get("effect") not in (None, taint["effect"]) or entry.get("key") not in (None, taint["key"]):
            continue
        if entry.get("operator") == "Exists" or entry.get("value", "") == taint["value"]:
            return True
    return False


@settings(max_examples=40, deadline=None)
@given(st.lists(taints, min_size=1, max_size=5), tolerations)
def test_taints_filter_and_score_as_a_loop_does(node_taints: list[list[Object]], entries: list[Object]) -> None:
    state = cluster(*(make_node(f"n{at}", taints=each) for at, each in enumerate(node_taints)))
    pod = make_pod(spec={"tolerations": entries})

    left = [[taint for taint in each if not tolerated(taint, entries)] for each in node_taints]
    hard = [any(taint["effect"] != "PreferNoSchedule" for taint in each) for each in left]
    soft = [sum(taint["effect"] == "PreferNoSchedule" for taint in each) for each in left]
    assert list(fitting(state, pod, TaintToleration()).values()) == [not each for each in hard]
    want = [100 - 100 * each // max(soft) if max(soft) else 100 for each in soft]
    assert scores(state, pod, TaintToleration()) == want


# -- node affinity

labels = st.dictionaries(st.sampled_from(["gen", "disk"]), st.sampled_from(["1", "2", "ssd", ""]), max_size=2)
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["gen", "disk"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["1", "ssd", "other"]), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": st.just("gen"), "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries({"key": st.just("gen"), "operator": st.sampled_from(["Gt", "Lt"]), "values": st.just(["1"])}),
)
fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(["n0", "n1"]), min_size=1, max_size=1),
    }
)
terms = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(expressions, max_size=2), "matchFields": st.lists(fields, max_size=2)}
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(labels, min_size=1, max_size=4),
    st.lists(terms, max_size=3),
    st.lists(st.tuples(terms, st.integers(1, 100)), max_size=3),
)
def test_node_affinity_filters_and_scores_as_a_loop_does(
    node_labels: list[dict[str, str]], required: list[Object], preferred: list[tuple[Object, int]]
) -> None:
    state = cluster(*(make_node(f"n{at}", labels=each) for at, each in enumerate(node_labels)))
    weighted = [{"weight": weight, "preference": term} for term, weight in preferred]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required},
        "preferredDuringSchedulingIgnoredDuringExecution": weighted,
    }
    pod = make_pod(spec={"affinity": {"nodeAffinity": affinity}})

    def holds(term: Object, at: int) -> bool:
        return node_selector_term(term).matches(node_labels[at], f"n{at}")

    nodes = range(len(node_labels))
    fits = fitting(state, pod, NodeAffinity())
    assert list(fits.values()) == [any(holds(term, at) for term in required) for at in nodes]
    raw = [sum(weight for term, weight in preferred if holds(term, at)) for at in nodes]
    assert scores(state, pod, NodeAffinity()) == [100 * each // max(raw) if max(raw) else 0 for each in raw]


def test_node_selector_needs_all_pairs() -> None:
    state = cluster(make_node("a", labels={"x": "1", "y": "2"}), make_node("b", labels={"x": "1"}))

    assert fitting(state, make_pod(spec={"nodeSelector": {"x": "1", "y": "2"}}), NodeAffinity()) == {
        "a": True,
        "b": False,
    }


def test_affinity_of_the_profile_applies_to_every_pod() -> None:
    term = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    plugin = NodeAffinity(added=parse_node_rules({"affinity": {"nodeAffinity": required}}))
    state = cluster(make_node("a", labels={"x": "1"}), make_node("b"))

    assert fitting(state, make_pod(), plugin) == {"a": True, "b": False}


# -- ports, names, cordons


@pytest.mark.parametrize(
    ("held", "wanted", "want_fits"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"containerPort": 80}, {"containerPort": 80}, True),
    ],
)
def test_host_port_conflicts(held: Object, wanted: Object, want_fits: bool) -> None:
    def with_port(port: Object) -> Object:
        return make_pod(spec={"containers": [{"name": "c", "image": "x", "ports": [port]}]})

    state = cluster(make_node("n"))
    state.add_pod("default/held", with_port(held), "n")

    assert (node_statuses(DEFAULT_PROFILE, state.snapshot(), state.shape_of(with_port(wanted))) == {}) is want_fits


def test_diagnosis_counts_the_first_failing_rule_of_each_node_and_all_its_reasons() -> None:
    state = cluster(
        make_node("full", cpu="1", memory="1Gi", pods=1),
        make_node("small", cpu="1"),
        make_node("cordoned", cpu="1", unschedulable=True),
        make_node("tainted", cpu="1", taints=[{"key": "k", "effect": "NoSchedule"}]),
        make_node("other", labels={"disk": "hdd"}),
    )
    state.add_pod("default/a", make_pod(cpu="500m"), "full")
    pod = make_pod(cpu="2", memory="2Gi", spec={"affinity": not_on_disk("hdd")})

    assert text(state, pod) == (
        "0/5 nodes are available: 1 Insufficient memory, 1 Too many pods, 1 node(s) didn't match Pod's node "
        "affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def not_on_disk(value: str) -> Object:
    term = {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": [value]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def pinned_to(*names: str) -> Object:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_nodes_outside_the_pinned_set_are_told_apart() -> None:
    state = cluster(make_node("a", cpu="1"), make_node("b"), make_node("c", unschedulable=True))

    want = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    assert text(state, make_pod(cpu="2", spec=pinned_to("a"))) == want
    assert text(state, make_pod(spec=pinned_to("a", "b"))) == "0/3 nodes are available: pod affinity terms conflict."


def test_request_beyond_the_whole_node_cannot_be_helped_by_preemption() -> None:
    state = cluster(make_node("small", cpu="1"), make_node("busy", cpu="4"), make_node("none", cpu="8", pods=0))
    state.add_pod("default/a", make_pod(cpu="3"), "busy")

    statuses = node_statuses(DEFAULT_PROFILE, state.snapshot(), state.shape_of(make_pod(cpu="2")))

    assert {name: (status.reasons, status.resolvable) for name, status in statuses.items()} == {
        "small": (("Insufficient cpu",), False),
        "busy": (("Insufficient cpu",), True),
        "none": (("Too many pods",), True),
    }


def test_resource_that_no_node_offers_is_insufficient_everywhere() -> None:
    state = cluster(make_node("a"), make_node("b"))
    snapshot = state.snapshot()

    shape = state.shape_of(make_pod(gpu=1))

    want = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert diagnose(DEFAULT_PROFILE, snapshot, shape, "p").text() == want
    assert diagnose(DEFAULT_PROFILE, state.snapshot(), shape, "p").text() == want


def test_ignored_resources_are_left_to_others() -> None:
    state = cluster(make_node("a"))

    assert fitting(state, make_pod(gpu=1), NodeResourcesFit(ignored=frozenset({"nvidia.com/gpu"}))) == {"a": True}
    assert fitting(state, make_pod(gpu=1), NodeResourcesFit(ignored_groups=frozenset({"nvidia.com"}))) == {"a": True}


def test_pod_waits_for_a_claim_that_does_not_exist_and_says_so() -> None:
    state = cluster(make_node("a"))
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]

    assert 'could not find ResourceClaim "default/gpu"' in text(state, make_pod(spec={"resourceClaims": claims}))


def test_soft_rules_without_a_plugin_do_not_keep_a_pod_waiting() -> None:
    state = cluster(make_node("a"))
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}

    statuses = node_statuses(
        DEFAULT_PROFILE, state.snapshot(), state.shape_of(make_pod(spec={"topologySpreadConstraints": [spread]}))
    )

    assert statuses == {}


# -- scores


def test_least_and_most_allocated_mirror_each_other() -> None:
    state = cluster(make_node("a", cpu="4", memory="8Gi"))
    pod = make_pod(cpu="1", memory="2Gi")

    assert scores(state, pod, NodeResourcesFit()) == [75]
    assert scores(state, pod, NodeResourcesFit(MostAllocated())) == [25]
    assert scores(state, pod, NodeResourcesFit(), k=3) == [25]


def test_requested_to_capacity_ratio_drops_resources_that_score_zero() -> None:
    state = cluster(make_node("a", cpu="4", memory="8Gi"))
    strategy = RequestedToCapacityRatio(((0, 10), (50, 0), (100, 5)), (("cpu", 2), ("memory", 3)))

    assert scores(state, make_pod(cpu="1", memory="4Gi"), NodeResourcesFit(strategy)) == [50]


def test_image_counts_by_its_size_and_spread() -> None:
    image = {"names": ["big:latest"], "sizeBytes": 1000 * 2**20}
    nodes = [make_node(f"n{at}") for at in range(10)]
    nodes[0]["status"]["images"] = [image]
    state = cluster(*nodes)
    pod = make_pod(spec={"containers": [{"name": "c", "image": "big"}]})

    assert scores(state, pod, ImageLocality()) == [100 * (100 - 23) // (1000 - 23)] + [0] * 9
