"""`muster migrate` on a real kube-apiserver with its garbage collector and group protection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_servers import RealServer, find_assets
from releases import GROUP, release_of

from muster.api.codec import Object
from muster.testing import make_group, make_pod

pytestmark = pytest.mark.real


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    assets = find_assets(("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"))
    if not release_of(assets).has_pod_groups:
        pytest.skip("Kubernetes 1.35 has no groups that could be deleted")
    with (
        RealServer(tmp_path, assets, serves_groups=True).running() as running,
        running.controllers("garbage-collector-controller", "podgroup-protection-controller"),
    ):
        yield running


def migrate(server: RealServer, step: str, directory: Path) -> str:
    command = [sys.executable, "-m", "muster.cli.main", "migrate", step, str(directory)]
    command += ["--kubeconfig", str(server.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def create(server: RealServer, obj: Object) -> Object:
    made: Object = json.loads(server.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(obj)))
    return made


def names(server: RealServer) -> list[str]:
    return server.kubectl("get", "podgroups,workloads,pods", "-o", "name").split()


def test_groups_in_use_are_deleted_and_come_back_the_same(server: RealServer, tmp_path: Path) -> None:
    kind = server.release.versions[0]
    version = f"{GROUP}/{kind}"
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    workload: Object = {"apiVersion": version, "kind": "Workload", "metadata": {"name": "train"}}
    made = create(server, {**workload, "spec": {"podGroupTemplates": [template]}})
    reference: Object = {"workloadRef": {"workloadName": "train", "templateName": "workers"}}
    if kind == "v1alpha2":
        nested = {"workload": {"workloadName": "train", "podGroupTemplateName": "workers"}}
        reference = {"podGroupTemplateRef": nested}
    started = make_group("started", min_count=2, version=kind, **reference)
    owner = {"apiVersion": version, "kind": "Workload", "name": "train", "uid": made["metadata"]["uid"]}
    started["metadata"]["ownerReferences"] = [owner]
    waiting = make_group("waiting", min_count=3, version=kind)
    before = [create(server, each)["spec"] for each in (started, waiting)]
    create(server, make_pod("worker", group="started"))
    there = names(server)

    assert migrate(server, "export", tmp_path / "groups") == "3 objects written\n"
    assert migrate(server, "delete", tmp_path / "groups") == "3 objects deleted\n"
    assert names(server) == ["pod/worker"]
    assert migrate(server, "delete", tmp_path / "groups") == "0 objects deleted, 3 were so before\n"
    assert migrate(server, "restore", tmp_path / "groups") == "3 objects created\n"
    assert migrate(server, "restore", tmp_path / "groups") == "0 objects created, 3 were so before\n"

    assert names(server) == there
    groups = json.loads(server.kubectl("get", "podgroups", "-o", "json"))["items"]
    assert [group["spec"] for group in groups] == before
    (now_owned_by,) = groups[0]["metadata"]["ownerReferences"]
    assert (
        now_owned_by["uid"] == json.loads(server.kubectl("get", "workload", "train", "-o", "json"))["metadata"]["uid"]
    )
