"""Groups with rules between their members: judged by trying everything in plain Python, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from muster.api.codec import Object
from muster.cli.bench.exact import is_wrong, request_of
from muster.cli.bench.judging import violations
from muster.cli.bench.ruled import PLANTED_RULED, RULED_KINDS, PlantedRuled, planted_ruled, tiny_ruled
from muster.engine.between import Apart, Even
from muster.engine.decide import decide
from muster.engine.defaults import DEFAULT_PROFILE
from muster.engine.exact.branching import Alternative, SolvedCases, solve_cases, verified_cases
from muster.engine.exact.cases import first_case, problem_of
from muster.engine.exact.columns import Bounded, generate
from muster.engine.exact.dive import dive_to_few
from muster.engine.exact.master import Master, Patterns, worth
from muster.engine.exact.order import in_order
from muster.engine.exact.preference import prefer_first
from muster.engine.exact.problem import Problem, Use
from muster.engine.exact.reduce import reduce
from muster.engine.exact.work import Budget
from muster.engine.mixed import demands_of
from muster.engine.model import GroupRequest, Infeasible, Member, Placed, Undecided
from muster.engine.state import ClusterState
from muster.testing import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"


def ask(state: ClusterState, pods: list[Object], min_count: int | None = None) -> GroupRequest:
    shapes = state.shapes_of(pods)
    members = tuple(Member(f"default/p{at}", shape) for at, shape in enumerate(shapes))
    return GroupRequest("default/g", members, len(pods) if min_count is None else min_count)


def pod(app: str, cpu: str, **rules: object) -> Object:
    """A pod of an app; `near`, `apart`: the apps of required terms by zone; `even`: a spread over zones of its app."""
    made = make_pod(cpu=cpu, labels={"app": app})
    affinity: Object = {}
    for kind, name in (("near", "podAffinity"), ("apart", "podAntiAffinity")):
        if kind in rules:
            term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": rules[kind]}}}
            affinity[name] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if affinity:
        made["spec"]["affinity"] = affinity
    if "even" in rules:
        selector = {"matchLabels": {"app": app}}
        constraint = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        made["spec"]["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
    return made


def cluster(*cpus: tuple[str, str]) -> ClusterState:
    """A node for each (zone, cpu)."""
    state = ClusterState()
    for at, (zone, cpu) in enumerate(cpus):
        state.set_node(make_node(f"n{at}", cpu=cpu, labels={ZONE: zone}))
    return state


@pytest.mark.parametrize("kind", RULED_KINDS)
def test_tiny_groups_with_rules_are_decided_rightly_in_both_directions(kind: str) -> None:
    for seed in range(2_000, 2_025):
        instance = tiny_ruled(kind, seed)
        snapshot, request = request_of(instance)

        decision = decide(snapshot, request)

        assert not isinstance(decision, Undecided), seed
        assert not is_wrong(instance, request, decision), seed


@pytest.mark.parametrize("kind", PLANTED_RULED, ids=lambda kind: kind.name)
def test_planted_groups_with_rules_are_placed_and_those_with_one_pod_too_many_refused(kind: PlantedRuled) -> None:
    for shapes in (2, 6):
        instance = planted_ruled(kind, 32, shapes, 7)
        snapshot, request = request_of(instance)

        decision = decide(snapshot, request)

        assert isinstance(decision, Infeasible if kind.extra else Placed)
        assert not is_wrong(instance, request, decision)


def test_workers_go_to_the_one_zone_that_holds_them_beside_their_leader() -> None:
    state = cluster(("a", "12"), ("a", "3"), ("b", "8"), ("b", "9"))
    pods = [pod("leader", "4"), *(pod("worker", "3", near="leader") for _ in range(4))]

    decision = decide(state.snapshot(), ask(state, pods))

    assert isinstance(decision, Placed)
    assert {each.node for each in decision.placements} == {"n2", "n3"}


def test_first_of_pods_that_want_to_be_together_goes_where_all_fit() -> None:
    state = cluster(("a", "9"), ("b", "6"), ("b", "6"))
    pods = [pod("x", "3", near="x") for _ in range(4)]

    decision = decide(state.snapshot(), ask(state, pods))

    assert isinstance(decision, Placed)
    assert {each.node for each in decision.placements} == {"n1", "n2"}


def test_one_shape_that_fits_in_no_zone_together_is_refused_with_a_proof_that_names_the_rule() -> None:
    state = cluster(("a", "9"), ("b", "9"))
    pods = [pod("x", "3", near="x") for _ in range(4)]

    decision = decide(state.snapshot(), ask(state, pods))

    assert isinstance(decision, Infeasible)
    assert f"affinity by {ZONE}" in decision.proof


def test_pods_of_the_group_that_have_no_rules_are_seen_by_the_rules_of_later_ones() -> None:
    state = cluster(("a", "4"), ("a", "4"), ("b", "1"))

    decision = decide(state.snapshot(), ask(state, [pod("red", "2"), pod("blue", "2", apart="red")]))

    assert isinstance(decision, Infeasible)


def test_more_are_placed_than_needed_and_of_these_the_first() -> None:
    state = cluster(("a", "4"), ("b", "2"))
    pods = [pod("x", "2", even=True), pod("x", "2", even=True), pod("x", "2", even=True), pod("y", "2", apart="x")]

    decision = decide(state.snapshot(), ask(state, pods, 1))

    assert isinstance(decision, Placed)
    assert [each.pod for each in decision.placements] == ["default/p0", "default/p1", "default/p2"]


def test_pods_that_only_ask_together_are_placed_as_each_would_be_alone() -> None:
    state = cluster(("a", "9"), ("b", "6"), ("b", "6"))
    alone = replace(ask(state, [pod("x", "3", near="x") for _ in range(4)], 1), one_by_one=True)

    decision = decide(state.snapshot(), alone)

    assert isinstance(decision, Placed)
    assert [each.node for each in decision.placements] == ["n0", "n0", "n0"]


def test_single_pod_without_the_pod_that_it_needs_is_refused() -> None:
    state = cluster(("a", "9"), ("b", "6"))

    assert isinstance(decide(state.snapshot(), ask(state, [pod("x", "3", near="y")])), Infeasible)


def selecting_elsewhere(app: str) -> Object:
    """A pod apart from its like in namespaces without a label. Its own has the label, which upstream's slip forgets."""
    made = pod(app, "1", apart=app)
    (term,) = made["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
    return made


def test_pods_that_each_keep_away_from_the_other_are_apart_in_whatever_order_they_come() -> None:
    state = cluster(("a", "4"), ("a", "4"))
    state.set_object("Namespace", {"metadata": {"name": "default", "labels": {"team": "a"}}})
    pods = [selecting_elsewhere("web") for _ in range(5)]
    for each in pods:
        each["spec"]["topologySpreadConstraints"] = [
            {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
        ]
    request = ask(state, pods, min_count=1)

    rules = reduce(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members)).between
    decision = decide(state.snapshot(), request)

    assert [rule.pairs for rule in rules if isinstance(rule, Apart)] == [frozenset({(0, 0)})]
    assert isinstance(decision, Placed)
    assert [placement.pod for placement in decision.placements] == ["default/p0"]


def test_choice_of_the_first_members_ends_though_more_can_be_placed_than_was_known() -> None:
    one = np.ones((1, 1), dtype=np.int64)
    problem = Problem(one, np.array([5]), one, one, np.array([2]), np.array([0]))
    known, more = (Use(0, (1,), 1),), (Use(0, (1,), 2),)

    found = prefer_first(problem, known, [range(5)], lambda preferring, uses: more)

    assert found == more


def test_proof_over_cases_is_checked_from_the_rules_and_a_changed_one_is_not_believed() -> None:
    state = cluster(("a", "9"), ("b", "9"), ("c", "5"))
    pods = [pod("x", "3", near="x") for _ in range(2)] + [pod("x", "2", near="x") for _ in range(2)]
    request = ask(state, pods)
    reduced = reduce(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members))

    solved = solve_cases(reduced.problem, reduced.rules, (), 4, 4, Budget(10**7), lambda uses: True)

    assert isinstance(solved, SolvedCases)
    assert isinstance(solved.proof, Alternative)
    assert solved.most == 3
    assert verified_cases(reduced.problem, reduced.rules, solved.case, solved.proof, 3)
    assert not verified_cases(reduced.problem, reduced.rules, solved.case, solved.proof, 2)
    assert not verified_cases(reduced.problem, reduced.rules, solved.case, solved.proof.first, 3)


