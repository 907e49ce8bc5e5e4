"""Whatever a real server serves of the group API, a gang is bound as a whole or not at all.

Served version x gates on or off x custom resources, on whichever release the binaries are of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from real_servers import Cluster, RealServer, cluster, find_assets, install, muster_scheduler
from releases import GROUP, KubernetesRelease, release_of, serving

from muster.api.codec import Objects
from muster.api.meta import name_of, uid_of
from muster.api.resource import JOBS
from muster.scheduler.served import MUSTER_GROUP

pytestmark = pytest.mark.real

Options = Callable[[KubernetesRelease], tuple[str, ...]]
Members = Callable[[Cluster, str, str], Objects]
"""A group of three and its pods, by the group's name and the cpu of a pod."""


def native(part: Cluster, name: str, cpu: str) -> Objects:
    return [part.group(name, 3), *(part.pod(f"{name}-{at}", group=name, cpu=cpu) for at in range(3))]


def custom(part: Cluster, name: str, cpu: str) -> Objects:
    return [part.custom_group(name, 3), *(part.marked_pod(f"{name}-{at}", name, cpu) for at in range(3))]


def owned(part: Cluster, name: str, cpu: str) -> Objects:
    """Pods of an Indexed Job of three: no further object."""
    template = part.pod("", cpu=cpu, restartPolicy="Never")["spec"]
    spec = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": {"spec": template}}
    metadata = {"name": name, "namespace": part.name}
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}]


async def create_pods_of_jobs(part: Cluster) -> None:
    """What the Job controller would do."""
    for job in (await part.client.list(JOBS, part.name)).items:
        name = name_of(job)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid_of(job), "controller": True}
        for at in range(job["spec"]["parallelism"]):
            metadata = {"name": f"{name}-{at}", "namespace": part.name, "ownerReferences": [owner]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job["spec"]["template"]["spec"]}
            await part.create(pod)


@dataclass(frozen=True)
class Setting:
    """`version`: where the scheduler says that groups are, "" for nowhere."""

    id: str
    options: Options
    members: Members
    version: str
    releases: tuple[str, ...] = ("1.35", "1.36", "1.37")
    custom: bool = False


def only(version: str) -> Options:
    """One version of several that the release has."""
    return lambda release: (release.feature_gates, serving((version,)))


def all_on(release: KubernetesRelease) -> tuple[str, ...]:
    return release.feature_gates, release.runtime_config


def all_off(release: KubernetesRelease) -> tuple[str, ...]:
    return ()


def gates_off(release: KubernetesRelease) -> tuple[str, ...]:
    """The versions are asked for, the feature is not on."""
    return (release.runtime_config,)


SETTINGS = (
    Setting("v1alpha1", all_on, native, f"{GROUP}/v1alpha1", ("1.35",)),
    Setting("v1alpha2", all_on, native, f"{GROUP}/v1alpha2", ("1.36",)),
    Setting("v1alpha3 and v1beta1", all_on, native, f"{GROUP}/v1alpha3", ("1.37",)),
    Setting("v1alpha3 alone", only("v1alpha3"), native, f"{GROUP}/v1alpha3", ("1.37",)),
    Setting("v1beta1 alone", only("v1beta1"), native, f"{GROUP}/v1beta1", ("1.37",)),
    Setting("off, custom resources", all_off, custom, f"{MUSTER_GROUP}/v1beta1", custom=True),
    Setting("versions without gates, custom resources", gates_off, custom, f"{MUSTER_GROUP}/v1beta1", custom=True),
    Setting("off, owners alone", all_off, owned, ""),
)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.id)
def test_gang_is_whole_or_not_there(setting: Setting, tmp_path: Path) -> None:
    assets = find_assets()
    release = release_of(assets)
    if release.minor not in setting.releases:
        pytest.skip(f"Kubernetes {release.minor} does not have it: {', '.join(setting.releases)} do")

    async def story(server: RealServer) -> None:
        async with asyncio.timeout(90), cluster(server, "served") as part:
            if setting.version.startswith(GROUP):
                part.release = replace(release, versions=(setting.version.rpartition("/")[2],))
            await part.add_nodes(2, cpu=4)
            await part.create(*setting.members(part, "small", "1"), *setting.members(part, "large", "3"))
            await create_pods_of_jobs(part)
            await part.create(part.pod("plain", cpu="500m"))
            with muster_scheduler(tmp_path, server.kubeconfig) as muster:
                await part.until_bound(3, "small")
                await part.until_bound(1, "plain")
                await asyncio.sleep(1.5)
                assert await part.bound("large") == {}
                assert (setting.version or "annotations and labels only") in muster.said
                assert muster.end() == 0
                assert "Traceback" not in muster.said

    with RealServer(tmp_path, assets, setting.options(release)).running() as server:
        if setting.custom:
            said = install(server, "--crds-only")
            assert not said["native"]
        asyncio.run(story(server))
