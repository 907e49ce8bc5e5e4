"""Gangs without a PodGroup of Kubernetes: pods of one owner, and groups in other schedulers' words."""

from __future__ import annotations

import pytest
from test_scheduler_stories import World, run

from muster.api.codec import Object
from muster.api.grouping import default_grouping
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, JOBS, Resource
from muster.client.client import Client
from muster.clock import Clock
from muster.scheduler.options import SchedulerOptions
from muster.scheduler.watches import LOOK_AGAIN_S
from muster.testing import make_job, make_node, make_pod

COSCHEDULED = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
GROUPED = SchedulerOptions(grouping=default_grouping())


async def define(client: Client, clock: Clock, resource: Resource) -> None:
    """Install a CustomResourceDefinition without a schema for a kind."""
    names = {"plural": resource.plural, "kind": resource.kind}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition)
    await clock.sleep(5)


def owned(name: str, owner: Object) -> Object:
    pod = make_pod(name, gpu=1)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    metadata = {key: owner["metadata"][key] for key in ("name", "uid")}
    pod["metadata"]["ownerReferences"] = [{**reference, **metadata}]
    return pod


@pytest.mark.parametrize(("nodes", "bound"), [(3, 0), (4, 4)])
def test_pods_of_an_indexed_job_start_together_or_not_at_all(nodes: int, bound: int) -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(nodes)))
        job = await world.client.create(JOBS, "default", make_job("train", parallelism=4, indexed=True))
        await world.create(*(owned(f"train-{index}", job) for index in range(4)))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("train")) == bound

    run(story, options=GROUPED)


def test_pods_of_other_jobs_are_placed_one_by_one() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(3)))
        job = await world.client.create(JOBS, "default", make_job("queue", parallelism=4, completions=9))
        await world.create(*(owned(f"queue-{index}", job) for index in range(4)))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("queue")) == 3

    run(story, options=GROUPED)


def test_a_group_of_coscheduling_is_a_gang_once_its_kind_is_defined() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(2)))
        await world.create(make_pod("a-0", gpu=1, labels={"scheduling.x-k8s.io/pod-group": "a"}))
        await world.clock.sleep(5)
        assert await world.nodes_of("a") == {}
        assert "PodGroup.scheduling.x-k8s.io:a" in (await world.said("a-0"))[1]
        await define(world.client, world.clock, COSCHEDULED)
        group = {"apiVersion": COSCHEDULED.api_version, "kind": "PodGroup", "metadata": {"name": "a"}}
        await world.client.create(COSCHEDULED, "default", {**group, "spec": {"minMember": 2}})
        await world.clock.sleep(LOOK_AGAIN_S)
        assert await world.nodes_of("a") == {}
        await world.create(make_pod("a-1", gpu=1, labels={"scheduling.x-k8s.io/pod-group": "a"}))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("a")) == 2

    run(story, options=GROUPED)


def test_a_job_set_is_one_gang() -> None:
    async def story(world: World) -> None:
        await define(world.client, world.clock, JOB_SETS)
        await world.stop()
        world.start()
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(3)))
        spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]}
        job_set = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "metadata": {"name": "s"}, "spec": spec}
        await world.client.create(JOB_SETS, "default", job_set)
        label = {"jobset.sigs.k8s.io/jobset-name": "s"}
        await world.create(*(make_pod(f"s-{index}", gpu=1, labels=label) for index in range(4)))
        await world.clock.sleep(5)
        assert await world.nodes_of("s") == {}
        await world.create(make_node("n3", gpu=1))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("s")) == 4

    run(story, options=GROUPED)


def test_without_grouping_ownership_means_nothing() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(3)))
        job = await world.client.create(JOBS, "default", make_job("train", parallelism=4, indexed=True))
        await world.create(*(owned(f"train-{index}", job) for index in range(4)))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("train")) == 3

    run(story)
