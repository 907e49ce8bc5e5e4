"""The families of the bench of exact placement in which groups get into each other's way, and what others do there."""

from __future__ import annotations

import pytest

from muster.cli.bench.exact import measure
from muster.cli.bench.outcome import row
from muster.cli.bench.ruled import PLANTED_RULED, planted_ruled
from muster.cli.bench.several import interleaved, k_of_n, measure_interleaved, measure_k_of_n, nine_of_ten


@pytest.mark.parametrize("shapes", [2, 4])
def test_one_of_two_gangs_that_come_by_turns_is_placed_whole_and_the_other_holds_nothing(shapes: int) -> None:
    outcome = measure_interleaved(interleaved(12, shapes, 300))

    assert (outcome.answer, outcome.wrong) == ("Placed", False)
    assert not outcome.ffd
    assert outcome.held > 0


@pytest.mark.parametrize("seed", range(4))
def test_gang_of_ten_of_which_nine_fit_is_refused_and_would_hold_places_pod_by_pod(seed: int) -> None:
    outcome = measure(nine_of_ten(1 + seed, 300 + seed))

    assert (outcome.answer, outcome.wrong) == ("Infeasible", False)
    assert outcome.held > 0


def test_enough_groups_of_a_tree_are_chosen_where_the_first_do_not_fit() -> None:
    trees = [k_of_n(seed) for seed in range(400, 416)]
    outcomes = [measure_k_of_n(tree) for tree in trees]

    assert not any(outcome.wrong for outcome in outcomes)
    assert {outcome.answer for outcome in outcomes} == {"Placed", "Infeasible"}
    assert not all(outcome.upstream for outcome, tree in zip(outcomes, trees, strict=True) if tree.fits)


@pytest.mark.parametrize(
    "kind", [each for each in PLANTED_RULED if each.rule == "one rack"], ids=lambda kind: kind.name
)
def test_group_goes_to_the_only_rack_that_holds_it(kind: object) -> None:
    instance = planted_ruled(next(each for each in PLANTED_RULED if each is kind), 32, 4, 300)

    outcome = measure(instance)

    assert (outcome.answer == "Placed", outcome.wrong) == (bool(instance.fits), False)


def test_row_counts_answers_and_what_others_do() -> None:
    outcomes = [measure(nine_of_ten(2, seed)) for seed in range(500, 503)]

    found = row("nine of ten", "10", outcomes)

    assert (found["instances"], found["proved"], found["placed"], found["upstream_places"]) == (3, 3, 0, 0)
    assert found["ffd_holds_pods"] == sum(outcome.held for outcome in outcomes)
    assert found["max_ms"] >= found["p99_ms"] >= found["p50_ms"]
