"""The choices of trees of groups in numbers: cheapest ones, bounds, and proofs that trust nobody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engine.exact.problem import Counts, Problem
from muster.engine.exact.trees.bounds import crowded, divide, is_settled, opened, tightened, unfolded
from muster.engine.exact.trees.choices import Choose, Kind, Node, Part, Slot, cheapest, pods_of
from muster.engine.exact.trees.proof import Divided, Nothing, TooMany, Weighed, capacity, lean, verified
from muster.engine.exact.trees.search import Selection, TreeSearch
from muster.engine.exact.work import Budget

CLASSES = 3


@st.composite
def parts(draw: st.DrawFn) -> Part:
    classes = draw(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=2, unique=True))
    bounds = [sorted(draw(st.tuples(st.integers(0, 1), st.integers(0, 2)))) for _ in classes]
    return Part(
        tuple(classes), tuple(low for low, _ in bounds), tuple(high for _, high in bounds), draw(st.integers(0, 3))
    )


@st.composite
def chooses(draw: st.DrawFn, depth: int) -> Choose:
    kinds, members = [], 0
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(1, 2))
        slots = []
        for _ in range(draw(st.integers(1, 2))):
            of: Node = draw(chooses(depth - 1)) if depth and draw(st.booleans()) else draw(parts())
            low, high = sorted(draw(st.tuples(st.integers(0, 1), st.integers(0, 2))))
            slots.append(Slot(of, low, high))
        kinds.append(Kind(tuple(range(members, members + number)), tuple(slots)))
        members += number
    return Choose(tuple(kinds), draw(st.integers(0, 3)))


def every(node: Node) -> Iterator[Counts]:
    """The pods of every choice, by trying everything; equal children may choose differently inside."""
    if isinstance(node, Part):
        for amounts in product(*(range(low, high + 1) for low, high in zip(node.low, node.high, strict=True))):
            if sum(amounts) >= node.need:
                yield total([one_hot(at, amount) for at, amount in zip(node.classes, amounts, strict=True)])
        return
    inside = [[sorted(set(every(slot.of))) for slot in kind.slots] for kind in node.kinds]
    ranges = [range(slot.low, slot.high + 1) for kind in node.kinds for slot in kind.slots]
    for numbers in product(*ranges):
        left, chosen = iter(numbers), list[list[Counts]]()
        by_kind = [[next(left) for _ in kind.slots] for kind in node.kinds]
        if sum(numbers) < node.least:
            continue
        if any(sum(found) > len(kind.members) for found, kind in zip(by_kind, node.kinds, strict=True)):
            continue
        for found, ways in zip(by_kind, inside, strict=True):
            chosen += [way for number, way in zip(found, ways, strict=True) for _ in range(number)]
        for each in product(*chosen):
            yield total(list(each))


def total(parts: list[Counts]) -> Counts:
    return tuple(sum(part[at] for part in parts) for at in range(CLASSES))


def one_hot(at: int, amount: int) -> Counts:
    return tuple(amount if each == at else 0 for each in range(CLASSES))


@settings(max_examples=80, deadline=None)
@given(chooses(1), st.tuples(*[st.integers(-2, 4)] * CLASSES))
def test_the_cheapest_choice_is_that_of_trying_everything(tree: Choose, costs: tuple[int, ...]) -> None:
    choices = [sum(cost * number for cost, number in zip(costs, pods, strict=True)) for pods in every(tree)]

    found = cheapest(tree, costs)

    assert (None if found is None else found[0]) == min(choices, default=None)
    if found is not None:
        pods = pods_of(tree, found[1], CLASSES)
        assert sum(cost * number for cost, number in zip(costs, pods, strict=True)) == found[0]


@settings(max_examples=60, deadline=None)
@given(chooses(1))
def test_tighter_bounds_leave_the_same_choices_and_cases_cover_all(tree: Choose) -> None:
    choices, bounded = set(every(tree)), tightened(tree, is_least=False)

    if bounded is None:
        assert choices == set()
        return
    assert set(every(bounded)) == choices
    for one in list(opened(bounded))[:2]:
        fewer, more = divide(bounded, one.where, one.low)
        assert set(every(fewer)) | set(every(more)) == choices
    where = crowded(bounded)
    if where is not None:
        assert set(every(unfolded(bounded, where))) == choices
    assert not is_settled(bounded) or len(choices) == 1


@settings(max_examples=60, deadline=None)
@given(chooses(1))
def test_only_what_is_enough_is_in_every_larger_choice(tree: Choose) -> None:
    bounded = tightened(tree, is_least=True)
    least = set() if bounded is None else set(every(bounded))

    assert all(any(covers(large, small) for small in least) for large in every(tree))


def covers(large: Counts, small: Counts) -> bool:
    return all(map(int.__ge__, large, small))


def problem_of(nodes: list[tuple[int, int]]) -> Problem:
    """Nodes (free, how many) for pods that request 2, 3 and 5."""
    free = np.array([[size] for size, _ in nodes], dtype=np.int64)
    requests, demand = np.array([[2], [3], [5]], dtype=np.int64), np.full(CLASSES, 12, dtype=np.int64)
    numbers = np.array([number for _, number in nodes], dtype=np.int64)
    return Problem(requests, demand, free, free // requests.T, numbers, np.zeros_like(demand), ("cpu",))


def packs(problem: Problem, pods: Counts) -> bool:
    """Bin packing by trying everything."""
    free = np.repeat(problem.free[:, 0], problem.nodes).tolist()
    sizes = sorted((size for size, n in zip([2, 3, 5], pods, strict=True) for _ in range(n)), reverse=True)

    def place(at: int, left: tuple[int, ...]) -> bool:
        if at == len(sizes):
            return True
        return any(
            have >= sizes[at] and place(at + 1, tuple(sorted((*left[:node], have - sizes[at], *left[node + 1 :]))))
            for node, have in enumerate(left)
        )

    return place(0, tuple(sorted(free)))


@settings(max_examples=60, deadline=None)
@given(chooses(1), st.lists(st.tuples(st.integers(2, 9), st.integers(1, 2)), min_size=1, max_size=2))
def test_the_search_finds_a_choice_that_fits_or_a_proof_that_holds(tree: Choose, nodes: list[tuple[int, int]]) -> None:
    problem = problem_of(nodes)
    truth = any(packs(problem, pods) for pods in set(every(tree)))

    def fits(selection: Selection) -> bool:
        return packs(problem, pods_of(selection.tree, selection.pick, CLASSES))

    search = TreeSearch(problem, fits, Budget(10_000_000), is_least=True)
    proof = search.any_choice(tree)

    assert (search.found is not None) == truth
    if search.found is None:
        assert proof is not None
        assert verified(problem, tree, proof, frozenset(search.too_many), is_least=True)


def test_proofs_that_say_too_much_are_refused() -> None:
    problem = problem_of([(6, 2)])
    tree = Choose((Kind((0, 1), (Slot(Part((2,), (0,), (2,), 2), 0, 2),)),), 2)  # four pods of 5, room for two
    unit = 1 << 20
    good = Weighed((0, 0, unit), (unit,))

    assert capacity(problem, good.heaviest) == 2 * unit
    assert verified(problem, tree, good, frozenset(), is_least=True)
    assert lean(problem, tree, Weighed((unit // 4, unit // 4, unit), (unit,))) == Weighed((0, 0, unit), (unit,))
    assert not verified(problem, tree, replace(good, heaviest=(unit // 2,)), frozenset(), is_least=True)
    assert not verified(problem, tree, replace(good, weights=(0, 0, -unit)), frozenset(), is_least=True)
    assert not verified(problem, tree, replace(good, weights=(unit,)), frozenset(), is_least=True)
    assert not verified(problem, tree, Nothing(), frozenset(), is_least=True)
    assert not verified(problem, tree, TooMany((0, 0, 4), True), frozenset(), is_least=True)
    assert verified(problem, tree, TooMany((0, 0, 4), True), frozenset({(0, 0, 4)}), is_least=True)
    assert not verified(problem, tree, TooMany((0, 0, 5), True), frozenset({(0, 0, 5)}), is_least=True)
    roomy = problem_of([(6, 4)])
    halves = Divided(((0, 0),), 1, Nothing(), good)
    assert not verified(roomy, replace(tree, least=1), halves, frozenset(), is_least=True)
