"""Victims of which each frees something on one node only: the least set, without a search by HiGHS, however many."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_preemption_groups import Scene, by_brute_force, cost

from muster.engine.preemption import least, search
from muster.engine.preemption.by_node import least_by_node
from muster.engine.preemption.choices import Option, cheapest, relaxed
from muster.engine.preemption.groups import preempt_group
from muster.engine.preemption.model import Plan, Unit
from muster.engine.preemption.problem import Blocker, Problem


def option_lists() -> st.SearchStrategy[list[list[Option]]]:
    """Lists of options with rising gains and costs."""
    numbers = st.lists(st.integers(1, 6), unique=True, max_size=4).map(sorted)
    costs = st.lists(st.integers(1, 30), unique=True, min_size=4, max_size=4).map(sorted)
    return st.lists(
        st.tuples(numbers, costs).map(lambda pair: list(zip(pair[0], pair[1], strict=False))), min_size=1, max_size=5
    )


@settings(max_examples=300, deadline=None)
@given(option_lists(), st.integers(1, 12))
def test_the_cheapest_choice_is_that_of_all_choices(lists: list[list[Option]], wanted: int) -> None:
    def total(picks: tuple[int, ...]) -> tuple[int, int]:
        taken = [options[pick] for options, pick in zip(lists, picks, strict=True) if pick >= 0]
        return sum(gain for gain, _ in taken), sum(price for _, price in taken)

    totals = [total(picks) for picks in product(*(range(-1, len(options)) for options in lists))]
    want = min((price for gain, price in totals if gain >= wanted), default=None)
    first = relaxed(lists, wanted)
    if first is None:
        assert want is None
        return
    gain, price = total(cheapest(lists, wanted, first))
    assert (gain >= wanted, price) == (True, want)
    assert want is not None and first.bound <= want <= first.cost


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Nodes with two resources, and units each of which frees something on one of them."""
    nodes, units = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    number = st.integers(0, 3)
    requests = np.array([[draw(st.integers(1, 3)), draw(st.integers(0, 2))]])
    requests = requests[:, requests[0] > 0]

    def table(rows: int, columns: int, low: int, high: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        drawn = [[draw(st.integers(low, high)) for _ in range(columns)] for _ in range(rows)]
        return np.array(drawn, dtype=np.int64).reshape(rows, columns)

    at = np.arange(units, dtype=np.int64)
    rows = np.array([draw(st.integers(0, nodes - 1)) for _ in range(units)], dtype=np.int64)
    blockers = [
        Blocker(unit, int(rows[unit]), 0, draw(st.integers(0, 2))) for unit in range(units) if draw(number) == 0
    ]
    some = tuple(Unit(f"u{place:02}", 0, ()) for place in range(units))
    return Problem(
        some,
        draw(st.integers(1, 5)),
        np.array([9], dtype=np.int64),
        requests.astype(np.int64),
        table(nodes, requests.shape[1], -2, 3),
        table(nodes, 1, 0, 4),
        at,
        rows,
        table(units, requests.shape[1], 0, 4),
        np.zeros(units, dtype=np.int64),
        table(units, 1, 1, 2)[:, 0],
        table(units, 1, 0, 3)[:, 0],
        np.zeros((units, 0), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.arange(nodes, dtype=np.int64),
        tuple(blockers),
    )


@settings(max_examples=300, deadline=None)
@given(problems(), st.data())
def test_the_least_set_is_that_of_all_subsets(problem: Problem, data: st.DataObject) -> None:
    units = len(problem.units)
    allowed = np.array([data.draw(st.integers(0, 4)) > 0 for _ in range(units)])
    movable = np.array([data.draw(st.integers(0, pods)) for pods in problem.pods.tolist()], dtype=np.int64)

    def price(chosen: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        places = list(chosen)
        return (
            int(problem.pods[places].sum()),
            int(problem.ages[places].sum()),
            -int(movable[places].sum()),
            chosen,
        )

    def is_enough(chosen: tuple[int, ...]) -> bool:
        gone = np.zeros(units, dtype=np.bool_)
        gone[list(chosen)] = True
        return int(problem.room(gone).sum()) >= problem.need

    places = np.flatnonzero(allowed).tolist()
    sets = [each for size in range(len(places) + 1) for each in combinations(places, size)]
    want = min((price(each) for each in sets if is_enough(each)), default=None)

    is_of_the_kind, found = least_by_node(problem, allowed, lambda _: movable)

    assert is_of_the_kind
    assert (None if found is None else price(tuple(np.flatnonzero(found).tolist()))) == want


def many(seed: int, pods: int, apps: str = "ab") -> Scene:
    """A full cluster of pods that may go alone, with priorities, ages and budgets."""
    random = Random(seed)
    nodes = pods // 4
    scene = Scene(*[12] * nodes)
    for unit in range(pods):
        scene.run(
            f"u{unit:03}",
            unit % nodes,
            random.choice((1, 2, 3)),
            priority=random.choice((0, 0, 5)),
            age_s=float(random.choice((1, 1, 2, 900))),
            app=random.choice(["", "", *apps]),
        )
    return scene.budget("a", 0).budget("b", 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cpus", [(4,) * 7, (7,) * 9, (11,) * 3])
def test_many_pods_cost_what_the_exact_search_says(
    seed: int, cpus: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = many(seed, 80)
    cluster, group = scene.cluster(), scene.gang(*cpus)
    plan = preempt_group(cluster, group)
    monkeypatch.setattr(least, "least_by_node", lambda *_: (False, None))
    searched = preempt_group(cluster, group)
    assert isinstance(plan, Plan) and isinstance(searched, Plan)
    assert plan.proved and searched.proved
    assert cost(cluster, plan.victims)[:4] == cost(cluster, searched.victims)[:4]


@pytest.mark.parametrize("seed", range(4))
def test_unlike_pods_on_a_node_cost_what_the_exact_search_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    scene = Scene(*[120] * 6)
    for unit in range(90):
        scene.run(f"u{unit:03}", unit % 6, random.randint(3, 9), age_s=float(random.randint(1, 10_000)))
    cluster, group = scene.cluster(), scene.gang(*[50] * 6)
    plan = preempt_group(cluster, group)
    monkeypatch.setattr(least, "least_by_node", lambda *_: (False, None))
    searched = preempt_group(cluster, group)
    assert isinstance(plan, Plan) and isinstance(searched, Plan)
    assert cost(cluster, plan.victims)[:4] == cost(cluster, searched.victims)[:4]


def test_hundreds_of_pods_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("HiGHS was asked")

    monkeypatch.setattr(search, "Model", never)
    scene = many(1, 400, "a")
    plan = preempt_group(scene.cluster(), scene.gang(*[9] * 30))
    assert isinstance(plan, Plan) and plan.proved and len(plan.placements) == 30


def test_groups_on_several_nodes_that_are_larger_than_a_set_without_them_need_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("HiGHS was asked")

    scene = Scene(*[12] * 20)
    for at in range(80):
        scene.run(f"u{at:03}", at % 20, 1 + at % 3, age_s=1.0 + at % 7)
    for at in range(4):
        for node in range(20):
            scene.run(f"group{at}", node, 1, group=True)
    cluster, group = scene.cluster(), scene.gang(*[7] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(search, "Model", never)
        plan = preempt_group(cluster, group)
    monkeypatch.setattr(least, "least_by_node", lambda *_: (False, None))
    searched = preempt_group(cluster, group)
    assert isinstance(plan, Plan) and isinstance(searched, Plan)
    assert cost(cluster, plan.victims)[:4] == cost(cluster, searched.victims)[:4]


def test_a_budget_that_several_victims_draw_on_is_kept_where_it_can_be() -> None:
    scene = Scene(4, 4, 4).run("a", 0, 4, app="x").run("b", 1, 4, app="x").run("c", 2, 4, age_s=9000.0)
    scene.budget("x", 1)
    cluster, group = scene.cluster(), scene.gang(4, 4)
    plan = preempt_group(cluster, group)
    assert isinstance(plan, Plan)
    assert cost(cluster, plan.victims) == by_brute_force(cluster, group)
    assert [unit.key for unit in plan.victims] == ["c", "a"]
