"""`muster up` as people use it: a process of its own, kubectl, kills and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cluster_process import muster_up

if TYPE_CHECKING:
    from real_clients import Kubectl

pytestmark = pytest.mark.integration

RACK = "topology.kubernetes.io/rack"
ARTICLE = Path(__file__).parents[2] / "examples" / "article"


def on(kubectl: Kubectl, kubeconfig: Path) -> Kubectl:
    """kubectl on another server."""
    return replace(kubectl, environment={**kubectl.environment, "KUBECONFIG": str(kubeconfig)})


def gang_member(number: int) -> str:
    return (ARTICLE / "pod-v1alpha2.yaml").read_text().replace("worker-0", f"worker-{number}")


def test_the_articles_gang_runs_and_survives_a_kill(kubectl: Kubectl, tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--write-kubeconfig", str(tmp_path / "config"))
    with muster_up("--nodes", "4", *options) as (process, config):
        here = on(kubectl, config)
        here("create", "namespace", "some-ns")
        for name in ("workload-v1alpha2", "podgroup-v1alpha2"):
            here("apply", "-f", str(ARTICLE / f"{name}.yaml"))
        for number in range(4):
            here("apply", "-f", "-", stdin=gang_member(number))
        pods = [f"pod/worker-{number}" for number in range(4)]
        here("wait", "-n", "some-ns", "--for=condition=Ready", *pods, "--timeout=30s")
        before = here.json("get", "pods", "-n", "some-ns")["items"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    with muster_up(*options) as (process, config):
        after = on(kubectl, config).json("get", "pods", "-n", "some-ns")["items"]
        assert [pod["spec"]["nodeName"] for pod in after] == [pod["spec"]["nodeName"] for pod in before]
        assert [pod["metadata"]["uid"] for pod in after] == [pod["metadata"]["uid"] for pod in before]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_indexed_job_becomes_a_gang(kubectl: Kubectl) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}},
        },
    }
    with muster_up("--nodes", "2") as (process, config):
        here = on(kubectl, config)
        here("create", "-f", "-", stdin=json.dumps(job))
        here("wait", "--for=jsonpath={.status.active}=4", "job/train", "--timeout=20s")
        groups = here.json("get", "podgroups")["items"]
        assert [group["spec"]["schedulingPolicy"]["gang"]["minCount"] for group in groups] == [4]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


RING = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: ring, namespace: default}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  schedulingConstraints: {topology: [{key: topology.kubernetes.io/rack}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ring, namespace: default}
spec:
  replicas: 2
  serviceName: ring
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: ring}}
  template:
    metadata: {labels: {app: ring}}
    spec:
      schedulingGroup: {podGroupName: ring}
      terminationGracePeriodSeconds: 0
      containers:
        - {name: worker, image: busybox, resources: {requests: {cpu: "3"}}}
"""


def test_a_member_that_loses_its_node_comes_again_in_the_rack_of_its_gang(kubectl: Kubectl) -> None:
    with muster_up("--nodes", "count=6,cpu=4,racks=2") as (process, config):
        here = on(kubectl, config)
        nodes = here.json("get", "nodes")["items"]
        rack_of = {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in nodes}

        def places() -> dict[str, str]:
            pods = here.json("get", "pods", "-l", "app=ring")["items"]
            return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

        def lose(name: str, want: str) -> None:
            """Empties the node of a pod, until another one of its name is scheduled or not, as wanted."""
            uid = here("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
            here("taint", "node", places()[name], "repair=now:NoExecute")
            for _ in range(300):
                if here("get", "pod", name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}") not in ("", uid):
                    here("wait", f"--for=condition=PodScheduled={want}", f"pod/{name}", "--timeout=20s")
                    return
                time.sleep(0.1)
            raise AssertionError(f"{name} is still there")

        here("apply", "-f", "-", stdin=RING)
        here("rollout", "status", "statefulset/ring", "--timeout=30s")
        rack = {rack_of[node] for node in places().values()}
        assert len(rack) == 1
        lose("ring-0", "true")
        assert {rack_of[node] for node in places().values()} == rack, "the third node of the rack"
        lose("ring-1", "false")
        (said,) = (
            each["message"] for each in here.json("get", "pod", "ring-1")["status"]["conditions"] if each.get("message")
        )
        assert f"3 node(s) were outside of the topology domain {RACK}={rack.pop()}" in said
        assert "2 node(s) had untolerated taint(s)" in said
        here("taint", "node", "--all", "repair-", want=1)  # not all nodes have it
        here("wait", "--for=condition=Ready", "pod/ring-1", "--timeout=20s")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_foreign_data_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear data")
    command = [sys.executable, "-m", "muster.cli.main", "up", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=dict(os.environ), check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]
