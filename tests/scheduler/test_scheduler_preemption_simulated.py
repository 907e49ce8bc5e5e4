"""Whole clusters with preemption in virtual time: storms of gangs, recreated victims, faults. Invariants hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from muster.api.codec import Object, Objects
from muster.api.manifests import load
from muster.nodes.spec import parse_node_spec
from muster.scheduler.configuration.reading import read_configuration
from muster.scheduler.options import SchedulerOptions
from muster.simulator.faults import ComponentFault, NodeFault, RequestFaults
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import Outcome, manifests_of
from muster.testing import make_group, make_job, make_pod

OPTIONS = ClusterOptions(node_events=False)


def priority_class(name: str, value: int) -> Object:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


CLASSES = [priority_class(name, value) for name, value in (("low", 10), ("mid", 100), ("high", 1000))]


def gang(name: str, size: int, cpu: str, level: str, **spec: object) -> Objects:
    """A PodGroup and its pods, which run on."""
    group = make_group(name, min_count=size, priorityClassName=level, **spec)  # type: ignore[arg-type]  # fields of the spec only
    pods = [make_pod(f"{name}-{place}", cpu=cpu, group=name, spec=None) for place in range(size)]
    for pod in pods:
        pod["spec"]["priorityClassName"] = level
    return [group, *pods]


def job(name: str, size: int, cpu: str, level: str) -> Object:
    pod = make_pod(cpu=cpu, annotations={"sim.muster-k8s.dev/run-seconds": "300"})
    pod["spec"]["priorityClassName"] = level
    return make_job(name, parallelism=size, pod=pod)


def run(objects: Objects, *later: tuple[float, Objects], nodes: str, seed: int = 0, **more: object) -> Outcome:
    timed = [(at_s, manifests_of(made)) for at_s, made in later]
    specs = [parse_node_spec(nodes)]
    manifests = manifests_of([*CLASSES, *objects])
    return simulate(manifests, timed=timed, nodes=specs, seed=seed, options=OPTIONS, until_s=7200.0, **more)  # type: ignore[arg-type]  # passed through


def states(outcome: Outcome) -> dict[str, str]:
    return {group["name"]: group["state"] for group in report(outcome)["groups"]}


def test_storm_of_gangs_over_a_full_cluster() -> None:
    """Twelve gangs of two levels come at once; the highest get all, nobody is evicted in vain."""
    old = [thing for number in range(8) for thing in gang(f"old-{number}", 4, "4", "low")]
    storm = [thing for number in range(4) for thing in gang(f"mid-{number}", 4, "4", "mid")]
    storm += [thing for number in range(4) for thing in gang(f"high-{number}", 4, "8", "high")]
    outcome = run(old, (60.0, storm), nodes="count=16,cpu=8")
    assert not outcome.violations
    found = states(outcome)
    assert all(found[f"high-{number}"] == "Running" for number in range(4))
    shown = report(outcome)
    assert {each["by"].split("-")[0] for each in shown["evictions"]} <= {"default/high", "default/mid"}
    assert len(shown["evictions"]) == len({each["pod"] for each in shown["evictions"]})


def test_jobs_that_make_their_pods_anew_do_not_take_back_the_room() -> None:
    outcome = run([job("low", 8, "4", "low")], (60.0, gang("high", 4, "8", "high")), nodes="count=4,cpu=8")
    assert not outcome.violations
    assert states(outcome)["high"] == "Running"
    assert len(report(outcome)["evictions"]) == 8


def test_a_low_gang_never_holds_up_a_high_one() -> None:
    """Priority inversion: the low gang waits for room that a middle one holds, and the high one needs both."""
    outcome = run(
        gang("low", 2, "8", "low"),
        (30.0, gang("mid", 2, "8", "mid")),
        (30.01, gang("high", 4, "8", "high")),
        nodes="count=4,cpu=8",
    )
    assert not outcome.violations
    found = states(outcome)
    assert found["high"] == "Running"
    assert {found["low"], found["mid"]} <= {"Gated", "Unschedulable", "Pending"}


@pytest.mark.parametrize("seed", range(6))
def test_faults_do_not_break_the_rules(seed: int) -> None:
    rng = random.Random(seed)
    old = [thing for number in range(4) for thing in gang(f"old-{number}", 2, "4", "low", disruptionMode={"all": {}})]
    storm = [thing for number in range(2) for thing in gang(f"new-{number}", rng.randint(1, 4), "8", "high")]
    faults = Faults(
        requests=RequestFaults(rate=0.2, until_s=300.0),
        components=(ComponentFault("scheduler", at_s=60.02 + rng.random()),),
    )
    outcome = run(old, (60.0, storm), nodes="count=4,cpu=8", seed=seed, faults=faults)
    assert not outcome.violations
    shown = report(outcome)
    assert [pod for pod in shown["pods"] if pod["name"].startswith("new-") and pod["node"]]


RACK = "topology.kubernetes.io/rack"


def test_preemptor_and_victims_that_are_bound_to_racks() -> None:
    """Two racks hold a gang each that goes as a whole; the cheaper one goes, and the whole room comes from its rack."""
    constraint = {"topology": [{"key": RACK}]}
    whole = {"schedulingConstraints": constraint, "disruptionMode": {"all": {}}}
    old = [*gang("one", 4, "4", "mid", **whole), *gang("two", 4, "4", "low", **whole)]
    new = gang("new", 2, "8", "high", schedulingConstraints=constraint)

    outcome = run(old, (60.0, new), nodes="count=4,cpu=8,racks=2")

    assert not outcome.violations
    shown = report(outcome)
    assert {each["group"] for each in shown["evictions"]} == {"default/two"}
    assert len(shown["evictions"]) == 4
    found = {group["name"]: group for group in shown["groups"]}
    assert found["new"]["state"] == found["one"]["state"] == "Running"
    assert found["new"]["topology"][RACK] != found["one"]["topology"][RACK]


def test_subgroups_of_a_preemptor_get_a_rack_each() -> None:
    text = f"subgroups: {{size: 2, required: {RACK}}}"
    old = [thing for at in range(8) for thing in gang(f"old-{at}", 1, "8", "low")]
    new = gang("new", 4, "8", "high")
    new[0]["metadata"]["annotations"] = {"scheduling.muster-k8s.dev/topology": text}

    outcome = run(old, (60.0, new), nodes="count=8,cpu=8,racks=4")

    assert not outcome.violations
    shown = report(outcome)
    assert len(shown["evictions"]) == 4
    nodes = [int(pod["node"].rpartition("-")[2]) % 4 for pod in shown["pods"] if pod["name"].startswith("new-")]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]


def test_victims_that_do_not_die_are_waited_for_and_nobody_else_goes() -> None:
    """Their nodes are dead for half an hour: nobody says that they have ended."""
    old = [thing for at in range(4) for thing in gang(f"old-{at}", 1, "8", "low")]
    faults = Faults(nodes=tuple(NodeFault(f"node-{at}", 59.9, 1800.0) for at in range(4)))

    outcome = run(old, (60.0, gang("high", 2, "8", "high")), nodes="count=4,cpu=8", faults=faults)

    assert not outcome.violations
    shown = report(outcome)
    assert len([each for each in shown["evictions"] if each["by"] == "default/high"]) == 2
    assert states(outcome)["high"] == "Running"
    assert min(pod["scheduled_s"] for pod in shown["pods"] if pod["name"].startswith("high-")) > 300


@pytest.mark.parametrize("plugins", [{"postFilter": "*"}, {"multiPoint": "DefaultPreemption"}])
def test_a_profile_without_default_preemption_evicts_nobody(plugins: dict[str, str]) -> None:
    """Its other rules hold, and another profile goes on evicting."""
    disabled = {point: {"disabled": [{"name": name}]} for point, name in plugins.items()}
    profiles: Objects = [{"schedulerName": "default-scheduler"}, {"schedulerName": "gentle", "plugins": disabled}]
    version = "kubescheduler.config.k8s.io/v1"
    configuration = read_configuration(
        {"apiVersion": version, "kind": "KubeSchedulerConfiguration", "profiles": profiles}
    )
    scheduler = SchedulerOptions().with_configuration(configuration)
    old = [thing for at in range(2) for thing in gang(f"old-{at}", 1, "8", "low")]

    def waits(scheduler_name: str) -> Object:
        new = gang("new", 1, "8", "high")
        new[1]["spec"]["schedulerName"] = scheduler_name
        return report(
            simulate(
                manifests_of([*CLASSES, *old]),
                timed=[(60.0, manifests_of(new))],
                nodes=[parse_node_spec("count=2,cpu=8")],
                options=ClusterOptions(node_events=False, scheduler=scheduler),
                until_s=600.0,
            )
        )

    assert len(waits("default-scheduler")["evictions"]) == 1
    shown = waits("gentle")
    assert shown["evictions"] == []
    waiting = next(group for group in shown["groups"] if group["name"] == "new")
    assert waiting["state"] == "Unschedulable"
    assert "preemption" not in waiting["message"]


def test_the_example_evicts_the_group_as_a_whole_and_spares_the_plain_pod() -> None:
    examples = Path(__file__).parents[2] / "examples" / "preemption"
    later = [(30.0, load(examples / "urgent-gang.yaml"))]
    nodes = [parse_node_spec("count=3,cpu=8")]
    shown = report(simulate(load(examples / "running.yaml"), timed=later, nodes=nodes, until_s=300.0, options=OPTIONS))
    assert sorted(each["pod"] for each in shown["evictions"]) == [f"default/victim-{place}" for place in range(4)]
    assert {each["by"] for each in shown["evictions"]} == {"default/urgent"}
    assert {pod["name"]: pod["preempted"] for pod in shown["pods"]}["report"] is False
    assert {group["name"]: group["state"] for group in shown["groups"]}["urgent"] == "Running"


def test_equal_seeds_give_equal_evictions() -> None:
    def evictions() -> Objects:
        old = [thing for number in range(4) for thing in gang(f"old-{number}", 4, "2", "low")]
        outcome = run(old, (60.0, gang("high", 3, "8", "high")), nodes="count=4,cpu=8", seed=3)
        found: Objects = report(outcome)["evictions"]
        return found

    assert evictions() == evictions()
