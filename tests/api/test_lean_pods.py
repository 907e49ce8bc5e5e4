"""Pods are decoded with all that scheduling reads of them, and without what it does not."""

from __future__ import annotations

from random import Random

import pytest

from muster.api.codec import JSON, Object, dumps
from muster.api.lean_pods import loads_lean
from muster.api.resource import PODS
from muster.engine.state import ClusterState
from muster.scheduler.explaining.trimming import trimmed
from muster.testing.clusters import FEATURES, random_cluster

METADATA = {
    "name": "p",
    "generateName": "p-",
    "namespace": "default",
    "selfLink": "",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": None,
    "deletionGracePeriodSeconds": 30,
    "labels": {"app": "web"},
    "annotations": {"note": "é"},
    "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
    "finalizers": ["example.com/hold"],
}
KEPT: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": METADATA,
    "spec": {
        "containers": [{"name": "main", "image": "app:v1", "resources": {"requests": {"cpu": "1", "new": 2.5}}}],
        "initContainers": [{"name": "first", "restartPolicy": "Always"}],
        "nodeName": "n",
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        "volumes": [
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "token", "projected": {}},
            {"name": "none", "configMap": None},
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True}],
        "initContainerStatuses": [{"name": "first", "allocatedResources": {"cpu": "1"}}],
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}],
    },
}
WHOLE: Object = {
    **KEPT,
    "metadata": {**METADATA, "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
    "spec": {
        **KEPT["spec"],
        "containers": [{**KEPT["spec"]["containers"][0], "env": [{"name": "A", "value": "b"}], "command": ["run"]}],
        "volumes": [
            *KEPT["spec"]["volumes"][:2],
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "none", "configMap": None},
        ],
        "newField": True,
    },
    "status": {
        **KEPT["status"],
        "podIP": "10.0.0.1",
        "conditions": [{**KEPT["status"]["conditions"][0], "lastProbeTime": None}],
        "containerStatuses": [{**KEPT["status"]["containerStatuses"][0], "imageID": "sha256:0"}],
    },
}
BOOKMARK = {
    "kind": "Pod",
    "metadata": {"resourceVersion": "8"},
    "spec": {"containers": None},
    "status": {},
}
STATUS = {
    "kind": "Status",
    "metadata": {},
    "status": "Failure",
    "code": 410,
    "reason": "Expired",
    "message": "old",
    "details": {"a": 1},
}
LIST_METADATA = {"resourceVersion": "9", "continue": "t", "remainingItemCount": 3}


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(WHOLE, KEPT, id="pod"),
        pytest.param(
            {"kind": "PodList", "metadata": LIST_METADATA, "items": [WHOLE]},
            {"kind": "PodList", "metadata": LIST_METADATA, "items": [KEPT]},
            id="list",
        ),
        pytest.param({"metadata": {}, "items": None}, {"metadata": {}, "items": None}, id="empty list"),
        pytest.param({"type": "MODIFIED", "object": WHOLE}, {"type": "MODIFIED", "object": KEPT}, id="event"),
        pytest.param({"type": "BOOKMARK", "object": BOOKMARK}, {"type": "BOOKMARK", "object": BOOKMARK}, id="bookmark"),
        pytest.param({"type": "ERROR", "object": STATUS}, {"type": "ERROR", "object": STATUS}, id="error"),
        pytest.param(STATUS, STATUS, id="status"),
    ],
)
def test_pods_are_decoded_without_what_scheduling_does_not_read(value: JSON, want: JSON) -> None:
    assert loads_lean(dumps(value)) == want


@pytest.mark.parametrize("text", ["", "{", "[]", '{"items": 3}', '{"metadata": 1}'])
def test_what_is_no_object_of_the_api_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads_lean(text)


@pytest.mark.parametrize("seed", range(150))
def test_decisions_about_lean_pods_are_those_about_whole_ones(seed: int) -> None:
    cluster = random_cluster(Random(seed), frozenset(FEATURES), nodes=3, pods=8)
    state = ClusterState()
    for pod in (cluster.pod, *cluster.pods):
        lean = loads_lean(dumps(pod))
        assert state.shape_of(lean) == state.shape_of(pod)
        state.add_pod("default/one", pod, "node")
        state.add_pod("default/other", lean, "node")
        counted = state.snapshot().placed["node"]
        assert counted["default/one"] == counted["default/other"]
        assert trimmed(lean, PODS) == trimmed(pod, PODS)
