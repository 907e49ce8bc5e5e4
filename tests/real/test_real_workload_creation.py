"""PodGroups for Jobs of the real kube-controller-manager, with the rights that `muster install` gives for them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from control_planes import process
from real_servers import (
    CUSTOM_GROUPS,
    SCHEDULER_TOKEN,
    Cluster,
    RealServer,
    cluster,
    find_assets,
    install,
    muster_scheduler,
)

from muster.api.codec import Object
from muster.api.meta import has_condition, name_of
from muster.api.resource import JOBS, PODS
from muster.client.transport import ApiError

pytestmark = pytest.mark.real

CONTROLLERS = "job-controller,garbage-collector-controller"


async def groups(part: Cluster, count: int) -> list[Object]:
    while True:
        with contextlib.suppress(ApiError):  # 429 while the storage of what was just defined comes up
            if len(found := (await part.client.list(CUSTOM_GROUPS, part.name)).items) == count:
                return found
        await asyncio.sleep(0.2)


def job(part: Cluster, name: str, size: int) -> Object:
    pod = part.pod(name)
    template = {"spec": {**pod["spec"], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def story(part: Cluster, kubeconfig: Path, tmp_path: Path) -> None:
    options = ("--leader-elect", "--leader-elect-resource-namespace=muster-system", "--create-workloads")
    with muster_scheduler(tmp_path, kubeconfig, *options) as muster:
        await part.add_nodes(2, cpu=1)
        await part.client.create(JOBS, part.name, job(part, "train", 3))
        (group,) = await groups(part, 1)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        await asyncio.sleep(2)
        assert await part.bound("train") == {}
        await part.client.patch(JOBS, part.name, "train", {"spec": {"parallelism": 2, "completions": 2}})
        await part.until_bound(2, "train")
        while not has_condition(group, "PodGroupInitiallyScheduled"):
            (group,) = await groups(part, 1)
            await asyncio.sleep(0.2)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        await part.client.delete(JOBS, part.name, "train", {"propagationPolicy": "Background"})
        while found := (await part.client.list(PODS, part.name)).items:
            for pod in found:  # there are no kubelets
                with contextlib.suppress(ApiError):  # gone meanwhile
                    await part.client.delete(PODS, part.name, name_of(pod), {"gracePeriodSeconds": 0})
            await asyncio.sleep(0.3)
        await groups(part, 0)
        assert "forbidden" not in muster.said.lower()
        assert muster.end() == 0


def test_jobs_of_the_real_controller_get_groups_that_follow_them(tmp_path: Path) -> None:
    assets = find_assets(("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"))

    async def main() -> None:
        with RealServer(tmp_path, assets, authorization="RBAC").running() as server:
            install(server, "--create-workloads")
            kubeconfig = server.write_kubeconfig("scheduler", f"https://127.0.0.1:{server.port}", SCHEDULER_TOKEN)
            command = [str(assets / "kube-controller-manager"), "--kubeconfig", str(server.kubeconfig)]
            command += ["--leader-elect=false", "--secure-port=0", f"--controllers={CONTROLLERS}"]
            command += ["--service-account-private-key-file=sa.key"]
            with process(command, tmp_path / "controllers.log", tmp_path):
                async with asyncio.timeout(90), cluster(server, "creation") as part:
                    await story(part, kubeconfig, tmp_path)

    asyncio.run(main())