def test_dive_that_looks_at_the_last_cells_as_a_whole_keeps_the_rules() -> None:
    snapshot, request = request_of(planted_ruled(PLANTED_RULED[1], 64, 6, 1))
    reduced = reduce(DEFAULT_PROFILE, snapshot, demands_of(request.members))
    number = len(request.members)
    problem = problem_of(reduced.problem, reduced.rules, first_case(reduced.problem, reduced.rules, number))
    master, budget = Master(problem, Patterns()), Budget(10**7)
    generate(master, Bounded(number), number - 1, budget)

    uses = dive_to_few(master, number, budget, 0.7, 60, 60)

    assert worth(problem, uses) > number // 2
    assert all((np.array(use.counts) @ problem.requests <= problem.free[use.at]).all() for use in uses)


def test_spread_pods_come_to_the_emptiest_zone_next() -> None:
    snapshot, request = request_of(planted_ruled(PLANTED_RULED[0], 24, 2, 1))
    reduced = reduce(DEFAULT_PROFILE, snapshot, demands_of(request.members))
    even = [rule for rule in reduced.between if isinstance(rule, Even)]
    rows = [int((even[0].ids == domain).argmax()) for domain in range(4)]

    order = in_order(even, {(0, row): 3 for row in rows})

    assert order is not None
    for step in range(0, 12, 4):
        assert {even[0].ids[row] for _, row in order[step : step + 4]} == {0, 1, 2, 3}
    assert in_order(even, {(0, rows[0]): 3, (0, rows[1]): 1}) is None


