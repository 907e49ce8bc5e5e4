"""`muster install` on a real kube-apiserver without the group API, and the scheduler with the rights that it gives."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_servers import (
    CUSTOM_GROUPS,
    SCHEDULER_TOKEN,
    SCHEDULER_USER,
    Cluster,
    RealServer,
    cluster,
    find_assets,
    install,
    muster_scheduler,
)

from muster.api.meta import has_condition
from muster.api.resource import EVENTS

pytestmark = pytest.mark.real

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One as it comes, with rights."""
    directory = tmp_path_factory.mktemp("rights")
    with RealServer(directory, find_assets(), authorization="RBAC").running() as running:
        yield running


def test_what_was_installed_schedules_gangs_with_its_rights_alone(server: RealServer, tmp_path: Path) -> None:
    first = install(server)
    assert not first["native"]
    assert {each["outcome"] for each in first["applied"]} == {"created"}
    assert {each["outcome"] for each in install(server)["applied"]} == {"unchanged"}
    kubeconfig = server.write_kubeconfig("scheduler", f"https://127.0.0.1:{server.port}", SCHEDULER_TOKEN)

    async def story(part: Cluster) -> None:
        await part.add_nodes(2, cpu=4)
        for name, cpu in (("small", "1"), ("large", "4")):
            await part.create(part.custom_group(name, 3))
            for number in range(3):
                await part.create(part.marked_pod(f"{name}-{number}", name, cpu, grace_s=0))
        options = ("--leader-elect", "--leader-elect-resource-namespace=muster-system")
        with muster_scheduler(tmp_path, kubeconfig, *options) as muster:
            await part.until_bound(3, "small")
            await asyncio.sleep(1.5)
            assert await part.bound("large") == {}
            small = await part.client.get(CUSTOM_GROUPS, part.name, "small")
            assert has_condition(small, "PodGroupInitiallyScheduled")
            high = part.pod("high", cpu="4", priorityClassName="system-cluster-critical")
            await part.create(high)
            await part.until_bound(1, "high")
            reasons = {each["reason"] for each in (await part.client.list(EVENTS, part.name)).items}
            assert {"Scheduled", "FailedScheduling", "Preempted"} <= reasons
            assert "forbidden" not in muster.said.lower()
            assert muster.end() == 0
        assert "podgroup" in server.kubectl("-n", part.name, "get", "podgroups.scheduling.muster-k8s.dev", "-o", "name")

    async def main() -> None:
        async with asyncio.timeout(90), cluster(server, "rights") as made:
            await story(made)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("create", "", "pods"),
        ("update", "", "pods"),
        ("list", "", "secrets"),
        ("get", "", "configmaps"),
        ("update", "", "nodes"),
        ("delete", "", "nodes"),
        ("update", "coordination.k8s.io", "leases"),
        ("delete", "scheduling.muster-k8s.dev", "podgroups"),
    ],
)
def test_rights_end_where_the_scheduler_needs_nothing(server: RealServer, verb: str, group: str, resource: str) -> None:
    install(server)
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": "default"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": SCHEDULER_USER, "resourceAttributes": attributes},
    }
    answer = json.loads(server.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))
    assert answer["status"]["allowed"] is False


@pytest.mark.parametrize(
    "folder", [".", "crds", "overlays/two-replicas", "overlays/create-workloads", "overlays/provisioning-requests"]
)
def test_kustomizations_apply(server: RealServer, folder: str) -> None:
    install(server)
    said = server.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(DEPLOY / folder))
    assert "serverside-applied" in said


def test_what_was_installed_can_be_taken_away_again(server: RealServer) -> None:
    options = ("--create-workloads", "--provisioning-requests", "check-capacity")
    install(server, *options)
    command = [sys.executable, "-m", "muster.cli.main", "install", "--kubeconfig", str(server.kubeconfig), *options]
    command += ["--dry-run", "-o", "yaml"]
    manifests = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    said = server.kubectl("delete", "--wait=false", "-f", "-", stdin=manifests)
    assert said.count("deleted") == manifests.count("\nkind: ")
    assert "muster" not in server.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
