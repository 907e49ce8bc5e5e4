"""The closed rule places identical pods exactly as a plain loop does that scores every node anew for every pod."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import Object
from muster.engine import identical
from muster.engine.arrays import Ints
from muster.engine.decide import decide
from muster.engine.identical import best_pairs
from muster.engine.model import GroupRequest, Infeasible, Member, Placed
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

MIB = 2**20


@dataclass
class PlainNode:
    """A node as the plain loop sees it: cpu in millicores, memory in MiB."""

    cpu: int
    memory: int
    gpu: int
    pods: int
    soft_taints: int
    disk: str
    used: Counter[str] = field(default_factory=Counter)
    scored: Counter[str] = field(default_factory=Counter)

    def to_object(self, name: str) -> Object:
        taints = [{"key": f"t{at}", "effect": "PreferNoSchedule"} for at in range(self.soft_taints)]
        return make_node(
            name,
            cpu=f"{self.cpu}m",
            memory=f"{self.memory}Mi",
            pods=self.pods,
            gpu=self.gpu,
            labels={"disk": self.disk},
            taints=taints,
        )


@dataclass(frozen=True)
class PlainPod:
    """A pod as the plain loop sees it; None: no request."""

    cpu: int | None
    memory: int | None
    gpu: int
    preferred: tuple[tuple[str, int], ...]

    def to_object(self) -> Object:
        terms = [
            {
                "weight": weight,
                "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]},
            }
            for disk, weight in self.preferred
        ]
        spec = (
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}} if terms else {}
        )
        return make_pod(
            cpu=None if self.cpu is None else f"{self.cpu}m",
            memory=None if self.memory is None else f"{self.memory}Mi",
            spec=spec,
            gpu=self.gpu,
        )

    def requests(self) -> dict[str, int]:
        return {"cpu": self.cpu or 0, "memory": (self.memory or 0) * MIB, "gpu": self.gpu}

    def scored(self) -> dict[str, int]:
        cpu = 100 if self.cpu is None else self.cpu
        return {"cpu": cpu, "memory": 200 * MIB if self.memory is None else self.memory * MIB}


def place_one_by_one(nodes: list[PlainNode], pod: PlainPod, number: int) -> list[int]:
    """The node index of each pod, in order; stops when none fits."""
    chosen = []
    for _ in range(number):
        feasible = [index for index, node in enumerate(nodes) if fits(node, pod)]
        if not feasible:
            break
        totals = total_scores([nodes[index] for index in feasible], pod)
        best = feasible[totals.index(max(totals))]
        nodes[best].used.update({**pod.requests(), "pods": 1})
        nodes[best].scored.update(pod.scored())
        chosen.append(best)
    return chosen


def fits(node: PlainNode, pod: PlainPod) -> bool:
    room = {"cpu": node.cpu, "memory": node.memory * MIB, "gpu": node.gpu}
    asked = {name: amount for name, amount in pod.requests().items() if amount}
    return node.used["pods"] < node.pods and all(
        amount <= room[name] - node.used[name] for name, amount in asked.items()
    )


def total_scores(nodes: list[PlainNode], pod: PlainPod) -> list[int]:
    taints = scaled([node.soft_taints for node in nodes], reverse=True)
    weights = dict[str, int]()
    for disk, weight in pod.preferred:
        weights[disk] = weights.get(disk, 0) + weight
    affinity = scaled([weights.get(node.disk, 0) for node in nodes], reverse=False)
    return [
        3 * taint + 2 * affine + least_allocated(node, pod) + balanced(node, pod)
        for node, taint, affine in zip(nodes, taints, affinity, strict=True)
    ]


def scaled(raw: list[int], *, reverse: bool) -> list[int]:
    highest = max(raw)
    if highest == 0:
        return [100 if reverse else 0 for _ in raw]
    return [100 - 100 * each // highest if reverse else 100 * each // highest for each in raw]


def least_allocated(node: PlainNode, pod: PlainPod) -> int:
    total = weights = 0
    for name, room in (("cpu", node.cpu), ("memory", node.memory * MIB)):
        if room:
            used = node.scored[name] + pod.scored()[name]
            total += 0 if used > room else (room - used) * 100 // room
            weights += 1
    return total // weights if weights else 0


def balanced(node: PlainNode, pod: PlainPod) -> int:
    asked = pod.requests()
    if not asked["cpu"] and not asked["memory"]:
        return 0
    room = {"cpu": node.cpu, "memory": node.memory * MIB}

    def balance(extra: int) -> int:
        fractions = [min(1.0, (node.used[name] + extra * asked[name]) / room[name]) for name in room if room[name]]
        return int((1 - (abs(fractions[0] - fractions[1]) / 2 if len(fractions) == 2 else 0.0)) * 100)

    return 50 + (50 + balance(1) - balance(0)) // 2


nodes_strategy = st.lists(
    st.builds(
        PlainNode,
        cpu=st.sampled_from([0, 1000, 2000, 3900, 8000]),
        memory=st.sampled_from([0, 500, 1024, 4000, 8192]),
        gpu=st.integers(0, 4),
        pods=st.sampled_from([0, 1, 3, 8, 110]),
        soft_taints=st.sampled_from([0, 0, 0, 1, 2]),
        disk=st.sampled_from(["ssd", "hdd", "nvme"]),
    ),
    min_size=1,
    max_size=6,
)
pod_strategy = st.builds(
    PlainPod,
    cpu=st.sampled_from([None, 0, 100, 333, 1000]),
    memory=st.sampled_from([None, 0, 64, 300, 1024]),
    gpu=st.sampled_from([0, 0, 1]),
    preferred=st.lists(st.tuples(st.sampled_from(["ssd", "hdd", "none"]), st.integers(1, 100)), max_size=2).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(nodes_strategy, pod_strategy, st.integers(1, 40))
def test_closed_rule_gives_each_node_what_the_plain_loop_gives_it(
    nodes: list[PlainNode], pod: PlainPod, number: int
) -> None:
    state = ClusterState()
    for index, node in enumerate(nodes):
        state.set_node(node.to_object(f"n{index}"))
    shape = state.shape_of(pod.to_object())
    members = tuple(Member(f"default/p{at}", shape) for at in range(number))

    decision = decide(state.snapshot(), GroupRequest("default/g", members, 1))
    want = Counter(f"n{index}" for index in place_one_by_one(nodes, pod, number))

    placements = decision.placements if isinstance(decision, Placed) else ()
    assert Counter(placement.node for placement in placements) == want
    assert [placement.pod for placement in placements] == [member.key for member in members[: len(placements)]]


@settings(max_examples=40, deadline=None)
@given(nodes_strategy, pod_strategy, st.integers(1, 40))
def test_identical_pods_are_never_undecided(nodes: list[PlainNode], pod: PlainPod, number: int) -> None:
    state = ClusterState()
    for index, node in enumerate(nodes):
        state.set_node(node.to_object(f"n{index}"))
    shape = state.shape_of(pod.to_object())
    members = tuple(Member(f"default/p{at}", shape) for at in range(number))

    decision = decide(state.snapshot(), GroupRequest("default/g", members, number))

    room = len(place_one_by_one(nodes, pod, number))
    assert isinstance(decision, Placed if room == number else Infeasible)


sequences = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=40), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(sequences, st.data())
def test_any_score_sequences_give_the_pairs_that_the_greedy_picks_in_turn(
    scores: list[list[int]], data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, sum(map(len, scores))))
    longest = max(map(len, scores))
    table = np.array([row + [0] * (longest - len(row)) for row in scores], dtype=np.int64)

    def score(rows: Ints, k: Ints) -> Ints:
        found: Ints = table[rows, np.minimum(k, longest) - 1]
        return found

    rows = np.arange(len(scores), dtype=np.int64)
    caps = np.array([len(row) for row in scores], dtype=np.int64)
    with mock.patch.object(identical, "_FEW", data.draw(st.sampled_from([0, 10_000]))):  # both ways to find them
        pairs = best_pairs(score, rows, caps, number)
    order = np.lexsort((pairs.k, pairs.rows, -pairs.levels))

    taken = [0] * len(scores)
    want = []
    for _ in range(number):
        open_rows = [row for row in range(len(scores)) if taken[row] < len(scores[row])]
        best = max(open_rows, key=lambda row: (scores[row][taken[row]], -row))
        taken[best] += 1
        want.append(best)
    assert pairs.rows[order].tolist() == want


def test_scale_of_a_preference_changes_when_the_most_wanted_node_is_full() -> None:
    nodes = [
        PlainNode(cpu=8000, memory=8192, gpu=0, pods=1, soft_taints=0, disk="ssd"),
        PlainNode(cpu=2000, memory=4000, gpu=0, pods=110, soft_taints=0, disk="hdd"),
        PlainNode(cpu=8000, memory=8192, gpu=0, pods=110, soft_taints=0, disk="nvme"),
    ]
    pod = PlainPod(cpu=333, memory=300, gpu=0, preferred=(("ssd", 100), ("hdd", 25)))
    state = ClusterState()
    for index, node in enumerate(nodes):
        state.set_node(node.to_object(f"n{index}"))
    members = tuple(Member(f"default/p{at}", state.shape_of(pod.to_object())) for at in range(6))

    decision = decide(state.snapshot(), GroupRequest("default/g", members, 6))

    want = Counter(f"n{index}" for index in place_one_by_one(nodes, pod, 6))
    assert isinstance(decision, Placed)
    assert Counter(placement.node for placement in decision.placements) == want == {"n0": 1, "n1": 5}
