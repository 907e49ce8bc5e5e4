from __future__ import annotations

import pytest

from muster.api.codec import Objects
from muster.nodes.spec import NodeSpecError, completed, is_complete, make_nodes, parse_node_spec
from muster.testing.builders import make_node


def _nodes(*texts: str) -> Objects:
    return make_nodes([parse_node_spec(text) for text in texts], now=0.0)


def test_number_stands_for_default_nodes() -> None:
    nodes = _nodes("3")

    assert [node["metadata"]["name"] for node in nodes] == ["node-0", "node-1", "node-2"]
    assert nodes[0]["status"]["allocatable"] == {"cpu": "32", "memory": "256Gi", "pods": "110"}
    assert all(is_complete(node) for node in nodes)


def test_nodes_are_dealt_to_zones_and_racks_in_turn() -> None:
    nodes = _nodes("count=4,zones=2,racks=4,name=gpu,nvidia.com/gpu=8")

    labels = [node["metadata"]["labels"] for node in nodes]
    assert [label["topology.kubernetes.io/zone"] for label in labels] == ["zone-0", "zone-1", "zone-0", "zone-1"]
    assert [label["topology.kubernetes.io/rack"] for label in labels] == ["rack-0", "rack-1", "rack-2", "rack-3"]
    assert labels[3]["kubernetes.io/hostname"] == "gpu-3"
    assert nodes[0]["status"]["capacity"]["nvidia.com/gpu"] == "8"


def test_specs_of_the_same_name_go_on_counting() -> None:
    names = [node["metadata"]["name"] for node in _nodes("2", "count=1,name=big,cpu=64", "count=2,cpu=8")]

    assert names == ["node-0", "node-1", "big-0", "node-2", "node-3"]


def test_taint_is_repeatable() -> None:
    (node,) = _nodes("taint=a=b:NoSchedule,taint=c:NoExecute")

    assert node["spec"]["taints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "value": "", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "key=value"),
        ("many", "key=value"),
        ("-3", "key=value"),
        ("cpu=32,cpu=64", "twice"),
        ("cpu=lots", "quantity"),
        ("cpu=-1", "negative"),
        ("nvidia.com/gpu=1500m", "whole number"),
        ("count=1.5", "whole number"),
        ("count=99999999", "1000000"),
        ("gpus=8", "nvidia.com/gpu"),
        ("name=Big_Node", "lower case"),
        ("taint=a=b", "NoSchedule"),
        ("taint=a=b:Never", "NoSchedule"),
        ("cpu=", "key=value"),
    ],
)
def test_error_says_what_would_be_right(text: str, want: str) -> None:
    with pytest.raises(NodeSpecError, match=want) as caught:
        parse_node_spec(text)

    assert repr(text) in str(caught.value)


def test_node_without_status_gets_defaults_and_others_keep_theirs() -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    given = make_node("b", cpu="4")

    assert completed(bare, 0.0)["status"]["allocatable"]["cpu"] == "32"
    assert completed(given, 0.0)["status"]["capacity"] == given["status"]["capacity"]
    assert "status" not in bare
