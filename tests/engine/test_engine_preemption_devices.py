"""Victims for devices: the least there are, against all subsets of the units on small clusters."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object, Objects
from muster.engine import objects
from muster.engine.decide import decide
from muster.engine.model import GroupRequest, Member, Placed
from muster.engine.preemption.groups import GroupPreemptor, preempt_group
from muster.engine.preemption.model import NoPlan, Plan, RunningPod, Unit
from muster.engine.preemption.pods import Cluster
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod
from muster.testing.devices import DRIVER, make_claim, make_device_class, make_request, make_slice

NOW_S = 1_000_000.0


class Scene:
    """Nodes with devices of two kinds, units whose pods have some, and a gang that wants some."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.slices: Objects = []
        self.free: list[tuple[str, str, str]] = []
        for at in range(rng.randint(1, 3)):
            found = make_slice(f"n{at}", rng.randint(1, 4))
            for device in found["spec"]["devices"]:
                device["attributes"] = {"kind": {"string": rng.choice("xxy")}}
                self.free.append((f"n{at}", device["name"], device["attributes"]["kind"]["string"]))
            self.slices.append(found)
        self.units: dict[str, list[tuple[Object, Object]]] = {}
        self.priorities: dict[str, int] = {}
        for number in range(rng.randint(1, 5)):
            self.run(f"u{number}")
        self.wanted = [self.claim() for _ in range(rng.randint(1, 2))]
        self.members = [self.wanted[at % len(self.wanted)] for at in range(rng.randint(1, 4))]

    def claim(self) -> Object:
        selectors = []
        if self.rng.random() < 0.4:
            text = f'device.attributes["{DRIVER}"].kind == "{self.rng.choice("xy")}"'
            selectors = [{"cel": {"expression": text}}]
        return make_claim("", make_request(count=self.rng.randint(1, 2), selectors=selectors))

    def run(self, unit: str) -> None:
        """A unit of one or two pods, each with one or two devices of its node."""
        self.priorities[unit] = self.rng.choice((0, 0, 10))
        for number in range(self.rng.randint(1, 2)):
            nodes = sorted({node for node, _, _ in self.free})
            if not nodes:
                return
            node = self.rng.choice(nodes)
            own = [each for each in self.free if each[0] == node][: self.rng.randint(1, 2)]
            self.free = [each for each in self.free if each not in own]
            name = f"{unit}-{number}"
            results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": each} for _, each, _ in own]
            claim = make_claim(name)
            claim["metadata"]["uid"] = name
            reserved = [{"resource": "pods", "name": name, "uid": name}]
            claim["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
            entry = {"name": "gpu", "resourceClaimName": name}
            pod = make_pod(name, node=node, priority=self.priorities[unit], spec={"resourceClaims": [entry]})
            pod["metadata"]["uid"] = name
            self.units.setdefault(unit, []).append((pod, claim))

    def state(self, without: tuple[str, ...] = ()) -> ClusterState:
        """The cluster without some units, as if they had never been."""
        state = ClusterState()
        state.set_object(objects.DEVICE_CLASS, make_device_class("gpu"))
        for each in self.slices:
            state.set_node(make_node(each["spec"]["nodeName"]))
            state.set_object(objects.RESOURCE_SLICE, each)
        for unit, pods in self.units.items():
            for pod, claim in pods if unit not in without else ():
                state.set_object(objects.RESOURCE_CLAIM, claim)
                state.add_pod(f"default/{pod['metadata']['name']}", pod, pod["spec"]["nodeName"])
        return state

    def request(self, state: ClusterState) -> GroupRequest:
        members = []
        for at, wanted in enumerate(self.members):
            name = f"m{at}"
            claim = make_claim(name, **wanted["spec"]["devices"])
            owner = {"kind": "Pod", "name": name, "uid": name, "controller": True}
            claim["metadata"] |= {"uid": name, "ownerReferences": [owner]}
            state.set_object(objects.RESOURCE_CLAIM, claim)
            pod = make_pod(name, spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]})
            pod["metadata"]["uid"] = name
            pod["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}
            members.append(Member(f"default/{name}", state.shape_of(pod)))
        return GroupRequest("default/g", tuple(members), len(members))

    def cost(self, victims: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        priority = max((self.priorities[unit] for unit in victims), default=-(2**63))
        return priority, sum(len(self.units[unit]) for unit in victims), victims

    def least(self) -> tuple[int, int, tuple[str, ...]] | None:
        """The cost of the least set after which the gang fits, by trying all."""
        names = sorted(self.units)
        found = [
            self.cost(some)
            for number in range(len(names) + 1)
            for some in combinations(names, number)
            if self.fits_without(some)
        ]
        return min(found, default=None)

    def fits_without(self, some: tuple[str, ...]) -> bool:
        state = self.state(some)
        request = self.request(state)
        return isinstance(decide(state.snapshot(), request), Placed)

    def plan(self) -> Plan | NoPlan:
        state = self.state()
        request = self.request(state)
        units = [
            Unit(
                unit,
                self.priorities[unit],
                tuple(
                    RunningPod(f"default/{pod['metadata']['name']}", pod["spec"]["nodeName"], NOW_S - 60.0, {})
                    for pod, _ in pods
                ),
            )
            for unit, pods in self.units.items()
        ]
        return preempt_group(Cluster(state.snapshot(), units, NOW_S), GroupPreemptor(request, 100))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**63))
def test_victims_for_devices_are_the_least_there_are(seed: int) -> None:
    scene = Scene(random.Random(seed))
    least, plan = scene.least(), scene.plan()

    if least is None:
        assert isinstance(plan, NoPlan), plan
        return
    assert isinstance(plan, Plan), (least, plan)
    victims = tuple(sorted(unit.key for unit in plan.victims))
    assert scene.cost(victims)[:2] == least[:2], (scene.cost(victims), least, plan.proved)
    assert scene.fits_without(victims)
