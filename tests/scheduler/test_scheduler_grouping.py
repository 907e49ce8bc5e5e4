"""Gangs without a PodGroup of Kubernetes: pods of one owner, and groups in other schedulers' words."""

from __future__ import annotations

import pytest
from test_scheduler_stories import World, run

from muster.api.codec import Object
from muster.api.grouping import default_grouping
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, JOBS, PODS, Resource
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


SET, OF_SET = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name"


def job_set(order: str = "AnyOrder", annotations: Object | None = None) -> Object:
    """A driver, and four workers in two jobs."""
    jobs = [
        {"name": "driver", "replicas": 1, "template": {"spec": {}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}},
    ]
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
    metadata = {"name": "s", "annotations": annotations or {}}
    return {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "metadata": metadata, "spec": spec}


def of_set(name: str, part: str, job: str, index: int = 0) -> Object:
    """A pod as the Job controller makes it for a job of the set."""
    labels = {SET: "s", OF_SET: part, "batch.kubernetes.io/job-completion-index": str(index)}
    pod = make_pod(name, gpu=1, labels=labels)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


def workers() -> list[Object]:
    return [of_set(f"w-{at}", "workers", f"s-workers-{at // 2}", at % 2) for at in range(4)]


async def with_job_set(world: World, made: Object, gpus: int) -> None:
    await define(world.client, world.clock, JOB_SETS)
    await world.stop()
    world.start()
    await world.create(*(make_node(f"n{index}", gpu=1) for index in range(gpus)))
    await world.client.create(JOB_SETS, "default", made)


def test_jobs_of_a_set_that_come_in_order_are_gangs_one_after_the_other() -> None:
    async def story(world: World) -> None:
        await with_job_set(world, job_set("InOrder"), 4)
        await world.create(of_set("driver", "driver", "s-driver-0"))
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["driver"]
        await world.create(*workers()[:3])
        await world.clock.sleep(5)
        assert (await world.said("w-0"))[0] == "SchedulingGated"
        await world.create(workers()[3])
        await world.clock.sleep(5)
        assert sorted(await world.nodes_of()) == ["driver"]  # there is room for three of four
        await world.create(make_node("more", gpu=1))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("w-")) == 4

    run(story, options=GROUPED)


def test_workers_do_not_wait_for_a_job_of_the_set_that_is_complete() -> None:
    async def story(world: World) -> None:
        await with_job_set(world, job_set("InOrder"), 4)
        await world.create(of_set("driver", "driver", "s-driver-0"))
        await world.clock.sleep(5)
        await world.finish("driver")
        await world.create(*workers()[:3])
        await world.clock.sleep(5)
        assert await world.nodes_of("w-") == {}
        await world.create(workers()[3])
        await world.clock.sleep(5)
        assert len(await world.nodes_of("w-")) == 4

    run(story, options=GROUPED)


def test_followers_come_after_their_leaders_where_jobs_have_their_own_rack() -> None:
    async def story(world: World) -> None:
        await with_job_set(world, job_set(annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}), 5)
        leaders = [of_set("driver", "driver", "s-driver-0"), workers()[0], workers()[2]]
        await world.create(*leaders[:2])
        await world.clock.sleep(5)
        assert await world.nodes_of() == {}
        await world.create(leaders[2])
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 3
        await world.create(workers()[1], workers()[3])
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 5

    run(story, options=GROUPED)


def test_one_worker_is_replaced_after_the_driver_has_ended_well() -> None:
    async def story(world: World) -> None:
        await with_job_set(world, job_set(), 5)
        await world.create(of_set("driver", "driver", "s-driver-0"), *workers())
        await world.clock.sleep(5)
        assert len(await world.nodes_of()) == 5
        await world.finish("driver")
        await world.delete_pod("w-3")
        await world.create(of_set("again", "workers", "s-workers-1", 1))
        await world.clock.sleep(5)
        assert "again" in await world.nodes_of()

    run(story, options=GROUPED)


def test_a_set_that_starts_all_over_does_not_count_pods_that_leave() -> None:
    async def story(world: World) -> None:
        await with_job_set(world, job_set(), 5)
        await world.create(of_set("driver", "driver", "s-driver-0"), *workers())
        await world.clock.sleep(5)
        for name in ("driver", "w-0", "w-1", "w-2", "w-3"):
            await world.client.delete(PODS, "default", name)  # with their grace period
        await world.create(of_set("again", "driver", "s-driver-0"))
        await world.clock.sleep(5)
        assert "again" not in await world.nodes_of()
        assert (await world.said("again"))[0] == "SchedulingGated"

    run(story, options=GROUPED)


def test_without_grouping_ownership_means_nothing() -> None:
    async def story(world: World) -> None:
        await world.create(*(make_node(f"n{index}", gpu=1) for index in range(3)))
        job = await world.client.create(JOBS, "default", make_job("train", parallelism=4, indexed=True))
        await world.create(*(owned(f"train-{index}", job) for index in range(4)))
        await world.clock.sleep(5)
        assert len(await world.nodes_of("train")) == 3

    run(story)
