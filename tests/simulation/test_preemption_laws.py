"""Storms of gangs over full clusters, drawn from seeds: laws that hold whatever comes.

Victims do not die on some nodes, and another scheduler may bind pods to the room that is made.

Nobody is evicted twice, nobody for somebody of no higher priority, nobody in vain; no room stays kept for nobody; and
it ends.
"""

from __future__ import annotations

import random

import pytest

from muster.api.codec import Object, Objects
from muster.nodes.spec import parse_node_spec
from muster.scheduler.options import PlacementMode, SchedulerOptions
from muster.simulator.faults import NodeFault
from muster.simulator.options import ClusterOptions
from muster.simulator.report import report
from muster.simulator.run import Faults, simulate
from muster.simulator.world import manifests_of
from muster.testing import make_group, make_pod

RACK = "topology.kubernetes.io/rack"
TOPOLOGY = "scheduling.muster-k8s.dev/topology"
LEVELS = {"low": 10, "mid": 100, "high": 1000}
CORES = 8


def gang(name: str, size: int, cpu: int, level: str, **spec: object) -> Objects:
    group = make_group(name, min_count=size, priorityClassName=level, **spec)  # type: ignore[arg-type]  # fields of the spec only
    pods = [make_pod(f"{name}-{at}", cpu=str(cpu), group=name, spec=None) for at in range(size)]
    for pod in pods:
        pod["spec"]["priorityClassName"] = level
    return [group, *pods]


def single(name: str, cpu: int, level: str) -> Object:
    pod = make_pod(name, cpu=str(cpu), spec=None)
    pod["spec"]["priorityClassName"] = level
    return pod


class Storm:
    """A world of a seed: what runs, what comes in three waves, and nodes on which victims do not die for a while."""

    def __init__(self, seed: int, *, thieves: bool = False) -> None:
        rng = random.Random(seed)
        self.nodes = rng.choice([4, 6, 8])
        self.old: Objects = []
        room = self.nodes * CORES
        while room > 0:
            size, cpu = rng.choice([(1, 4), (2, 2), (2, 4), (4, 2), (3, 1)])
            name, level = f"old-{len(self.old)}", rng.choice(["low", "low", "mid"])
            if rng.random() < 0.2:
                self.old.append(single(name, 2, level))
                room -= 2
                continue
            mode: Object = rng.choice([{}, {"disruptionMode": {"all": {}}}, {"disruptionMode": {"single": {}}}])
            self.old += gang(name, size, cpu, level, **mode)
            room -= size * cpu
        self.waves = [(60.0 + at * rng.choice([0.0, 0.05, 30.0]), self._wave(rng, at)) for at in range(3)]
        self.waves += self._thefts(rng) if thieves else []
        dead = [f"node-{at}" for at in range(self.nodes) if rng.random() < 0.15]
        self.faults = Faults(nodes=tuple(NodeFault(name, 59.9, 900.0) for name in dead))

    def _thefts(self, rng: random.Random) -> list[tuple[float, Objects]]:
        """Another scheduler binds pods of its own to any node, where room is being made for somebody, too."""
        found = []
        for at in range(rng.randint(2, 8)):
            pod = single(f"stolen-{at}", rng.choice([1, 2, 4]), rng.choice(["low", "mid"]))
            pod["spec"] |= {"schedulerName": "other", "nodeName": f"node-{rng.randrange(self.nodes)}"}
            found.append((60.0 + rng.choice([0.5, 5.0, 29.0, 30.0, 31.0, 60.0]) + at * 0.01, [pod]))
        return found

    def _wave(self, rng: random.Random, number: int) -> Objects:
        found: Objects = []
        for at in range(rng.randint(1, 3)):
            name, level = f"new-{number}{at}", rng.choice(["mid", "high", "high"])
            size, cpu = rng.choice([(2, 8), (1, 8), (4, 4), (3, 2), (2, 5)])
            kind = rng.choice(["plain", "rack", "subgroups", "pod"])
            if kind == "pod":
                found.append(single(name, cpu, level))
                continue
            spec = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if kind == "rack" else {}
            made = gang(name, size, cpu, level, **spec)
            if kind == "subgroups":
                text = f"subgroups: {{size: 2, required: {RACK}}}"
                made[0]["metadata"]["annotations"] = {TOPOLOGY: text}
            found += made
        return found


def run(storm: Storm, seed: int, placement: PlacementMode) -> Object:
    classes: Objects = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in LEVELS.items()
    ]
    outcome = simulate(
        manifests_of([*classes, *storm.old]),
        timed=[(at_s, manifests_of(made)) for at_s, made in storm.waves],
        nodes=[parse_node_spec(f"count={storm.nodes},cpu={CORES},racks={storm.nodes // 2}")],
        options=ClusterOptions(node_events=False, scheduler=SchedulerOptions(placement=placement)),
        faults=storm.faults,
        seed=seed,
        until_s=7200.0,
    )
    assert not outcome.violations
    return report(outcome)


def priorities(storm: Storm) -> dict[str, int]:
    """By `namespace/name` of groups and pods."""
    objects = [*storm.old, *(each for _, made in storm.waves for each in made)]
    return {f"default/{each['metadata']['name']}": LEVELS[each["spec"]["priorityClassName"]] for each in objects}


def check(storm: Storm, shown: Object) -> None:
    level = priorities(storm)
    evictions = [each for each in shown["evictions"] if each["by"] in level]  # not those for nodes that died
    pods = {f"default/{pod['name']}": pod for pod in shown["pods"]}
    # Nobody is evicted twice, or for somebody who has no higher priority.
    assert len({each["pod"] for each in evictions}) == len(evictions)
    for each in evictions:
        assert level[each["group"] or each["pod"]] < level[each["by"]], each
    # Nobody goes in vain: who had somebody evicted has run, or was evicted itself, or lost its room to a higher one.
    groups = {f"default/{group['name']}": group for group in shown["groups"]}
    losers = {each["group"] or each["pod"] for each in evictions}
    for by in dict.fromkeys(each["by"] for each in evictions):
        runs = pods[by]["node"] is not None if by in pods else groups[by]["first_scheduled_s"] is not None
        higher = any(level[other] > level[by] for other in {each["by"] for each in evictions})
        assert runs or by in losers or higher, by
    # The highest of all go first: none of them waits while lower ones run in the room that they asked for.
    for name, group in groups.items():
        if level[name] == LEVELS["high"] and group["state"] in ("Pending", "Undecided"):
            raise AssertionError(f"{name} was left without an answer")


@pytest.mark.parametrize("seed", range(8))
def test_laws_of_preemption_hold_in_storms(seed: int) -> None:
    storm = Storm(seed)
    check(storm, run(storm, seed, "exact"))


@pytest.mark.parametrize("seed", range(100, 103))
def test_laws_hold_by_upstreams_rules(seed: int) -> None:
    storm = Storm(seed)
    check(storm, run(storm, seed, "upstream-1.37"))


@pytest.mark.parametrize("seed", range(200, 206))
def test_laws_hold_where_another_scheduler_takes_room(seed: int) -> None:
    storm = Storm(seed, thieves=True)
    shown = run(storm, seed, "exact")
    check(storm, shown)
    for group in shown["groups"]:
        assert group["scheduled"] in (0, group["members"]), "whole or nothing"
