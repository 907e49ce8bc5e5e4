"""`muster scheduler` on a real kube-apiserver and etcd: with and without the group API, with faults, beside others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from control_planes import process, wait_until
from real_servers import (
    CUSTOM_GROUPS,
    Cluster,
    Kubelets,
    Muster,
    Owner,
    RealServer,
    cluster,
    find_assets,
    install,
    muster_scheduler,
)

from muster.api.codec import Object
from muster.api.meta import condition, has_condition, name_of
from muster.api.resource import EVENTS, LEASES, PODS
from muster.scheduler.served import MUSTER_GROUP

pytestmark = pytest.mark.real

SHORT_LEASE = (
    "--leader-elect",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)


@pytest.fixture(scope="module")
def assets() -> Path:
    return find_assets(("etcd", "kube-apiserver", "kube-scheduler", "kubectl"))


@pytest.fixture(scope="module")
def server(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One that serves groups, in all versions that its release has."""
    with RealServer(tmp_path_factory.mktemp("on"), assets, serves_groups=True).running() as running:
        yield running


@pytest.fixture(scope="module")
def plain_server(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One as it comes: no group API."""
    with RealServer(tmp_path_factory.mktemp("off"), assets).running() as running:
        yield running


def run(server: RealServer, name: str, story: Callable[[Cluster], Awaitable[None]], patience_s: float = 90) -> None:
    """A story on a part of the server that is its own."""

    async def main() -> None:
        async with asyncio.timeout(patience_s), cluster(server, name) as made:
            await story(made)

    asyncio.run(main())


def is_whole(bound: dict[str, str], sizes: dict[str, int]) -> bool:
    return all(sum(pod.startswith(f"{name}-") for pod in bound) == size for name, size in sizes.items())


# -- what is served --------------------------------------------------------------------------------------------------


def test_gang_made_by_kubectl_is_bound_as_a_whole_and_one_without_room_not_at_all(
    server: RealServer, tmp_path: Path
) -> None:
    async def story(part: Cluster) -> None:
        await part.add_nodes(2, cpu=4)
        with muster_scheduler(tmp_path, server.kubeconfig) as muster:
            items: list[Object] = []
            for name, cpu in (("small", "2"), ("large", "3")):
                items.append(part.group(name, 3))
                items += [part.pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(3)]
            manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            await asyncio.to_thread(server.kubectl, "apply", "-f", "-", stdin=manifest)
            await part.until_bound(3, "small")
            await asyncio.sleep(1.5)
            assert await part.bound("large") == {}
            if word := part.release.condition:
                groups = [await part.client.get(part.release.groups, part.name, name) for name in ("small", "large")]
                assert has_condition(groups[0], word) and has_condition(groups[1], word, "False")
            pod = await part.client.get(PODS, part.name, "large-0")
            said = condition(pod, "PodScheduled") or {}
            assert said["reason"] == "Unschedulable" and "Insufficient cpu" in said["message"]
            assert part.release.groups.api_version in muster.said
            events = (await part.client.list(EVENTS, part.name)).items
            assert {event["reason"] for event in events} == {"Scheduled", "FailedScheduling"}
            assert muster.end() == 0

    run(server, "kubectl", story)


def test_other_pods_are_left_alone_and_count(server: RealServer, tmp_path: Path) -> None:
    async def story(part: Cluster) -> None:
        (node,) = await part.add_nodes(1, cpu=4)
        await part.create(part.pod("other", scheduler="default-scheduler", cpu="3"), part.pod("mine", cpu="2"))
        await part.create(part.pod("small", cpu="1"), part.pod("waiting", scheduler="default-scheduler"))
        await part.bind("other", node)
        with muster_scheduler(tmp_path, server.kubeconfig):
            await part.until_bound(2)
            await asyncio.sleep(1)
            assert sorted(await part.bound()) == ["other", "small"]

    run(server, "others", story)


def test_groups_defined_and_taken_away_while_the_scheduler_runs_are_noticed(
    plain_server: RealServer, tmp_path: Path
) -> None:
    async def story(part: Cluster) -> None:
        await part.add_nodes(2, cpu=4)
        with muster_scheduler(tmp_path, plain_server.kubeconfig) as muster:
            await part.create(part.pod("plain"))
            await part.until_bound(1)
            assert "annotations and labels only" in muster.said
            await asyncio.to_thread(install, plain_server, "--crds-only")
            for name, cpu in (("small", "1"), ("large", "4")):
                await part.create(part.custom_group(name, 3))
                await part.create(*(part.marked_pod(f"{name}-{number}", name, cpu) for number in range(3)))
            await part.until_bound(3, "small")
            await asyncio.sleep(1.5)
            assert await part.bound("large") == {}
            small = await part.client.get(CUSTOM_GROUPS, part.name, "small")
            assert has_condition(small, "PodGroupInitiallyScheduled")
            definitions = [f"{kind}.{MUSTER_GROUP}" for kind in ("podgroups", "workloads", "compositepodgroups")]
            await asyncio.to_thread(plain_server.kubectl, "delete", "crd", *definitions)
            gone = "not served any more resource=podgroups"
            await asyncio.to_thread(wait_until, lambda: gone in muster.said, "it notices")
            await part.create(part.pod("later"))
            await part.until_bound(1, "later")
            lines = [line for line in muster.said.splitlines() if "resource=podgroups" in line and MUSTER_GROUP in line]
            assert len(lines) == 2, "one that they are watched, one that they are not any more"

    run(plain_server, "custom", story)


def test_dry_run_says_and_writes_nothing(server: RealServer, tmp_path: Path) -> None:
    async def story(part: Cluster) -> None:
        await part.add_nodes(1, cpu=4)
        await part.create_gang("a", 2)
        before = [(name_of(pod), pod["metadata"]["resourceVersion"]) for pod in await part.pods()]
        with muster_scheduler(tmp_path, server.kubeconfig, "--dry-run") as muster:
            await asyncio.to_thread(
                wait_until, lambda: muster.said.count("would bind") == 2, "it says what it would do"
            )
            await asyncio.sleep(1)
        assert [(name_of(pod), pod["metadata"]["resourceVersion"]) for pod in await part.pods()] == before
        assert (await part.client.list(EVENTS, part.name)).items == []

    run(server, "dry", story)


# -- faults ----------------------------------------------------------------------------------------------------------


def test_scheduler_goes_on_after_the_server_was_away(assets: Path, tmp_path: Path) -> None:
    own = RealServer(tmp_path, assets, serves_groups=True)

    async def story(part: Cluster) -> None:
        await part.add_nodes(2, cpu=10)
        with muster_scheduler(tmp_path, own.kubeconfig, *SHORT_LEASE) as muster:
            await part.create_gang("before", 4)
            await part.until_bound(4, "before")
            await asyncio.to_thread(own.kill)
            await asyncio.sleep(3)
            await asyncio.to_thread(own.start)
            await part.create_gang("after", 4)
            await part.until_bound(4, "after")
            assert "Traceback" not in muster.said

    with own.running():
        run(own, "away", story)


# -- others ----------------------------------------------------------------------------------------------------------


def test_leader_that_is_killed_under_load_is_followed_and_nothing_is_bound_twice(
    server: RealServer, tmp_path: Path
) -> None:
    async def story(part: Cluster) -> None:
        await part.add_nodes(5, cpu=10)
        with (
            muster_scheduler(tmp_path, server.kubeconfig, *SHORT_LEASE) as first,
            muster_scheduler(tmp_path, server.kubeconfig, *SHORT_LEASE) as second,
        ):
            both = {"first": first, "second": second}
            await asyncio.to_thread(wait_until, lambda: any(ready(each) for each in both.values()), "one leads")
            leader, other = (first, second) if ready(first) else (second, first)
            assert not ready(other)
            for number in range(10):
                await part.create_gang(f"g{number}", 5)
                if number == 4:
                    leader.kill()
            await part.until_bound(50)
            assert await part.crowded_nodes() == {}
            assert other.end() == 0
            lease = await part.client.get(LEASES, "kube-system", "muster-scheduler")
            assert lease["spec"]["holderIdentity"] == "", "given back at the end"

    run(server, "failover", story)


def ready(muster: Muster) -> bool:
    return "muster schedules pods" in muster.said


@pytest.mark.parametrize("other", ["a second writer", "kube-scheduler"])
def test_gangs_are_whole_or_not_there_beside_others_who_take_room(
    server: RealServer, assets: Path, tmp_path: Path, other: str
) -> None:
    sizes = {f"g{number}": 4 for number in range(5)}

    async def thief(part: Cluster, nodes: list[str]) -> None:
        """Binds without looking, again and again."""
        number = 0
        while True:
            for pod in await part.pods("t-"):
                if not pod["spec"].get("nodeName"):
                    number += 1
                    await part.bind(name_of(pod), nodes[number % len(nodes)])
            await asyncio.sleep(0.05)

    async def story(part: Cluster) -> None:
        nodes = await part.add_nodes(4, cpu=8)
        kubelets = Kubelets(part)
        theirs = "default-scheduler" if other == "kube-scheduler" else "other"
        owners = [Owner(part, sizes), Owner(part, {"t": 10}, scheduler=theirs)]
        tasks = [asyncio.create_task(kubelets.run()), *(asyncio.create_task(owner.run()) for owner in owners)]
        await part.create(*(part.group(name, size) for name, size in sizes.items()))
        command = [str(assets / "kube-scheduler"), f"--kubeconfig={server.kubeconfig}", "--secure-port=0"]
        command += ["--leader-elect=false", server.release.feature_gates]
        if other != "kube-scheduler":
            tasks.append(asyncio.create_task(thief(part, nodes)))
            command = ["sleep", "60"]
        with (
            process(command, tmp_path / "other.log", tmp_path),
            muster_scheduler(tmp_path, server.kubeconfig, "--repair-after=5s") as muster,
        ):
            await part.until("all gangs are whole", lambda bound: is_whole(bound, {**sizes, "t": 10}))
            assert await part.crowded_nodes() == {}
            assert "Traceback" not in muster.said
        for task in tasks:
            task.cancel()

    run(server, "thief" if other != "kube-scheduler" else "beside", story)
