"""Groups with the topology annotation, from objects to nodes: where the annotation is found, and what it does."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from muster.api.codec import JSON, Object, Objects, dumps
from muster.api.groups import GroupRef, GroupTerms
from muster.api.resource import CUSTOM_RESOURCE_DEFINITIONS, KUEUE_TOPOLOGIES, NODES, POD_GROUPS, PODS
from muster.api.topology import TOPOLOGY_KEY
from muster.apiserver.inprocess import InProcessTransport
from muster.apiserver.server import ApiServer
from muster.apiserver.store.memory import MemoryStore
from muster.client.client import Client
from muster.clock import RealClock
from muster.nodes.spec import parse_node_spec
from muster.scheduler.layouts import TopologyObjects
from muster.scheduler.service import Scheduler
from muster.simulator.faults import NodeFault
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import manifests_of
from muster.testing import make_group, make_job, make_node, make_pod

RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
EIGHT = "count=8,cpu=4,racks=4,zones=2"
"""Racks 0 and 2 are in zone 0, racks 1 and 3 in zone 1; two nodes each."""


def annotated(obj: Object, terms: JSON) -> Object:
    text = terms if isinstance(terms, str) else dumps(terms).decode()
    obj["metadata"].setdefault("annotations", {})[TOPOLOGY_KEY] = text
    return obj


def gang(name: str, size: int, cpu: str, *, terms: JSON = None, **spec: object) -> Objects:
    group = make_group(name, min_count=size, **spec)  # type: ignore[arg-type]  # fields of the spec only
    return [
        group if terms is None else annotated(group, terms),
        *(make_pod(f"{name}-{at}", cpu=cpu, group=name, spec=None) for at in range(size)),
    ]


def run(objects: Objects, *, nodes: str = EIGHT, later: Objects | None = None, **more: object) -> Object:
    timed = [(60.0, manifests_of(later))] if later else []
    outcome = simulate(
        manifests_of(objects),
        timed=timed,
        nodes=[parse_node_spec(nodes)],
        options=ClusterOptions(node_events=False),
        until_s=3600.0,
        **more,  # type: ignore[arg-type]  # passed through
    )
    assert not outcome.violations
    return report(outcome)


def racks(shown: Object, prefix: str = "") -> list[int]:
    """The rack of each pod, in order of names."""
    found = [pod for pod in shown["pods"] if pod["name"].startswith(prefix) and pod["node"]]
    return [int(pod["node"].rpartition("-")[2]) % 4 for pod in found]


def state(shown: Object, name: str) -> str:
    return str(next(group["state"] for group in shown["groups"] if group["name"] == name))


def test_the_lowest_level_that_fits_is_reported_with_all_domains_around_it() -> None:
    terms: JSON = {"levels": [ZONE, RACK], "required": ZONE, "preferred": RACK}

    small, large = run(gang("g", 4, "2", terms=terms)), run(gang("g", 6, "2", terms=terms))

    assert small["groups"][0]["topology"].keys() == {ZONE, RACK}
    assert large["groups"][0]["topology"].keys() == {ZONE}
    assert state(large, "g") == "Running"


def test_subgroups_of_a_gang_are_in_one_rack_each_and_in_one_zone_together() -> None:
    shown = run(gang("g", 8, "2", terms={"required": ZONE, "subgroups": {"size": 4, "required": RACK}}))

    found = racks(shown)
    assert len(set(found[:4])) == len(set(found[4:])) == 1
    assert found[0] != found[4]
    assert found[0] % 2 == found[4] % 2


def test_the_annotation_of_a_workload_names_templates() -> None:
    version = "scheduling.k8s.io/v1alpha3"
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 4}}}
    workload: Object = {"apiVersion": version, "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}
    workload["spec"] = {"podGroupTemplates": [template]}
    annotated(workload, {"workers": {"required": RACK}})
    objects = gang("g", 4, "2", workloadRef={"workloadName": "w", "templateName": "workers"})
    objects[0]["apiVersion"] = version

    shown = run([workload, *objects])

    assert len(set(racks(shown))) == 1
    assert len(set(racks(run(gang("g", 4, "2"))))) > 1


@pytest.mark.parametrize("place", ["job", "pod", "kueue"])
def test_a_job_or_its_pods_may_have_the_annotation(place: str) -> None:
    annotations = {"job": {}, "pod": {TOPOLOGY_KEY: f"required: {RACK}"}}
    annotations["kueue"] = {"kueue.x-k8s.io/podset-required-topology": RACK}
    pod = make_pod(cpu="2", annotations={**annotations[place], "sim.muster-k8s.dev/run-seconds": "100"})
    job = make_job("j", parallelism=4, indexed=True, pod=pod)
    if place == "job":
        annotated(job, {"required": RACK})

    shown = run([job])

    (group,) = shown["groups"]
    assert (group["state"], set(group["topology"])) == ("Succeeded", {RACK})


def test_an_annotation_that_cannot_be_read_holds_the_group_until_it_is_right() -> None:
    bad = gang("g", 2, "1", terms="required: {rack: 1}")
    other = gang("h", 2, "1")

    shown = run([*bad, *other])

    group = next(each for each in shown["groups"] if each["name"] == "g")
    assert (group["state"], group["reason"]) == ("Gated", "SchedulerError")
    assert "PodGroup default/g: required: a label key is wanted, not {'rack': 1}" in group["message"]
    assert {pod["reason"] for pod in shown["pods"] if pod["group"] == "g"} == {"SchedulerError"}
    assert state(shown, "h") == "Running"


def test_replicas_of_a_template_are_spread_over_zones() -> None:
    version = "scheduling.k8s.io/v1alpha3"
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}
    workload: Object = {"apiVersion": version, "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}
    workload["spec"] = {"podGroupTemplates": [template]}
    annotated(workload, {"t": {"preferred": RACK, "replicas": {"spreadOver": ZONE}}})
    ref = {"workloadName": "w", "templateName": "t"}
    objects = [thing for name in "abcd" for thing in gang(name, 2, "1", workloadRef=ref)]
    for obj in objects:
        if obj["kind"] == "PodGroup":
            obj["apiVersion"] = version

    shown = run([workload, *objects])

    zones = [racks(shown, f"{name}-")[0] % 2 for name in "abcd"]
    assert Counter(zones) == {0: 2, 1: 2}


def test_pods_that_lose_their_node_come_back_into_the_domain_of_their_group() -> None:
    pod = make_pod(cpu="2", annotations={"sim.muster-k8s.dev/run-seconds": "1500"})
    job = annotated(make_job("j", parallelism=3, indexed=True, pod=pod), {"preferred": RACK})
    nodes = "count=12,cpu=4,racks=4,zones=2"
    before = run([job], nodes=nodes)
    lost = before["pods"][0]["node"]
    faults = Faults(nodes=(NodeFault(lost, 60.0, None),))

    shown = run([job], nodes=nodes, faults=faults)

    late = [pod for pod in shown["pods"] if (pod["scheduled_s"] or 0) > 60]
    assert late
    assert set(racks(shown)) == set(racks(before))
    assert lost not in {pod["node"] for pod in late}


def kueue_topology() -> Objects:
    """Kueue's kind Topology, and one object of it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "topologies", "singular": "topology", "kind": "Topology", "listKind": "TopologyList"}
    definition: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "topologies.kueue.x-k8s.io"},
        "spec": {"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "versions": [version]},
    }
    levels = [{"nodeLabel": ZONE}, {"nodeLabel": RACK}]
    topology: Object = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": "dc"}}
    return [definition, {**topology, "spec": {"levels": levels}}]


