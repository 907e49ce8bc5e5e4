"""A node dies under a gang that is bound to a rack: its pod is evicted, and the next one comes to the same rack."""

from __future__ import annotations

from muster.api.codec import Object
from muster.nodes.agent import FAIL
from muster.nodes.spec import parse_node_spec
from muster.simulator.run import simulate
from muster.simulator.world import Outcome, manifests_of
from muster.testing import make_group

RACK = "topology.kubernetes.io/rack"


def ring() -> list[Object]:
    """A Job of two pods that each fill a node, in one rack; they leave a dead node after 30 s."""
    left_after: Object = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    template = {
        "metadata": {"annotations": {"sim.muster-k8s.dev/run-seconds": "5000"}},
        "spec": {
            "schedulingGroup": {"podGroupName": "ring"},
            "restartPolicy": "Never",
            "tolerations": [{**left_after, "key": f"node.kubernetes.io/{why}"} for why in ("unreachable", "not-ready")],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}],
        },
    }
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 9, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ring", "namespace": "default"}, "spec": spec}
    return [make_group("ring", min_count=2, schedulingConstraints={"topology": [{"key": RACK}]}), job]


def with_failed(count: int, *names: str) -> Outcome:
    """One after the other, these nodes die, 300 s apart."""
    deaths = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {FAIL: "true"}}}
        for name in names
    ]
    timed = [(100.0 + 300.0 * at, manifests_of([node])) for at, node in enumerate(deaths)]
    spec = parse_node_spec(f"count={count},cpu=4,racks=2")
    return simulate(manifests_of(ring()), timed=timed, nodes=[spec], until_s=900)


def places(outcome: Outcome) -> dict[str, str]:
    """The node of each pod by its index; "" for one that waits. Pods that ended are left out."""
    live = [pod for pod in outcome.objects["pods"] if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"].split("-")[1]: pod["spec"].get("nodeName", "") for pod in live}


def test_the_next_pod_comes_to_the_rack_of_the_others() -> None:
    before = places(with_failed(6))
    assert before == {"0": "node-0", "1": "node-2"}, "rack 0 has the nodes with even numbers"
    after = with_failed(6, "node-0")
    assert places(after) == {"0": "node-4", "1": "node-2"}
    assert not after.violations
    began_s = sorted(entry.scheduled_s or 0.0 for entry in after.history.pods.values())
    assert 100 + 40 + 30 <= began_s[-1] <= 200, "its lease has run out, and the pod does not tolerate that any longer"


def test_a_rack_without_room_is_named_though_others_have_room() -> None:
    outcome = with_failed(6, "node-0", "node-2")
    assert sorted(places(outcome).values()) == ["", "node-4"]
    (waiting,) = (pod for pod in outcome.objects["pods"] if not pod["spec"].get("nodeName"))
    said = [each.get("message", "") for each in waiting["status"]["conditions"]]
    assert any(f"3 node(s) were outside of the topology domain {RACK}=rack-0" in each for each in said)
