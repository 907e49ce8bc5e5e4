"""Whatever goes wrong between `muster scheduler` and a real server: gangs are whole or not there, nodes not crowded, no
pod is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from control_planes import wait_until
from fault_proxy import FaultProxy, Faults
from real_servers import Cluster, Kubelets, Muster, Owner, RealServer, cluster, find_assets, muster_scheduler

from muster.api.codec import Object
from muster.api.meta import condition, name_of
from muster.api.resource import EVENTS, NODES, PODS
from muster.client.transport import ClientError

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with RealServer(tmp_path_factory.mktemp("faults"), find_assets(), serves_groups=True).running() as running:
        yield running


def run(server: RealServer, name: str, story: Callable[[Cluster], Awaitable[None]], patience_s: float = 150) -> None:
    async def main() -> None:
        async with asyncio.timeout(patience_s), cluster(server, name) as made:
            await story(made)

    asyncio.run(main())


async def check_laws(part: Cluster, sizes: dict[str, int]) -> None:
    """Each gang has all of its members on nodes, or none; no node is crowded; who has no node was told why."""
    bound = await part.bound()
    counts = {name: sum(pod.startswith(f"{name}-") for pod in bound) for name in sizes}
    assert {name: count for name, count in counts.items() if count not in (0, sizes[name])} == {}
    assert await part.crowded_nodes() == {}
    pods = await part.pods()
    for name, size in sizes.items():
        assert sum(name_of(pod).startswith(f"{name}-") for pod in pods) >= size, f"{name} has lost pods"
    assert untold(pods) == []


def untold(pods: list[Object]) -> list[str]:
    """Pods that have no node and were not told why."""
    return [name_of(pod) for pod in pods if not pod["spec"].get("nodeName") and condition(pod, "PodScheduled") is None]


async def until_whole(part: Cluster, sizes: dict[str, int], gangs: int) -> None:
    """Wait until so many gangs are whole and the others not there at all, and that stays so for a moment."""

    def holds(bound: dict[str, str]) -> bool:
        counts = [sum(pod.startswith(f"{name}-") for pod in bound) for name in sizes]
        whole = sum(count == size for count, size in zip(counts, sizes.values(), strict=True))
        return whole == gangs and all(count in (0, size) for count, size in zip(counts, sizes.values(), strict=True))

    await part.until(f"{gangs} of {sizes} are whole", holds, patience_s=100)
    async with asyncio.timeout(30):  # what is said comes after the bindings, and its writes may fail, too
        while untold(await part.pods()):
            await asyncio.sleep(0.2)
    await asyncio.sleep(1.5)
    await check_laws(part, sizes)


@contextlib.asynccontextmanager
async def life(part: Cluster, *owners: Owner, rejects: int = 0) -> AsyncIterator[Kubelets]:
    """Kubelets, and owners that replace what is lost."""
    kubelets = Kubelets(part, rejects)
    runs = [kubelets.run(), *(owner.run() for owner in owners)]
    tasks = [asyncio.create_task(each) for each in runs]
    try:
        yield kubelets
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- the scheduler dies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_scheduler_killed_again_and_again_between_any_two_bindings(
    server: RealServer, tmp_path: Path, seed: int
) -> None:
    """Five gangs, room for three: those that were begun are finished, the others are not begun."""
    rng = random.Random(seed)
    sizes = {f"g{number}": rng.randint(2, 5) for number in range(3)}
    room = sum(sizes.values())
    sizes |= {"late": 4, "later": 4}

    async def story(part: Cluster) -> None:
        await part.add_nodes(room, cpu=1)
        for name, size in sizes.items():
            await part.create_gang(name, size)
        left = room
        while left > 1:
            at = rng.randrange(1, left)
            before = len(await part.bound())
            await killed_at(server, part, tmp_path, at)
            assert len(await part.bound()) == before + at
            left -= at
        with muster_scheduler(tmp_path, server.kubeconfig) as muster:
            await until_whole(part, sizes, 3)
            events = (await part.client.list(EVENTS, part.name)).items
            assert "PodGroupUndone" not in {event["reason"] for event in events}
            assert "Traceback" not in muster.said

    run(server, f"killed-{seed}", story)


async def killed_at(server: RealServer, part: Cluster, directory: Path, at: int) -> None:
    """Run a scheduler, and kill it before its next binding after so many."""
    living: list[Muster] = []

    def passes(number: int) -> bool:
        if number > at and living:
            living.pop().kill()
        return number <= at

    async with FaultProxy(server.port, Faults(on_bind=passes)).running() as proxy:
        with muster_scheduler(directory, server.write_kubeconfig("deadly", proxy.url)) as muster:
            living.append(muster)
            await asyncio.to_thread(muster.running.wait, 60)


def test_gang_left_half_bound_is_undone_if_its_room_is_gone(server: RealServer, tmp_path: Path) -> None:
    """Its scheduler died and another one took the room: the next scheduler does not let the rest hold its nodes."""

    async def story(part: Cluster) -> None:
        (node,) = await part.add_nodes(1, cpu=3)
        await part.create_gang("gang", 3)
        await killed_at(server, part, tmp_path, 1)
        await part.create(part.pod("other", cpu="2", scheduler="other"))
        await part.bind("other", node)
        async with life(part):
            with muster_scheduler(tmp_path, server.kubeconfig, "--repair-after=2s") as muster:
                await part.until("the gang holds nothing", lambda bound: not bound, "gang-")
                events = (await part.client.list(EVENTS, part.name)).items
                assert [event["reason"] for event in events].count("PodGroupUndone") == 1
                assert "Traceback" not in muster.said

    run(server, "half-bound", story)


# -- the server, and the way to it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "faults"),
    [
        ("slow", Faults(slow_s=0.3)),
        ("status-500", Faults(refused=0.4)),
        ("lost-answers", Faults(lost=0.4)),
        ("status-429", Faults(throttled=0.4)),
        ("status-409", Faults(conflicts=0.4)),
        ("all", Faults(slow_s=0.05, refused=0.1, lost=0.1, throttled=0.1, conflicts=0.1)),
    ],
)
def test_writes_that_fail_only_take_time(server: RealServer, tmp_path: Path, what: str, faults: Faults) -> None:
    sizes = {f"g{number}": 4 for number in range(5)}

    async def story(part: Cluster) -> None:
        await part.add_nodes(4, cpu=4)
        async with FaultProxy(server.port, faults).running() as proxy:
            with muster_scheduler(tmp_path, server.write_kubeconfig("faulty", proxy.url)) as muster:
                for name, size in sizes.items():
                    await part.create_gang(name, size)
                await until_whole(part, sizes, 4)
                assert "Traceback" not in muster.said

    run(server, what, story)


def test_watches_that_end_break_or_expire_lose_nothing(server: RealServer, tmp_path: Path) -> None:
    """Each time gangs come, all watches are cut or told 410 Gone; what happened in between is listed again."""
    sizes = {f"g{number}": 3 for number in range(6)}

    async def story(part: Cluster) -> None:
        await part.add_nodes(6, cpu=3)
        async with FaultProxy(server.port, Faults()).running() as proxy:
            with muster_scheduler(tmp_path, server.write_kubeconfig("cut", proxy.url)) as muster:
                await asyncio.to_thread(wait_until, lambda: "muster schedules pods" in muster.said, "it decides")
                for number, (name, size) in enumerate(sizes.items()):
                    await part.create(part.group(name, size))
                    await part.create(part.pod(f"{name}-0", group=name))
                    while proxy.watches < 5:
                        await asyncio.sleep(0.1)  # those that were ended before begin again
                    assert (await proxy.expire_watches() if number % 2 else proxy.cut_watches()) >= 5
                    await part.create(*(part.pod(f"{name}-{at}", group=name) for at in range(1, size)))
                await until_whole(part, sizes, 6)
                assert "Traceback" not in muster.said

    run(server, "watches", story)


# -- others ----------------------------------------------------------------------------------------------------------


def test_node_that_goes_between_decision_and_binding_takes_no_gang_with_it(server: RealServer, tmp_path: Path) -> None:
    """Bindings to a node that is gone are not sent any more; members that were bound to it are replaced: the gang is
    whole elsewhere."""
    sizes = {"a": 4, "b": 4}

    async def story(part: Cluster) -> None:
        nodes = await part.add_nodes(6, cpu=2)
        lost: list[str] = []
        binds: list[str] = []

        async def collect() -> None:
            """What the pod garbage collector does about pods of nodes that are not there."""
            while True:
                with contextlib.suppress(ClientError):
                    for pod in await part.pods():
                        if pod["spec"].get("nodeName") in lost:
                            await part.client.delete(PODS, part.name, name_of(pod), {"gracePeriodSeconds": 0})
                await asyncio.sleep(0.3)

        async def take_away(node: str) -> None:
            await part.client.delete(NODES, None, node)
            lost.append(node)

        async def second(pod: str, node: str) -> None:
            binds.append(pod)
            if len(binds) == 2:
                await take_away(node)

        collector = asyncio.create_task(collect())
        async with (
            life(part, Owner(part, sizes)),
            FaultProxy(server.port, Faults(before_bind=second)).running() as proxy,
        ):
            await part.create(*(part.group(name, size) for name, size in sizes.items()))
            config = server.write_kubeconfig("gone", proxy.url)
            with muster_scheduler(tmp_path, config, "--repair-after=5s") as muster:
                await until_whole(part, sizes, 2)
                assert lost and set((await part.bound()).values()) <= set(nodes) - set(lost)
                assert "Traceback" not in muster.said
        collector.cancel()
        await asyncio.gather(collector, return_exceptions=True)

    run(server, "gone", story)


def test_pod_that_another_binds_first_counts_where_it_is(server: RealServer, tmp_path: Path) -> None:
    """409: a second writer binds a member elsewhere just before; its gang is finished around it."""
    sizes = {"a": 4, "b": 4}

    async def story(part: Cluster) -> None:
        nodes = await part.add_nodes(4, cpu=2)
        stolen: list[str] = []

        async def other_first(pod: str, node: str) -> None:
            if len(stolen) < 2:
                stolen.append(pod)
                await part.bind(pod, next(each for each in nodes if each != node))

        async with (
            life(part, Owner(part, sizes)),
            FaultProxy(server.port, Faults(before_bind=other_first)).running() as proxy,
        ):
            await part.create(*(part.group(name, size) for name, size in sizes.items()))
            config = server.write_kubeconfig("stolen", proxy.url)
            with muster_scheduler(tmp_path, config, "--repair-after=5s") as muster:
                await until_whole(part, sizes, 2)
                assert len(stolen) == 2
                assert "Traceback" not in muster.said

    run(server, "stolen", story)


def test_gang_whose_member_a_kubelet_rejects_is_whole_elsewhere(server: RealServer, tmp_path: Path) -> None:
    """A node has less than it says: OutOfcpu. The owner replaces the member; the gang ends whole."""
    sizes = {"a": 4, "b": 4}

    async def story(part: Cluster) -> None:
        await part.add_nodes(5, cpu=2)
        async with life(part, Owner(part, sizes), rejects=2) as kubelets:
            await part.create(*(part.group(name, size) for name, size in sizes.items()))
            with muster_scheduler(tmp_path, server.kubeconfig, "--repair-after=5s") as muster:
                await until_whole(part, sizes, 2)
                assert len(kubelets.rejected) == 2
                assert "member rejected by its node" in muster.said
                assert "Traceback" not in muster.said

    run(server, "rejected", story)