def test_levels_may_come_from_a_topology_object_of_kueue() -> None:
    """It is seen once its kind is defined, and a group that names it waits until then."""

    async def main() -> list[str]:
        clock = RealClock()
        client = Client(InProcessTransport(ApiServer(MemoryStore(), clock, random.Random(1))))
        scheduler = Scheduler(client, clock, random.Random(2))
        running = asyncio.create_task(scheduler.run())
        await scheduler.ready.wait()
        for at in range(4):
            labels = {ZONE: "z", RACK: f"r{at // 2}"}
            await client.create(NODES, None, make_node(f"n{at}", cpu="4", labels=labels))
        group, *pods = gang("g", 4, "2", terms={"topology": "dc", "preferred": RACK})
        await client.create(POD_GROUPS, "default", group)
        for pod in pods:
            await client.create(PODS, "default", pod)
        await asyncio.sleep(0.05)
        assert "default/g" in scheduler.core.cache.groups
        hold = scheduler.core.gate.hold_of("default/g")
        assert hold is not None
        assert "topology: there is no Topology object 'dc'" in hold.message
        definition, topology = kueue_topology()
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition)
        await client.create(replace(KUEUE_TOPOLOGIES, version="v1beta1"), None, topology)
        bound: list[str] = []
        for _ in range(300):
            await asyncio.sleep(0.01)
            items = (await client.list(PODS)).items
            bound = [pod["spec"]["nodeName"] for pod in items if pod["spec"].get("nodeName")]
            if len(bound) == 4:
                break
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bound

    found = asyncio.run(main())
    assert len(found) == 4
    assert {int(node[1:]) // 2 for node in found} in ({0}, {1})


def test_a_level_that_kueue_prefers_stands_for_the_wider_ones_of_its_topology() -> None:
    known = TopologyObjects()
    known.set_topology(kueue_topology()[1], exists=True)
    pod = make_pod(annotations={"kueue.x-k8s.io/podset-preferred-topology": RACK})

    terms = known.with_topology(GroupTerms(), GroupRef("default", "g"), None, None, [pod])

    assert terms.topology is not None
    assert terms.topology.preferred == (RACK, ZONE)
    known.set_topology(kueue_topology()[1], exists=False)
    alone = known.with_topology(GroupTerms(), GroupRef("default", "g"), None, None, [pod])
    assert alone.topology is not None
    assert alone.topology.preferred == (RACK,)
