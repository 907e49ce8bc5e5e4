"""Mixed groups from seeds, decided and judged without the engine: tiny ones by trying all, planted ones by rule."""

from __future__ import annotations

import subprocess
import sys

import pytest

from muster.api.codec import Object
from muster.cli.bench.exact import SHAPES, is_wrong, request_of
from muster.cli.bench.instances import Instance
from muster.cli.bench.judging import best_set, violations
from muster.cli.bench.planted import PLANTED, TINY_KINDS, Planted, planted, tiny
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.exact.reduce import reduce
from muster.engine.mixed import demands_of
from muster.engine.model import Decision, GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod


def decided(instance: Instance) -> tuple[GroupRequest, Decision]:
    snapshot, request = request_of(instance)
    return request, decide(snapshot, request)


@pytest.mark.parametrize("kind", TINY_KINDS)
def test_tiny_groups_are_decided_rightly_in_both_directions(kind: str) -> None:
    for seed in range(1_000, 1_045):
        instance = tiny(kind, seed)

        request, decision = decided(instance)

        assert not isinstance(decision, Undecided), seed
        assert not is_wrong(instance, request, decision), seed


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shapes", SHAPES[:3])
def test_planted_groups_are_placed_and_those_with_too_many_pods_refused(kind: Planted, shapes: int) -> None:
    for seed in range(100, 102):
        instance = planted(kind, 40, shapes, seed)

        request, decision = decided(instance)

        assert not isinstance(decision, Undecided), seed
        assert not is_wrong(instance, request, decision), seed


def test_judge_sees_what_is_wrong() -> None:
    instance = tiny("everything", 3)
    everything_on_one = dict.fromkeys(range(len(instance.pods)), 0)

    assert violations(instance, everything_on_one)
    assert len(best_set(instance)) == instance.most


def ask(state: ClusterState, pods: list[Object], min_count: int) -> GroupRequest:
    members = tuple(Member(f"default/p{at}", state.shape_of(pod)) for at, pod in enumerate(pods))
    return GroupRequest("default/g", members, min_count)


def test_proof_names_shapes_and_resources_that_bind() -> None:
    state = ClusterState()
    for at in range(30):
        state.set_node(make_node(f"n{at}", cpu="10", memory="100Gi"))
    pods = [make_pod(cpu="6", memory="1Gi")] * 15 + [make_pod(cpu="7", memory="1Gi")] * 16

    decision = decide(state.snapshot(), ask(state, pods, 31))

    assert isinstance(decision, Infeasible)
    assert decision.proof == (
        "at most 30 of the 31 pods fit on the 30 nodes that take any of them, however they are combined: "
        "15 of 6 cpu and 16 of 7 cpu compete for cpu"
    )


def test_most_members_are_placed_and_of_these_the_first() -> None:
    state = ClusterState()
    for at in range(2):
        state.set_node(make_node(f"n{at}", cpu="4", memory="8Gi"))
    pods = [make_pod(cpu="3", memory="1Gi"), make_pod(cpu="2", memory="1Gi"), *[make_pod(cpu="1", memory="6Gi")] * 3]

    decision = decide(state.snapshot(), ask(state, pods, 2))

    assert isinstance(decision, Placed)
    assert [each.pod for each in decision.placements] == ["default/p0", "default/p1", "default/p2", "default/p3"]


def test_shapes_that_want_the_same_host_port_do_not_share_a_node() -> None:
    def wanting(ip: str, cpu: str) -> Object:
        pod = make_pod(cpu=cpu)
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]
        return pod

    state = ClusterState()
    state.set_node(make_node("n0"))
    pods = [wanting("10.0.0.1", "1"), wanting("10.0.0.2", "2"), wanting("0.0.0.0", "3")]

    two = decide(state.snapshot(), ask(state, pods[:2], 2))
    three = decide(state.snapshot(), ask(state, pods, 3))

    assert isinstance(two, Placed)
    assert isinstance(three, Infeasible)


def test_nodes_that_are_the_same_to_the_group_are_one_class() -> None:
    state = ClusterState()
    for at, cpu in enumerate(["4", "5", "4", "9"]):
        state.set_node(make_node(f"n{at}", cpu=cpu, memory="64Gi"))
    request = ask(state, [make_pod(cpu="2"), make_pod(cpu="4")], 2)

    reduced = reduce(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members))

    assert sorted(map(list, reduced.rows)) == [[0, 1, 2], [3]]


def test_solver_is_loaded_only_when_it_is_needed_and_prints_nothing() -> None:
    code = (
        "import sys, muster.engine.decide; print('highspy' in sys.modules); import muster.engine.exact.solver as s;"
        "from muster.engine.exact.master import Master, Patterns; from muster.engine.exact.problem import Problem;"
        "import numpy as n; a = n.ones((1, 1), dtype=n.int64);"
        "Master(Problem(a, a[0], a, a, a[0], a[0]), Patterns()).relax()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
