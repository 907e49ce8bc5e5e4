"""Trees of groups with topology constraints at any level: all in one block, each group in one rack, and so on."""

from __future__ import annotations

from pathlib import Path

import jsonschema

from muster.api.codec import Object, Objects, loads
from muster.api.topology import TOPOLOGY_KEY
from muster.nodes.spec import parse_node_spec
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import simulate
from muster.simulator.world import manifests_of
from muster.testing import make_group, make_pod

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
VERSION = "scheduling.k8s.io/v1alpha3"
WORKLOAD = {"workloadName": "w", "templateName": "t"}
NODES = "count=8,cpu=8,racks=4,zones=2"
"""Racks 0 and 2 are in zone 0, racks 1 and 3 in zone 1; two nodes each."""


def composite(name: str, groups: int, parent: str = "", *, key: str = "", **spec: object) -> Object:
    above: Object = {"parentCompositePodGroupName": parent} if parent else {}
    constraint: Object = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    policy = {"gang": {"minGroupCount": groups}}
    whole = {"workloadRef": WORKLOAD, "schedulingPolicy": policy, **above, **constraint, **spec}
    kind = {"apiVersion": VERSION, "kind": "CompositePodGroup"}
    return {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": whole}


def gang(name: str, size: int, parent: str, *, cpu: str = "4", key: str = "", level: str = "") -> Objects:
    constraint: Object = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    group = make_group(name, min_count=size, parentCompositePodGroupName=parent, workloadRef=WORKLOAD, **constraint)
    spec = {"priorityClassName": level} if level else None
    return [group, *(make_pod(f"{name}-{at}", cpu=cpu, group=name, spec=spec) for at in range(size))]


def run(objects: Objects, later: Objects | None = None, nodes: str = NODES) -> Object:
    outcome = simulate(
        manifests_of(objects),
        timed=[(60.0, manifests_of(later))] if later else [],
        nodes=[parse_node_spec(nodes)],
        options=ClusterOptions(node_events=False),
        until_s=1200.0,
    )
    assert not outcome.violations
    return report(outcome)


def racks(shown: Object, prefix: str) -> set[int]:
    pods = [pod for pod in shown["pods"] if pod["name"].startswith(prefix) and pod["node"]]
    return {int(pod["node"].rpartition("-")[2]) % 4 for pod in pods}


def test_all_groups_of_a_tree_are_in_the_domain_of_its_root() -> None:
    objects = [composite("root", 2, key=RACK), *gang("a", 2, "root"), *gang("b", 2, "root")]

    shown = run(objects)

    assert {group["state"] for group in shown["groups"]} == {"Running"}
    (rack,) = racks(shown, "a-") | racks(shown, "b-")
    assert [group["topology"] for group in shown["groups"]] == [{RACK: f"rack-{rack}"}] * 2


def test_groups_have_racks_of_their_own_inside_the_zone_of_the_tree() -> None:
    objects = [composite("root", 2, key=ZONE)]
    objects += [thing for name in "ab" for thing in gang(name, 4, "root", key=RACK)]

    shown = run(objects)

    one, other = racks(shown, "a-"), racks(shown, "b-")
    assert len(one) == len(other) == 1
    assert one != other
    assert {rack % 2 for rack in one | other} in ({0}, {1})


def test_a_tree_that_fits_in_no_domain_waits() -> None:
    objects = [composite("root", 2, key=RACK), *gang("a", 3, "root"), *gang("b", 2, "root")]

    shown = run(objects)

    assert {group["state"] for group in shown["groups"]} == {"Unschedulable"}


def test_members_that_come_later_go_where_the_tree_runs() -> None:
    objects = [composite("root", 1, key=RACK), *gang("a", 2, "root", cpu="1")]

    shown = run(objects, gang("b", 2, "root", cpu="1"))

    assert racks(shown, "a-") == racks(shown, "b-")


def test_a_tree_first_preempts_for_the_groups_that_are_enough_for_it() -> None:
    """One of its groups is enough, and the smaller one needs one node, the larger one two."""
    classes: Objects = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 1), ("high", 9))
    ]
    old = [make_pod(f"old-{at}", cpu="8", spec={"priorityClassName": "low"}) for at in range(8)]
    tree = [composite("root", 1, priorityClassName="high")]
    tree += [*gang("large", 4, "root", level="high"), *gang("small", 2, "root", level="high")]

    shown = run([*classes, *old], tree)

    started = {group["name"]: group["first_scheduled_s"] for group in shown["groups"]}
    first = min(each["time_s"] for each in shown["evictions"])
    before_small = [each for each in shown["evictions"] if each["time_s"] < started["small"]]
    assert [each["time_s"] for each in before_small] == [first]
    assert started["small"] < started["large"]


