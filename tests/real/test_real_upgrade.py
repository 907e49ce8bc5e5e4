"""`muster migrate` across a real upgrade of 1.36 to 1.37 on the same data, killed at every request and begun again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from fault_proxy import FaultProxy, Faults
from real_servers import Cluster, RealServer, cluster, find_release, muster_scheduler

from muster.api.codec import Object, Objects
from muster.api.meta import condition, has_condition, name_of, uid_of
from muster.api.resource import PODS, PRIORITY_CLASSES, Resource
from muster.testing import make_group

pytestmark = pytest.mark.real

SAID = "PodGroupScheduled"
OLD, NEW = "v1alpha2", "v1alpha3"
NAME = "upgrade"
KINDS = ("workloads", "podgroups")
MOST_KILLS = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """A server of 1.36."""
    before = find_release("1.36")
    find_release("1.37")
    with RealServer(tmp_path, before, serves_groups=True).running() as running:
        yield running


def resource(plural: str, version: str) -> Resource:
    return Resource("scheduling.k8s.io", version, plural, {"workloads": "Workload", "podgroups": "PodGroup"}[plural])


async def make_objects(part: Cluster) -> None:
    """A Workload with a group that runs, a group that waits, and one alone, with most that 1.36 can say."""
    make = part.client.create
    await make(PRIORITY_CLASSES, None, {"metadata": {"name": "high"}, "value": 1000})
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"}
    alone = {"name": "more", "schedulingPolicy": {"basic": {}}}
    workload = {"metadata": {"name": "train", "labels": {"a": "b"}}, "spec": {"podGroupTemplates": [template, alone]}}
    made = await make(resource("workloads", OLD), NAME, workload)
    reference = {"workload": {"workloadName": "train", "podGroupTemplateName": "workers"}}
    topology = {"topology": [{"key": "kubernetes.io/hostname"}]}
    running = make_group(
        "running",
        min_count=2,
        namespace=NAME,
        version=OLD,
        podGroupTemplateRef=reference,
        disruptionMode="PodGroup",
        priorityClassName="high",
        schedulingConstraints=topology,
    )
    owner = {"apiVersion": f"scheduling.k8s.io/{OLD}", "kind": "Workload", "name": "train", "uid": uid_of(made)}
    running["metadata"] |= {"ownerReferences": [owner], "annotations": {"note": "kept"}}
    waiting = make_group("waiting", min_count=3, namespace=NAME, version=OLD)
    basic = make_group("basic", min_count=None, namespace=NAME, version=OLD)
    for group in (running, waiting, basic):
        await make(resource("podgroups", OLD), NAME, group)
    for number in range(2):
        await part.create(part.pod(f"running-{number}", group="running", priorityClassName="high"))
        await part.create(part.pod(f"waiting-{number}", group="waiting"))
    await part.create(part.pod("basic-0", group="basic"))


async def groups(part: Cluster, version: str) -> dict[str, Objects]:
    return {kind: (await part.client.list(resource(kind, version), NAME)).items for kind in KINDS}


@dataclass
class Killer:
    """Kills a process at one of the requests that count, once that took effect, or else at the next one, before it
    does."""

    counts: Callable[[web.Request], bool]
    at: int
    takes_effect: bool
    process: subprocess.Popen[bytes] | None = None
    seen: int = 0

    def passes(self, request: web.Request) -> bool:
        self.seen += self.counts(request)
        return not (self.counts(request) and self.seen == self.at + 1 and self._kill())

    def answered(self, request: web.Request) -> bool:
        return not (self.takes_effect and self.counts(request) and self.seen == self.at and self._kill())

    def _kill(self) -> bool:
        if self.process is None:
            return False
        self.process.kill()
        self.process = None
        return True


async def step_with_kills(
    server: RealServer, step: str, directory: Path, counts: Callable[[web.Request], bool], check: Callable[[], None]
) -> int:
    """Run a step again and again, and kill it each time, until it ends before that. How often it was killed.

    A step that only reads (export) is killed later each time, since it begins anew; the others have got further.
    """
    for kills in range(MOST_KILLS):
        killer = Killer(counts, 1 + kills // 2 if step == "export" else 1, takes_effect=kills % 2 == 0)
        async with FaultProxy(server.port, Faults(passes=killer.passes, answered=killer.answered)).running() as proxy:
            config = server.write_kubeconfig("deadly", proxy.url)
            command = [sys.executable, "-m", "muster.cli.main", "migrate", step, str(directory)]
            process = killer.process = subprocess.Popen([*command, "--kubeconfig", str(config)])
            code = await asyncio.to_thread(process.wait, 120)
        await asyncio.to_thread(check)
        if killer.process is not None:
            assert code == 0
            return kills
    raise AssertionError(f"{step} does not end though it was begun {MOST_KILLS} times")


def test_groups_outlive_the_upgrade_though_every_step_is_killed(server: RealServer, tmp_path: Path) -> None:
    directory = tmp_path / "groups"
    new_assets = find_release("1.37")

    def nothing() -> None:
        pass

    def nothing_is_lost() -> None:
        """What is deleted, or not there again yet, is in a file."""
        names = {file.name.split(".")[2] for file in directory.glob("*.*.*.json")}
        assert names == {"train", "running", "waiting", "basic"}

    def is_list(request: web.Request) -> bool:
        return request.method == "GET" and any(request.path.endswith(f"/{kind}") for kind in KINDS)

    def is_write(request: web.Request) -> bool:
        return request.method != "GET"

    async def before() -> tuple[dict[str, Objects], dict[str, Object]]:
        async with asyncio.timeout(300), cluster(server, NAME, keeps=True) as part:
            await part.add_nodes(2, cpu=4)
            await make_objects(part)
            with muster_scheduler(tmp_path, server.kubeconfig):
                await part.until_bound(2, "running")
                await part.until_bound(1, "basic")
                while not has_condition(await part.client.get(resource("podgroups", OLD), NAME, "running"), SAID):
                    await asyncio.sleep(0.2)
            found = await groups(part, OLD)
            pods = {name_of(pod): pod for pod in await part.pods()}
            assert await step_with_kills(server, "export", directory, is_list, nothing) >= 2
            assert await groups(part, OLD) == found
            assert await step_with_kills(server, "delete", directory, is_write, nothing_is_lost) >= 4
            assert await groups(part, OLD) == {kind: [] for kind in KINDS}
            return found, pods

    async def after(found: dict[str, Objects], pods: dict[str, Object]) -> None:
        async with asyncio.timeout(300), cluster(server, NAME) as part:
            assert {name_of(pod): pod["spec"] for pod in await part.pods()} == {
                name: pod["spec"] for name, pod in pods.items()
            }
            assert await step_with_kills(server, "restore", directory, is_write, nothing_is_lost) >= 4
            restored = await groups(part, NEW)
            check_restored(found, restored)
            with muster_scheduler(tmp_path, server.kubeconfig) as muster:
                await part.create(part.pod("waiting-2", group="waiting"))
                await part.until_bound(3, "waiting")
                assert f"scheduling.k8s.io/{NEW}" in muster.said
            for name, node in (await part.bound("running")).items():
                assert pods[name]["spec"]["nodeName"] == node
                assert uid_of(await part.client.get(PODS, NAME, name)) == uid_of(pods[name])

    with server.controllers("garbage-collector-controller", "podgroup-protection-controller"):
        found, pods = asyncio.run(before())
    server.upgrade(new_assets)
    asyncio.run(after(found, pods))


def check_restored(before: dict[str, Objects], after: dict[str, Objects]) -> None:
    """The same objects with the same meaning, in the words of 1.37."""
    assert [name_of(obj) for kind in KINDS for obj in after[kind]] == [
        name_of(o) for kind in KINDS for o in before[kind]
    ]
    (workload,), by_name = after["workloads"], {name_of(group): group for group in after["podgroups"]}
    assert workload["metadata"]["labels"] == {"a": "b"}
    templates = {each["name"]: each for each in workload["spec"]["podGroupTemplates"]}
    assert templates["workers"]["disruptionMode"] == {"all": {}}
    assert templates["more"]["schedulingPolicy"] == {"basic": {}}
    running = by_name["running"]
    assert running["metadata"]["annotations"]["note"] == "kept"
    assert [each["uid"] for each in running["metadata"]["ownerReferences"]] == [uid_of(workload)]
    spec = running["spec"]
    assert spec["workloadRef"] == {"workloadName": "train", "templateName": "workers"}
    assert spec["schedulingPolicy"] == {"gang": {"minCount": 2}} and spec["disruptionMode"] == {"all": {}}
    assert spec["priorityClassName"] == "high" and spec["priority"] == 1000
    assert spec["schedulingConstraints"] == {"topology": [{"key": "kubernetes.io/hostname"}]}
    old = next(group for group in before["podgroups"] if name_of(group) == "running")
    said_before = condition(old, SAID) or {}
    said_after = condition(running, "PodGroupInitiallyScheduled") or {}
    for field in ("status", "reason", "lastTransitionTime"):
        assert said_after[field] == said_before[field]
    assert by_name["waiting"]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert by_name["basic"]["spec"]["schedulingPolicy"] == {"basic": {}}
