"""The text of a snapshot: small, and read the same whichever way it is written, edited by hand too."""

from __future__ import annotations

import yaml

from muster.api.manifests import is_from_cluster, parse
from muster.api.resource import NODES, PODS
from muster.cli.snapshot import snapshot_text
from muster.scheduler.explaining.trimming import trimmed, without_ended
from muster.testing import make_node, make_pod


def test_yaml_and_json_of_a_snapshot_say_the_same_with_and_without_the_quick_way() -> None:
    pod = make_pod("p", cpu="1", node="n0", annotations={"scheduling.muster-k8s.dev/topology": "x", "other": "y"})
    objects = [trimmed(make_node("n0"), NODES), trimmed(pod, PODS)]
    text = snapshot_text(objects, as_json=False)

    quick = [manifest.object for manifest in parse(text)]
    edited = [manifest.object for manifest in parse(f"# mine\n{text}")]

    assert quick == edited == objects
    assert [manifest.line for manifest in parse(text)] == [4, 5]
    assert [manifest.object for manifest in parse(snapshot_text(objects, as_json=True))] == objects
    assert yaml.safe_load(text)["items"] == objects
    assert "other" not in objects[1]["metadata"]["annotations"]


def test_quick_way_gives_up_where_somebody_has_edited_the_file() -> None:
    text = snapshot_text([trimmed(make_node("n0"), NODES)], as_json=False) + "- apiVersion: v1\n  kind: Node\n"
    text += "  metadata: {name: n1}\n"
    assert [manifest.object["metadata"]["name"] for manifest in parse(text)] == ["n0", "n1"]


def test_what_scheduling_does_not_read_is_left_out() -> None:
    spec = {
        "containers": [
            {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "command": ["x"], "resources": {}}
        ],
        "volumes": [
            {"name": "s", "secret": {"secretName": "s"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
        ],
    }
    pod = make_pod("p", spec=spec)
    pod["metadata"]["uid"] = "u"
    found = trimmed(pod, PODS)

    assert found["spec"]["containers"] == [{"name": "c", "image": "i", "resources": {}}]
    assert [volume["name"] for volume in found["spec"]["volumes"]] == ["d"]
    assert is_from_cluster(found)


def test_pods_that_ended_are_left_out_unless_a_group_counts_them() -> None:
    ended = {**make_pod("a"), "status": {"phase": "Succeeded"}}
    member = {**make_pod("b", group="g"), "status": {"phase": "Succeeded"}}
    assert without_ended([ended, member, make_pod("c")]) == [member, make_pod("c")]
