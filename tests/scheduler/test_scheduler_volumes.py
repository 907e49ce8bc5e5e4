"""Volumes on the embedded server: bound for a pod's node, before the pod, for all of a gang or for none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from muster.api.codec import Object, Objects
from muster.api.meta import condition, name_of
from muster.api.resource import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    STORAGE_CLASSES,
    Resource,
)
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.client.informer import Change
from muster.clock import VirtualClock, run_virtual
from muster.controllers.options import ControllerOptions
from muster.controllers.registry import ControllerService
from muster.engine.model import Placement
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.service import Scheduler
from muster.testing import make_group, make_node, make_pod

BINDER = "persistentvolume-binder-controller"
PROVISIONER = "simulated-volume-provisioner"
PROTECTION = ("persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller")
CONTROLLERS = (BINDER, PROVISIONER, *PROTECTION, "ephemeral-volume-controller")
RESOURCES = {
    each.kind: each for each in (NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_GROUPS, PODS, STORAGE_CLASSES)
}


@dataclass
class World:
    """An API server with a scheduler and the controllers of volumes."""

    clock: VirtualClock
    client: Client
    scheduler: Scheduler
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def create(self, *objects: Object) -> None:
        for obj in objects:
            resource = RESOURCES[obj["kind"]]
            await self.client.create(resource, "default" if resource.namespaced else None, obj)

    async def all(self, resource: Resource) -> Objects:
        namespace = "default" if resource.namespaced else None
        return list((await self.client.list(resource, namespace)).items)

    async def nodes_of(self) -> dict[str, str | None]:
        return {name_of(pod): pod["spec"].get("nodeName") for pod in await self.all(PODS)}

    async def volumes_of(self) -> dict[str, str | None]:
        return {name_of(claim): claim["spec"].get("volumeName") for claim in await self.all(PERSISTENT_VOLUME_CLAIMS)}

    async def why(self, pod: str) -> tuple[str, str]:
        entry = condition(await self.client.get(PODS, "default", pod), "PodScheduled") or {}
        return entry.get("reason", ""), entry.get("message", "")


Story = Callable[[World], Awaitable[None]]


def play(story: Story, controllers: Sequence[str] = CONTROLLERS, options: SchedulerOptions | None = None) -> None:
    """Run a story in virtual time."""

    async def main(clock: VirtualClock) -> None:
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, random.Random(1))))
        scheduler = Scheduler(client, clock, random.Random(2), options)
        service = ControllerService(client, clock, random.Random(3), ControllerOptions(), controllers)
        world = World(clock, client, scheduler)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(scheduler.run()), loop.create_task(service.run())]
        await clock.sleep(1)
        await story(world)
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main)


def storage_class(
    name: str = "late", *, provisioner: str = "disks.example.test", late: bool = True, **more: object
) -> Object:
    mode = "WaitForFirstConsumer" if late else "Immediate"
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **more,
    }


def claim(name: str, *, size: str = "5Gi", class_name: str = "late") -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": class_name,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def local_volume(name: str, *nodes: str, size: str = "5Gi", class_name: str = "late") -> Object:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def node(name: str, zone: str = "z") -> Object:
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    return make_node(name, cpu="4", labels=labels)


def pod(name: str, *claims: str, cpu: str = "1", group: str | None = None) -> Object:
    made = make_pod(name, cpu=cpu, group=group)
    made["spec"]["volumes"] = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": each}} for index, each in enumerate(claims)
    ]
    return made


def in_default(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "default", "uid": f"uid-of-{name_of(obj)}"}}


def test_a_volume_is_made_for_the_node_before_the_pod_is_bound() -> None:
    async def story(world: World) -> None:
        await world.create(node("a", "za"), node("b", "zb"), storage_class(), claim("data"))
        await world.clock.sleep(1)
        assert await world.volumes_of() == {"data": None}
        await world.create(pod("p", "data"))
        await world.clock.sleep(1)
        (volume,) = await world.all(PERSISTENT_VOLUMES)
        (bound,) = await world.all(PERSISTENT_VOLUME_CLAIMS)
        where = (await world.nodes_of())["p"]
        assert bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == where
        assert (bound["status"]["phase"], volume["status"]["phase"]) == ("Bound", "Bound")
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == [f"z{where}"]
        scheduled = condition(await world.client.get(PODS, "default", "p"), "PodScheduled")
        assert scheduled is not None and scheduled["status"] == "True"

    play(story)


def test_a_gang_whose_members_want_the_same_volumes_gets_one_each() -> None:
    async def story(world: World) -> None:
        await world.create(*(node(name) for name in "abc"), storage_class(provisioner="kubernetes.io/no-provisioner"))
        await world.create(*(local_volume(f"v{name}", name) for name in "abc"))
        await world.create(*(claim(f"c{n}") for n in range(3)), make_group("g", min_count=3))
        await world.create(*(pod(f"p{n}", f"c{n}", group="g") for n in range(3)))
        await world.clock.sleep(2)
        nodes, volumes = await world.nodes_of(), await world.volumes_of()
        assert sorted(map(str, nodes.values())) == ["a", "b", "c"]
        assert {volumes[f"c{n}"] for n in range(3)} == {"va", "vb", "vc"}
        assert all(volumes[f"c{n}"] == f"v{nodes[f'p{n}']}" for n in range(3))

    play(story)


def test_a_gang_that_lacks_a_volume_takes_none() -> None:
    async def story(world: World) -> None:
        await world.create(*(node(name) for name in "abc"), storage_class(provisioner="kubernetes.io/no-provisioner"))
        await world.create(*(local_volume(f"v{name}", name) for name in "ab"))
        await world.create(*(claim(f"c{n}") for n in range(3)), make_group("g", min_count=3))
        await world.create(*(pod(f"p{n}", f"c{n}", group="g") for n in range(3)))
        await world.clock.sleep(2)
        assert set((await world.nodes_of()).values()) == {None}
        assert set((await world.volumes_of()).values()) == {None}
        await world.create(local_volume("vc", "c"))
        await world.clock.sleep(15)
        assert None not in (await world.nodes_of()).values()

    play(story)


def test_who_has_only_one_volume_to_choose_chooses_first() -> None:
    cache = SchedulerCache(frozenset({"default-scheduler"}))
    cache.apply_nodes(Change("ADDED", None, node(name)) for name in "ab")
    volumes = [local_volume("only-a", "a", size="5Gi"), local_volume("both", "a", "b", size="4Gi")]
    for kind, objects in (
        ("StorageClass", [storage_class(provisioner="kubernetes.io/no-provisioner")]),
        ("PersistentVolume", [{**each, "status": {"phase": "Available"}} for each in volumes]),
        ("PersistentVolumeClaim", [in_default(claim("c0", size="1Gi")), in_default(claim("c1", size="1Gi"))]),
    ):
        cache.apply_objects(kind, (Change("ADDED", None, obj) for obj in objects))
    cache.apply_pods(Change("ADDED", None, in_default(pod(f"p{n}", f"c{n}"))) for n in range(2))
    cache.reserve_volumes((Placement("default/p0", "a"), Placement("default/p1", "b")))
    found = [cache.state.reservation(f"default/p{n}") for n in range(2)]
    assert [each.matched[0].volume for each in found if each is not None] == ["only-a", "both"]


def test_no_pod_of_a_gang_is_bound_if_the_volume_of_one_does_not_come() -> None:
    async def story(world: World) -> None:
        await world.create(node("a"), storage_class(), make_group("g", min_count=2), claim("data"))
        await world.create(pod("p0", "data", group="g"), pod("p1", group="g"))
        await world.clock.sleep(25)
        assert set((await world.nodes_of()).values()) == {None}
        reason, message = await world.why("p0")
        assert reason == "SchedulerError"
        assert message == 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        volume = local_volume("late-but-there", "a")
        volume["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
        await world.create(volume)
        await world.clock.sleep(60)
        assert set((await world.nodes_of()).values()) == {"a"}

    play(story, (BINDER,), SchedulerOptions(bind_timeouts_s={"default-scheduler": 20.0}))


def test_pods_that_share_a_claim_follow_the_first() -> None:
    async def story(world: World) -> None:
        await world.create(*(node(name, f"z{name}") for name in "ab"), storage_class(), claim("shared"))
        await world.create(*(pod(f"p{n}", "shared") for n in range(3)))
        await world.clock.sleep(3)
        assert len(set((await world.nodes_of()).values())) == 1

    play(story)


def test_an_assumed_volume_is_taken_for_everybody_else() -> None:
    async def story(world: World) -> None:
        await world.create(node("a"), storage_class(provisioner="kubernetes.io/no-provisioner"))
        await world.create(local_volume("v", "a"), claim("c0"), claim("c1"), pod("p0", "c0"), pod("p1", "c1"))
        await world.clock.sleep(3)
        nodes = await world.nodes_of()
        assert sorted(map(str, nodes.values())) == ["None", "a"]
        loser = next(name for name, where in nodes.items() if where is None)
        _, message = await world.why(loser)
        assert "didn't find available persistent volumes to bind" in message
        await world.client.delete(
            PODS, "default", next(name for name in nodes if name != loser), {"gracePeriodSeconds": 0}
        )
        await world.clock.sleep(3)

    play(story)


def test_the_volume_of_a_pod_that_is_deleted_while_it_waits_is_free_again() -> None:
    async def story(world: World) -> None:
        await world.create(node("a"), storage_class(), claim("c0"), pod("p0", "c0"))
        await world.clock.sleep(2)
        assert world.scheduler.core.cache.state.reservation("default/p0") is not None
        await world.client.delete(PODS, "default", "p0", {"gracePeriodSeconds": 0})
        await world.clock.sleep(1)
        assert world.scheduler.core.cache.state.reservation("default/p0") is None

    play(story, (BINDER,))


def test_a_claim_that_does_not_wait_is_bound_at_once_and_its_volume_goes_with_it() -> None:
    async def story(world: World) -> None:
        await world.create(storage_class("now", late=False), claim("data", class_name="now"))
        await world.clock.sleep(1)
        (volume,) = await world.all(PERSISTENT_VOLUMES)
        assert (await world.volumes_of())["data"] == name_of(volume)
        await world.client.delete(PERSISTENT_VOLUME_CLAIMS, "default", "data")
        await world.clock.sleep(1)
        assert await world.all(PERSISTENT_VOLUME_CLAIMS) == await world.all(PERSISTENT_VOLUMES) == []

    play(story)


def test_the_smallest_volume_that_suits_is_bound_and_stays_when_its_claim_goes() -> None:
    async def story(world: World) -> None:
        sizes = {"small": "1Gi", "fits": "6Gi", "large": "50Gi"}
        await world.create(*(local_volume(name, "a", size=size, class_name="") for name, size in sizes.items()))
        await world.create(claim("data", class_name=""))
        await world.clock.sleep(1)
        assert await world.volumes_of() == {"data": "fits"}
        await world.client.delete(PERSISTENT_VOLUME_CLAIMS, "default", "data")
        await world.clock.sleep(1)
        phases = {name_of(volume): volume["status"]["phase"] for volume in await world.all(PERSISTENT_VOLUMES)}
        assert phases == {"small": "Available", "fits": "Released", "large": "Available"}

    play(story)


def test_an_ephemeral_volume_gets_its_claim_and_the_pod_its_node() -> None:
    async def story(world: World) -> None:
        made = make_pod("p")
        template = {"spec": claim("x")["spec"]}
        made["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        await world.create(node("a"), storage_class(), made)
        await world.clock.sleep(3)
        assert (await world.nodes_of())["p"] == "a"
        assert list(await world.volumes_of()) == ["p-scratch"]

    play(story)


def test_allowed_topologies_decide_where_the_pod_goes() -> None:
    async def story(world: World) -> None:
        term = {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["zb"]}]}
        await world.create(node("a", "za"), node("b", "zb"), storage_class(allowedTopologies=[term]), claim("data"))
        await world.create(pod("p", "data"))
        await world.clock.sleep(2)
        assert (await world.nodes_of())["p"] == "b"

    play(story)


@pytest.mark.parametrize("late", [True, False], ids=["waits", "at once"])
def test_a_claim_that_names_no_class_has_the_default_one(late: bool) -> None:
    async def story(world: World) -> None:
        default = storage_class("usual", late=late)
        default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
        wanted = claim("data")
        del wanted["spec"]["storageClassName"]
        await world.create(node("a"), default, wanted, pod("p", "data"))
        await world.clock.sleep(3)
        (bound,) = await world.all(PERSISTENT_VOLUME_CLAIMS)
        assert (bound["spec"]["storageClassName"], (await world.nodes_of())["p"]) == ("usual", "a")

    play(story)


def test_a_volume_that_is_bound_stays_until_its_claim_is_gone() -> None:
    async def story(world: World) -> None:
        await world.create(node("a"), storage_class(provisioner="kubernetes.io/no-provisioner"))
        await world.create(local_volume("free", "a"), local_volume("used", "a", class_name="other"))
        await world.create(storage_class("other", provisioner="kubernetes.io/no-provisioner", late=False))
        await world.create(claim("data", class_name="other"))
        await world.clock.sleep(1)
        assert await world.volumes_of() == {"data": "used"}
        for name in ("free", "used"):
            await world.client.delete(PERSISTENT_VOLUMES, None, name)
        await world.clock.sleep(1)
        assert [name_of(each) for each in await world.all(PERSISTENT_VOLUMES)] == ["used"]
        await world.client.delete(PERSISTENT_VOLUME_CLAIMS, "default", "data")
        await world.clock.sleep(1)
        assert await world.all(PERSISTENT_VOLUMES) == []

    play(story)
