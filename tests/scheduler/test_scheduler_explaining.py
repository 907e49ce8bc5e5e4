"""Explanations of what a scheduler's core knows: trees of groups, whose changes are tried as a whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.cluster import Cluster
from muster.testing import make_group, make_node, make_pod

V1ALPHA3 = "scheduling.k8s.io/v1alpha3"


def tree(min_groups: int, leaves: list[tuple[int, int]]) -> list[Object]:
    """A composite group with a gang for each (pods, cpu of each)."""
    workload: Object = {
        "apiVersion": V1ALPHA3,
        "kind": "CompositePodGroup",
        "metadata": {"name": "tree", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": min_groups}},
            "workloadRef": {"workloadName": "w", "templateName": "tree"},
        },
    }
    objects = [workload]
    for at, (pods, cpu) in enumerate(leaves):
        ref = {"workloadName": "w", "templateName": f"l{at}"}
        objects.append(
            make_group(
                f"l{at}", min_count=pods, version="v1alpha3", parentCompositePodGroupName="tree", workloadRef=ref
            )
        )
        objects += [make_pod(f"l{at}-{index}", group=f"l{at}", cpu=str(cpu)) for index in range(pods)]
    return objects


def nodes(sizes: list[int]) -> list[Object]:
    return [make_node(f"n{at}", cpu=str(size)) for at, size in enumerate(sizes)]


def explained(sizes: list[int], min_groups: int, leaves: list[tuple[int, int]], effort: int = 2048) -> Object:
    (found,) = Cluster.load([*nodes(sizes), *tree(min_groups, leaves)]).explain(None, "podgroup/l0", effort=effort)
    return found


def fits(sizes: list[int], min_groups: int, leaves: list[tuple[int, int]]) -> bool:
    return bool(explained(sizes, min_groups, leaves, effort=1)["state"] == "WouldBePlaced")


def test_tree_says_which_groups_fit_and_what_would_help() -> None:
    found = explained([4, 4], 3, [(2, 2), (2, 1), (2, 2)])

    assert (found["kind"], found["name"], found["state"]) == ("CompositePodGroup", "tree", "Infeasible")
    assert [each["state"] for each in found["groups"]] == ["Fits", "Fits", "Infeasible"]
    changes = {(each["kind"], each.get("group"), each.get("field")): each for each in found["changes"]}
    assert changes["addNodes", None, None]["nodes"] == 1
    assert changes["lowerMinCount", "default/tree", "minGroupCount"]["to"] == 2
    assert changes["lowerMinCount", "default/l0", "minCount"]["to"] == 1


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.integers(1, 2),
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3)), min_size=2, max_size=3),
)
def test_changes_of_a_tree_work_and_minimal_ones_are_not_undercut(
    sizes: list[int], min_groups: int, leaves: list[tuple[int, int]]
) -> None:
    for change in explained(sizes, min_groups, leaves)["changes"]:
        if change["kind"] == "addNodes":
            like, number = sizes[int(change["like"][1:])], change["nodes"]
            assert fits([*sizes, *[like] * number], min_groups, leaves)
            assert not change["minimal"] or not fits([*sizes, *[like] * (number - 1)], min_groups, leaves)
        elif change.get("field") == "minGroupCount":
            assert fits(sizes, change["to"], leaves)
            assert not change["minimal"] or not fits(sizes, change["to"] + 1, leaves)


def test_pod_of_a_running_group_says_that_nothing_waits() -> None:
    cluster = Cluster.load([make_node("n0"), make_group("g", min_count=1), make_pod("p", group="g", node="n0")])

    (found,) = cluster.explain(None, "pod/p")

    assert (found["state"], found["summary"]) == ("Placed", "1 pod placed on 1 node, none waits")
    assert cluster.explain() == []


def test_tree_in_one_domain_names_each_domain_and_the_label_to_drop() -> None:
    objects = tree(2, [(2, 2), (1, 4)])
    objects[0]["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    racks = [make_node(f"n{at}", cpu="4", labels={"rack": f"r{at}"}) for at in range(2)]

    (found,) = Cluster.load([*racks, *objects]).explain(None, "podgroup/l0", effort=2048)

    assert found["state"] == "Infeasible"
    assert [(each["domain"], each["state"]) for each in found["domains"]] == [
        ("r0", "Infeasible"),
        ("r1", "Infeasible"),
    ]
    assert "compete for cpu" in found["proof"]
    assert {"kind": "changeTopology", "key": "rack", "to": None}.items() <= changes_of(found)["changeTopology"].items()
    assert changes_of(found)["lowerMinCount"]["to"] == 1


def changes_of(found: Object) -> dict[str, Object]:
    return {each["kind"]: each for each in reversed(found["changes"])}


def test_elastic_group_of_a_tree_is_told_how_far_its_min_count_has_to_come_down() -> None:
    found = explained([4, 4], 2, [(4, 1), (6, 1)])

    lowered = {each["group"]: each["to"] for each in found["changes"] if each.get("field") == "minCount"}
    assert lowered == {"default/l0": 2, "default/l1": 4}
    assert all(each["minimal"] for each in found["changes"] if each.get("field") == "minCount")


def test_nodes_outside_of_the_domain_that_members_pin_say_so() -> None:
    racks = [make_node(f"n{at}", cpu="2", labels={"rack": f"r{at}"}) for at in range(2)]
    group = make_group("g", min_count=2, schedulingConstraints={"topology": [{"key": "rack"}]})
    pods = [make_pod("runs", cpu="2", group="g", node="n0"), make_pod("waits", cpu="2", group="g")]

    (found,) = Cluster.load([*racks, group, *pods]).explain(None, "podgroup/g")

    assert [(each["room"], each["reasons"]) for each in found["nodes"]] == [
        (0, ["Insufficient cpu"]),
        (0, ["node(s) were outside of the topology domain rack=r0"]),
    ]