def test_pods_that_exclude_each_other_have_no_order() -> None:
    state = cluster(("a", "9"), ("a", "9"))
    request = ask(state, [pod("red", "2"), pod("blue", "2", apart="red")])
    rules = reduce(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members)).between

    assert [type(rule) for rule in rules] == [Apart]
    assert in_order(rules, {(0, 0): 1, (1, 1): 1}) is None
    assert in_order(rules, {(0, 0): 2}) == [(0, 0), (0, 0)]


def test_judge_sees_that_spread_pods_can_not_come_in_any_order() -> None:
    instance = planted_ruled(PLANTED_RULED[0], 12, 2, 3)
    nodes = [at for at, node in enumerate(instance.nodes) if node.zone == "z1"]

    assert violations(instance, {0: nodes[0], 1: nodes[0], 2: nodes[0]})


@pytest.mark.parametrize(
    ("number", "running", "span"), [(12, 0, (3, 3)), (13, 0, (3, 3)), (11, 0, (2, 2)), (8, 3, (2, 2))]
)
def test_how_few_pods_the_emptiest_zone_can_have_in_the_end_is_narrow(
    number: int, running: int, span: tuple[int, int]
) -> None:
    """Zones that may differ by one have 3, 3, 3 and 3 of twelve: an emptiest one of 2 would leave room for eleven."""
    state = cluster(*((zone, "64") for zone in "abcd"))
    for at in range(running):
        state.add_pod(f"default/r{at}", make_pod(f"r{at}", cpu="1", labels={"app": "x"}), "n0")
    request = ask(state, [pod("x", "1", even="x") for _ in range(number)])
    reduced = reduce(DEFAULT_PROFILE, state.snapshot(), demands_of(request.members))

    case = first_case(reduced.problem, reduced.rules, number)

    assert [(low, high) for _, low, high in case.spans] == [span]