def test_a_group_of_a_tree_may_have_subgroups() -> None:
    objects = [composite("root", 1, key=ZONE), *gang("a", 4, "root", cpu="8")]
    objects[1]["metadata"]["annotations"] = {TOPOLOGY_KEY: f"subgroups: {{size: 2, required: {RACK}}}"}

    shown = run(objects)

    nodes = [int(pod["node"].rpartition("-")[2]) % 4 for pod in shown["pods"]]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert nodes[0] % 2 == nodes[2] % 2


def test_terms_of_a_group_that_cannot_be_read_hold_the_tree() -> None:
    objects = [composite("root", 1), *gang("a", 1, "root"), *gang("b", 1, "root")]
    objects[1]["metadata"]["annotations"] = {TOPOLOGY_KEY: "required: 3"}

    shown = run(objects)

    assert {pod["reason"] for pod in shown["pods"]} == {"SchedulerError"}
    assert "required: a label key is wanted, not 3" in shown["pods"][0]["message"]


def annotated(obj: Object, text: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {TOPOLOGY_KEY: text}}}


def test_the_annotation_of_a_composite_group_keeps_all_below_it_in_one_domain() -> None:
    root = annotated(composite("root", 2), f"required: {RACK}")

    shown = run([root, *gang("a", 2, "root"), *gang("b", 2, "root")])

    assert len(racks(shown, "a-") | racks(shown, "b-")) == 1


def test_a_composite_group_goes_to_one_domain_of_the_preferred_label_if_there_is_room() -> None:
    tree = [annotated(composite("root", 2), f"{{required: {ZONE}, preferred: {RACK}}}")]

    small = run([*tree, *gang("a", 1, "root"), *gang("b", 2, "root")])
    large = run([*tree, *gang("a", 3, "root"), *gang("b", 2, "root")])

    assert len(racks(small, "a-") | racks(small, "b-")) == 1
    both = racks(large, "a-") | racks(large, "b-")
    assert len(both) == 2
    assert len({rack % 2 for rack in both}) == 1


def test_the_workload_may_say_the_topology_of_its_composite_groups() -> None:
    workload: Object = {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "compositePodGroupTemplates": [
                {
                    "name": "t",
                    "schedulingPolicy": {"gang": {"minGroupCount": 2}},
                    "podGroupTemplates": [{"name": "leaf", "schedulingPolicy": {"gang": {"minCount": 2}}}],
                }
            ]
        },
    }
    objects = [annotated(workload, f"t: {{required: {RACK}}}"), composite("root", 2)]

    shown = run([*objects, *gang("a", 2, "root"), *gang("b", 2, "root")])

    assert len(racks(shown, "a-") | racks(shown, "b-")) == 1


def test_terms_that_only_groups_of_pods_may_have_hold_the_tree_and_name_the_field() -> None:
    root = annotated(composite("root", 1), f"subgroups: {{size: 2, required: {RACK}}}")

    shown = run([root, *gang("a", 1, "root")])

    assert shown["pods"][0]["reason"] == "SchedulerError"
    assert "CompositePodGroup default/root: subgroups: not for a composite group" in shown["pods"][0]["message"]


def test_the_report_says_why_a_tree_waits_and_what_would_help() -> None:
    schema = loads((Path(__file__).parents[2] / "docs/simulate-output.schema.json").read_bytes())
    objects = [composite("root", 2, key=RACK), *gang("a", 3, "root"), *gang("b", 2, "root")]

    shown = run(objects)

    jsonschema.validate(shown, schema)
    explanations = [group["explanation"] for group in shown["groups"]]
    assert explanations[0] == explanations[1]
    assert "compete for cpu" in explanations[0]["summary"]
    kinds = {change["kind"]: change for change in explanations[0]["changes"]}
    assert kinds["addNodes"]["nodes"] == 1
    assert kinds["changeTopology"]["to"] == ZONE
