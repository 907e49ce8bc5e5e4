"""A gang that is to be kept together goes as a whole when it lost members and cannot be refilled in time."""

from __future__ import annotations

import json

import pytest
from test_scheduler_repair import reap
from test_scheduler_stories import World, gang, run

from muster.api.codec import Object
from muster.api.resource import EVENTS, POD_GROUPS
from muster.scheduler.group_book import KEEP_TOGETHER_KEY
from muster.scheduler.options import SchedulerOptions
from muster.simulator.faults import NodeFault
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import manifests_of
from muster.testing import make_job, make_node, make_pod


def kept(objects: list[Object], text: str = "60s") -> list[Object]:
    """A gang whose PodGroup says that it is to be kept together."""
    group, *pods = objects
    return [{**group, "metadata": {**group["metadata"], "annotations": {KEEP_TOGETHER_KEY: text}}}, *pods]


async def events(world: World, reason: str) -> list[str]:
    found = (await world.client.list(EVENTS)).items
    return sorted(each["involvedObject"]["name"] for each in found if each["reason"] == reason)


def test_gang_that_cannot_be_refilled_in_time_goes_as_a_whole() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *kept(gang("a", 3, gpu=1)))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await world.clock.sleep(50)
        assert sorted(await world.nodes_of()) == ["a-1", "a-2"]
        await reap(world, 30)
        assert await world.nodes_of() == {}
        assert await events(world, "PodGroupNotWhole") == ["a-1", "a-2"]

    run(story)


def test_gang_that_went_is_queued_again_and_starts_as_one_when_it_is_complete() -> None:
    async def story(world: World) -> None:
        group, *pods = kept(gang("a", 3, gpu=1))
        await world.create(make_node("n0", gpu=3), group, *pods)
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await reap(world, 90)
        await world.create(*pods[:2])
        await world.clock.sleep(30)
        assert await world.nodes_of() == {}
        await world.create(pods[2])
        await world.clock.sleep(30)
        assert len(await world.nodes_of()) == 3

    run(story)


def test_gang_that_is_refilled_in_time_stays() -> None:
    async def story(world: World) -> None:
        group, *pods = kept(gang("a", 3, gpu=1))
        await world.create(make_node("n0", gpu=3), group, *pods)
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await world.clock.sleep(50)
        await world.create(pods[0])
        await reap(world, 120)
        assert len(await world.nodes_of()) == 3
        assert await events(world, "PodGroupNotWhole") == []

    run(story)


def test_gang_with_more_members_than_needed_may_lose_some() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *kept(gang("a", 3, 2, gpu=1)))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await reap(world, 120)
        assert sorted(await world.nodes_of()) == ["a-1", "a-2"]

    run(story)


def test_gang_whose_members_end_well_is_left_to_end() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *kept(gang("a", 3, gpu=1)))
        await world.clock.sleep(5)
        await world.finish("a-0")
        await reap(world, 120)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2"]

    run(story)


@pytest.mark.parametrize(
    "options", [SchedulerOptions(keeps_together=False), SchedulerOptions(repair_after_s=None)], ids=["off", "no repair"]
)
def test_policy_can_be_switched_off_and_does_not_need_repair(options: SchedulerOptions) -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *kept(gang("a", 3, gpu=1)))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await reap(world, 90)
        assert len(await world.nodes_of()) == (0 if options.keeps_together else 2)

    run(story, options=options)


def test_annotation_that_says_no_duration_is_told_and_ignored() -> None:
    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *kept(gang("a", 3, gpu=1), "soon"))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await reap(world, 120)
        assert sorted(await world.nodes_of()) == ["a-1", "a-2"]
        assert await events(world, "AnnotationIgnored") == ["a"]

    run(story)


def test_pods_may_say_it_and_the_group_overrules_them() -> None:
    async def story(world: World) -> None:
        for name, of_group in (("a", None), ("b", "off")):
            group, *pods = gang(name, 2, gpu=1)
            if of_group is not None:
                (group,) = kept([group], of_group)
            marked = [
                {**pod, "metadata": {**pod["metadata"], "annotations": {KEEP_TOGETHER_KEY: "10"}}} for pod in pods
            ]
            await world.create(group, *marked)
        await world.create(make_node("n0", gpu=4))
        await world.clock.sleep(5)
        await world.delete_pod("a-0")
        await world.delete_pod("b-0")
        await reap(world, 60)
        assert sorted(await world.nodes_of()) == ["b-1"]

    run(story)


def test_job_whose_node_dies_gives_up_the_other_nodes_too() -> None:
    """A gang of two on two nodes, of which one dies: no half of it runs on."""
    job = make_job("train", parallelism=2, indexed=True, pod=make_pod(gpu=1))
    job["metadata"]["annotations"] = {KEEP_TOGETHER_KEY: "2m"}
    template = job["spec"]["template"]
    template["metadata"] = {"annotations": {"sim.muster-k8s.dev/run-seconds": "100000"}}
    nodes = [make_node(f"n{at}", gpu=1) for at in range(2)]

    outcome = simulate(
        manifests_of([*nodes, job]),
        until_s=4000,
        seed=1,
        options=ClusterOptions(),
        faults=Faults(nodes=(NodeFault("n1", 60.0),)),
    )

    value = report(outcome)
    assert value["invariants"]["violations"] == []
    assert all(pod["node"] is None for pod in value["pods"] if pod["phase"] == "Pending")
    assert {event["reason"] for event in value["events"]} >= {"PodGroupNotWhole"}


def test_elastic_gang_follows_what_its_owner_changes() -> None:
    """minCount raised beyond what runs and lowered again, members added while it runs: what runs goes on."""

    async def min_count(world: World, value: int) -> None:
        patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": value}}}}
        await world.client.patch(POD_GROUPS, "default", "a", patch)

    async def story(world: World) -> None:
        await world.create(make_node("n0", gpu=3), *gang("a", 2, gpu=1))
        await world.clock.sleep(5)
        await min_count(world, 4)
        await world.create(make_pod("a-2", group="a", gpu=1))
        await world.clock.sleep(30)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1"]
        assert "3 of 4 members exist" in (await world.said("a-2"))[1]
        await min_count(world, 3)
        await world.clock.sleep(30)
        assert sorted(await world.nodes_of()) == ["a-0", "a-1", "a-2"]
        await world.create(make_pod("a-3", group="a", gpu=1))
        await world.clock.sleep(30)
        assert (await world.said("a-3"))[0] == "Unschedulable"
        await world.delete_pod("a-0")
        await world.clock.sleep(30)
        assert sorted(await world.nodes_of()) == ["a-1", "a-2", "a-3"]

    run(story)


def test_map_of_a_workload_is_read_by_template_name() -> None:
    from muster.scheduler.keeping import _parsed

    text = json.dumps({"workers": "90s", "driver": "off"})
    assert (_parsed(text, "workers"), _parsed(text, "driver"), _parsed(text, "other")) == (90.0, -1.0, None)
    assert _parsed("5m", "workers") == 300.0
